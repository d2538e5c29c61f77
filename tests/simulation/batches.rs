//! The commands for workers that C does not have: batches, `touch-all`, and a reserve that ends at the next byte.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::rc::Rc;

use beanstalkd::clock::Timestamp;
use beanstalkd::queue::{ClientId, PoisonLimits};
use beanstalkd::server::{Readiness, Server};

use beanstalkd_testkit::random::Random;
use beanstalkd_testkit::sockets::{FakeStream, Pipe};
use beanstalkd_testkit::subject::{START, executor};

struct Client {
    id: ClientId,
    pipe: Rc<RefCell<Pipe>>,
}

impl Client {
    fn sends(&self, bytes: impl AsRef<[u8]>) -> &Self {
        self.pipe.borrow_mut().arrive(bytes.as_ref());
        self
    }

    fn ends(&self) -> &Self {
        self.pipe.borrow_mut().end(false);
        self
    }

    fn received(&self) -> String {
        let bytes = self.pipe.borrow_mut().take_outbound(usize::MAX);
        String::from_utf8(bytes).expect("replies are text here")
    }
}

struct World {
    server: Server<FakeStream>,
    now: Timestamp,
}

impl World {
    fn new() -> Self {
        Self { server: Server::new(executor(PoisonLimits::default(), 1 << 20)), now: START }
    }

    fn connect(&mut self) -> Client {
        let pipe = Pipe::new(1 << 24, Random::new(0));
        let open = |id| Ok::<_, Infallible>(FakeStream { id, pipe: Rc::clone(&pipe) });
        let Ok(id) = self.server.accept(open, self.now);
        Client { id, pipe }
    }

    /// One turn with what has happened to these clients, in this order.
    fn one_turn(&mut self, clients: &[&Client]) {
        let events: Vec<(ClientId, Readiness)> =
            clients.iter().map(|client| (client.id, client.pipe.borrow_mut().take_event())).collect();
        self.server.turn(events.into_iter(), self.now);
    }

    /// The same, and what is left to be done.
    fn turn(&mut self, clients: &[&Client]) {
        self.one_turn(clients);
        for _ in 0..10_000 {
            if self.server.next_turn_at().is_none_or(|at| at > self.now) {
                return;
            }
            self.server.turn(std::iter::empty(), self.now);
        }
        panic!("the server does not come to rest");
    }

    fn say(&mut self, client: &Client, bytes: impl AsRef<[u8]>) -> String {
        client.sends(bytes);
        self.turn(&[client]);
        client.received()
    }

    fn passes(&mut self, seconds: u32) {
        self.now = self.now.plus_seconds(seconds);
        self.turn(&[]);
    }
}

/// So many jobs, each with such a body.
fn puts(count: usize, body: &str) -> String {
    format!("put 0 0 100 {}\r\n{body}\r\n", body.len()).repeat(count)
}

/// What a batch of these jobs is answered, each with such a body.
fn batch(ids: impl IntoIterator<Item = u64>, body: &str) -> String {
    let jobs: Vec<String> =
        ids.into_iter().map(|id| format!("RESERVED {id} {}\r\n{body}\r\n", body.len())).collect();
    format!("RESERVED_BATCH {}\r\n{}", jobs.len(), jobs.concat())
}

#[test]
fn batches_are_done_in_slices_between_which_others_are_answered() {
    const JOBS: u64 = 1_000;
    let mut world = World::new();
    let (greedy, modest) = (world.connect(), world.connect());
    world.say(&greedy, puts(JOBS as usize, ""));
    let mut ids = String::new();
    (1..=JOBS).for_each(|id| ids += &format!(" {id}"));
    let (reserve, delete) = (format!("reserve-batch {JOBS}\r\n"), format!("delete-batch{ids}\r\n"));
    for (line, answer) in [
        (&reserve, batch(1..=JOBS, "")),
        (&"touch-all\r\n".to_owned(), format!("TOUCHED_ALL {JOBS}\r\n")),
        (&delete, format!("DELETED_BATCH {JOBS} 0\r\n")),
        (&delete, format!("DELETED_BATCH 0 {JOBS}\r\n")),
    ] {
        greedy.sends(line);
        let (mut turns, mut reply, mut before) =
            (0, String::new(), world.server.executor().queue().counters());
        while reply.is_empty() {
            modest.sends("peek-buried\r\n");
            world.one_turn(&[&greedy, &modest]);
            assert_eq!(modest.received(), "NOT_FOUND\r\n");
            let now = world.server.executor().queue().counters();
            let done = now.reserves + now.deletes - before.reserves - before.deletes;
            assert!(done <= 401, "{done} jobs in a turn");
            (before, reply) = (now, greedy.received());
            turns += 1;
        }
        assert!((2..=10).contains(&turns), "{turns} turns");
        world.turn(&[]);
        assert_eq!(reply + &greedy.received(), answer);
    }
    assert_eq!(world.server.executor().queue().job_count(), 0);
}

