//! Single cases in their shortest form; a seed has found many of them.

use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;

use beanstalkd::server::{Readiness, Server};
use beanstalkd_queue::{ClientId, PoisonLimits};
use beanstalkd_types::clock::Timestamp;

use beanstalkd_testkit::random::Random;
use beanstalkd_testkit::simulated::{START, executor};
use beanstalkd_testkit::sockets::{FakeStream, Pipe};

pub struct Client {
    pub id: ClientId,
    pub pipe: Rc<RefCell<Pipe>>,
}

pub fn connect(server: &mut Server<FakeStream>) -> Client {
    connect_with_room(server, 1 << 20)
}

/// A client whose socket takes no more than `room` bytes before some are read.
fn connect_with_room(server: &mut Server<FakeStream>, room: usize) -> Client {
    let pipe = Pipe::new(room, Random::new(0));
    let open = |id| Ok::<_, Infallible>(FakeStream { id, pipe: Rc::clone(&pipe) });
    let Ok(id) = server.accept(open, START);
    Client { id, pipe }
}

/// Runs a turn with the events of these clients, in this order, and then the turns for the remaining work.
fn turn(server: &mut Server<FakeStream>, clients: &[&Client]) {
    let events: Vec<(ClientId, Readiness)> =
        clients.iter().map(|client| (client.id, client.pipe.borrow_mut().take_event())).collect();
    server.turn(events.into_iter(), START);
    while server.next_turn_at().is_some_and(|at| at <= START) {
        server.turn(std::iter::empty(), START);
    }
}

pub fn received(client: &Client) -> String {
    String::from_utf8(client.pipe.borrow_mut().take_outbound(usize::MAX)).expect("replies are text here")
}

#[test]
fn a_job_that_comes_together_with_the_end_of_a_waiting_client_is_its_only_answer() {
    let mut server = Server::new(executor(PoisonLimits::default(), 10));
    let (worker, producer) = (connect(&mut server), connect(&mut server));
    worker.pipe.borrow_mut().arrive(b"reserve\r\nstats-tube none\r\n");
    turn(&mut server, &[&worker]);
    producer.pipe.borrow_mut().arrive(b"put 0 0 10 1\r\nx\r\n");
    worker.pipe.borrow_mut().end(false);
    turn(&mut server, &[&producer, &worker]);
    assert_eq!(received(&worker), "RESERVED 1 1\r\nx\r\nNOT_FOUND\r\n");
    assert_eq!(server.executor().queue().figures().jobs.ready, 1, "its job is ready again");
}

#[test]
fn the_last_commands_of_a_client_that_has_gone_away_are_executed() {
    let mut server = Server::new(executor(PoisonLimits::default(), 10));
    let producer = connect(&mut server);
    producer.pipe.borrow_mut().arrive(b"put 0 0 10 1\r\nx\r\n");
    producer.pipe.borrow_mut().end(true);
    let gone = Readiness { failed: true, ..producer.pipe.borrow_mut().take_event() };
    server.turn([(producer.id, gone)].into_iter(), START);
    let queue = server.executor().queue();
    assert_eq!((queue.figures().jobs.ready, queue.figures().clients), (1, 0));
}

#[test]
fn an_event_of_a_connection_that_is_gone_is_not_one_of_the_next_in_its_place() {
    let mut server = Server::new(executor(PoisonLimits::default(), 10));
    let gone = connect(&mut server);
    gone.pipe.borrow_mut().end(false);
    turn(&mut server, &[&gone]);
    let next = connect(&mut server);
    assert_eq!(next.id.index, gone.id.index);
    next.pipe.borrow_mut().arrive(b"reserve\r\n");
    turn(&mut server, &[&next]);
    let late = Readiness { readable: true, writable: true, read_closed: true, failed: true };
    server.turn([(gone.id, late)].into_iter(), START);
    assert_eq!((received(&next).as_str(), server.executor().queue().figures().waiting), ("", 1));
}

