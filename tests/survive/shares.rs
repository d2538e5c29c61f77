//! The share of the memory that one client can take with cooldowns, watch lists and jobs of which most are gone.

use std::path::Path;

use rustix::process::Signal;

use beanstalkd_testkit::panicking::{Client, Server};

const MIB: usize = 1 << 20;

#[test]
fn the_memory_limit_holds_when_one_id_in_64_stays() {
    const BOUND: usize = 8 * MIB;
    let server = Server::start(&["--max-memory", "8m"]);
    let before = server.usage().memory();
    let mut client = server.connect();
    assert_eq!(client.ask("put 0 0 60 1 idp:k\r\nx"), "INSERTED 1");
    // Each duplicate uses up an id.
    let batch = ("put 0 0 60 1 idp:k\r\nx\r\n".repeat(63) + "put 0 0 60 1\r\nx\r\n").repeat(32);
    let mut stored = 0;
    while stored < 1_000_000 {
        client.send(&batch);
        let replies: Vec<String> = (0..64 * 32).map(|_| client.line()).collect();
        if replies.iter().any(|reply| reply == "OUT_OF_MEMORY") {
            break;
        }
        stored += 32;
    }
    assert!(stored > BOUND / 300, "{stored} jobs: each takes less than 300 bytes");
    let growth = server.usage().peak_memory() - before;
    assert!(growth < BOUND / 8 * 9 + 4 * MIB, "{growth} bytes for {stored} jobs");
}

/// Puts and deletes jobs that leave cooldowns behind until a put is refused; returns how many there were.
fn fill_with_cooldowns(client: &mut Client) -> u64 {
    for number in 0.. {
        let key = format!("{number:0>180}");
        let reply = client.ask(&format!("put 0 0 60 1 idp:{key}:4000000000\r\nx"));
        if reply == "OUT_OF_MEMORY" {
            return number;
        }
        let id = reply.strip_prefix("INSERTED ").unwrap_or_else(|| panic!("{reply}"));
        if number == 0 {
            assert_eq!(client.data(&format!("stats-job {id}"))["idempotency-ttl"], "2592000", "30 days");
        }
        assert_eq!(client.ask(&format!("delete {id}")), "DELETED");
    }
    unreachable!("the share is used up before")
}

fn start_with_binlog(directory: &Path, flags: &[&str]) -> Server {
    Server::start(&[&["-b", directory.to_str().unwrap()], flags].concat())
}

#[test]
fn cooldowns_have_a_share_of_the_memory_and_other_puts_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let server = start_with_binlog(directory.path(), &["--max-memory", "8m"]);
    let mut client = server.connect();
    assert_eq!(client.ask("use t"), "USING t");
    let count = fill_with_cooldowns(&mut client);
    assert!((1_000..1_500).contains(&count), "{count} cooldowns in half a mebibyte");
    assert_eq!((client.stat("current-cooldowns"), client.stat("rejected-puts")), (count, 1));
    assert!(client.stat("cooldown-bytes") <= (MIB / 2) as u64);
    assert_eq!(client.data("stats-tube t")["current-cooldowns"], count.to_string());
    // A duplicate needs no room, and neither does a job without seconds.
    let known = format!("put 0 0 60 1 idp:{:0>180}:60\r\nx", 7);
    assert!(client.ask(&known).ends_with(" DELETED"));
    assert!(client.ask("put 0 0 60 1 idp:k\r\nx").starts_with("INSERTED "));
    assert!(client.ask("put 0 0 60 1\r\nx").starts_with("INSERTED "));
    assert_eq!(client.ask("put 0 0 60 1 idp:l:1\r\nx"), "OUT_OF_MEMORY");
    drop(client);
    server.signal(Signal::KILL);
    drop(server);
    // A log with more cooldowns than the share still starts.
    let server = start_with_binlog(directory.path(), &["--max-cooldown-memory", "100k"]);
    let mut client = server.connect();
    assert_eq!(client.ask("use t"), "USING t");
    assert_eq!(client.stat("current-cooldowns"), count);
    assert!(client.ask(&known).ends_with(" DELETED"));
    assert_eq!(client.ask("put 0 0 60 1 idp:l:1\r\nx"), "OUT_OF_MEMORY");
    assert_eq!(client.ask("flush-tube t"), "FLUSHED 2");
    assert_eq!((client.stat("current-cooldowns"), client.stat("cooldown-bytes")), (0, 0));
    assert!(client.ask("put 0 0 60 1 idp:l:1\r\nx").starts_with("INSERTED "));
}

#[test]
fn jobs_that_ask_for_cooldowns_have_their_part_of_the_share() {
    let server = Server::start(&["--max-cooldown-memory", "1000", "--max-cooldown", "0"]);
    let mut client = server.connect();
    for number in 1..=5 {
        let reply = client.ask(&format!("put 0 0 60 1 idp:{number}:4000000000\r\nx"));
        assert_eq!(reply, format!("INSERTED {number}"));
    }
    assert_eq!(client.data("stats-job 1")["idempotency-ttl"], "4000000000", "there is no limit");
    assert_eq!((client.stat("cooldown-bytes"), client.stat("cooldown-bytes-reserved")), (0, 5 * 193));
    assert_eq!(client.ask("put 0 0 60 1 idp:6:1\r\nx"), "OUT_OF_MEMORY");
    // The delete changes nothing in the sum.
    assert_eq!(client.ask("delete 1"), "DELETED");
    assert_eq!((client.stat("cooldown-bytes"), client.stat("cooldown-bytes-reserved")), (193, 4 * 193));
    assert_eq!(client.ask("put 0 0 60 1 idp:6:1\r\nx"), "OUT_OF_MEMORY");
    assert_eq!(client.ask("flush-tube default"), "FLUSHED 4");
    assert_eq!(client.ask("put 0 0 60 1 idp:6:1\r\nx"), "INSERTED 8");
}

