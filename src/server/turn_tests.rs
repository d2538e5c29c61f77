//! Tests of turns that need the inside of the server: counters, or a stream that cannot be handed over. The other tests
//! of turns are in `tests/simulation/`.

use std::cell::RefCell;
use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::iter;
use std::rc::Rc;

use beanstalkd_testkit::sockets::Pipe;

use super::budget::TURN_COST;
use super::{Executor, ExecutorConfig, Readiness, Server, Stream};
use crate::access::{AccessRules, LOOKUPS, Peer};
use crate::clock::{NS_PER_S, Timestamp};
use crate::executor::WATCHED_NAMES;
use crate::poll_token::PollToken;
use crate::queue::ClientId;
use crate::stats::ServerInfo;

const START: Timestamp = Timestamp(1_700_000_000 * NS_PER_S);

/// The fake socket of the tests' kit, without a handle. The kit itself is compiled for the crate without its tests, so
/// its stream does not implement the trait of this crate.
struct Socket(Rc<RefCell<Pipe>>);

impl Stream for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.borrow_mut().read(buffer)
    }

    fn read_into(&mut self, body: &mut Vec<u8>, max_bytes: usize) -> io::Result<usize> {
        self.0.borrow_mut().read_into(body, max_bytes)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.borrow_mut().write_vectored(slices)
    }

    fn await_writable(&mut self, _: PollToken, _: bool) {}
}

struct Client {
    id: ClientId,
    pipe: Rc<RefCell<Pipe>>,
}

impl Client {
    /// Sends `bytes`; returns their event.
    fn send(&self, bytes: impl AsRef<[u8]>) -> (ClientId, Readiness) {
        self.pipe.borrow_mut().arrive(bytes.as_ref());
        (self.id, Readiness { readable: true, ..Readiness::default() })
    }

    fn has_received_nothing(&self) -> bool {
        !self.pipe.borrow().has_outbound()
    }

    fn received(&self) -> String {
        String::from_utf8(self.pipe.borrow_mut().take_outbound(usize::MAX)).unwrap()
    }

    /// The number of lines received since the last call.
    fn received_lines(&self) -> usize {
        self.received().lines().count()
    }
}

fn server() -> Server<Socket> {
    server_with_memory(None)
}

fn server_with_memory(max_memory_bytes: Option<u64>) -> Server<Socket> {
    let config = ExecutorConfig { max_job_bytes: 1 << 16, max_memory_bytes, ..ExecutorConfig::default() };
    let info = ServerInfo { started_at: START, ..ServerInfo::default() };
    Server::new(Executor::new(config, info))
}

fn connect(server: &mut Server<Socket>) -> Client {
    let pipe = Pipe::steady(usize::MAX);
    let Ok(id) = server.accept(|_| Ok::<_, Infallible>(Socket(Rc::clone(&pipe))), START);
    Client { id, pipe }
}

/// A turn with these events, and the turns that follow at once.
fn turn(server: &mut Server<Socket>, events: impl IntoIterator<Item = (ClientId, Readiness)>) {
    server.turn(events.into_iter(), START);
    while server.next_turn_at() == Some(Timestamp::AT_ONCE) {
        server.turn(iter::empty(), START);
    }
}

/// Connects clients that send more than fits in a turn, until the turn has no time left for others.
fn fill_a_turn(server: &mut Server<Socket>, commands: usize) -> Vec<(ClientId, Readiness)> {
    let clients = TURN_COST as usize / commands.min(1024);
    (0..clients).map(|_| connect(server).send("peek-buried\r\n".repeat(commands))).collect()
}

