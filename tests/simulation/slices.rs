//! The work of a turn, counted in jobs, replies and bytes: long work is done in slices, and other clients are answered
//! between them.

use beanstalkd_queue::TubeRule;
use beanstalkd_types::clock::Timestamp;

use beanstalkd_testkit::simulated::{Connection, START, SimulatedServer};

#[test]
fn a_client_that_sends_without_end_gets_a_share_of_each_turn_beside_others() {
    const GREED: usize = 10_000;
    let mut server = SimulatedServer::with_max_job_bytes(10);
    let [greedy, modest] = server.connect_each();
    greedy.send(b"peek-buried\r\n".repeat(GREED));
    server.one_turn([&greedy]);
    let mut answers = greedy.received().lines().count();
    assert!(answers < GREED, "{answers} of {GREED} commands were executed in one turn");
    for _ in 0..10 {
        modest.send(b"peek-buried\r\n");
        server.one_turn([&modest]);
        assert_eq!(modest.received(), "NOT_FOUND\r\n");
        let more = greedy.received().lines().count();
        assert!((1..=128).contains(&more), "{more} answers in a turn");
        answers += more;
    }
    server.turn([]);
    assert_eq!(answers + greedy.received().lines().count(), GREED, "each is answered once");
}

#[test]
fn a_kick_of_many_jobs_is_done_in_slices_between_which_others_are_answered() {
    const JOBS: u64 = 5_000;
    let mut server = SimulatedServer::with_max_job_bytes(10);
    let [greedy, modest] = server.connect_each();
    server.say(&greedy, b"put 0 100 10 0\r\n\r\n".repeat(JOBS as usize));
    greedy.send(b"kick 4999\r\nkick 9\r\n");
    greedy.end();
    let mut kicked = 0;
    while kicked < JOBS {
        modest.send(b"peek-buried\r\n");
        server.one_turn([&greedy, &modest]);
        assert_eq!(modest.received(), "NOT_FOUND\r\n");
        let kicks = server.queue().figures().events.kicks;
        assert!((1..=512).contains(&(kicks - kicked)), "{} jobs in a turn", kicks - kicked);
        kicked = kicks;
        assert!(
            kicked == JOBS || server.next_turn_at() == Some(Timestamp::AT_ONCE),
            "the next turn comes without an event"
        );
    }
    server.turn([]);
    assert_eq!(greedy.received(), "KICKED 4999\r\nKICKED 1\r\n");
    assert_eq!(server.client_count(), 1);
}

#[test]
fn a_command_for_a_job_that_waits_for_its_end_finds_none() {
    const OTHERS: usize = 3_000;
    for dead_tube in [None, Some("dead".into())] {
        let mut server = SimulatedServer::with_max_job_bytes(10);
        let rule = TubeRule { max_age_s: Some(1), dead_tube, ..TubeRule::new("default") };
        server.executor_mut().set_tube_rules(vec![rule], START);
        let [producer, client, other] = server.connect_each();
        server.say(&other, b"use other\r\nput 0 99 99 0\r\n\r\n");
        server.say(&producer, b"put 9 0 99 0\r\n\r\n".repeat(OTHERS));
        server.say(&producer, b"put 9 0 99 0\r\n\r\n".repeat(3));
        server.say(&producer, b"put 9 99 99 0\r\n\r\n".repeat(5));
        let [moved, urged, buried, kicked] = [2, 3, 4, 5].map(|number| number + OTHERS);
        server.say(&client, format!("reserve-job {buried}\r\nbury {buried} 0\r\n"));
        server.now = START.plus_seconds(2);
        client.send(format!("move {moved} other\r\nreprioritize {urged} 1\r\nkick-job {kicked}\r\n"));
        client.send("kick 1\r\nkick 9\r\n");
        server.one_turn([&client]);
        assert!(server.queue().figures().jobs.ready > 0, "more jobs are left than a turn ends");
        server.turn([]);
        assert_eq!(client.received(), "NOT_FOUND\r\nNOT_FOUND\r\nNOT_FOUND\r\nKICKED 0\r\nKICKED 0\r\n");
        assert_eq!(server.say(&other, "kick 9\r\n"), "KICKED 1\r\n");
        assert_eq!(server.queue().figures().events.kicks, 1);
        server.check_invariants();
    }
}