#[test]
fn a_client_that_sends_without_end_gets_a_share_of_each_turn_beside_others() {
    const GREED: usize = 10_000;
    let mut server = Server::new(executor(PoisonLimits::default(), 10));
    let (greedy, modest) = (connect(&mut server), connect(&mut server));
    greedy.pipe.borrow_mut().arrive(&b"peek-buried\r\n".repeat(GREED));
    let event = greedy.pipe.borrow_mut().take_event();
    server.turn([(greedy.id, event)].into_iter(), START);
    let mut answers = received(&greedy).lines().count();
    assert!(answers < GREED, "{answers} of {GREED} commands were executed in one turn");
    for _ in 0..10 {
        modest.pipe.borrow_mut().arrive(b"peek-buried\r\n");
        let event = modest.pipe.borrow_mut().take_event();
        server.turn([(modest.id, event)].into_iter(), START);
        assert_eq!(received(&modest), "NOT_FOUND\r\n");
        let more = received(&greedy).lines().count();
        assert!((1..=128).contains(&more), "{more} answers in a turn");
        answers += more;
    }
    turn(&mut server, &[]);
    assert_eq!(answers + received(&greedy).lines().count(), GREED, "each is answered once");
}

#[test]
fn a_kick_of_many_jobs_is_done_in_slices_between_which_others_are_answered() {
    const JOBS: u64 = 5_000;
    let mut server = Server::new(executor(PoisonLimits::default(), 10));
    let (greedy, modest) = (connect(&mut server), connect(&mut server));
    greedy.pipe.borrow_mut().arrive(&b"put 0 100 10 0\r\n\r\n".repeat(JOBS as usize));
    turn(&mut server, &[&greedy]);
    received(&greedy);
    greedy.pipe.borrow_mut().arrive(b"kick 4999\r\nkick 9\r\n");
    greedy.pipe.borrow_mut().end(false);
    let mut kicked = 0;
    while kicked < JOBS {
        modest.pipe.borrow_mut().arrive(b"peek-buried\r\n");
        let events = [&greedy, &modest].map(|client| (client.id, client.pipe.borrow_mut().take_event()));
        server.turn(events.into_iter(), START);
        assert_eq!(received(&modest), "NOT_FOUND\r\n");
        let kicks = server.executor().queue().figures().events.kicks;
        assert!((1..=512).contains(&(kicks - kicked)), "{} jobs in a turn", kicks - kicked);
        kicked = kicks;
        assert!(
            kicked == JOBS || server.next_turn_at() == Some(Timestamp(0)),
            "the next turn comes without an event"
        );
    }
    turn(&mut server, &[]);
    assert_eq!(received(&greedy), "KICKED 4999\r\nKICKED 1\r\n");
    assert_eq!(server.client_count(), 1);
}

/// Puts this many jobs into the tube "t", and lets the worker reserve every fourth of them.
fn fill(server: &mut Server<FakeStream>, producer: &Client, worker: &Client, jobs: usize) {
    producer.pipe.borrow_mut().arrive(b"use t\r\n");
    producer.pipe.borrow_mut().arrive(&b"put 0 0 100 0\r\n\r\n".repeat(jobs / 2));
    producer.pipe.borrow_mut().arrive(&b"put 0 50 100 0\r\n\r\n".repeat(jobs / 2));
    worker.pipe.borrow_mut().arrive(b"watch t\r\n");
    turn(server, &[producer, worker]);
    worker.pipe.borrow_mut().arrive(&b"reserve\r\n".repeat(jobs / 4));
    turn(server, &[worker]);
    received(producer);
    received(worker);
}

