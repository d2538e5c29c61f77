//! Access rules: single cases. The seeds of `harness` have servers with rules that allow everything; these must reply
//! as servers without rules do.

use beanstalkd::access::{AccessRules, Peer, TokenHash};
use beanstalkd_queue::PoisonLimits;
use beanstalkd_types::clock::NS_PER_S;

use beanstalkd_testkit::simulated::{Connection, SimulatedServer, executor, hand_over};

/// The user of the operator, which may do everything.
pub const OPERATOR: Peer = Peer::Unix(Some(0));
/// The user that may do everything in tubes whose names begin with `a`.
pub const ANNA: Peer = Peer::Unix(Some(1));

fn rules() -> String {
    let all = |pattern: &str| {
        ["produce", "work", "observe", "manage"].map(|role| format!("{role} = [\"{pattern}\"]\n")).concat()
    };
    let hash = TokenHash::of(b"a-token-of-anna-that-is-long-enough");
    format!(
        "[identities.operator]\nunix-users = [0]\n{}[identities.anna]\nunix-users = [1]\ntokens = [\"{hash}\"]\n{}",
        all("*"),
        all("a*")
    )
}

fn parsed(rules: &str) -> AccessRules {
    AccessRules::parse(rules, &|_| None).unwrap()
}

/// A server with these rules.
pub fn guarded(rules: &str) -> SimulatedServer {
    let mut executor = executor(PoisonLimits::default(), 1000);
    executor.guard_with(parsed(rules));
    SimulatedServer::new(executor)
}

/// Puts other rules in force, without a turn.
pub fn replace_rules(server: &mut SimulatedServer, rules: &str) {
    server.server.replace_rules(parsed(rules), server.now);
}

/// Another program with these rules takes over the server and its clients.
pub fn hand_over_to<'a>(
    rules: &str,
    server: &mut SimulatedServer,
    clients: impl IntoIterator<Item = &'a Connection, IntoIter: Clone>,
) {
    let next = guarded(rules).server;
    hand_over(&mut server.server, next, clients.into_iter(), false, server.now);
}

#[test]
fn a_client_that_nobody_has_identified_may_do_nothing() {
    let mut server = guarded(&rules());
    let client = server.connect();
    assert_eq!(server.say(&client, "list-tubes\r\nput 0 0 1 1\r\nx\r\n"), "FORBIDDEN\r\nFORBIDDEN\r\n");
    let token = "auth a-token-of-anna-that-is-long-enough\r\nlist-tubes\r\n";
    assert_eq!(server.say(&client, token), "UNAUTHORIZED\r\n", "where it comes from is not known");
}

#[test]
fn a_client_in_the_place_of_another_does_not_inherit_its_rights() {
    let mut server = guarded(&rules());
    let first = server.connect_as(OPERATOR);
    assert_eq!(server.say(&first, "put 0 0 1 1\r\nx\r\nquit\r\n"), "INSERTED 1\r\n");
    let second = server.connect();
    assert_eq!(second.id.index, first.id.index);
    assert_eq!(server.say(&second, "peek 1\r\nput 0 0 1 1\r\nx\r\n"), "FORBIDDEN\r\nFORBIDDEN\r\n");
}

#[test]
fn a_long_list_has_the_tubes_that_may_be_seen_and_is_made_in_slices() {
    const TUBES: usize = 3000;
    let mut server = guarded(&rules());
    let operator = server.connect_as(OPERATOR);
    let name = |number: usize| format!("{}{number:06}", if number.is_multiple_of(3) { "a" } else { "b" });
    let watches: String = (0..TUBES).map(|number| format!("watch {}\r\n", name(number))).collect();
    server.say(&operator, &watches);
    let anna = server.connect_as(ANNA);
    let (list, turns) = server.say_and_count_turns(&anna, "list-tubes\r\n");
    let expected: Vec<String> = (0..TUBES).map(name).filter(|name| name.starts_with('a')).collect();
    let listed: Vec<&str> = list.lines().filter_map(|line| line.strip_prefix("- ")).collect();
    assert_eq!(listed, expected);
    assert_eq!(list.split("\r\n").next(), Some(format!("OK {}", 4 + 10 * expected.len()).as_str()));
    assert!(turns > TUBES / 256, "{turns} turns");
    let (stats, turns) = server.say_and_count_turns(&anna, "stats\r\n");
    assert!(stats.contains(&format!("\ncurrent-tubes: {}\n", expected.len())), "{stats}");
    assert!(turns > TUBES / 256, "{turns} turns");
}

