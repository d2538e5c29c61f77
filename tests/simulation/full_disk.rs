//! A log without room: clients with sessions that wait for jobs, and the turns in which the log catches up once it has
//! room again.

use beanstalkd_binlog::SyncPolicy;
use beanstalkd_queue::{Queue, TubeRule};
use beanstalkd_testkit::disk::SimDisk;
use beanstalkd_testkit::simulated::{Connection, SimulatedServer};
use beanstalkd_types::clock::NS_PER_S;
use beanstalkd_types::job::{JobId, JobState};

/// What a worker with a session does before it waits.
const WORKER: &str = "session w 60\r\nwatch work\r\nignore default\r\n";

/// A server with job 1 in the tube `work`, whose jobs may fail once, and job 2 in the tube `fill`; and the client that
/// has reserved job 1.
fn start(disk: &SimDisk, sync: SyncPolicy, file_bytes: u64) -> (SimulatedServer, Connection) {
    let mut server = SimulatedServer::start_on(disk.clone(), sync, file_bytes);
    let rules = vec![
        TubeRule { max_attempts: Some(1), ..TubeRule::new("work") },
        TubeRule { max_age_s: Some(10), dead_tube: Some("dead".into()), ..TubeRule::new("ages") },
    ];
    let now = server.now;
    server.executor_mut().set_tube_rules(rules, now);
    let holder = server.connect();
    let puts = "use work\r\nput 0 0 9999 0\r\n\r\nuse fill\r\nput 0 0 9999 0\r\n\r\nreserve-job 1\r\n";
    assert!(server.say(&holder, puts).ends_with("RESERVED 1 0\r\n\r\n"));
    (server, holder)
}

/// Fills the disk until not even the state of a job has room.
fn fill(server: &mut SimulatedServer) {
    let client = server.connect();
    server.disk.set_room(Some(server.disk.used()));
    let put = "use fill\r\nput 0 0 9999 40\r\n0123456789012345678901234567890123456789\r\n";
    for (command, reply) in [(put, "OUT_OF_MEMORY\r\n"), ("reprioritize 2 1\r\n", "OUT_OF_MEMORY\r\n")] {
        let is_full = (0..1000).any(|_| server.say_and_wait(&client, command).ends_with(reply));
        assert!(is_full, "{command}");
    }
}

/// The state of job 1, and how often it was reserved and has failed.
fn first(queue: &Queue) -> (JobState, u32, u32) {
    let record = queue.job(JobId(1)).expect("nobody deletes it").record;
    (record.state, record.counters.reserves, record.counters.timeouts + record.counters.releases)
}

/// Runs the turns after this client has disconnected; returns their number.
fn leave(server: &mut SimulatedServer, client: &Connection) -> usize {
    client.end();
    server.turn([client])
}

#[test]
fn on_a_full_disk_a_session_that_waits_is_refused_the_job_and_nothing_counts_in_it() {
    for command in ["reserve\r\n", "reserve-with-timeout 5000\r\n", "reserve-batch 5 5000\r\n"] {
        let (mut server, holder) = start(&SimDisk::default(), SyncPolicy::EachCommit, 4096);
        let worker = server.connect();
        server.say(&worker, WORKER.to_owned() + command);
        fill(&mut server);
        leave(&mut server, &holder);
        while server.help() {}
        assert_eq!(worker.received(), "OUT_OF_MEMORY\r\n", "{command}");
        assert_eq!(first(server.queue()), (JobState::Ready, 1, 0), "{command}");
        assert_eq!(server.say(&worker, command), "OUT_OF_MEMORY\r\n", "as if it had not waited");
        server.disk.set_room(None);
        for _ in 0..20 {
            server.pass(NS_PER_S);
            while server.help() {}
        }
        assert!(server.say(&worker, command).ends_with("RESERVED 1 0\r\n\r\n"), "{command}");
        assert_eq!(first(server.queue()), (JobState::Reserved, 2, 0), "{command}");
    }
}