#[test]
fn a_flush_of_many_jobs_is_done_in_slices_between_which_others_are_answered() {
    const JOBS: u64 = 6_000;
    let mut server = Server::new(executor(PoisonLimits::default(), 10));
    let (greedy, modest, worker) = (connect(&mut server), connect(&mut server), connect(&mut server));
    fill(&mut server, &greedy, &worker, JOBS as usize);
    greedy.pipe.borrow_mut().arrive(b"flush-tube t\r\nflush-tube t\r\n");
    greedy.pipe.borrow_mut().end(false);
    let (mut flushed, mut put) = (0, 0);
    while flushed < JOBS {
        modest.pipe.borrow_mut().arrive(b"use t\r\nput 0 0 10 0\r\n\r\n");
        let events = [&greedy, &modest].map(|client| (client.id, client.pipe.borrow_mut().take_event()));
        server.turn(events.into_iter(), START);
        put += 1;
        assert_eq!(received(&modest), format!("USING t\r\nINSERTED {}\r\n", JOBS + put));
        let deletes = server.executor().queue().figures().events.deletes;
        assert!((1..=512).contains(&(deletes - flushed)), "{} jobs in a turn", deletes - flushed);
        flushed = deletes;
    }
    assert!(put > 10, "{put} turns");
    turn(&mut server, &[]);
    // The second flush finds the jobs that were put between the two.
    assert_eq!(received(&greedy), format!("FLUSHED {JOBS}\r\nFLUSHED {}\r\n", put - 1));
    worker.pipe.borrow_mut().arrive(b"touch 1\r\n");
    turn(&mut server, &[&worker]);
    assert_eq!(received(&worker), "NOT_FOUND\r\n");
    assert_eq!((server.client_count(), server.executor().queue().figures().jobs.total()), (2, 1));
}

#[test]
fn a_flush_ends_with_its_client() {
    let mut server = Server::new(executor(PoisonLimits::default(), 10));
    let (greedy, worker) = (connect(&mut server), connect(&mut server));
    fill(&mut server, &greedy, &worker, 4_000);
    greedy.pipe.borrow_mut().arrive(b"peek-buried\r\nflush-tube t\r\n");
    greedy.pipe.borrow_mut().end(true);
    turn(&mut server, &[&greedy]);
    let deletes = server.executor().queue().figures().events.deletes;
    assert!((1..4_000).contains(&deletes), "{deletes} jobs");
    assert_eq!(server.client_count(), 1);
    server.executor().queue().check_invariants();
}

#[test]
fn a_page_of_a_thousand_jobs_is_written_in_slices_and_so_is_a_search() {
    const RESERVED: usize = 3_000;
    let mut server = Server::new(executor(PoisonLimits::default(), 10));
    let (greedy, modest, worker) = (connect(&mut server), connect(&mut server), connect(&mut server));
    fill(&mut server, &greedy, &worker, 4 * RESERVED);
    greedy.pipe.borrow_mut().arrive(b"peek-reserved\r\n");
    for (state, count) in [("ready", RESERVED), ("reserved", RESERVED), ("delayed", 2 * RESERVED)] {
        let line = format!("list-jobs t {state} 1000\r\n");
        greedy.pipe.borrow_mut().arrive(line.as_bytes());
        let (mut turns, mut page) = (0, String::new());
        while page.lines().filter(|line| line.starts_with("- {id: ")).count() < 1000 {
            modest.pipe.borrow_mut().arrive(b"peek-buried\r\n");
            let events = [&greedy, &modest].map(|client| (client.id, client.pipe.borrow_mut().take_event()));
            server.turn(events.into_iter(), START);
            assert_eq!(received(&modest), "NOT_FOUND\r\n");
            page += &received(&greedy);
            turns += 1;
            assert!(turns < 100, "{page}");
        }
        assert!(turns >= 8, "{state}: {turns} turns for {count} jobs");
        let is_first = state == "ready";
        assert!(page.starts_with(if is_first { "FOUND 1 0\r\n\r\nOK " } else { "OK " }), "{}", &page[..30]);
        assert!(page.contains(&format!("next: \"{state}-")), "more follow");
    }
    // A client that disconnects in the middle of a search or a page leaves nothing behind.
    greedy.pipe.borrow_mut().arrive(b"peek-buried\r\nlist-jobs t reserved 1000\r\n");
    greedy.pipe.borrow_mut().end(true);
    turn(&mut server, &[&greedy]);
    assert_eq!(server.client_count(), 2);
    server.check_invariants();
}