#[test]
fn tubes_that_a_client_has_no_right_to_any_more_leave_its_watch_list_in_slices() {
    const TUBES: usize = 2000;
    let mut server = guarded(&rules());
    let client = server.connect_as(OPERATOR);
    let watches: String =
        (0..TUBES).map(|number| format!("watch b{number}\r\nwatch a{number}\r\n")).collect();
    server.say(&client, &watches);
    server.say(&client, "use b1\r\nput 0 0 1 1\r\nx\r\nuse a1\r\nput 9 0 1 1\r\ny\r\n");
    let login = server.say(&client, "auth a-token-of-anna-that-is-long-enough\r\n");
    assert_eq!(login, "AUTHENTICATED\r\n");
    let (reply, turns) = server.say_and_count_turns(&client, "reserve-batch 9\r\nignore none\r\n");
    assert_eq!(reply, format!("RESERVED_BATCH 1\r\nRESERVED 2 1\r\ny\r\nWATCHING {TUBES}\r\n"));
    assert!(turns > TUBES / 256, "{turns} turns");
    server.queue().check_invariants();
}

#[test]
fn ids_of_a_batch_are_judged_one_by_one() {
    let mut server = guarded(&rules());
    let (operator, anna) = (server.connect_as(OPERATOR), server.connect_as(ANNA));
    for number in 0..1000 {
        let tube = if number % 2 == 0 { "a" } else { "b" };
        server.say(&operator, format!("use {tube}\r\nput 0 0 1 1\r\nx\r\n"));
    }
    let ids: String = (1..=1000).map(|id| format!(" {id}")).collect();
    assert_eq!(server.say(&anna, format!("delete-batch{ids}\r\n")), "DELETED_BATCH 500 500\r\n");
    assert_eq!(server.queue().figures().jobs.ready, 500);
}

/// A server with one identity, whose user has the number 1, with these lines in its table.
fn server_with(lines: &str) -> SimulatedServer {
    guarded(&format!("[identities.team]\nunix-users = [1]\nproduce = [\"*\"]\nwork = [\"*\"]\n{lines}\n"))
}

#[test]
fn puts_that_come_too_fast_wait_and_are_all_done_in_the_order_in_which_they_came() {
    let mut server = server_with("puts-per-second = 2");
    let (first, second) = (server.connect_as(ANNA), server.connect_as(ANNA));
    let puts = "put 0 0 1 1\r\nx\r\n".repeat(4);
    assert_eq!(server.say(&first, &puts), "INSERTED 1\r\nINSERTED 2\r\n");
    // A client that only works is not delayed.
    assert_eq!(server.say(&second, "put 0 0 1 1\r\ny\r\n"), "");
    let other = server.connect_as(ANNA);
    assert_eq!(server.say(&other, "reserve\r\n"), "RESERVED 1 1\r\nx\r\n");
    let mut replies = Vec::new();
    for _ in 0..3 {
        let at = server.next_turn_at().expect("a put waits");
        assert_eq!(at.since_ns(server.now) % 500_000_000, 0, "one each half second");
        server.now = at;
        server.turn([]);
        replies.push((first.received(), second.received()));
    }
    let (inserted3, inserted4) = ("INSERTED 3\r\n".to_owned(), "INSERTED 5\r\n".to_owned());
    assert_eq!(replies[0], (inserted3, String::new()));
    assert_eq!(replies[1], (String::new(), "INSERTED 4\r\n".to_owned()));
    assert_eq!(replies[2], (inserted4, String::new()));
    assert!(!server.say(&other, "stats\r\n").contains("identity-puts-delayed: 0\n"));
}