#[test]
fn ten_thousand_clients_are_listed_and_killed_in_slices() {
    const CLIENTS: usize = 10_000;
    /// The cost of a turn without other commands, in simple requests.
    const A_TURN: u64 = 2_000;
    let mut server = server();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| connect(&mut server)).collect();
    let number =
        |server: &Server<Socket>, client: &Client| server.executor().queue().client_number(client.id);
    let numbers: Vec<u64> = clients.iter().map(|client| number(&server, client)).collect();
    let (asker, modest) = (connect(&mut server), connect(&mut server));
    let (mut cursor, mut seen) = (String::new(), Vec::new());
    loop {
        let request = format!("list-clients 1000{cursor}\r\n");
        let mut event = Some(asker.send(request));
        while asker.has_received_nothing() {
            let before = server.executor().counted_cost();
            server.turn([modest.send(b"peek-buried\r\n")].into_iter().chain(event.take()), START);
            assert_eq!(modest.received_lines(), 1, "nobody waits for a list");
            assert!(server.executor().counted_cost() - before < A_TURN, "a turn has a share of it");
        }
        turn(&mut server, []);
        let page = asker.received();
        let ids =
            page.lines().filter_map(|line| line.strip_prefix("- {id: ")?.split_once(',')?.0.parse().ok());
        seen.extend(ids.collect::<Vec<u64>>());
        // Half of the clients disconnect, one in ten of them at a time, and new ones connect.
        for _ in 0..CLIENTS / 20 {
            let gone = clients.swap_remove(clients.len() / 2);
            server.close(gone.id, START);
        }
        clients.push(connect(&mut server));
        let (_, next) = page.split_once("next: \"").unwrap();
        let (next, _) = next.split_once('"').unwrap();
        if next.is_empty() {
            break;
        }
        cursor = format!(" {next}");
    }
    let staying: Vec<u64> = clients.iter().map(|client| number(&server, client)).collect();
    let staying = staying.into_iter().filter(|number| numbers.contains(number)).collect::<Vec<_>>();
    assert!(
        !staying.is_empty() && staying.iter().all(|number| seen.contains(number)),
        "each that stays is seen"
    );
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), count, "and nobody twice");
    let victim = clients.pop().unwrap();
    let kill = format!("kill-client {}\r\n", number(&server, &victim));
    let mut event = Some(asker.send(kill));
    while asker.has_received_nothing() {
        server.turn(event.take().into_iter(), START);
    }
    assert_eq!(asker.received_lines(), 1);
    assert_eq!(server.client_count(), clients.len() + 2);
}

#[test]
fn the_time_of_a_turn_counts_for_each_of_its_commands() {
    let mut server = server();
    let client = connect(&mut server);
    for (commands, ns) in [(3, 1_000), (2, 5_000)] {
        let event = client.send(b"peek-buried\r\n".repeat(commands));
        server.turn([event].into_iter(), START);
        server.executor.observe_turn(ns);
    }
    let timings = server.executor.server_view(START).timings;
    assert_eq!((timings.turns.count(), timings.turns.sum_ns()), (2, 6_000));
    assert_eq!((timings.commands.count(), timings.commands.sum_ns()), (5, 13_000));
}

#[test]
fn input_that_makes_no_request_uses_up_a_turn() {
    let mut server = server();
    let clients: Vec<Client> = iter::repeat_with(|| connect(&mut server)).take(1000).collect();
    let part = format!("delete-batch {}", "\n".repeat(20_000));
    let events: Vec<_> = clients.iter().map(|client| client.send(&part)).collect();
    server.turn(events.into_iter(), START);
    let later = clients.iter().filter(|client| client.pipe.borrow().unread_by_server() > 0).count();
    assert!((1..1000).contains(&later), "{later} clients are left for the next turns");
}

#[test]
fn each_part_of_a_body_costs_something() {
    let mut server = server();
    let client = connect(&mut server);
    let parts =
        [format!("put 0 0 9 60000\r\n{}", "x".repeat(34_000)), "x".repeat(10_000), "x".repeat(15_999)];
    for part in parts {
        let before = server.executor.counted_cost();
        turn(&mut server, [client.send(part)]);
        assert!(server.executor.counted_cost() > before && client.has_received_nothing());
    }
}

#[test]
fn a_client_that_was_only_postponed_keeps_the_burst() {
    const BURST: usize = 1_000;
    let mut server = server();
    let mut events = fill_a_turn(&mut server, 1024);
    let late = connect(&mut server);
    events.push(late.send(b"peek-buried\r\n".repeat(BURST)));
    server.turn(events.into_iter(), START);
    assert_eq!(late.received_lines(), 0, "the turn was full");
    server.turn(iter::empty(), START);
    assert_eq!(late.received_lines(), BURST);
}

