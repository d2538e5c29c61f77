//! Cases that the seeds have found, each in its shortest form.

use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;

use beanstalkd::queue::{ClientId, PoisonLimits};
use beanstalkd::server::{Readiness, Server};

use crate::random::Random;
use crate::sockets::{FakeStream, Pipe};
use crate::subject::{START, executor};

struct Client {
    id: ClientId,
    pipe: Rc<RefCell<Pipe>>,
}

fn connect(server: &mut Server<FakeStream>) -> Client {
    let pipe = Pipe::new(1 << 20, Random::new(0));
    let open = |id| Ok::<_, Infallible>(FakeStream { id, pipe: Rc::clone(&pipe) });
    let Ok(id) = server.accept(open, START);
    Client { id, pipe }
}

/// One turn with whatever has happened to these clients, in this order; then what is left to do.
fn turn(server: &mut Server<FakeStream>, clients: &[&Client]) {
    let events: Vec<(ClientId, Readiness)> =
        clients.iter().map(|client| (client.id, client.pipe.borrow_mut().take_event())).collect();
    server.turn(events.into_iter(), START);
    while server.next_turn_at().is_some_and(|at| at <= START) {
        server.turn(std::iter::empty(), START);
    }
}

fn received(client: &Client) -> String {
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
    assert_eq!(server.executor().queue().counts().ready, 1, "its job is ready again");
}

#[test]
fn what_a_client_sent_before_it_went_away_is_executed() {
    let mut server = Server::new(executor(PoisonLimits::default(), 10));
    let producer = connect(&mut server);
    producer.pipe.borrow_mut().arrive(b"put 0 0 10 1\r\nx\r\n");
    producer.pipe.borrow_mut().end(true);
    let gone = Readiness { failed: true, ..producer.pipe.borrow_mut().take_event() };
    server.turn([(producer.id, gone)].into_iter(), START);
    let queue = server.executor().queue();
    assert_eq!((queue.counts().ready, queue.client_count()), (1, 0));
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
    assert_eq!((received(&next).as_str(), server.executor().queue().waiting_count()), ("", 1));
}

#[test]
fn who_sends_without_end_gets_a_share_of_each_turn_and_others_are_answered_in_it() {
    const GREED: usize = 10_000;
    let mut server = Server::new(executor(PoisonLimits::default(), 10));
    let (greedy, modest) = (connect(&mut server), connect(&mut server));
    greedy.pipe.borrow_mut().arrive(&b"peek-buried\r\n".repeat(GREED));
    let event = greedy.pipe.borrow_mut().take_event();
    server.turn([(greedy.id, event)].into_iter(), START);
    let mut answers = received(&greedy).lines().count();
    assert!(answers < GREED, "one turn has executed all of it");
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
fn a_large_reply_leaves_in_pieces_between_which_others_are_answered() {
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
    assert!(bytes < BODY_BYTES, "one turn has sent all of it");
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