/// Puts this many jobs into the tube "t", and lets the worker reserve every fourth of them.
fn fill(server: &mut SimulatedServer, producer: &Connection, worker: &Connection, jobs: usize) {
    producer.send(b"use t\r\n");
    producer.send(b"put 0 0 100 0\r\n\r\n".repeat(jobs / 2));
    producer.send(b"put 0 50 100 0\r\n\r\n".repeat(jobs / 2));
    worker.send(b"watch t\r\n");
    server.turn([producer, worker]);
    worker.send(b"reserve\r\n".repeat(jobs / 4));
    server.turn([worker]);
    producer.received();
    worker.received();
}

#[test]
fn a_flush_of_many_jobs_is_done_in_slices_between_which_others_are_answered() {
    const JOBS: u64 = 6_000;
    let mut server = SimulatedServer::with_max_job_bytes(10);
    let [greedy, modest, worker] = server.connect_each();
    fill(&mut server, &greedy, &worker, JOBS as usize);
    greedy.send(b"flush-tube t\r\nflush-tube t\r\n");
    greedy.end();
    let (mut flushed, mut put) = (0, 0);
    while flushed < JOBS {
        modest.send(b"use t\r\nput 0 0 10 0\r\n\r\n");
        server.one_turn([&greedy, &modest]);
        put += 1;
        assert_eq!(modest.received(), format!("USING t\r\nINSERTED {}\r\n", JOBS + put));
        let deletes = server.queue().figures().events.deletes;
        assert!((1..=512).contains(&(deletes - flushed)), "{} jobs in a turn", deletes - flushed);
        flushed = deletes;
    }
    assert!(put > 10, "{put} turns");
    server.turn([]);
    // The second flush finds the jobs that were put between the two.
    assert_eq!(greedy.received(), format!("FLUSHED {JOBS}\r\nFLUSHED {}\r\n", put - 1));
    assert_eq!(server.say(&worker, b"touch 1\r\n"), "NOT_FOUND\r\n");
    assert_eq!((server.client_count(), server.queue().figures().jobs.total()), (2, 1));
}

#[test]
fn a_flush_ends_with_its_client() {
    let mut server = SimulatedServer::with_max_job_bytes(10);
    let [greedy, worker] = server.connect_each();
    fill(&mut server, &greedy, &worker, 4_000);
    greedy.send(b"peek-buried\r\nflush-tube t\r\n");
    greedy.pipe.borrow_mut().end(true);
    server.turn([&greedy]);
    let deletes = server.queue().figures().events.deletes;
    assert!((1..4_000).contains(&deletes), "{deletes} jobs");
    assert_eq!(server.client_count(), 1);
    server.queue().check_invariants();
}

#[test]
fn a_page_of_a_thousand_jobs_is_written_in_slices_and_so_is_a_search() {
    const RESERVED: usize = 3_000;
    let mut server = SimulatedServer::with_max_job_bytes(10);
    let [greedy, modest, worker] = server.connect_each();
    fill(&mut server, &greedy, &worker, 4 * RESERVED);
    greedy.send(b"peek-reserved\r\n");
    for (state, count) in [("ready", RESERVED), ("reserved", RESERVED), ("delayed", 2 * RESERVED)] {
        let line = format!("list-jobs t {state} 1000\r\n");
        greedy.send(line);
        let (mut turns, mut page) = (0, String::new());
        while page.lines().filter(|line| line.starts_with("- {id: ")).count() < 1000 {
            modest.send(b"peek-buried\r\n");
            server.one_turn([&greedy, &modest]);
            assert_eq!(modest.received(), "NOT_FOUND\r\n");
            page += &greedy.received();
            turns += 1;
            assert!(turns < 100, "{page}");
        }
        assert!(turns >= 8, "{state}: {turns} turns for {count} jobs");
        let is_first = state == "ready";
        assert!(page.starts_with(if is_first { "FOUND 1 0\r\n\r\nOK " } else { "OK " }), "{}", &page[..30]);
        assert!(page.contains(&format!("next: \"{state}-")), "more follow");
    }
    // A client that disconnects in the middle of a search or a page leaves nothing behind.
    greedy.send(b"peek-buried\r\nlist-jobs t reserved 1000\r\n");
    greedy.pipe.borrow_mut().end(true);
    server.turn([&greedy]);
    assert_eq!(server.client_count(), 2);
    server.check_invariants();
}