#[test]
fn a_job_that_sessions_are_refused_goes_to_the_next_client_one_in_each_turn() {
    const SESSIONS: usize = 20;
    let (mut server, holder) = start(&SimDisk::default(), SyncPolicy::EachCommit, 4096);
    let workers: Vec<Connection> = (0..SESSIONS).map(|_| server.connect()).collect();
    for (number, worker) in workers.iter().enumerate() {
        let name = format!("session w{number} ");
        server.say(worker, WORKER.replace("session w ", &name) + "reserve-with-timeout 5000\r\n");
    }
    let plain = server.connect();
    server.say(&plain, "watch work\r\nreserve-with-timeout 5000\r\n");
    fill(&mut server);
    let turns = leave(&mut server, &holder);
    while server.help() {}
    assert!(turns >= SESSIONS, "{turns} turns");
    for worker in workers {
        assert_eq!(worker.received(), "OUT_OF_MEMORY\r\n");
    }
    assert_eq!(plain.received(), "RESERVED 1 0\r\n\r\n");
    assert_eq!(first(server.queue()), (JobState::Reserved, 2, 0));
}

/// A worker waits, and gets the job after the states of another job have filled the log `fill` times. If its reply has
/// to wait for the next file, the disk refuses that. Returns whether the worker is refused.
fn is_refused(command: &str, fill: usize) -> bool {
    let (mut server, holder) = start(&SimDisk::default(), SyncPolicy::Every(50), 4096);
    let [worker, filler] = server.connect_each();
    worker.send(WORKER.to_owned() + command);
    server.turn([&worker]);
    worker.received();
    filler.send("reprioritize 2 1\r\nreprioritize 2 0\r\n".repeat(fill));
    server.turn([&filler]);
    leave(&mut server, &holder);
    let has_waited = worker.received().is_empty();
    if has_waited {
        server.disk.set_room(Some(server.disk.used()));
        while server.help() {}
        assert_eq!(worker.received(), "OUT_OF_MEMORY\r\n", "{command}, filled with {fill}");
        assert_eq!(first(server.queue()), (JobState::Ready, 1, 0), "{command}, filled with {fill}");
    } else {
        assert_eq!(first(server.queue()), (JobState::Reserved, 2, 0), "{command}, filled with {fill}");
    }
    has_waited
}

#[test]
fn a_session_that_waits_for_a_file_for_which_there_is_no_room_is_refused_the_job() {
    const MAX_FILL: usize = 60;
    for command in ["reserve\r\n", "reserve-batch 5 100\r\n"] {
        let refused = (0..MAX_FILL).filter(|&fill| is_refused(command, fill)).count();
        assert!((1..MAX_FILL).contains(&refused), "{command}: {refused} of {MAX_FILL}");
    }
}

/// A worker with a session waits, and gets job 3 after the states of another job have filled the log `fill` times. If
/// its reply has to wait for the next file, the job's time to run ends meanwhile, and another client and the worker
/// send the commands `then`. Returns the reply, if it had to wait, and that after three more seconds.
fn reply_after_loss(command: &str, then: [&str; 2], fill: usize) -> Option<[String; 2]> {
    let (mut server, _holder) = start(&SimDisk::default(), SyncPolicy::Every(50), 4096);
    let [worker, first, filler, other] = server.connect_each();
    let puts = "use brief\r\nput 0 0 1 0\r\n\r\nreserve-job 3\r\n";
    assert!(server.say(&first, puts).ends_with("RESERVED 3 0\r\n\r\n"));
    let waits = WORKER.replace("work", "brief") + command;
    assert!(server.say(&worker, waits).ends_with("WATCHING 1\r\n"));
    filler.send("reprioritize 2 1\r\nreprioritize 2 0\r\n".repeat(fill));
    server.turn([&filler]);
    leave(&mut server, &first);
    if !worker.received().is_empty() {
        return None;
    }
    server.pass(NS_PER_S);
    other.send(then[0]);
    worker.send(then[1]);
    server.turn([&other, &worker]);
    assert_eq!(worker.received(), "", "the log has no room yet");
    while server.help() {}
    let reply = worker.received();
    server.pass(3 * NS_PER_S);
    Some([reply, worker.received()])
}