#[test]
fn the_jobs_and_tubes_of_a_disconnected_client_are_released_in_slices() {
    const JOBS: u64 = 5_000;
    const PER_TURN: u64 = 512;
    let mut server = Server::new(executor(PoisonLimits::default(), 10));
    let (greedy, modest) = (connect(&mut server), connect(&mut server));
    for chunk in 0..50 {
        let watch: String = (0..100).map(|tube| format!("watch t{}\r\n", 100 * chunk + tube)).collect();
        let jobs = "put 0 0 100 0\r\n\r\nreserve\r\n".repeat(100);
        greedy.pipe.borrow_mut().arrive((watch + &jobs).as_bytes());
        turn(&mut server, &[&greedy]);
        received(&greedy);
    }
    greedy.pipe.borrow_mut().end(true);
    let mut left = 2 * JOBS;
    while left > 1 {
        modest.pipe.borrow_mut().arrive(b"delete 4999\r\n");
        let events = [&greedy, &modest].map(|client| (client.id, client.pipe.borrow_mut().take_event()));
        server.turn(events.into_iter(), START);
        let queue = server.executor().queue();
        queue.check_invariants();
        let answer = received(&modest);
        let is_given_back = queue.figures().jobs.total() < JOBS as usize;
        assert_eq!(answer == "DELETED\r\n" || left <= JOBS, is_given_back, "{answer}");
        let still = queue.figures().jobs.reserved + queue.figures().tubes as u64;
        assert!(left - still <= 2 * PER_TURN + 1, "{} in a turn", left - still);
        assert!(
            still == 1 || server.next_turn_at() == Some(Timestamp(0)),
            "the next turn comes without an event"
        );
        assert_eq!(queue.figures().clients, 1, "the client itself is gone at once");
        left = still;
    }
    assert_eq!(server.executor().queue().figures().jobs.ready, JOBS - 1);
}

#[test]
fn a_turn_ends_at_its_budget_however_many_clients_have_sent_commands() {
    const CLIENTS: usize = 60;
    let mut server = Server::new(executor(PoisonLimits::default(), 10));
    let clients: Vec<Client> = (0..CLIENTS).map(|_| connect(&mut server)).collect();
    for client in &clients {
        client.pipe.borrow_mut().arrive(&b"stats\r\n".repeat(100));
    }
    let mut left = 100 * CLIENTS;
    while left > 0 {
        let events: Vec<_> =
            clients.iter().map(|client| (client.id, client.pipe.borrow_mut().take_event())).collect();
        server.turn(events.into_iter(), START);
        let more: usize = clients.iter().map(|client| received(client).matches("\r\n---\n").count()).sum();
        assert!((1..=500).contains(&more), "{more} stats in a turn");
        left -= more;
    }
}

