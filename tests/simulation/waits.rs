//! A server with a binlog, and the replies that wait for its syncs. The server must send each reply, but none before
//! its records are on the medium.

use beanstalkd_binlog::SyncPolicy;
use beanstalkd_queue::TubeRule;
use beanstalkd_types::clock::NS_PER_S;

use beanstalkd_testkit::disk::SimDisk;
use beanstalkd_testkit::random::Random;
use beanstalkd_testkit::simulated::{Connection, SimulatedServer};

const SYNCS: [SyncPolicy; 2] = [SyncPolicy::EachCommit, SyncPolicy::Every(50)];

/// The reply to a waiting worker after `happen`. `prepare` is done before the worker waits.
fn answer_after(
    sync: SyncPolicy,
    prepare: [&str; 2],
    wait: &str,
    happen: impl Fn(&mut SimulatedServer, &Connection, &Connection),
) -> String {
    let mut harness = SimulatedServer::start_on(SimDisk::default(), sync, 65_536);
    let [other, worker] = harness.connect_each();
    harness.say(&other, prepare[0]);
    harness.say(&worker, prepare[1]);
    assert_eq!(harness.say(&worker, wait), "", "{sync:?}: the worker waits");
    happen(&mut harness, &other, &worker);
    harness.turn([&other, &worker]);
    while harness.help() {}
    worker.received()
}

#[test]
fn a_client_that_waits_is_answered_whatever_ends_its_wait_and_at_every_sync_policy() {
    const PUT: &str = "put 0 0 10 1\r\nx\r\n";
    let says = |command: &'static str| {
        move |_: &mut SimulatedServer, other: &Connection, _: &Connection| {
            other.send(command.as_bytes());
        }
    };
    let passes = |seconds| {
        move |harness: &mut SimulatedServer, _: &Connection, _: &Connection| {
            harness.now = harness.now.plus_seconds(seconds);
        }
    };
    let leaves = |_: &mut SimulatedServer, other: &Connection, _: &Connection| other.end();
    let half_closes = |_: &mut SimulatedServer, _: &Connection, worker: &Connection| worker.end();
    let job = "RESERVED 1 1\r\nx\r\n";
    let held = "put 0 0 10 1\r\nx\r\nreserve\r\n";
    let buried = "put 0 0 10 1\r\nx\r\nreserve\r\nbury 1 0\r\n";
    for sync in SYNCS {
        let case = |name: &str,
                    prepare: [&str; 2],
                    wait: &str,
                    happen: &dyn Fn(&mut SimulatedServer, &Connection, &Connection),
                    expected: &str| {
            assert_eq!(answer_after(sync, prepare, wait, happen), expected, "{name}, {sync:?}");
        };
        case("put", ["", ""], "reserve\r\n", &says(PUT), job);
        case("release", [held, ""], "reserve\r\n", &says("release 1 0 0\r\n"), job);
        case("kick", [buried, ""], "reserve\r\n", &says("kick 1\r\n"), job);
        case("kick-job", [buried, ""], "reserve\r\n", &says("kick-job 1\r\n"), job);
        case("the holder of the job disconnects", [held, ""], "reserve\r\n", &leaves, job);
        case("the TTR of the job ends", [held, ""], "reserve\r\n", &passes(10), job);
        case("the delay of the job ends", ["put 0 5 10 1\r\nx\r\n", ""], "reserve\r\n", &passes(5), job);
        case("TIMED_OUT", [PUT, "reserve\r\n"], "reserve-with-timeout 1\r\n", &passes(1), "TIMED_OUT\r\n");
        case("DEADLINE_SOON", [PUT, "reserve\r\n"], "reserve\r\n", &passes(9), "DEADLINE_SOON\r\n");
        let jobs = format!("RESERVED_BATCH 1\r\n{job}");
        case("a batch", ["", ""], "reserve-batch 5 100\r\n", &says(PUT), &jobs);
        case("a batch of a job that is given back", [held, ""], "reserve-batch 5 100\r\n", &leaves, &jobs);
        case("abortable", ["", ""], "reserve-with-abort\r\n", &says(PUT), job);
        case("its end", ["", ""], "reserve-with-abort\r\n", &half_closes, "TIMED_OUT\r\n");
        case("half-close", [PUT, "reserve\r\n"], "reserve\r\n", &half_closes, "TIMED_OUT\r\n");
    }
}