#[test]
fn the_jobs_and_tubes_of_a_disconnected_client_are_released_in_slices() {
    const JOBS: u64 = 5_000;
    const PER_TURN: u64 = 512;
    let mut server = SimulatedServer::with_max_job_bytes(10);
    let [greedy, modest] = server.connect_each();
    for chunk in 0..50 {
        let watch: String = (0..100).map(|tube| format!("watch t{}\r\n", 100 * chunk + tube)).collect();
        let jobs = "put 0 0 100 0\r\n\r\nreserve\r\n".repeat(100);
        server.say(&greedy, watch + &jobs);
    }
    greedy.pipe.borrow_mut().end(true);
    let mut left = 2 * JOBS;
    while left > 1 {
        modest.send(b"delete 4999\r\n");
        server.one_turn([&greedy, &modest]);
        let queue = server.queue();
        queue.check_invariants();
        let answer = modest.received();
        let is_given_back = queue.figures().jobs.total() < JOBS as usize;
        assert_eq!(answer == "DELETED\r\n" || left <= JOBS, is_given_back, "{answer}");
        let still = queue.figures().jobs.reserved + queue.figures().tubes as u64;
        assert!(left - still <= 2 * PER_TURN + 1, "{} in a turn", left - still);
        assert!(
            still == 1 || server.next_turn_at() == Some(Timestamp::AT_ONCE),
            "the next turn comes without an event"
        );
        assert_eq!(queue.figures().clients, 1, "the client itself is gone at once");
        left = still;
    }
    assert_eq!(server.queue().figures().jobs.ready, JOBS - 1);
}

#[test]
fn a_turn_ends_at_its_budget_however_many_clients_have_sent_commands() {
    const CLIENTS: usize = 60;
    let mut server = SimulatedServer::with_max_job_bytes(10);
    let clients: Vec<Connection> = (0..CLIENTS).map(|_| server.connect()).collect();
    for client in &clients {
        client.send(b"stats\r\n".repeat(100));
    }
    let mut left = 100 * CLIENTS;
    while left > 0 {
        server.one_turn(&clients);
        let more: usize = clients.iter().map(|client| client.received().matches("\r\n---\n").count()).sum();
        assert!((1..=500).contains(&more), "{more} stats in a turn");
        left -= more;
    }
}

#[test]
fn a_kick_under_way_ends_with_its_client() {
    const JOBS: usize = 5_000;
    let mut server = SimulatedServer::with_max_job_bytes(10);
    let greedy = server.connect();
    greedy.send(b"put 0 100 10 0\r\n\r\n".repeat(JOBS));
    server.turn([&greedy]);
    greedy.send(b"peek-buried\r\nkick 5000\r\n");
    greedy.pipe.borrow_mut().end(true);
    server.turn([&greedy]);
    let queue = server.queue();
    assert!(
        (1..JOBS as u64).contains(&queue.figures().events.kicks),
        "{} jobs",
        queue.figures().events.kicks
    );
    assert_eq!((queue.figures().clients, server.next_turn_at().is_some_and(|at| at <= START)), (0, false));
}

#[test]
fn a_large_reply_is_sent_in_pieces_between_which_others_are_answered() {
    const BODY_BYTES: usize = 900_000;
    let mut server = SimulatedServer::with_max_job_bytes(BODY_BYTES as u32);
    let [greedy, modest] = server.connect_each();
    let put = [format!("put 0 0 10 {BODY_BYTES}\r\n").into_bytes(), vec![b'x'; BODY_BYTES], b"\r\n".into()];
    assert_eq!(server.say(&greedy, put.concat()), "INSERTED 1\r\n");
    greedy.send(b"peek 1\r\n");
    server.one_turn([&greedy]);
    let mut bytes = greedy.received().len();
    assert!(bytes < BODY_BYTES, "{bytes} of {BODY_BYTES} bytes were sent in one turn");
    while bytes < BODY_BYTES {
        modest.send(b"peek-buried\r\n");
        server.one_turn([&modest]);
        assert_eq!(modest.received(), "NOT_FOUND\r\n");
        let more = greedy.received().len();
        assert!((1..=256 * 1024).contains(&more), "{more} bytes in a turn");
        bytes += more;
    }
    assert_eq!(bytes, format!("FOUND 1 {BODY_BYTES}\r\n\r\n").len() + BODY_BYTES);
}