#[test]
fn a_kick_under_way_ends_with_its_client() {
    const JOBS: usize = 5_000;
    let mut server = Server::new(executor(PoisonLimits::default(), 10));
    let greedy = connect(&mut server);
    greedy.pipe.borrow_mut().arrive(&b"put 0 100 10 0\r\n\r\n".repeat(JOBS));
    turn(&mut server, &[&greedy]);
    greedy.pipe.borrow_mut().arrive(b"peek-buried\r\nkick 5000\r\n");
    greedy.pipe.borrow_mut().end(true);
    turn(&mut server, &[&greedy]);
    let queue = server.executor().queue();
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
    let mut server = Server::new(executor(PoisonLimits::default(), BODY_BYTES as u32));
    let (greedy, modest) = (connect(&mut server), connect(&mut server));
    let put = [format!("put 0 0 10 {BODY_BYTES}\r\n").into_bytes(), vec![b'x'; BODY_BYTES], b"\r\n".into()];
    greedy.pipe.borrow_mut().arrive(&put.concat());
    turn(&mut server, &[&greedy]);
    assert_eq!(received(&greedy), "INSERTED 1\r\n");
    greedy.pipe.borrow_mut().arrive(b"peek 1\r\n");
    let event = greedy.pipe.borrow_mut().take_event();
    server.turn([(greedy.id, event)].into_iter(), START);
    let mut bytes = received(&greedy).len();
    assert!(bytes < BODY_BYTES, "{bytes} of {BODY_BYTES} bytes were sent in one turn");
    while bytes < BODY_BYTES {
        modest.pipe.borrow_mut().arrive(b"peek-buried\r\n");
        let event = modest.pipe.borrow_mut().take_event();
        server.turn([(modest.id, event)].into_iter(), START);
        assert_eq!(received(&modest), "NOT_FOUND\r\n");
        let more = received(&greedy).len();
        assert!((1..=256 * 1024).contains(&more), "{more} bytes in a turn");
        bytes += more;
    }
    assert_eq!(bytes, format!("FOUND 1 {BODY_BYTES}\r\n\r\n").len() + BODY_BYTES);
}

/// Makes the client watch this many tubes. Returns the data that `list-tubes-watched` must reply then.
fn watch_many(server: &mut Server<FakeStream>, client: &Client, tubes: usize) -> String {
    let names: Vec<String> = (0..tubes).map(|number| format!("{number}-{}", "x".repeat(90))).collect();
    let commands: String = names.iter().map(|name| format!("watch {name}\r\n")).collect();
    client.pipe.borrow_mut().arrive(commands.as_bytes());
    turn(server, &[client]);
    received(client);
    ["---\n- default\n".to_owned()]
        .into_iter()
        .chain(names.iter().map(|name| format!("- {name}\n")))
        .collect()
}

#[test]
fn a_long_list_of_tubes_is_made_in_slices_and_held_once_for_all_clients() {
    let mut server = Server::new(executor(PoisonLimits::default(), 10));
    let (maker, modest) = (connect(&mut server), connect(&mut server));
    let list = watch_many(&mut server, &maker, 5_000);
    let clients: Vec<Client> = (0..20).map(|_| connect_with_room(&mut server, 1_000)).collect();
    let late = connect(&mut server);
    let before = server.executor().memory_bytes();
    clients.iter().for_each(|client| client.pipe.borrow_mut().arrive(b"list-tubes\r\nlist-tube-used\r\n"));
    let events: Vec<_> =
        clients.iter().map(|client| (client.id, client.pipe.borrow_mut().take_event())).collect();
    server.turn(events.into_iter(), START);
    // A new tube is in the lists of clients that send the command after it was made.
    maker.pipe.borrow_mut().arrive(b"watch late\r\n");
    late.pipe.borrow_mut().arrive(b"list-tubes\r\n");
    let events = [&maker, &late].map(|client| (client.id, client.pipe.borrow_mut().take_event()));
    server.turn(events.into_iter(), START);
    let mut turns = 0;
    while !clients[0].pipe.borrow().has_outbound() {
        assert_eq!(server.next_turn_at(), Some(Timestamp(0)), "the next turn comes without an event");
        modest.pipe.borrow_mut().arrive(b"peek-buried\r\n");
        let event = modest.pipe.borrow_mut().take_event();
        server.turn([(modest.id, event)].into_iter(), START);
        assert_eq!(received(&modest), "NOT_FOUND\r\n");
        turns += 1;
    }
    assert!(turns > 10, "expected more than 10 turns, but there were {turns}");
    turn(&mut server, &[]);
    let growth = server.executor().memory_bytes() - before;
    assert!(growth < 3 * list.len(), "{growth} bytes for twenty lists of {}", list.len());
    for client in &clients {
        client.pipe.borrow_mut().widen();
        let mut bytes = received(client);
        turn(&mut server, &[client]);
        bytes += &received(client);
        assert_eq!(bytes, format!("OK {}\r\n{list}\r\nUSING default\r\n", list.len()));
    }
    assert_eq!(received(&late), format!("OK {}\r\n{list}- late\n\r\n", list.len() + "- late\n".len()));
    for _ in 0..100 {
        server.turn(std::iter::empty(), START);
    }
    let left = server.executor().memory_bytes() - before;
    assert!(left < 64 << 10, "{left} bytes are left of lists that were sent");
}