/// The jobs take several files, so that the kick has to wait for room.
#[test]
fn a_kick_that_is_answered_survives_a_loss_of_power_with_every_job() {
    const JOBS: u32 = 120;
    let mut harness = SimulatedServer::start_on(SimDisk::default(), SyncPolicy::EachCommit, 4096);
    let client = harness.connect();
    for id in 1..=JOBS {
        let bury = format!("put 0 0 100 1\r\nx\r\nreserve-job {id}\r\nbury {id} 0\r\n");
        assert!(harness.say(&client, &bury).ends_with("BURIED\r\n"));
    }
    client.send(b"kick 1000\r\n");
    harness.turn([&client]);
    let mut waited = 0;
    let reply = loop {
        match client.received() {
            reply if !reply.is_empty() => break reply,
            _ => assert!(harness.help(), "the kick gets a reply, or there is a task to do"),
        }
        waited += 1;
    };
    assert_eq!(reply, format!("KICKED {JOBS}\r\n"));
    assert!(waited > 1, "the kick had to wait for room");
    for seed in 0..20 {
        let image = harness.disk.crashed_image(&mut Random::new(seed));
        let mut next = SimulatedServer::start_on(image, SyncPolicy::EachCommit, 4096);
        let client = next.connect();
        let stats = next.say(&client, "stats-tube default\r\n");
        assert!(stats.contains("current-jobs-buried: 0\n"), "seed {seed}: {stats}");
        assert!(stats.contains(&format!("current-jobs-ready: {JOBS}\n")), "seed {seed}: {stats}");
    }
}

#[test]
fn a_job_that_reaches_a_waiting_client_is_on_the_medium_before_the_reply_leaves() {
    let mut harness = SimulatedServer::start_on(SimDisk::default(), SyncPolicy::EachCommit, 65_536);
    let [producer, worker] = harness.connect_each();
    harness.say(&worker, "reserve\r\n");
    producer.send(b"put 0 0 10 1\r\nx\r\n");
    harness.turn([&producer]);
    assert_eq!((worker.received(), producer.received()), (String::new(), String::new()));
    while harness.help() {}
    assert_eq!(worker.received(), "RESERVED 1 1\r\nx\r\n");
    assert_eq!(producer.received(), "INSERTED 1\r\n");
}

/// A restart makes a reserved job ready, so its reservation need not be on the medium. But without the record of its
/// first reservation a job would expire although a worker works on it.
#[test]
fn a_reservation_waits_for_earlier_records_and_only_with_an_expiry_for_its_own() {
    let mut harness = SimulatedServer::start_on(SimDisk::default(), SyncPolicy::EachCommit, 65_536);
    let client = harness.connect();
    assert_eq!(harness.say_and_wait(&client, "put 0 0 10 1\r\na\r\n"), "INSERTED 1\r\n");
    assert_eq!(harness.say_and_wait(&client, "put 1 0 10 1 exp:60\r\nb\r\n"), "INSERTED 2\r\n");
    for (request, at_once, later) in [
        ("reserve\r\n", "RESERVED 1 1\r\na\r\n", ""),
        ("reserve\r\n", "", "RESERVED 2 1\r\nb\r\n"),
        ("release 2 1 0\r\nreserve\r\n", "", "RELEASED\r\nRESERVED 2 1\r\nb\r\n"),
        ("release 2 1 0\r\n", "", "RELEASED\r\n"),
        ("reserve\r\n", "RESERVED 2 1\r\nb\r\n", ""),
    ] {
        client.send(request.as_bytes());
        harness.turn([&client]);
        assert_eq!(client.received(), at_once, "{request}");
        while harness.help() {}
        assert_eq!(client.received(), later, "{request}");
    }
    let next = harness.next_turn_at().expect("the record is to be synced");
    assert!(next > harness.now && next.since_ns(harness.now) <= 50_000_000, "a moment later");
}