#[test]
fn a_watch_with_access_rules_examines_no_tube_twice() {
    const TUBES: usize = 3_000;
    let mut server = server();
    let rules = "[identities.anna]\nunix-users = [1]\nwork = [\"a*\"]\nobserve = [\"*\"]\n";
    server.executor.guard_with(AccessRules::parse(rules, &|_| None).unwrap());
    let client = connect(&mut server);
    server.identify(client.id, Peer::Unix(Some(1)), START);
    let before = WATCHED_NAMES.get();
    let watch: String = (0..TUBES).map(|number| format!("watch a{number}\r\n")).collect();
    turn(&mut server, [client.send(watch)]);
    assert_eq!(client.received_lines(), TUBES);
    let examined = WATCHED_NAMES.get() - before;
    assert!(examined <= 3 * TUBES as u64, "{examined} names examined for {TUBES} commands");
    // The list of watched tubes comes in slices. No slice examines tubes of earlier slices again.
    let before = WATCHED_NAMES.get();
    turn(&mut server, [client.send(b"list-tubes-watched\r\n")]);
    assert!(client.received_lines() > TUBES);
    let examined = WATCHED_NAMES.get() - before;
    assert!(examined <= 2 * TUBES as u64, "{examined} names examined for a list of {TUBES} tubes");
}

#[test]
fn a_reload_judges_a_tube_once_however_many_clients_wait_for_it() {
    const TUBES: u64 = 20;
    let parse = |work: &str| {
        let text = format!("[identities.anna]\nunix-users = [1]\nwork = [\"{work}\"]\n");
        AccessRules::parse(&text, &|_| None).unwrap()
    };
    let mut server = server();
    server.executor.guard_with(parse("a*"));
    let watch: String = (0..TUBES).map(|number| format!("watch a{number}\r\n")).collect();
    let clients: Vec<_> = (0..30).map(|_| connect(&mut server)).collect();
    for client in &clients {
        server.identify(client.id, Peer::Unix(Some(1)), START);
        turn(&mut server, [client.send(format!("{watch}reserve\r\n"))]);
        client.received_lines();
    }
    // The same rules, and others that still allow it.
    for (work, expected) in [("a*", 0), ("*", TUBES)] {
        let before = LOOKUPS.get();
        server.replace_rules(parse(work), START);
        assert_eq!(LOOKUPS.get() - before, expected, "{work}");
        assert!(clients.iter().all(|client| server.executor.queue().is_waiting(client.id)), "{work}");
    }
    server.replace_rules(parse("a1"), START);
    server.turn(iter::empty(), START);
    assert!(clients.iter().all(|client| client.received() == "TIMED_OUT\r\n"));
}

#[test]
fn a_connection_that_is_not_handed_over_gets_its_outstanding_reply() {
    const JOBS: usize = 2_000;
    let mut server = server();
    let client = connect(&mut server);
    turn(&mut server, [client.send("put 0 100 10 0\r\n\r\n".repeat(JOBS))]);
    assert_eq!(client.received_lines(), JOBS);
    server.turn([client.send("kick 2000\r\n")].into_iter(), START);
    assert!(client.has_received_nothing(), "a turn has moved all of them");
    while server.end_those_that_cannot_be_described() > 0 {
        server.turn(iter::empty(), START);
    }
    assert_eq!(client.received(), "KICKED 2000\r\n");
}

#[test]
fn a_connection_that_is_not_handed_over_gets_no_job_while_it_ends() {
    let mut server = server();
    let (client, other) = (connect(&mut server), connect(&mut server));
    turn(&mut server, [client.send("reserve\r\n")]);
    server.end_those_that_cannot_be_described();
    assert!(!server.executor.queue().is_waiting(client.id));
    turn(&mut server, [other.send("put 0 0 10 0\r\n\r\n")]);
    assert!(client.has_received_nothing());
}

/// Puts long jobs until the memory limit refuses one.
fn fill_memory(server: &mut Server<Socket>, producer: &Client) {
    let put = format!("put 0 0 60 10000\r\n{}\r\n", "x".repeat(10_000));
    let mut reply = String::new();
    while !reply.starts_with("OUT_OF_MEMORY") {
        turn(server, [producer.send(&put)]);
        reply = producer.received();
    }
}

/// The beginning of a `delete-batch`, longer than the job that `fill_memory` could not put.
fn half_a_batch() -> String {
    format!("delete-batch 1{}", " 18446744073709551615".repeat(990))
}