#[test]
fn a_batch_waits_in_line_for_its_first_job_and_then_takes_what_nobody_waits_for() {
    let mut world = World::new();
    let [first, batcher, last, producer] = [(); 4].map(|()| world.connect());
    for (client, line) in
        [(&first, "reserve\r\n"), (&batcher, "reserve-batch 3 60\r\n"), (&last, "reserve\r\n")]
    {
        assert_eq!(world.say(client, line), "", "it waits");
    }
    producer.sends(puts(6, "x"));
    world.turn(&[&producer]);
    assert_eq!(first.received(), "RESERVED 1 1\r\nx\r\n");
    assert_eq!(batcher.received(), batch([2, 4, 5], "x"));
    assert_eq!(last.received(), "RESERVED 3 1\r\nx\r\n");
    assert_eq!(world.say(&batcher, "reserve-batch 1000\r\n"), batch([6], "x"));
    assert_eq!(world.say(&batcher, "reserve-batch 1000\r\n"), "RESERVED_BATCH 0\r\n");
}

#[test]
fn a_batch_takes_nothing_from_a_paused_tube_and_goes_on_when_the_pause_is_over() {
    let mut world = World::new();
    let [batcher, waiting, producer] = [(); 3].map(|()| world.connect());
    assert!(world.say(&producer, puts(3, "x") + "pause-tube default 5\r\n").ends_with("PAUSED\r\n"));
    assert_eq!(world.say(&batcher, "reserve-batch 9\r\n"), "RESERVED_BATCH 0\r\n");
    assert_eq!(world.say(&batcher, "reserve-batch 9 0\r\n"), "TIMED_OUT\r\n");
    assert_eq!(world.say(&batcher, "reserve-batch 9 60\r\n"), "");
    assert_eq!(world.say(&waiting, "reserve\r\n"), "");
    world.passes(5);
    assert_eq!(
        (batcher.received(), waiting.received()),
        (batch([1, 3], "x"), "RESERVED 2 1\r\nx\r\n".into())
    );
}

#[test]
fn a_batch_that_waits_ends_like_any_reserve() {
    let mut world = World::new();
    let [batcher, producer] = [(); 2].map(|()| world.connect());
    assert_eq!(world.say(&batcher, "reserve-batch 9 2\r\n"), "");
    world.passes(2);
    assert_eq!(batcher.received(), "TIMED_OUT\r\n");
    world.say(&producer, "put 0 0 10 1\r\nx\r\n");
    assert_eq!(world.say(&batcher, "reserve-batch 9 100\r\n"), batch([1], "x"));
    assert_eq!(world.say(&batcher, "reserve-batch 9 100\r\n"), "");
    world.passes(9);
    assert_eq!(batcher.received(), "DEADLINE_SOON\r\n");
    assert_eq!(world.say(&batcher, "reserve-batch 9 100\r\n"), "DEADLINE_SOON\r\n");
    assert_eq!(world.say(&batcher, "reserve-batch 9\r\n"), "RESERVED_BATCH 0\r\n", "it does not wait");
    assert_eq!(world.say(&batcher, "touch-all\r\n"), "TOUCHED_ALL 1\r\n");
    assert_eq!(world.say(&batcher, "reserve-batch 9 100\r\n"), "");
    batcher.ends();
    world.turn(&[&batcher]);
    assert_eq!((batcher.received().as_str(), world.server.client_count()), ("TIMED_OUT\r\n", 1));
}