#[test]
fn a_put_that_waits_ends_with_its_client_and_those_behind_it_come_sooner() {
    let mut server = server_with("puts-per-second = 1");
    let (first, second) = (server.connect_as(ANNA), server.connect_as(ANNA));
    assert_eq!(server.say(&first, "put 0 0 1 1\r\nx\r\nput 0 0 1 1\r\nx\r\n"), "INSERTED 1\r\n");
    first.break_off();
    server.turn([&first]);
    assert_eq!(server.client_count(), 1, "the broken connection is gone");
    server.now = server.now + NS_PER_S;
    assert_eq!(server.say(&second, "put 0 0 1 1\r\nx\r\n").lines().count(), 1);
}

#[test]
fn the_jobs_of_an_identity_have_a_bound_in_bytes_that_deletes_make_room_in() {
    // Each job counts its body and 128 bytes.
    let mut server = server_with("max-job-bytes = 400");
    let (client, other) = (server.connect_as(ANNA), server.connect_as(ANNA));
    let put = |size: usize| format!("put 0 0 1 {size}\r\n{}\r\n", "x".repeat(size));
    assert_eq!(server.say(&client, put(100)), "INSERTED 1\r\n");
    assert_eq!(server.say(&client, put(45)), "OUT_OF_MEMORY\r\n");
    assert_eq!(server.say(&client, put(44)), "INSERTED 2\r\n");
    assert!(server.say(&client, "stats\r\n").contains("\nidentity-job-bytes: 400\n"));
    assert_eq!(server.say(&client, "put 0 0 1 0 idp:k\r\n\r\n"), "OUT_OF_MEMORY\r\n");
    assert_eq!(server.say(&client, "delete 1\r\n"), "DELETED\r\n");
    // Both lines are accepted, and there is room for one of the bodies.
    assert_eq!(server.say(&client, "put 0 0 1 10\r\n01234"), "");
    assert_eq!(server.say(&other, "put 0 0 1 10\r\n01234"), "");
    assert_eq!(server.say(&other, "56789\r\n"), "INSERTED 4\r\n");
    assert_eq!(server.say(&client, "56789\r\n"), "OUT_OF_MEMORY\r\n");
    assert_eq!(
        server.say(&client, "reserve-job 2\r\ndelete-batch 2 4\r\n").lines().last(),
        Some("DELETED_BATCH 2 0")
    );
    assert!(server.say(&client, "stats\r\n").contains("\nidentity-job-bytes: 0\n"));
    server.queue().check_invariants();
}

#[test]
fn connections_above_the_limit_get_a_reply_that_says_so_and_are_closed() {
    let mut server = server_with(&format!(
        "max-connections = 1\ntokens = [\"{}\"]",
        TokenHash::of(b"a-token-of-the-team-that-is-long-enough")
    ));
    let first = server.connect_as(ANNA);
    let second = server.connect_as(ANNA);
    assert_eq!(server.say(&second, "list-tubes\r\n"), "TOO_MANY_CONNECTIONS\r\n");
    let anonymous = server.connect_as(Peer::Unix(Some(7)));
    let login = "auth a-token-of-the-team-that-is-long-enough\r\nlist-tubes\r\n";
    assert_eq!(server.say(&anonymous, login), "TOO_MANY_CONNECTIONS\r\n");
    assert_eq!(server.client_count(), 1);
    assert_eq!(server.say(&first, "list-tube-used\r\nquit\r\n"), "USING default\r\n");
    let next = server.connect_as(Peer::Unix(Some(7)));
    assert_eq!(server.say(&next, login).lines().next(), Some("AUTHENTICATED"));
}