#[test]
fn lines_that_have_arrived_in_part_stay_below_the_margin_of_the_memory_limit() {
    const LIMIT: usize = 2 << 20;
    const MARGIN: usize = LIMIT / 16;
    let mut server = server_with_memory(Some(LIMIT as u64));
    let clients: Vec<Client> = (0..200).map(|_| connect(&mut server)).collect();
    let producer = connect(&mut server);
    fill_memory(&mut server, &producer);
    let half = half_a_batch();
    for client in &clients {
        turn(&mut server, [client.send(&half)]);
    }
    let memory = server.executor().memory_bytes();
    assert!((LIMIT + MARGIN / 2..LIMIT + MARGIN + half.len()).contains(&memory), "{memory} bytes");
    // The first clients can make room. All clients continue with their next command.
    let replies: Vec<String> = clients
        .iter()
        .map(|client| {
            turn(&mut server, [client.send("\r\npeek 1\r\n")]);
            client.received()
        })
        .collect();
    assert_eq!(replies[0], "DELETED_BATCH 1 990\r\nNOT_FOUND\r\n");
    let given_up = replies.iter().filter(|&reply| reply == "OUT_OF_MEMORY\r\nNOT_FOUND\r\n").count();
    let done = replies.iter().filter(|&reply| reply == "DELETED_BATCH 0 991\r\nNOT_FOUND\r\n").count();
    assert!(given_up > 0 && done > 0 && given_up + done == clients.len() - 1, "{given_up} and {done}");
}

#[test]
fn a_peek_at_the_reserved_jobs_is_answered_at_the_memory_limit() {
    const JOBS: usize = 5_000;
    let mut server = server_with_memory(Some(8 << 20));
    let (worker, other, asker) = (connect(&mut server), connect(&mut server), connect(&mut server));
    turn(&mut server, [worker.send("put 0 0 60 0\r\n\r\n".repeat(JOBS) + &"reserve\r\n".repeat(JOBS))]);
    fill_memory(&mut server, &other);
    turn(&mut server, [other.send(half_a_batch())]);
    server.turn([asker.send("peek-reserved\r\n")].into_iter(), START);
    assert!(asker.has_received_nothing(), "the search takes several turns");
    turn(&mut server, []);
    assert!(asker.received().starts_with("FOUND "));
    turn(&mut server, [asker.send("list-jobs default reserved 1000\r\n")]);
    assert_eq!(asker.received(), "OUT_OF_MEMORY\r\n");
}

#[test]
fn a_search_for_reserved_jobs_counts_what_it_has_found() {
    const JOBS: usize = 5_000;
    let mut server = server();
    let (worker, asker) = (connect(&mut server), connect(&mut server));
    turn(&mut server, [worker.send("put 0 0 60 0\r\n\r\n".repeat(JOBS) + &"reserve\r\n".repeat(JOBS))]);
    let before = server.executor().memory_bytes();
    server.turn([asker.send("list-jobs default reserved 1000\r\n")].into_iter(), START);
    assert!(asker.has_received_nothing(), "the search takes several turns");
    let found = server.executor().memory_bytes() - before;
    assert!((20_000..100_000).contains(&found), "{found} bytes");
    turn(&mut server, []);
    assert!(asker.received().starts_with("OK "));
}

#[test]
fn pages_that_grow_together_stay_below_the_memory_limit() {
    const LIMIT: usize = 8 << 20;
    const JOBS: usize = 1_500;
    for command in ["list-jobs default ready 1000", "list-jobs default reserved 1000", "list-clients 1000"] {
        let mut server = server_with_memory(Some(LIMIT as u64));
        let (worker, producer) = (connect(&mut server), connect(&mut server));
        turn(&mut server, [worker.send("put 0 0 60 0\r\n\r\n".repeat(JOBS) + &"reserve\r\n".repeat(JOBS))]);
        turn(&mut server, [producer.send("put 0 0 60 0\r\n\r\n".repeat(JOBS))]);
        let clients: Vec<Client> = (0..1000).map(|_| connect(&mut server)).collect();
        let events: Vec<_> = clients.iter().map(|client| client.send(format!("{command}\r\n"))).collect();
        server.turn(events.into_iter(), START);
        let mut peak = 0;
        while server.next_turn_at() == Some(Timestamp::AT_ONCE) {
            peak = peak.max(server.executor().memory_bytes());
            server.turn(iter::empty(), START);
        }
        assert!((LIMIT / 2..LIMIT + LIMIT / 16).contains(&peak), "{command}: {peak} bytes");
        let replies: Vec<String> = clients.iter().map(Client::received).collect();
        let count = |word: &str| replies.iter().filter(|reply| reply.starts_with(word)).count();
        let (listed, refused) = (count("OK "), count("OUT_OF_MEMORY\r\n"));
        assert!(
            listed > 0 && refused > 0 && listed + refused == clients.len(),
            "{command}: {listed}, {refused}"
        );
    }
}