#[test]
fn watch_lists_have_a_limit() {
    let server = Server::start(&["--max-watched-tubes", "3"]);
    let mut client = server.connect();
    assert_eq!(client.ask("watch a"), "WATCHING 2");
    assert_eq!(client.ask("watch b 7"), "WATCHING 3");
    assert_eq!(client.ask("watch c"), "OUT_OF_MEMORY");
    assert_eq!(client.ask("watch b 9"), "WATCHING 3", "it is watched already");
    assert_eq!(client.ask("ignore a"), "WATCHING 2");
    assert_eq!(client.ask("watch c"), "WATCHING 3");
    assert_eq!(server.connect().ask("watch d"), "WATCHING 2", "each connection has its own list");
}

const RULES: &str = "[strangers.unix]\nproduce = [\"*\"]\nwork = [\"*\"]\nobserve = [\"*\"]\n";

fn start_with_rules(directory: &Path, more: &str, flags: &[&str]) -> Server {
    let rules = directory.join("access.toml");
    std::fs::write(&rules, format!("{RULES}{more}\n")).unwrap();
    Server::start(&[&["--access", rules.to_str().unwrap()], flags].concat())
}

#[test]
fn stats_are_answered_at_the_memory_limit_however_few_tubes_the_client_may_see() {
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("access.toml");
    std::fs::write(&rules, "[strangers.unix]\nproduce = [\"seen-*\"]\n").unwrap();
    let server = Server::start(&["--access", rules.to_str().unwrap(), "--max-memory", "1m"]);
    let mut client = server.connect();
    let mut jobs = 0;
    for number in 0.. {
        client.ask(&format!("use seen-{}", number % 20));
        let reply = client.ask(&format!("put 0 0 60 10000\r\n{}", "x".repeat(10_000)));
        if reply == "OUT_OF_MEMORY" {
            break;
        }
        jobs += 1;
    }
    assert_eq!(client.stat("current-jobs-ready"), jobs);
    assert_eq!(client.ask("list-tubes").split(' ').next(), Some("OK"), "a short list takes no memory");
}

/// How many tubes two connections can watch together.
fn watched_together(server: &Server) -> usize {
    let mut clients = [server.connect(), server.connect()];
    let mut watched = clients.len();
    for number in 0.. {
        let reply = clients[number % 2].ask(&format!("watch t{number}"));
        if reply == "OUT_OF_MEMORY" {
            assert_eq!(clients[1 - number % 2].ask("watch another"), "OUT_OF_MEMORY");
            break;
        }
        watched += 1;
    }
    // A client that leaves makes room.
    clients[0].ask("ignore t0");
    assert!(clients[1].ask("watch another").starts_with("WATCHING"));
    watched
}

#[test]
fn the_watch_lists_of_an_identity_have_a_limit_together() {
    let directory = tempfile::tempdir().unwrap();
    let server = start_with_rules(directory.path(), "max-watched-tubes = 10", &[]);
    assert_eq!(watched_together(&server), 10);
    let server = start_with_rules(directory.path(), "", &["--max-memory", "4m"]);
    assert_eq!(watched_together(&server), 4 * MIB / 16 / 512, "a sixteenth of the memory");
    // Others still make tubes.
    assert_eq!(server.connect().ask("use another-one"), "USING another-one");
}

#[test]
fn tags_and_the_tubes_and_groups_that_jobs_make_count_for_their_identity() {
    let directory = tempfile::tempdir().unwrap();
    let server = start_with_rules(directory.path(), "max-job-bytes = \"64k\"", &[]);
    let mut client = server.connect();
    let name = |kind: usize, number: usize| format!("{kind}{number:0>180}");
    let refused = (0..1_000).find(|&number| {
        let line = format!(
            "put 0 0 60 1 idp:{} con:{} grp:{} aft:{}\r\nx",
            name(1, number),
            name(2, number),
            name(3, number),
            name(4, number)
        );
        client.ask(&line) == "OUT_OF_MEMORY"
    });
    let refused = refused.expect("the tags count");
    assert!((40..64).contains(&refused), "{refused} jobs with tags of 740 bytes and a group in 64 KiB");
    for id in 1..=refused + 1 {
        client.ask(&format!("delete {id}"));
    }
    assert_eq!(client.stat("identity-job-bytes"), 0);
    let refused = (0..1_000).find(|&number| {
        client.ask(&format!("use {}", name(5, number)));
        client.ask("put 0 0 60 1\r\nx") == "OUT_OF_MEMORY"
    });
    let refused = refused.expect("the tubes count");
    assert!((80..110).contains(&refused), "{refused} tubes with a job in 64 KiB");
}