#[test]
fn a_long_list_of_watched_tubes_is_made_in_slices_between_which_others_are_answered() {
    let mut server = Server::new(executor(PoisonLimits::default(), 10));
    let (watcher, modest) = (connect(&mut server), connect(&mut server));
    let list = watch_many(&mut server, &watcher, 5_000);
    watcher.pipe.borrow_mut().arrive(b"list-tubes-watched\r\nlist-tube-used\r\n");
    let (mut bytes, mut turns) = (String::new(), 0);
    while bytes.is_empty() {
        modest.pipe.borrow_mut().arrive(b"peek-buried\r\n");
        let events = [&watcher, &modest].map(|client| (client.id, client.pipe.borrow_mut().take_event()));
        server.turn(events.into_iter(), START);
        assert_eq!(received(&modest), "NOT_FOUND\r\n");
        bytes += &received(&watcher);
        turns += 1;
    }
    assert!(turns > 10, "expected more than 10 turns, but there were {turns}");
    turn(&mut server, &[]);
    bytes += &received(&watcher);
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
        let mut server = Server::new(executor(PoisonLimits::default(), 10));
        let producer = connect(&mut server);
        let workers: Vec<Client> = (0..WORKERS).map(|_| connect(&mut server)).collect();
        for worker in &workers {
            worker.pipe.borrow_mut().arrive(b"reserve\r\n");
            turn(&mut server, &[worker]);
        }
        producer.pipe.borrow_mut().arrive(before.as_bytes());
        turn(&mut server, &[&producer]);
        producer.pipe.borrow_mut().arrive(command.as_bytes());
        let later = START.plus_seconds(2);
        let mut served = 0;
        while served < WORKERS {
            let event = producer.pipe.borrow_mut().take_event();
            server.turn([(producer.id, event)].into_iter(), later);
            let more = workers.iter().filter(|worker| !received(worker).is_empty()).count();
            assert!((1..=64).contains(&more), "{more} deliveries in a turn, after {command:?}");
            served += more;
        }
    }
}

#[test]
fn a_long_list_goes_to_many_clients_in_slices() {
    const CLIENTS: usize = 60;
    let mut server = Server::new(executor(PoisonLimits::default(), 10));
    let watcher = connect(&mut server);
    for chunk in 0..100 {
        let watch: String = (0..100).map(|tube| format!("watch {:0100}\r\n", 100 * chunk + tube)).collect();
        watcher.pipe.borrow_mut().arrive(watch.as_bytes());
        turn(&mut server, &[&watcher]);
        received(&watcher);
    }
    let clients: Vec<Client> = (0..CLIENTS).map(|_| connect(&mut server)).collect();
    for client in &clients {
        client.pipe.borrow_mut().arrive(b"list-tubes\r\n");
    }
    let mut answered = 0;
    while answered < CLIENTS {
        let events: Vec<_> =
            clients.iter().map(|client| (client.id, client.pipe.borrow_mut().take_event())).collect();
        server.turn(events.into_iter(), START);
        let replies: Vec<String> = clients.iter().map(received).collect();
        let bytes: usize = replies.iter().map(String::len).sum();
        assert!(bytes <= 1 << 20, "{bytes} bytes are sent in a turn");
        answered += replies.iter().filter(|reply| reply.starts_with("OK ")).count();
    }
}