#[test]
fn a_reserve_that_loses_its_job_before_the_reply_begins_again() {
    const MAX_FILL: usize = 60;
    let (job, ends) = ("RESERVED 3 0\r\n\r\n", "TIMED_OUT\r\n");
    let (nothing, takes) = (["", ""], ["reserve-job 3\r\n", ""]);
    for (command, then, replies) in [
        ("reserve\r\n", nothing, [job, ""]),
        ("reserve\r\n", takes, ["", job]),
        ("reserve-with-timeout 9\r\n", nothing, [job, ""]),
        ("reserve-with-timeout 9\r\n", takes, ["", job]),
        ("reserve-with-timeout 1\r\n", takes, [ends, ""]),
        ("reserve-with-timeout 1.5\r\n", takes, ["", ends]),
        ("reserve-with-abort\r\n", takes, ["", job]),
        ("reserve-with-abort\r\n", [takes[0], "list-tube-used\r\n"], ["ABORTED\r\nUSING default\r\n", ""]),
        ("reserve-batch 9 9\r\n", nothing, [&format!("RESERVED_BATCH 1\r\n{job}"), ""]),
        ("reserve-batch 9 9\r\n", takes, ["RESERVED_BATCH 0\r\n", ""]),
    ] {
        let found: Vec<_> = (0..MAX_FILL).filter_map(|fill| reply_after_loss(command, then, fill)).collect();
        assert!((1..MAX_FILL).contains(&found.len()), "{command}: {} of {MAX_FILL}", found.len());
        found.iter().for_each(|found| assert_eq!(found, &replies, "{command}, then {then:?}"));
    }
}

/// As `reply_after_loss`, for a client without a session that waits for a job that dies.
fn reply_after_loss_of_dead_job(fill: usize) -> Option<String> {
    let (mut server, _holder) = start(&SimDisk::default(), SyncPolicy::Every(50), 4096);
    let [worker, producer, filler] = server.connect_each();
    server.say(&producer, "use ages\r\nput 0 0 1 0\r\n\r\n");
    server.say(&worker, "watch dead\r\nignore default\r\nreserve\r\n");
    filler.send("reprioritize 2 1\r\nreprioritize 2 0\r\n".repeat(fill));
    server.turn([&filler]);
    server.pass(11 * NS_PER_S);
    if !worker.received().is_empty() {
        return None;
    }
    server.pass(NS_PER_S);
    while server.help() {}
    Some(worker.received())
}

#[test]
fn a_reserve_that_loses_a_dead_job_before_the_reply_begins_again() {
    const MAX_FILL: usize = 60;
    let found: Vec<_> = (0..MAX_FILL).filter_map(reply_after_loss_of_dead_job).collect();
    assert!((1..MAX_FILL).contains(&found.len()), "{} of {MAX_FILL} have to wait", found.len());
    found.iter().for_each(|reply| assert_eq!(reply, "RESERVED 3 0\r\n\r\n"));
}

#[test]
fn a_log_with_room_again_catches_up_with_many_deaths_a_share_in_each_turn() {
    const JOBS: usize = 3000;
    /// The completion of a file and each turn log at most 512 deaths, of two records each, and copy some jobs.
    const MAX_RECORDS: u64 = 2 * 1300;
    let disk = SimDisk::default();
    let (mut server, holder) = start(&disk, SyncPolicy::Never, 1 << 20);
    let [producer, filler] = server.connect_each();
    server.say(&producer, "use ages\r\n".to_owned() + &"put 0 0 9 0\r\n\r\n".repeat(JOBS));
    // No file is made any more, and the existing ones are filled.
    let mut changes = 0;
    loop {
        filler.send("reprioritize 2 1\r\n".repeat(1000));
        server.turn([&filler]);
        changes += 1000;
        if filler.received().len() < "REPRIORITIZED\r\n".len() * 1000 {
            break;
        }
    }
    server.now = server.now.plus_seconds(11);
    server.turn([]);
    let dead = |server: &SimulatedServer| server.queue().tube("dead", server.now).map(|tube| tube.jobs.ready);
    assert_eq!(dead(&server), Some(JOBS as u64), "all have died, after {changes} changes");
    holder.send("bury 1 0\r\n");
    server.turn([&holder]);
    assert_eq!(holder.received(), "", "it waits for the file, and for the deaths");

    let records = |server: &SimulatedServer| server.executor().server_view(server.now).binlog.records_written;
    let before = records(&server);
    let (mut longest, mut turns, mut last) = (0, 0, before);
    let completion = disk.next_task().expect("the log makes a file").run(&mut disk.clone());
    let now = server.now;
    server.binlog_completed(completion, now);
    while server.next_turn_at().is_some_and(|at| at <= now) {
        server.one_turn([]);
        longest = longest.max(records(&server) - last);
        last = records(&server);
        turns += 1;
    }
    assert!(last - before >= 2 * JOBS as u64, "all deaths are logged: {} records", last - before);
    assert!(longest <= MAX_RECORDS, "{longest} records in one of {turns} turns");
    assert_eq!(holder.received(), "BURIED\r\n", "it goes on by itself");
    let after = SimulatedServer::start_on(disk.fork(), SyncPolicy::Never, 1 << 20);
    assert_eq!(dead(&after), Some(JOBS as u64));
}

