//! Single cases in their shortest form; a seed has found many of them. Those about the work of a turn are in `slices`.

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

impl Client {
    /// The bytes arrive at the server.
    pub fn send(&self, bytes: &[u8]) {
        self.pipe.borrow_mut().arrive(bytes);
    }
}

pub fn connect(server: &mut Server<FakeStream>) -> Client {
    connect_with_room(server, 1 << 20)
}

/// A client whose socket takes no more than `room` bytes before some are read.
pub fn connect_with_room(server: &mut Server<FakeStream>, room: usize) -> Client {
    let pipe = Pipe::new(room, Random::new(0));
    let open = |id| Ok::<_, Infallible>(FakeStream { id, pipe: Rc::clone(&pipe) });
    let Ok(id) = server.accept(open, START);
    Client { id, pipe }
}

/// Runs a turn with the events of these clients, in this order.
pub fn one_turn<'a>(
    server: &mut Server<FakeStream>,
    clients: impl IntoIterator<Item = &'a Client>,
    now: Timestamp,
) {
    let event = |client: &Client| (client.id, client.pipe.borrow_mut().take_event());
    let events: Vec<(ClientId, Readiness)> = clients.into_iter().map(event).collect();
    server.turn(events.into_iter(), now);
}

/// Runs a turn as [`one_turn`] does, and then the turns for the remaining work.
pub fn turn(server: &mut Server<FakeStream>, clients: &[&Client]) {
    one_turn(server, clients.iter().copied(), START);
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
    worker.send(b"reserve\r\nstats-tube none\r\n");
    turn(&mut server, &[&worker]);
    producer.send(b"put 0 0 10 1\r\nx\r\n");
    worker.pipe.borrow_mut().end(false);
    turn(&mut server, &[&producer, &worker]);
    assert_eq!(received(&worker), "RESERVED 1 1\r\nx\r\nNOT_FOUND\r\n");
    assert_eq!(server.executor().queue().figures().jobs.ready, 1, "its job is ready again");
}

#[test]
fn the_last_commands_of_a_client_that_has_gone_away_are_executed() {
    let mut server = Server::new(executor(PoisonLimits::default(), 10));
    let producer = connect(&mut server);
    producer.send(b"put 0 0 10 1\r\nx\r\n");
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
    next.send(b"reserve\r\n");
    turn(&mut server, &[&next]);
    let late = Readiness { readable: true, writable: true, read_closed: true, failed: true };
    server.turn([(gone.id, late)].into_iter(), START);
    assert_eq!((received(&next).as_str(), server.executor().queue().figures().waiting), ("", 1));
}

#[test]
fn a_job_that_is_flushed_in_the_turn_of_its_delivery_comes_with_its_fields() {
    let mut server = Server::new(executor(PoisonLimits::default(), 10));
    let [worker, batcher, producer] = [(); 3].map(|()| connect(&mut server));
    worker.send(b"reserve-fields tube pri attempts trace\r\nwatch q\r\nreserve\r\n");
    turn(&mut server, &[&worker]);
    batcher.send(b"reserve-fields pri tube\r\nwatch q\r\nreserve-batch 2 60\r\n");
    turn(&mut server, &[&batcher]);
    received(&worker);
    received(&batcher);
    let puts = b"use q\r\nput 5 0 9 1\r\nx\r\nput 6 0 9 1\r\ny\r\nflush-tube q\r\nput 7 0 9 1\r\nz\r\n";
    producer.send(puts);
    turn(&mut server, &[&producer]);
    assert_eq!(received(&producer), "USING q\r\nINSERTED 1\r\nINSERTED 2\r\nFLUSHED 2\r\nINSERTED 3\r\n");
    assert_eq!(received(&worker), "RESERVED 1 1 q 5 1 -\r\nx\r\n");
    // A batch has the jobs that are there when it is answered.
    assert_eq!(received(&batcher), "RESERVED_BATCH 1\r\nRESERVED 3 1 7 q\r\nz\r\n");
    worker.send(b"delete 1\r\n");
    turn(&mut server, &[&worker]);
    assert_eq!(received(&worker), "NOT_FOUND\r\n");
    server.check_invariants();
}

#[test]
fn the_fields_belong_to_the_connection_and_not_to_its_session() {
    let mut server = Server::new(executor(PoisonLimits::default(), 10));
    let [first, second, producer] = [(); 3].map(|()| connect(&mut server));
    first.send(b"session s 60\r\nreserve-fields tube\r\nreserve\r\n");
    turn(&mut server, &[&first]);
    second.send(b"reserve-fields pri\r\n");
    turn(&mut server, &[&second]);
    assert_eq!(received(&second), "USING pri\r\n");
    // The first client gets a job in the turn in which the second one takes over its session.
    producer.send(b"put 5 0 9 1\r\nx\r\n");
    second.send(b"session s 60\r\n");
    turn(&mut server, &[&producer, &second]);
    assert_eq!(received(&second), "SESSION 1\r\n");
    second.send(b"release 1 6 0\r\nreserve\r\n");
    turn(&mut server, &[&second]);
    assert_eq!(received(&second), "RELEASED\r\nRESERVED 1 1 6\r\nx\r\n");
    server.check_invariants();
}

#[test]
fn a_wait_for_a_job_is_answered_by_what_has_ended_it_whatever_follows() {
    const WAITING: usize = 100;
    let mut server = Server::new(executor(PoisonLimits::default(), 10));
    let [worker, newcomer] = [(); 2].map(|()| connect(&mut server));
    worker.send(b"put 0 0 100 0\r\n\r\nreserve\r\n");
    turn(&mut server, &[&worker]);
    received(&worker);
    let clients: Vec<Client> = (0..WAITING).map(|_| connect(&mut server)).collect();
    for client in &clients {
        client.send(b"wait-job 1 1\r\n");
        turn(&mut server, &[client]);
    }
    // The job is buried and kicked before most of them are answered, and another client waits for it.
    worker.send(b"bury 1 0\r\nkick-job 1\r\n");
    let mut replies = String::new();
    while !replies.ends_with("KICKED\r\n") {
        one_turn(&mut server, [&worker], START);
        replies += &received(&worker);
        server.check_invariants();
    }
    newcomer.send(b"wait-job 1\r\n");
    one_turn(&mut server, [&newcomer], START);
    let answered = clients.iter().take_while(|client| client.pipe.borrow().has_outbound()).count();
    assert!(answered < WAITING - 2, "{answered} are answered");
    // One of them will send nothing more, and gets the reply.
    clients[WAITING - 2].pipe.borrow_mut().end(false);
    one_turn(&mut server, [&clients[WAITING - 2]], START);
    assert!(clients[WAITING - 2].pipe.borrow().has_outbound(), "it does not wait for its turn");
    // One of them leaves, and the time-out of the others has passed.
    clients[WAITING - 1].pipe.borrow_mut().break_off();
    let later = START.plus_seconds(2);
    one_turn(&mut server, [&clients[WAITING - 1]], later);
    while !server.is_quiet() {
        server.turn(std::iter::empty(), later);
        server.check_invariants();
    }
    assert!(clients[..WAITING - 1].iter().all(|client| received(client) == "BURIED 1\r\n"));
    assert_eq!(received(&newcomer), "");
    worker.send(b"delete 1\r\n");
    turn(&mut server, &[&worker]);
    assert_eq!(received(&newcomer), "DELETED 1\r\n");
    server.check_invariants();
}