/// Clients that wait for the same job cost no more memory than clients that wait for any, and no other client waits
/// until all of them have their reply.
#[test]
fn the_end_of_a_job_is_said_to_ten_thousand_clients_in_slices() {
    const WAITING: usize = 10_000;
    let waiting = |command: &str| {
        let mut server = Server::new(executor(PoisonLimits::default(), 10));
        let producer = connect(&mut server);
        producer.pipe.borrow_mut().arrive(b"use t\r\nput 0 0 100 0\r\n\r\n");
        turn(&mut server, &[&producer]);
        received(&producer);
        let clients: Vec<Client> = (0..WAITING).map(|_| connect_with_room(&mut server, 100)).collect();
        let before = server.executor().memory_bytes();
        for client in &clients {
            client.pipe.borrow_mut().arrive(command.as_bytes());
            let event = client.pipe.borrow_mut().take_event();
            server.turn([(client.id, event)].into_iter(), START);
        }
        let bytes = (server.executor().memory_bytes() - before) / WAITING;
        (server, producer, clients, bytes)
    };
    let (.., for_any) = waiting("reserve-with-timeout 1000\r\n");
    let (mut server, modest, clients, for_one) = waiting("wait-job 1 1000\r\n");
    // A reserve is in the queue of its tube. A wait for a job is in three: by client, by job, and by its end.
    assert!(for_one <= for_any + 80, "{for_one} bytes for each client, {for_any} for a reserve");
    modest.pipe.borrow_mut().arrive(b"delete 1\r\n");
    let (mut served, mut unanswered) = (0, 0);
    while served < WAITING {
        let event = modest.pipe.borrow_mut().take_event();
        server.turn([(modest.id, event)].into_iter(), START);
        let replies = received(&modest);
        unanswered = if replies.is_empty() { unanswered + 1 } else { 0 };
        assert!(unanswered < 3, "a client waits for {unanswered} turns");
        let more = clients[served..].iter().take_while(|client| received(client) == "DELETED 1\r\n").count();
        assert!((1..=64).contains(&more), "{more} replies in a turn");
        served += more;
        assert_eq!(server.is_quiet(), served == WAITING, "a hand-over waits for the rest");
        if unanswered == 0 {
            modest.pipe.borrow_mut().arrive(b"peek-buried\r\n");
        }
    }
    server.check_invariants();
}

#[test]
fn a_job_that_is_flushed_in_the_turn_of_its_delivery_comes_with_its_fields() {
    let mut server = Server::new(executor(PoisonLimits::default(), 10));
    let [worker, batcher, producer] = [(); 3].map(|()| connect(&mut server));
    worker.pipe.borrow_mut().arrive(b"reserve-fields tube pri attempts trace\r\nwatch q\r\nreserve\r\n");
    turn(&mut server, &[&worker]);
    batcher.pipe.borrow_mut().arrive(b"reserve-fields pri tube\r\nwatch q\r\nreserve-batch 2 60\r\n");
    turn(&mut server, &[&batcher]);
    received(&worker);
    received(&batcher);
    let puts = b"use q\r\nput 5 0 9 1\r\nx\r\nput 6 0 9 1\r\ny\r\nflush-tube q\r\nput 7 0 9 1\r\nz\r\n";
    producer.pipe.borrow_mut().arrive(puts);
    turn(&mut server, &[&producer]);
    assert_eq!(received(&producer), "USING q\r\nINSERTED 1\r\nINSERTED 2\r\nFLUSHED 2\r\nINSERTED 3\r\n");
    assert_eq!(received(&worker), "RESERVED 1 1 q 5 1 -\r\nx\r\n");
    // A batch has the jobs that are there when it is answered.
    assert_eq!(received(&batcher), "RESERVED_BATCH 1\r\nRESERVED 3 1 7 q\r\nz\r\n");
    worker.pipe.borrow_mut().arrive(b"delete 1\r\n");
    turn(&mut server, &[&worker]);
    assert_eq!(received(&worker), "NOT_FOUND\r\n");
    server.check_invariants();
}