#[test]
fn a_log_with_room_again_catches_up_with_many_states_and_a_session_goes_first() {
    /// The completion of a file and each turn log at most 512 states, and copy some jobs.
    const MAX_RECORDS: u64 = 1300;
    let disk = SimDisk::default();
    let (mut server, _holder) = start(&disk, SyncPolicy::Never, 1 << 20);
    let [client, worker] = server.connect_each();
    disk.set_room(Some(disk.used()));
    let put = format!("put 0 0 9999 100\r\n{}\r\n", "x".repeat(100));
    for command in [put.as_str(), "reprioritize 2 1\r\n"] {
        let is_full = (0..100)
            .any(|_| server.say_and_wait(&client, command.repeat(1000)).ends_with("OUT_OF_MEMORY\r\n"));
        assert!(is_full, "{command}");
    }
    let (first, last) = (3, server.queue().figures().jobs.total());
    assert!(last > 1500, "{last} jobs");
    let release = |id| format!("reserve-job {id}\r\nrelease {id} 7 0\r\n");
    let released = server.say(&client, (first..=last).map(release).collect::<String>());
    assert_eq!(released.matches("RELEASED\r\n").count(), last - 2);
    let has_state = |disk: &SimDisk, id: usize| {
        let disk = disk.fork();
        disk.set_room(None);
        let after = SimulatedServer::start_on(disk, SyncPolicy::Never, 1 << 20);
        let id = JobId(id as u64);
        let is_reserved = after.queue().session_reservation(id).is_some();
        (after.queue().job(id).map(|job| job.record.priority.0), is_reserved)
    };
    assert_eq!([first, last].map(|id| has_state(&disk, id)), [(Some(0), false); 2]);

    disk.set_room(None);
    server.now = server.now + NS_PER_S;
    server.turn([]);
    let records = |server: &SimulatedServer| server.executor().server_view(server.now).binlog.records_written;
    let (mut longest, mut turns, mut before) = (0, 0, records(&server));
    let completion = disk.next_task().expect("the log makes a file").run(&mut disk.clone());
    let now = server.now;
    server.binlog_completed(completion, now);
    worker.send(format!("session w 600\r\nreserve-job {last}\r\n"));
    server.one_turn([&worker]);
    assert!(worker.received().starts_with(&format!("SESSION 0\r\nRESERVED {last} 100\r\n")));
    assert_eq!(has_state(&disk, last), (Some(7), true), "with the state that it had before");
    assert_eq!(has_state(&disk, last - 1), (Some(0), false), "others wait");
    while server.next_turn_at().is_some_and(|at| at <= now) {
        longest = longest.max(records(&server) - before);
        before = records(&server);
        server.one_turn([]);
        turns += 1;
    }
    assert!(longest <= MAX_RECORDS, "{longest} records in one of {turns} turns");
    assert_eq!([first, last - 1].map(|id| has_state(&disk, id)), [(Some(7), false); 2]);
}