/// Changes by others that have no reply yet may be lost; a job that is on the medium exists in any case. A job with
/// tags may be free because of such a change.
#[test]
fn a_reservation_of_a_plain_job_on_the_medium_waits_for_no_change_of_others() {
    let mut harness = SimulatedServer::start_on(SimDisk::default(), SyncPolicy::EachCommit, 65_536);
    let [producer, worker] = harness.connect_each();
    harness.say_and_wait(&producer, "put 1 0 10 1\r\na\r\n");
    harness.say_and_wait(&producer, "put 2 0 10 1\r\nb\r\nput 3 0 10 1 grp:g\r\nc\r\n");
    harness.say_and_wait(&producer, "put 4 0 10 1 aft:g\r\nd\r\n");
    for (changes, answers, at_once, later) in [
        ("put 9 0 10 1\r\nx\r\n", "INSERTED 5\r\n", "RESERVED 1 1\r\na\r\n", ""),
        ("put 0 0 10 1\r\ny\r\n", "INSERTED 6\r\n", "", "RESERVED 6 1\r\ny\r\n"),
        ("delete 5\r\n", "DELETED\r\n", "RESERVED 2 1\r\nb\r\n", ""),
        ("delete 3\r\n", "DELETED\r\n", "", "RESERVED 4 1\r\nd\r\n"),
    ] {
        producer.send(changes.as_bytes());
        harness.turn([&producer]);
        worker.send(b"reserve\r\n");
        harness.turn([&worker]);
        assert_eq!((producer.received(), worker.received()), (String::new(), at_once.to_owned()));
        while harness.help() {}
        assert_eq!((producer.received(), worker.received()), (answers.to_owned(), later.to_owned()));
    }
}

/// A release that is not on the medium may be the reason for a priority in the fields.
#[test]
fn a_reservation_with_fields_waits_for_the_changes_that_its_fields_show() {
    let mut harness = SimulatedServer::start_on(SimDisk::default(), SyncPolicy::EachCommit, 65_536);
    let [holder, worker] = harness.connect_each();
    harness.say_and_wait(&holder, "put 1 0 10 1\r\na\r\n");
    harness.say_and_wait(&holder, "reserve\r\n");
    harness.say_and_wait(&worker, "reserve-fields pri\r\n");
    holder.send(b"release 1 5 0\r\n");
    harness.turn([&holder]);
    worker.send(b"reserve\r\n");
    harness.turn([&worker]);
    assert_eq!((holder.received(), worker.received()), (String::new(), String::new()));
    while harness.help() {}
    assert_eq!(holder.received(), "RELEASED\r\n");
    assert_eq!(worker.received(), "RESERVED 1 1 5\r\na\r\n");
}

/// On a full disk the server refuses commands that need a record, and they change nothing. A flush makes room.
#[test]
fn a_full_disk_refuses_moves_and_new_priorities_and_a_flush_continues() {
    let mut harness = SimulatedServer::start_on(SimDisk::default(), SyncPolicy::EachCommit, 4096);
    let client = harness.connect();
    harness.say(&client, "use t\r\n");
    harness.disk.set_room(Some(harness.disk.used()));
    let mut puts = 0;
    while harness
        .say_and_wait(&client, "put 5 0 100 40\r\n0123456789012345678901234567890123456789\r\n")
        .starts_with("INSERTED")
    {
        puts += 1;
        assert!(puts < 10_000, "the disk becomes full");
    }
    // Fills the remaining room with short records.
    let mut changes = 0;
    while harness.say_and_wait(&client, "reprioritize 1 6\r\n") == "REPRIORITIZED\r\n" {
        changes += 1;
        assert!(changes < 10_000, "the disk becomes full");
    }
    assert_eq!(harness.say_and_wait(&client, "reprioritize 1 7\r\n"), "OUT_OF_MEMORY\r\n");
    assert_eq!(harness.say_and_wait(&client, "move 1 u\r\n"), "OUT_OF_MEMORY\r\n");
    let job = harness.say(&client, "stats-job 1\r\nstats-tube u\r\n");
    assert!(
        job.contains("tube: \"t\"\n") && !job.contains("pri: 7\n") && job.ends_with("NOT_FOUND\r\n"),
        "{job}"
    );
    assert_eq!(harness.say_and_wait(&client, "move 1 t\r\n"), "MOVED\r\n", "the job is in this tube already");
    assert_eq!(harness.say_and_wait(&client, "flush-tube t\r\n"), format!("FLUSHED {puts}\r\n"));
    let image = harness.disk.crashed_image(&mut Random::new(1));
    image.set_room(None);
    let mut next = SimulatedServer::start_on(image, SyncPolicy::EachCommit, 4096);
    let client = next.connect();
    assert!(next.say(&client, "stats\r\n").contains("current-jobs-ready: 0\n"));
}