#[test]
fn the_fields_belong_to_the_connection_and_not_to_its_session() {
    let mut server = Server::new(executor(PoisonLimits::default(), 10));
    let [first, second, producer] = [(); 3].map(|()| connect(&mut server));
    first.pipe.borrow_mut().arrive(b"session s 60\r\nreserve-fields tube\r\nreserve\r\n");
    turn(&mut server, &[&first]);
    second.pipe.borrow_mut().arrive(b"reserve-fields pri\r\n");
    turn(&mut server, &[&second]);
    assert_eq!(received(&second), "USING pri\r\n");
    // The first client gets a job in the turn in which the second one takes over its session.
    producer.pipe.borrow_mut().arrive(b"put 5 0 9 1\r\nx\r\n");
    second.pipe.borrow_mut().arrive(b"session s 60\r\n");
    turn(&mut server, &[&producer, &second]);
    assert_eq!(received(&second), "SESSION 1\r\n");
    second.pipe.borrow_mut().arrive(b"release 1 6 0\r\nreserve\r\n");
    turn(&mut server, &[&second]);
    assert_eq!(received(&second), "RELEASED\r\nRESERVED 1 1 6\r\nx\r\n");
    server.check_invariants();
}

#[test]
fn a_wait_for_a_job_is_answered_by_what_has_ended_it_whatever_follows() {
    const WAITING: usize = 100;
    let mut server = Server::new(executor(PoisonLimits::default(), 10));
    let [worker, newcomer] = [(); 2].map(|()| connect(&mut server));
    worker.pipe.borrow_mut().arrive(b"put 0 0 100 0\r\n\r\nreserve\r\n");
    turn(&mut server, &[&worker]);
    received(&worker);
    let clients: Vec<Client> = (0..WAITING).map(|_| connect(&mut server)).collect();
    for client in &clients {
        client.pipe.borrow_mut().arrive(b"wait-job 1 1\r\n");
        turn(&mut server, &[client]);
    }
    // The job is buried and kicked before most of them are answered, and another client waits for it.
    worker.pipe.borrow_mut().arrive(b"bury 1 0\r\nkick-job 1\r\n");
    let mut replies = String::new();
    while !replies.ends_with("KICKED\r\n") {
        let event = worker.pipe.borrow_mut().take_event();
        server.turn([(worker.id, event)].into_iter(), START);
        replies += &received(&worker);
        server.check_invariants();
    }
    newcomer.pipe.borrow_mut().arrive(b"wait-job 1\r\n");
    let event = newcomer.pipe.borrow_mut().take_event();
    server.turn([(newcomer.id, event)].into_iter(), START);
    let answered = clients.iter().take_while(|client| client.pipe.borrow().has_outbound()).count();
    assert!(answered < WAITING - 2, "{answered} are answered");
    // One of them will send nothing more, and gets the reply.
    clients[WAITING - 2].pipe.borrow_mut().end(false);
    let event = clients[WAITING - 2].pipe.borrow_mut().take_event();
    server.turn([(clients[WAITING - 2].id, event)].into_iter(), START);
    assert!(clients[WAITING - 2].pipe.borrow().has_outbound(), "it does not wait for its turn");
    // One of them leaves, and the time-out of the others has passed.
    clients[WAITING - 1].pipe.borrow_mut().break_off();
    let event = clients[WAITING - 1].pipe.borrow_mut().take_event();
    let later = START.plus_seconds(2);
    server.turn([(clients[WAITING - 1].id, event)].into_iter(), later);
    while !server.is_quiet() {
        server.turn(std::iter::empty(), later);
        server.check_invariants();
    }
    assert!(clients[..WAITING - 1].iter().all(|client| received(client) == "BURIED 1\r\n"));
    assert_eq!(received(&newcomer), "");
    worker.pipe.borrow_mut().arrive(b"delete 1\r\n");
    turn(&mut server, &[&worker]);
    assert_eq!(received(&newcomer), "DELETED 1\r\n");
    server.check_invariants();
}