/// Makes the client watch this many tubes. Returns the data that `list-tubes-watched` must reply then.
fn watch_many(server: &mut SimulatedServer, client: &Connection, tubes: usize) -> String {
    let names: Vec<String> = (0..tubes).map(|number| format!("{number}-{}", "x".repeat(90))).collect();
    let commands: String = names.iter().map(|name| format!("watch {name}\r\n")).collect();
    server.say(client, commands);
    ["---\n- default\n".to_owned()]
        .into_iter()
        .chain(names.iter().map(|name| format!("- {name}\n")))
        .collect()
}

#[test]
fn a_long_list_of_tubes_is_made_in_slices_and_held_once_for_all_clients() {
    let mut server = SimulatedServer::with_max_job_bytes(10);
    let [maker, modest] = server.connect_each();
    let list = watch_many(&mut server, &maker, 5_000);
    let clients: Vec<Connection> = (0..20).map(|_| server.connect_with_room(1_000)).collect();
    let late = server.connect();
    let before = server.executor().memory_bytes();
    for client in &clients {
        client.send(b"list-tubes\r\nlist-tube-used\r\n");
    }
    server.one_turn(&clients);
    // A new tube is in the lists of clients that send the command after it was made.
    maker.send(b"watch late\r\n");
    late.send(b"list-tubes\r\n");
    server.one_turn([&maker, &late]);
    let mut turns = 0;
    while !clients[0].pipe.borrow().has_outbound() {
        assert_eq!(server.next_turn_at(), Some(Timestamp::AT_ONCE), "the next turn comes without an event");
        modest.send(b"peek-buried\r\n");
        server.one_turn([&modest]);
        assert_eq!(modest.received(), "NOT_FOUND\r\n");
        turns += 1;
    }
    assert!(turns > 10, "expected more than 10 turns, but there were {turns}");
    server.turn([]);
    let growth = server.executor().memory_bytes() - before;
    assert!(growth < 3 * list.len(), "{growth} bytes for twenty lists of {}", list.len());
    for client in &clients {
        client.pipe.borrow_mut().widen();
        let mut bytes = client.received();
        server.turn([client]);
        bytes += &client.received();
        assert_eq!(bytes, format!("OK {}\r\n{list}\r\nUSING default\r\n", list.len()));
    }
    assert_eq!(late.received(), format!("OK {}\r\n{list}- late\n\r\n", list.len() + "- late\n".len()));
    for _ in 0..100 {
        server.one_turn([]);
    }
    let left = server.executor().memory_bytes() - before;
    assert!(left < 64 << 10, "{left} bytes are left of lists that were sent");
}

#[test]
fn a_long_list_of_watched_tubes_is_made_in_slices_between_which_others_are_answered() {
    let mut server = SimulatedServer::with_max_job_bytes(10);
    let [watcher, modest] = server.connect_each();
    let list = watch_many(&mut server, &watcher, 5_000);
    watcher.send(b"list-tubes-watched\r\nlist-tube-used\r\n");
    let (mut bytes, mut turns) = (String::new(), 0);
    while bytes.is_empty() {
        modest.send(b"peek-buried\r\n");
        server.one_turn([&watcher, &modest]);
        assert_eq!(modest.received(), "NOT_FOUND\r\n");
        bytes += &watcher.received();
        turns += 1;
    }
    assert!(turns > 10, "expected more than 10 turns, but there were {turns}");
    server.turn([]);
    bytes += &watcher.received();
    assert_eq!(bytes, format!("OK {}\r\n{list}\r\nUSING default\r\n", list.len()));
}