#[test]
fn a_client_that_logs_in_as_another_gives_its_place_to_the_next() {
    let hash = TokenHash::of(b"a-token-of-another-that-is-long-enough");
    let mut server = server_with(&format!("max-connections = 1\n[identities.other]\ntokens = [\"{hash}\"]"));
    let first = server.connect_as(ANNA);
    let login = "auth a-token-of-another-that-is-long-enough\r\n";
    assert_eq!(server.say(&first, login), "AUTHENTICATED\r\n");
    for expected in ["USING default\r\n", "TOO_MANY_CONNECTIONS\r\n"] {
        let next = server.connect_as(ANNA);
        assert_eq!(server.say(&next, "list-tube-used\r\n"), expected);
    }
}

#[test]
fn other_rules_count_from_the_next_command_on_and_end_waits_for_what_is_lost() {
    let mut server = guarded(&rules());
    let (operator, anna) = (server.connect_as(OPERATOR), server.connect_as(ANNA));
    let token = server.connect_as(Peer::Unix(Some(7)));
    assert_eq!(server.say(&token, "auth a-token-of-anna-that-is-long-enough\r\n"), "AUTHENTICATED\r\n");
    server.say(&token, "use a1\r\nput 5 0 60 1\r\nx\r\n");
    assert_eq!(
        server.say(&anna, "watch a1\r\nwatch a2\r\nuse a1\r\nreserve\r\n"),
        "WATCHING 1\r\nWATCHING 2\r\nUSING a1\r\nRESERVED 1 1\r\nx\r\n"
    );
    assert_eq!(server.say(&anna, "reserve\r\n"), "");
    assert_eq!(server.say(&operator, "watch b\r\nreserve\r\n"), "WATCHING 2\r\n");
    // Anna keeps a2; her token no longer exists.
    let rules = "[identities.operator]\nunix-users = [0]\nwork = [\"*\"]\n\
                 [identities.anna]\nunix-users = [1]\nwork = [\"a2\"]\n";
    replace_rules(&mut server, rules);
    server.turn([]);
    assert_eq!(anna.received(), "TIMED_OUT\r\n");
    assert_eq!(operator.received(), "", "a client that may go on waiting waits");
    assert_eq!(
        server.say(&anna, "delete 1\r\nput 0 0 1 1\r\nx\r\npeek 1\r\n"),
        "NOT_FOUND\r\nFORBIDDEN\r\nNOT_FOUND\r\n"
    );
    assert_eq!(
        server.say(&anna, "reserve-with-timeout 0\r\nlist-tubes-watched\r\n"),
        "TIMED_OUT\r\nOK 9\r\n---\n- a2\n\r\n"
    );
    assert_eq!(server.say(&token, "list-tube-used\r\n"), "FORBIDDEN\r\n");
    server.queue().check_invariants();
}

#[test]
fn a_wait_for_a_job_shows_a_burial_unless_the_tube_is_hidden() {
    // The operator's commands are executed in one turn, before the reply to the client that waits.
    for (end, expected) in [
        ("bury 1 0\r\n", "BURIED 1\r\n"),
        ("bury 1 0\r\ndelete 1\r\n", "BURIED 1\r\n"),
        ("move 1 hidden\r\nbury 1 0\r\n", "NOT_FOUND\r\n"),
        ("delete 1\r\n", "DELETED 1\r\n"),
    ] {
        let mut server = guarded(&rules());
        let (operator, anna) = (server.connect_as(OPERATOR), server.connect_as(ANNA));
        server.say(&operator, "use a1\r\nput 0 0 60 1\r\nx\r\nreserve-job 1\r\n");
        assert_eq!(server.say(&anna, "wait-job 1\r\n"), "");
        server.say(&operator, end);
        assert_eq!(anna.received(), expected, "{end:?}");
    }
}
