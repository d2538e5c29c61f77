//! Single cases in their shortest form; a seed has found many of them. Those about the work of a turn are in `slices`.

use beanstalkd::server::Readiness;
use beanstalkd_binlog::SyncPolicy;
use beanstalkd_types::clock::NS_PER_S;

use beanstalkd_testkit::disk::SimDisk;
use beanstalkd_testkit::simulated::{Connection, START, SimulatedServer};

#[test]
fn a_job_that_comes_together_with_the_end_of_a_waiting_client_is_its_only_answer() {
    let mut server = SimulatedServer::with_max_job_bytes(10);
    let [worker, producer] = server.connect_each();
    worker.send(b"reserve\r\nstats-tube none\r\n");
    server.turn([&worker]);
    producer.send(b"put 0 0 10 1\r\nx\r\n");
    worker.end();
    server.turn([&producer, &worker]);
    assert_eq!(worker.received(), "RESERVED 1 1\r\nx\r\nNOT_FOUND\r\n");
    assert_eq!(server.queue().figures().jobs.ready, 1, "its job is ready again");
}

#[test]
fn a_body_whose_last_part_is_as_long_as_a_read_is_stored() {
    for (line, reply) in [("put 0 0 60", "INSERTED 2"), ("complete 1 1\r\nput 0 0 60", "COMPLETED 2")] {
        for last in 32_766..=32_770 {
            let mut server = SimulatedServer::with_max_job_bytes(100_000);
            let client = server.connect();
            server.say(&client, "put 0 0 60 1\r\nx\r\nreserve\r\n");
            let size = 40_000 + last - 2;
            let body = "x".repeat(size) + "\r\n";
            assert_eq!(server.say(&client, format!("{line} {size}\r\n{}", &body[..40_000])), "", "{last}");
            assert_eq!(server.say(&client, &body[40_000..]), format!("{reply}\r\n"), "{last}");
            server.check_invariants();
        }
    }
}

#[test]
fn the_last_commands_of_a_client_that_has_gone_away_are_executed() {
    let mut server = SimulatedServer::with_max_job_bytes(10);
    let producer = server.connect();
    producer.send(b"put 0 0 10 1\r\nx\r\n");
    producer.pipe.borrow_mut().end(true);
    let gone = Readiness { failed: true, ..producer.pipe.borrow_mut().take_event() };
    server.server.turn([(producer.id, gone)].into_iter(), START);
    let queue = server.queue();
    assert_eq!((queue.figures().jobs.ready, queue.figures().clients), (1, 0));
}

#[test]
fn a_late_event_of_a_closed_connection_does_not_reach_the_next_at_its_index() {
    let mut server = SimulatedServer::with_max_job_bytes(10);
    let gone = server.connect();
    gone.end();
    server.turn([&gone]);
    let next = server.connect();
    assert_eq!(next.id.index, gone.id.index);
    next.send(b"reserve\r\n");
    server.turn([&next]);
    let late = Readiness { readable: true, writable: true, read_closed: true, failed: true };
    server.server.turn([(gone.id, late)].into_iter(), START);
    assert_eq!((next.received().as_str(), server.queue().figures().waiting), ("", 1));
}

#[test]
fn a_job_that_is_flushed_in_the_turn_of_its_delivery_comes_with_its_fields() {
    let mut server = SimulatedServer::with_max_job_bytes(10);
    let [worker, batcher, producer] = server.connect_each();
    worker.send(b"reserve-fields tube pri attempts trace\r\nwatch q\r\nreserve\r\n");
    server.turn([&worker]);
    batcher.send(b"reserve-fields pri tube\r\nwatch q\r\nreserve-batch 2 60\r\n");
    server.turn([&batcher]);
    worker.received();
    batcher.received();
    let puts = b"use q\r\nput 5 0 9 1\r\nx\r\nput 6 0 9 1\r\ny\r\nflush-tube q\r\nput 7 0 9 1\r\nz\r\n";
    assert_eq!(
        server.say(&producer, puts),
        "USING q\r\nINSERTED 1\r\nINSERTED 2\r\nFLUSHED 2\r\nINSERTED 3\r\n"
    );
    assert_eq!(worker.received(), "RESERVED 1 1 q 5 1 -\r\nx\r\n");
    // A batch has the jobs that are there when it is answered.
    assert_eq!(batcher.received(), "RESERVED_BATCH 1\r\nRESERVED 3 1 7 q\r\nz\r\n");
    assert_eq!(server.say(&worker, b"delete 1\r\n"), "NOT_FOUND\r\n");
    server.check_invariants();
}

#[test]
fn the_fields_belong_to_the_connection_and_not_to_its_session() {
    let mut server = SimulatedServer::with_max_job_bytes(10);
    let [first, second, producer] = server.connect_each();
    first.send(b"session s 60\r\nreserve-fields tube\r\nreserve\r\n");
    server.turn([&first]);
    assert_eq!(server.say(&second, b"reserve-fields pri\r\n"), "USING pri\r\n");
    // The first client gets a job in the turn in which the second one takes over its session.
    producer.send(b"put 5 0 9 1\r\nx\r\n");
    second.send(b"session s 60\r\n");
    server.turn([&producer, &second]);
    assert_eq!(second.received(), "SESSION 1\r\n");
    assert_eq!(server.say(&second, b"release 1 6 0\r\nreserve\r\n"), "RELEASED\r\nRESERVED 1 1 6\r\nx\r\n");
    server.check_invariants();
}