#[test]
fn a_flush_that_is_answered_and_a_move_survive_a_loss_of_power() {
    const JOBS: u32 = 1_200;
    let mut harness = SimulatedServer::start_on(SimDisk::default(), SyncPolicy::EachCommit, 65_536);
    let client = harness.connect();
    harness.say(&client, "use t\r\n");
    for _ in 0..JOBS {
        harness.say(&client, "put 5 0 100 1\r\nx\r\n");
    }
    assert_eq!(harness.say(&client, "move 7 kept\r\nreprioritize 7 3\r\n"), "MOVED\r\nREPRIORITIZED\r\n");
    assert_eq!(harness.say(&client, "flush-tube t\r\n"), format!("FLUSHED {}\r\n", JOBS - 1));
    for seed in 0..20 {
        let image = harness.disk.crashed_image(&mut Random::new(seed));
        let mut next = SimulatedServer::start_on(image, SyncPolicy::EachCommit, 65_536);
        let client = next.connect();
        let stats = next.say(&client, "stats-tube t\r\nstats-job 7\r\n");
        assert!(stats.starts_with("NOT_FOUND\r\n"), "seed {seed}: {stats}");
        assert!(stats.contains("tube: \"kept\"\n") && stats.contains("pri: 3\n"), "seed {seed}: {stats}");
    }
}

#[test]
fn a_batch_of_deletes_that_is_answered_survives_a_loss_of_power() {
    const JOBS: u32 = 1_000;
    let mut harness = SimulatedServer::start_on(SimDisk::default(), SyncPolicy::EachCommit, 65_536);
    let client = harness.connect();
    for _ in 0..JOBS {
        harness.say(&client, "put 5 0 100 1\r\nx\r\n");
    }
    assert!(harness.say(&client, "reserve-batch 700\r\n").starts_with("RESERVED_BATCH 700\r\n"));
    let ids: String = (2..=JOBS).map(|id| format!(" {id}")).collect();
    client.send(format!("delete-batch{ids}\r\n"));
    harness.turn([&client]);
    assert_eq!(client.received(), "", "it waits for the disk");
    while harness.help() {}
    assert_eq!(client.received(), format!("DELETED_BATCH {} 0\r\n", JOBS - 1));
    for seed in 0..20 {
        let image = harness.disk.crashed_image(&mut Random::new(seed));
        let mut next = SimulatedServer::start_on(image, SyncPolicy::EachCommit, 65_536);
        let client = next.connect();
        let stats = next.say(&client, "stats-tube default\r\n");
        assert!(stats.contains("current-jobs-ready: 1\n"), "seed {seed}: {stats}");
    }
}