#[test]
fn a_batch_whose_only_job_is_flushed_meanwhile_is_empty() {
    let mut world = World::new();
    let [batcher, producer] = [(); 2].map(|()| world.connect());
    assert_eq!(world.say(&batcher, "reserve-batch 9 60\r\nlist-tube-used\r\n"), "");
    assert_eq!(world.say(&producer, puts(1, "x") + "flush-tube default\r\n"), "INSERTED 1\r\nFLUSHED 1\r\n");
    assert_eq!(batcher.received(), "RESERVED_BATCH 0\r\nUSING default\r\n");
}

#[test]
fn a_client_that_leaves_in_the_middle_of_a_batch_gives_all_of_it_back() {
    let mut world = World::new();
    let [batcher, producer] = [(); 2].map(|()| world.connect());
    world.say(&producer, puts(900, ""));
    batcher.sends("reserve-batch 1000\r\n");
    world.one_turn(&[&batcher]);
    assert!((1..900).contains(&world.server.executor().queue().counts().reserved));
    batcher.pipe.borrow_mut().break_off();
    world.turn(&[&batcher]);
    assert_eq!((world.server.client_count(), world.server.executor().queue().counts().ready), (1, 900));
}

#[test]
fn a_batch_is_cut_short_where_the_output_has_no_room_for_more() {
    for (body_bytes, least, most) in [(200, 280, 320), (20_000, 50, 60), (100_000, 10, 12)] {
        let mut world = World::new();
        let [batcher, producer] = [(); 2].map(|()| world.connect());
        let body = "x".repeat(body_bytes);
        for _ in 0..400 {
            world.say(&producer, puts(1, &body));
        }
        let reply = world.say(&batcher, "reserve-batch 1000\r\n");
        let count: u64 = reply["RESERVED_BATCH ".len()..].split("\r\n").next().unwrap().parse().unwrap();
        assert!((least..=most).contains(&count), "{count} bodies of {body_bytes} bytes");
        assert_eq!(reply, batch(1..=count, &body));
        let next = world.say(&batcher, "reserve-batch 2\r\n");
        assert_eq!(next, batch([count + 1, count + 2], &body), "the rest is still there");
        world.server.executor().queue().check_invariants();
    }
}

thread_local! {
    static IS_EXHAUSTED: Cell<bool> = const { Cell::new(false) };
}

#[test]
fn while_memory_is_short_nothing_is_reserved_and_everything_can_be_deleted_and_touched() {
    let mut world = World::new();
    world.server.executor_mut().watch_memory(|| IS_EXHAUSTED.get());
    let client = world.connect();
    world.say(&client, puts(5, "x") + "reserve-batch 2\r\n");
    IS_EXHAUSTED.set(true);
    for line in ["reserve-batch 9\r\n", "reserve-batch 9 60\r\n", "reserve-with-abort\r\n"] {
        assert_eq!(world.say(&client, line), "OUT_OF_MEMORY\r\n");
    }
    assert_eq!(world.say(&client, "reserve-mode weighted\r\n"), "OUT_OF_MEMORY\r\n");
    assert_eq!(world.say(&client, "watch default 7\r\n"), "OUT_OF_MEMORY\r\n");
    assert_eq!(
        world.say(&client, "touch-all\r\ndelete-batch 1 2 3\r\n"),
        "TOUCHED_ALL 2\r\nDELETED_BATCH 3 0\r\n"
    );
    IS_EXHAUSTED.set(false);
    assert_eq!(world.say(&client, "reserve-batch 9\r\n"), batch([4, 5], "x"));
}