#[test]
fn a_wait_for_a_job_is_answered_by_what_has_ended_it_whatever_follows() {
    const WAITING: usize = 100;
    let mut server = SimulatedServer::with_max_job_bytes(10);
    let [worker, newcomer] = server.connect_each();
    server.say(&worker, b"put 0 0 100 0\r\n\r\nreserve\r\n");
    let clients: Vec<Connection> = (0..WAITING).map(|_| server.connect()).collect();
    for client in &clients {
        client.send(b"wait-job 1 1\r\n");
        server.turn([client]);
    }
    // The job is buried and kicked before most of them are answered, and another client waits for it.
    worker.send(b"bury 1 0\r\nkick-job 1\r\n");
    let mut replies = String::new();
    while !replies.ends_with("KICKED\r\n") {
        server.one_turn([&worker]);
        replies += &worker.received();
        server.check_invariants();
    }
    newcomer.send(b"wait-job 1\r\n");
    server.one_turn([&newcomer]);
    let answered = clients.iter().take_while(|client| client.pipe.borrow().has_outbound()).count();
    assert!(answered < WAITING - 2, "{answered} are answered");
    // One of them will send nothing more, and gets the reply.
    clients[WAITING - 2].end();
    server.one_turn([&clients[WAITING - 2]]);
    assert!(clients[WAITING - 2].pipe.borrow().has_outbound(), "it does not wait for the others");
    // One of them leaves, and the time-out of the others has passed.
    clients[WAITING - 1].break_off();
    server.now = START.plus_seconds(2);
    server.one_turn([&clients[WAITING - 1]]);
    while !server.is_quiet() {
        server.one_turn([]);
        server.check_invariants();
    }
    assert!(clients[..WAITING - 1].iter().all(|client| client.received() == "BURIED 1\r\n"));
    assert_eq!(newcomer.received(), "");
    worker.send(b"delete 1\r\n");
    server.turn([&worker]);
    assert_eq!(newcomer.received(), "DELETED 1\r\n");
    server.check_invariants();
}

/// The ids on a page of `list-jobs`, and the cursor of the next page.
fn ids_and_cursor(page: &str) -> (Vec<u64>, String) {
    let id = |line: &str| line.strip_prefix("- {id: ")?.split(',').next()?.parse().ok();
    let cursor = page.lines().find_map(|line| line.strip_prefix("next: ")).expect("a page has a cursor");
    (page.lines().filter_map(id).collect(), cursor.trim_matches('"').to_owned())
}

#[test]
fn a_cursor_of_buried_jobs_from_before_a_restart_leaves_none_out() {
    let disk = SimDisk::default();
    let mut starts = 0;
    let mut start = |disk| {
        starts += 1;
        SimulatedServer::start_at(START + starts * NS_PER_S, disk, SyncPolicy::EachCommit, 1 << 20)
    };
    let mut server = start(disk.clone());
    let client = server.connect();
    for id in 1..=6 {
        server.say(&client, format!("put 0 0 60 0\r\n\r\nreserve-job {id}\r\nbury {id} 0\r\n"));
    }
    server.say(&client, "kick-job 1\r\nkick-job 2\r\n");
    let (ids, next) = ids_and_cursor(&server.say(&client, "list-jobs default buried 2\r\n"));
    assert_eq!(ids, [3, 4]);

    let mut server = start(disk.fork());
    let client = server.connect();
    let (ids, _) = ids_and_cursor(&server.say(&client, format!("list-jobs default buried 9 {next}\r\n")));
    assert!(ids.ends_with(&[5, 6]), "{ids:?}");
    server.say(&client, "reserve-job 1\r\nbury 1 0\r\nreserve-job 2\r\nbury 2 0\r\n");
    let (ids, next) = ids_and_cursor(&server.say(&client, "list-jobs default buried 5\r\n"));
    assert_eq!(ids, [3, 4, 5, 6, 1]);
    server.say(&client, "kick-job 3\r\nkick-job 4\r\n");

    let mut server = start(server.disk.fork());
    let client = server.connect();
    let (ids, _) = ids_and_cursor(&server.say(&client, format!("list-jobs default buried 9 {next}\r\n")));
    assert!(ids.ends_with(&[2]), "{ids:?}");

    // No job is buried when the server starts.
    let (_, last) = ids_and_cursor(&server.say(&client, "list-jobs default buried 2\r\n"));
    server.say(&client, "kick 9\r\n");
    let mut server = start(server.disk.fork());
    let client = server.connect();
    server.say(&client, "reserve-job 4\r\nbury 4 0\r\n");
    let (ids, _) = ids_and_cursor(&server.say(&client, format!("list-jobs default buried 9 {last}\r\n")));
    assert_eq!(ids, [4]);
}