/// Each delivery costs a system call, so a turn makes few of them, whichever event causes a thousand.
#[test]
fn jobs_go_to_a_thousand_waiting_clients_in_slices() {
    const WORKERS: usize = 1_000;
    let due = "put 0 0 100 0\r\n\r\n".repeat(WORKERS);
    let delayed = "put 0 1 100 0\r\n\r\n".repeat(WORKERS);
    for (before, command) in [
        (format!("pause-tube default 9\r\n{due}"), "pause-tube default 0\r\n"),
        (delayed.clone(), "kick 1000\r\n"),
        (delayed, ""),
    ] {
        let mut server = SimulatedServer::with_max_job_bytes(10);
        let producer = server.connect();
        let workers: Vec<Connection> = (0..WORKERS).map(|_| server.connect()).collect();
        for worker in &workers {
            worker.send(b"reserve\r\n");
            server.turn([worker]);
        }
        producer.send(before);
        server.turn([&producer]);
        producer.send(command);
        server.now = START.plus_seconds(2);
        let mut served = 0;
        while served < WORKERS {
            server.one_turn([&producer]);
            let more = workers.iter().filter(|worker| !worker.received().is_empty()).count();
            assert!((1..=64).contains(&more), "{more} deliveries in a turn, after {command:?}");
            served += more;
        }
    }
}

#[test]
fn a_long_list_goes_to_many_clients_in_slices() {
    const CLIENTS: usize = 60;
    let mut server = SimulatedServer::with_max_job_bytes(10);
    let watcher = server.connect();
    for chunk in 0..100 {
        let watch: String = (0..100).map(|tube| format!("watch {:0100}\r\n", 100 * chunk + tube)).collect();
        server.say(&watcher, watch);
    }
    let clients: Vec<Connection> = (0..CLIENTS).map(|_| server.connect()).collect();
    for client in &clients {
        client.send(b"list-tubes\r\n");
    }
    let mut answered = 0;
    while answered < CLIENTS {
        server.one_turn(&clients);
        let replies: Vec<String> = clients.iter().map(Connection::received).collect();
        let bytes: usize = replies.iter().map(String::len).sum();
        assert!(bytes <= 1 << 20, "{bytes} bytes are sent in a turn");
        answered += replies.iter().filter(|reply| reply.starts_with("OK ")).count();
    }
}

/// Clients that wait for the same job cost no more memory than clients that wait for any, and no other client waits
/// until all of them have their reply.
#[test]
fn the_end_of_a_job_is_reported_to_ten_thousand_clients_in_slices() {
    const WAITING: usize = 10_000;
    let waiting = |command: &str| {
        let mut server = SimulatedServer::with_max_job_bytes(10);
        let producer = server.connect();
        server.say(&producer, b"use t\r\nput 0 0 100 0\r\n\r\n");
        let clients: Vec<Connection> = (0..WAITING).map(|_| server.connect_with_room(100)).collect();
        let before = server.executor().memory_bytes();
        for client in &clients {
            client.send(command);
            server.one_turn([client]);
        }
        let bytes = (server.executor().memory_bytes() - before) / WAITING;
        (server, producer, clients, bytes)
    };
    let (.., for_any) = waiting("reserve-with-timeout 1000\r\n");
    let (mut server, modest, clients, for_one) = waiting("wait-job 1 1000\r\n");
    // A reserve is in the queue of its tube. A wait for a job is in three: by client, by job, and by its end.
    assert!(for_one <= for_any + 80, "{for_one} bytes for each client, {for_any} for a reserve");
    modest.send(b"delete 1\r\n");
    let (mut served, mut unanswered) = (0, 0);
    while served < WAITING {
        server.one_turn([&modest]);
        let replies = modest.received();
        unanswered = if replies.is_empty() { unanswered + 1 } else { 0 };
        assert!(unanswered < 3, "a client waits for {unanswered} turns");
        let more = clients[served..].iter().take_while(|client| client.received() == "DELETED 1\r\n").count();
        assert!((1..=64).contains(&more), "{more} replies in a turn");
        served += more;
        assert_eq!(server.is_quiet(), served == WAITING, "a hand-over waits for the rest");
        if unanswered == 0 {
            modest.send(b"peek-buried\r\n");
        }
    }
    server.check_invariants();
}