#[test]
fn the_next_byte_ends_an_abortable_reserve_and_is_executed() {
    let mut world = World::new();
    let [worker, producer] = [(); 2].map(|()| world.connect());
    assert_eq!(world.say(&worker, "reserve-with-abort\r\n"), "");
    assert_eq!(world.say(&worker, "w"), "ABORTED\r\n", "one byte will do");
    assert_eq!(world.say(&worker, "atch a\r\n"), "WATCHING 2\r\n");
    let pipelined = "reserve-with-abort\r\nlist-tube-used\r\n";
    assert_eq!(world.say(&worker, pipelined), "ABORTED\r\nUSING default\r\n");
    assert_eq!(world.say(&worker, "reserve-with-abort 9\r\nreserve-with-abort 9\r\n"), "ABORTED\r\n");
    world.passes(9);
    assert_eq!(worker.received(), "TIMED_OUT\r\n");
    assert_eq!(
        world.say(&worker, "reserve-with-abort 0\r\nlist-tube-used\r\n"),
        "TIMED_OUT\r\nUSING default\r\n"
    );
    world.say(&producer, "put 0 0 10 1\r\nx\r\n");
    let answer = "RESERVED 1 1\r\nx\r\nUSING default\r\n";
    assert_eq!(world.say(&worker, pipelined), answer, "a job that is there comes first");
    assert_eq!(world.say(&worker, "reserve-with-abort\r\n"), "");
    world.passes(9);
    assert_eq!(worker.received(), "DEADLINE_SOON\r\n");
    assert_eq!(
        world.say(&worker, "reserve-with-abort\r\nlist-tube-used\r\n"),
        "DEADLINE_SOON\r\nUSING default\r\n"
    );
}

#[test]
fn a_job_and_a_byte_in_the_same_turn_come_in_the_order_in_which_they_are_read() {
    for job_first in [true, false] {
        let mut world = World::new();
        let [worker, producer] = [(); 2].map(|()| world.connect());
        assert_eq!(world.say(&worker, "reserve-with-abort\r\n"), "");
        worker.sends("list-tube-used\r\n");
        producer.sends(puts(1, "x"));
        let both = if job_first { [&producer, &worker] } else { [&worker, &producer] };
        world.turn(&both);
        let (answer, ready) = if job_first { ("RESERVED 1 1\r\nx\r\n", 0) } else { ("ABORTED\r\n", 1) };
        assert_eq!(worker.received(), format!("{answer}USING default\r\n"));
        assert_eq!(world.server.executor().queue().counts().ready, ready);
    }
}

#[test]
fn the_end_of_what_a_client_sends_ends_an_abortable_reserve_as_any_other() {
    for (last, answer) in [("", "TIMED_OUT\r\n"), ("list-tube-used\r\n", "ABORTED\r\nUSING default\r\n")] {
        let mut world = World::new();
        let worker = world.connect();
        assert_eq!(world.say(&worker, "reserve-with-abort\r\n"), "");
        worker.sends(last).ends();
        world.turn(&[&worker]);
        assert_eq!((worker.received().as_str(), world.server.client_count()), (answer, 0), "{last:?}");
        let all_at_once = world.connect();
        all_at_once.sends("reserve-with-abort\r\n").sends(last).ends();
        world.turn(&[&all_at_once]);
        assert_eq!((all_at_once.received().as_str(), world.server.client_count()), (answer, 0), "{last:?}");
    }
    // A job that comes in the same turn is the only answer.
    let mut world = World::new();
    let [worker, producer] = [(); 2].map(|()| world.connect());
    assert_eq!(world.say(&worker, "reserve-with-abort\r\n"), "");
    producer.sends(puts(1, "x"));
    worker.ends();
    world.turn(&[&producer, &worker]);
    assert_eq!(worker.received(), "RESERVED 1 1\r\nx\r\n");
    assert_eq!((world.server.client_count(), world.server.executor().queue().counts().ready), (1, 1));
}

#[test]
fn an_abortable_reserve_of_a_client_that_owes_reading_is_aborted_when_it_has_read() {
    let mut world = World::new();
    let [worker, producer] = [(); 2].map(|()| world.connect());
    let body = "x".repeat(1 << 20);
    world.say(&producer, puts(2, &body));
    let pipe = Pipe::new(1000, Random::new(0));
    let open = |id| Ok::<_, Infallible>(FakeStream { id, pipe: Rc::clone(&pipe) });
    let Ok(id) = world.server.accept(open, world.now);
    let slow = Client { id, pipe };
    slow.sends("reserve\r\nreserve\r\nreserve-with-abort\r\n").sends("list-tube-used\r\n");
    world.turn(&[&slow]);
    let mut received = slow.received();
    while !received.ends_with("USING default\r\n") {
        let before = received.len();
        world.turn(&[&slow]);
        received += &slow.received();
        assert!(received.len() > before, "it goes on as it is read");
    }
    assert!(received.ends_with("x\r\nABORTED\r\nUSING default\r\n"));
    world.turn(&[&worker]);
}