/// No room is reserved for deaths: on a full disk they are logged later. Meanwhile the log copies such jobs, whose tags
/// and tube have become longer than the room of their old records.
#[test]
fn jobs_that_die_on_a_full_disk_are_there_once_wherever_the_log_ends() {
    const BODY: &str = "0123456789012345678901234567890123456789";
    for seed in 0..8 {
        let mut harness = SimulatedServer::start_on(SimDisk::default(), SyncPolicy::EachCommit, 4096);
        let dead = "d".repeat(200);
        let rule = TubeRule {
            max_attempts: Some(1),
            dead_tube: Some(dead.as_str().into()),
            ..TubeRule::new(&"t".repeat(200))
        };
        harness.server.executor_mut().set_tube_rules(vec![rule], harness.now);
        let client = harness.connect();
        let tube = "t".repeat(200);
        harness.say(&client, format!("use {tube}\r\nwatch {tube}\r\n"));
        let (mut dying, mut random) = (Vec::new(), Random::new(seed));
        for number in 1..=30 {
            harness.say(&client, format!("put 5 0 1 40\r\n{BODY}\r\n"));
            dying.push(number);
        }
        assert!(harness.say(&client, "reserve-batch 30\r\n").starts_with("RESERVED_BATCH 30\r\n"));
        harness.say(&client, "use other\r\n");
        harness.disk.set_room(Some(harness.disk.used()));
        let mut others = Vec::new();
        while let Some(id) =
            harness.say_and_wait(&client, format!("put 5 0 100 40\r\n{BODY}\r\n")).strip_prefix("INSERTED ")
        {
            others.push(id.trim_end().to_owned());
        }
        while harness.say_and_wait(&client, format!("reprioritize {} 6\r\n", others[0]))
            == "REPRIORITIZED\r\n"
        {}
        harness.now = harness.now.plus_seconds(2);
        harness.turn([]);
        while harness.help() {}
        let stats = harness.say(&client, format!("stats-tube {dead}\r\n"));
        assert!(stats.contains("current-jobs-ready: 30\n"), "{stats}");
        for id in others {
            if random.once_in(8) {
                continue;
            }
            harness.say_and_wait(&client, format!("delete {id}\r\n"));
            if random.once_in(10) {
                check_image(&harness, &dying, &mut random);
            }
        }
        for _ in 0..20 {
            harness.pass(NS_PER_S);
            while harness.help() {}
        }
        check_image(&harness, &dying, &mut random);
    }
}

/// After a loss of power, each of these jobs exists once, with its body, according to `stats` and each `peek`.
fn check_image(harness: &SimulatedServer, jobs: &[u64], random: &mut Random) {
    let image = harness.disk.crashed_image(&mut Random::new(random.next()));
    image.set_room(None);
    let mut next = SimulatedServer::start_on(image, SyncPolicy::EachCommit, 4096);
    let client = next.connect();
    let (mut ready, mut in_tubes) = (0, 0);
    for tube in ["t".repeat(200), "d".repeat(200)] {
        let stats = next.say(&client, format!("stats-tube {tube}\r\n"));
        let count = stats.lines().find_map(|line| line.strip_prefix("current-jobs-ready: "));
        ready += count.map_or(0, |count| count.parse::<usize>().expect("a number"));
        in_tubes += usize::from(count.is_some());
    }
    assert!(in_tubes > 0 && ready == jobs.len(), "{ready} of {} jobs", jobs.len());
    for id in jobs {
        assert!(next.say(&client, format!("peek {id}\r\n")).starts_with(&format!("FOUND {id} 40\r\n")));
    }
}

#[test]
fn a_reservation_whose_client_is_gone_lets_no_reply_of_another_leave_early() {
    let mut harness = SimulatedServer::start_on(SimDisk::default(), SyncPolicy::EachCommit, 65_536);
    let [other, worker] = harness.connect_each();
    harness.say(&other, "put 0 0 60 1\r\nx\r\n");
    // So many tubes that a weighted reserve takes several turns.
    let watches: String = (0..4000).map(|number| format!("watch w{number}\r\n")).collect();
    harness.say(&worker, format!("{watches}reserve-mode weighted\r\n"));
    worker.send(b"reserve\r\n");
    harness.one_turn([&worker]);
    let reserved = |harness: &SimulatedServer| harness.queue().figures().jobs.reserved;
    assert_eq!(reserved(&harness), 0, "the reserve takes several turns");
    worker.break_off();
    harness.turn([&worker]);
    other.send(b"put 0 0 60 1\r\ny\r\n");
    harness.turn([&other]);
    assert_eq!(other.received(), "", "its record is not on the medium");
    while harness.help() {}
    assert_eq!(other.received(), "INSERTED 2\r\n");
}
