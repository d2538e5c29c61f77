//! Tests of which client is served in which turn, and of when its replies leave, over a fake stream.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, ErrorKind, IoSlice};
use std::iter;
use std::rc::Rc;
use std::time::Duration;

use super::budget::TURN_WORK;
use super::{Executor, ExecutorConfig, Readiness, Server, Stream};
use crate::access::{AccessRules, LOOKUPS, Peer};
use crate::binlog::{self, Binlog, Completion, Listing, LogPosition, Storage, StoreTask, SyncPolicy};
use crate::clock::{NS_PER_S, Timestamp};
use crate::commands::WATCHED_NAMES;
use crate::orders::{Control, Order};
use crate::poll_token::PollToken;
use crate::queue::{ClientId, FlushScope};
use crate::stats::{ServerInfo, StatsSource};
use crate::tube_name::TubeName;

const START: Timestamp = Timestamp(1_700_000_000 * NS_PER_S);

/// The bytes that a client has sent, and those that it has received.
#[derive(Default)]
struct Wire {
    sent: VecDeque<u8>,
    received: Vec<u8>,
    /// How many bytes the socket takes; all of them unless a test sets a limit.
    room: Option<usize>,
    /// Called when the server reads.
    at_read: Option<Box<dyn Fn()>>,
}

#[derive(Clone, Default)]
struct FakeStream(Rc<RefCell<Wire>>);

impl Stream for FakeStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wire = &mut *self.0.borrow_mut();
        if let Some(at_read) = &wire.at_read {
            at_read();
        }
        let sent = &mut wire.sent;
        if sent.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        io::Read::read(sent, buffer)
    }

    fn read_into(&mut self, body: &mut Vec<u8>, max_bytes: usize) -> io::Result<usize> {
        let mut buffer = vec![0; max_bytes];
        let read = self.read(&mut buffer)?;
        body.extend_from_slice(&buffer[..read]);
        Ok(read)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let wire = &mut *self.0.borrow_mut();
        let taken = wire.room.unwrap_or(usize::MAX).min(bytes.len());
        if taken == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        wire.room = wire.room.map(|room| room - taken);
        wire.received.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write(&slices.iter().flat_map(|slice| slice.to_vec()).collect::<Vec<u8>>())
    }

    fn await_writable(&mut self, _: PollToken, _: bool) {}
}

struct Client {
    id: ClientId,
    wire: FakeStream,
}

impl Client {
    /// Sends `bytes`; returns their event.
    fn send(&self, bytes: &[u8]) -> (ClientId, Readiness) {
        self.wire.0.borrow_mut().sent.extend(bytes);
        (self.id, Readiness { readable: true, ..Readiness::default() })
    }

    fn has_received_nothing(&self) -> bool {
        self.wire.0.borrow().received.is_empty()
    }

    /// The number of lines received since the last call.
    fn received_lines(&self) -> usize {
        let received = std::mem::take(&mut self.wire.0.borrow_mut().received);
        received.iter().filter(|&&byte| byte == b'\n').count()
    }
}

fn server() -> Server<FakeStream> {
    let config = ExecutorConfig { max_job_bytes: 1 << 16, ..ExecutorConfig::default() };
    let info = ServerInfo { started_at: START, ..ServerInfo::default() };
    Server::new(Executor::new(config, info))
}

fn connect(server: &mut Server<FakeStream>) -> Client {
    let wire = FakeStream::default();
    let Ok(id) = server.accept(|_| Ok::<_, Infallible>(wire.clone()), START);
    Client { id, wire }
}

/// Connects clients that send more than fits in a turn, until the turn has no time left for others.
fn fill_a_turn(server: &mut Server<FakeStream>, commands: usize) -> Vec<(ClientId, Readiness)> {
    let clients = TURN_WORK as usize / commands.min(1024);
    (0..clients).map(|_| connect(server).send(&b"peek-buried\r\n".repeat(commands))).collect()
}

#[test]
fn a_turn_after_a_reload_visits_only_some_of_the_connections_without_a_certificate() {
    let mut server = server();
    let _clients: Vec<_> = (0..2500).map(|_| connect(&mut server)).collect();
    server.recheck_certificates();
    let has_more = |server: &Server<_>| server.next_turn_at() == Some(Timestamp::AT_ONCE);
    let turns = iter::repeat_with(|| {
        server.turn(iter::empty(), START);
        has_more(&server)
    });
    assert_eq!(turns.take_while(|&has_more| has_more).count(), 2);
}

#[test]
fn a_flush_by_the_api_is_no_connection_and_no_client_of_a_tube() {
    let mut server = server();
    server.executor_mut().accept_orders();
    let client = connect(&mut server);
    let puts = [b"use t\r\n".to_vec(), b"put 0 0 60 1\r\nx\r\n".repeat(3000)].concat();
    server.turn([client.send(&puts)].into_iter(), START);
    while server.next_turn_at() == Some(Timestamp::AT_ONCE) {
        server.turn(iter::empty(), START);
    }
    assert_eq!(server.executor().queue().figures().jobs.total(), 3000);
    client.received_lines();
    let flush = Order::Flush(TubeName::parse(b"t").unwrap(), FlushScope::All);
    server.executor_mut().order(flush, START).unwrap();
    server.turn(iter::empty(), START);
    server.turn([client.send(b"stats\r\nstats-tube default\r\nstats-tube t\r\n")].into_iter(), START);
    assert!((1..3000).contains(&server.executor().queue().figures().jobs.total()), "the flush is under way");
    let received = String::from_utf8(client.wire.0.borrow().received.clone()).unwrap();
    for (key, values) in [
        ("current-connections", &[1][..]),
        ("current-producers", &[1]),
        ("current-workers", &[0]),
        ("current-waiting", &[0, 0, 0]),
        ("current-using", &[0, 1]),
        ("current-watching", &[1, 0]),
    ] {
        let found =
            received.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix(": ")?.parse().ok());
        assert_eq!(found.collect::<Vec<u64>>(), values, "{key}");
    }
    assert_eq!(server.client_count(), 1);
}

#[test]
fn ten_thousand_clients_are_listed_and_killed_in_slices() {
    const CLIENTS: usize = 10_000;
    /// The cost of a turn without other commands, in simple requests.
    const A_TURN: u64 = 2_000;
    let mut server = server();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| connect(&mut server)).collect();
    let number =
        |server: &Server<FakeStream>, client: &Client| server.executor().queue().client_number(client.id);
    let numbers: Vec<u64> = clients.iter().map(|client| number(&server, client)).collect();
    let (asker, modest) = (connect(&mut server), connect(&mut server));
    let (mut cursor, mut seen) = (String::new(), Vec::new());
    loop {
        let request = format!("list-clients 1000{cursor}\r\n");
        let mut event = Some(asker.send(request.as_bytes()));
        while asker.has_received_nothing() {
            let before = server.executor().work();
            server.turn([modest.send(b"peek-buried\r\n")].into_iter().chain(event.take()), START);
            assert_eq!(modest.received_lines(), 1, "nobody waits for a list");
            assert!(server.executor().work() - before < A_TURN, "a turn has a share of it");
        }
        while server.next_turn_at() == Some(Timestamp::AT_ONCE) {
            server.turn(iter::empty(), START);
        }
        let page = String::from_utf8(std::mem::take(&mut asker.wire.0.borrow_mut().received)).unwrap();
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
    let mut event = Some(asker.send(kill.as_bytes()));
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
        let event = client.send(&b"peek-buried\r\n".repeat(commands));
        server.turn([event].into_iter(), START);
        server.executor.observe_turn(ns);
    }
    let timings = server.executor.server_view(START).timings;
    assert_eq!((timings.turns.count(), timings.turns.sum_ns()), (2, 6_000));
    assert_eq!((timings.commands.count(), timings.commands.sum_ns()), (5, 13_000));
}

#[test]
fn a_client_that_was_only_postponed_keeps_the_burst() {
    const BURST: usize = 1_000;
    let mut server = server();
    let mut events = fill_a_turn(&mut server, 1024);
    let late = connect(&mut server);
    events.push(late.send(&b"peek-buried\r\n".repeat(BURST)));
    server.turn(events.into_iter(), START);
    assert_eq!(late.received_lines(), 0, "the turn was full");
    server.turn(std::iter::empty(), START);
    assert_eq!(late.received_lines(), BURST);
}

#[test]
fn a_new_event_waits_for_one_turn_at_most_behind_any_number_of_continued_commands() {
    let mut server = server();
    let greedy: Vec<_> = (0..100)
        .map(|_| {
            let client = connect(&mut server);
            let event = client.send(&b"peek-buried\r\n".repeat(20_000));
            (client, event)
        })
        .collect();
    server.turn(greedy.iter().map(|(_, event)| *event), START);
    // Until each of them has had its burst; until then they connect again and again.
    while greedy.iter().any(|(client, _)| client.has_received_nothing()) {
        server.turn(std::iter::empty(), START);
    }
    greedy.iter().for_each(|(client, _)| assert!(client.received_lines() > 0));
    let modest = connect(&mut server);
    for _ in 0..50 {
        let event = modest.send(b"peek-buried\r\n");
        server.turn(std::iter::once(event), START);
        let in_first = modest.received_lines();
        server.turn(std::iter::empty(), START);
        assert_eq!(in_first + modest.received_lines(), 1);
    }
    let answered = greedy.iter().filter(|(client, _)| client.received_lines() > 0).count();
    assert_eq!(answered, greedy.len(), "nor does it keep the others from going on");
}

#[test]
fn an_idle_time_out_leaves_a_client_alone_whose_kick_goes_on() {
    const JOBS: usize = 2_000;
    let mut server = server();
    server.close_idle_after(Duration::from_secs(1));
    let client = connect(&mut server);
    server.turn(std::iter::once(client.send(&b"put 0 100 10 0\r\n\r\n".repeat(JOBS))), START);
    while server.next_turn_at() == Some(Timestamp::AT_ONCE) {
        server.turn(std::iter::empty(), START);
    }
    assert_eq!(client.received_lines(), JOBS);
    server.turn(std::iter::once(client.send(b"kick 2000\r\n")), START);
    assert_eq!(client.received_lines(), 0, "a turn has moved all of them");
    for _ in 0..JOBS {
        server.turn(std::iter::empty(), START + 2 * NS_PER_S);
    }
    assert_eq!((server.client_count(), client.received_lines()), (1, 1));
}

#[test]
fn a_connection_that_is_not_handed_over_gets_its_outstanding_reply() {
    const JOBS: usize = 2_000;
    let mut server = server();
    let client = connect(&mut server);
    server.turn(std::iter::once(client.send(&b"put 0 100 10 0\r\n\r\n".repeat(JOBS))), START);
    while server.next_turn_at() == Some(Timestamp::AT_ONCE) {
        server.turn(std::iter::empty(), START);
    }
    assert_eq!(client.received_lines(), JOBS);
    server.turn(std::iter::once(client.send(b"kick 2000\r\n")), START);
    assert!(client.has_received_nothing(), "a turn has moved all of them");
    while server.end_those_that_cannot_be_described() > 0 {
        server.turn(std::iter::empty(), START);
    }
    assert_eq!(client.received(), "KICKED 2000\r\n");
}

// ---- the gate ----

/// A store that keeps nothing, and that belongs to this server as long as the test decides.
struct LeasedStorage {
    lease_left_ns: Rc<Cell<u64>>,
    tasks: VecDeque<StoreTask>,
}

impl LeasedStorage {
    fn done(&mut self) -> Option<Completion> {
        self.tasks.pop_front().map(|task| Completion { task, elapsed_us: 0, result: Ok(()) })
    }
}

impl Storage for LeasedStorage {
    fn list(&mut self) -> io::Result<Listing> {
        Ok(Listing::default())
    }

    fn size(&mut self, _: u32) -> io::Result<u64> {
        Err(ErrorKind::NotFound.into())
    }

    fn read(&mut self, _: u32, _: u64, _: &mut [u8]) -> io::Result<usize> {
        Ok(0)
    }

    fn prepare(&mut self, _: u32) -> io::Result<()> {
        Ok(())
    }

    fn append(&mut self, _: LogPosition, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn release(&mut self, _: u32) {}

    fn submit(&mut self, task: StoreTask) {
        self.tasks.push_back(task);
    }

    fn poll(&mut self) -> Option<Completion> {
        self.done()
    }

    fn wait(&mut self) -> Option<Completion> {
        self.done()
    }

    fn start(&mut self, _: Box<dyn Fn() + Send>) -> io::Result<()> {
        Ok(())
    }

    fn lease_left_ns(&self) -> Option<u64> {
        Some(self.lease_left_ns.get())
    }

    fn keep_tail(&mut self, _: u32, _: u64) -> io::Result<u64> {
        Ok(0)
    }

    fn set_aside(&mut self, _: u32) -> io::Result<()> {
        Ok(())
    }
}

/// A server with its log in such a store, and the lease.
fn leased_server() -> (Server<FakeStream>, Rc<Cell<u64>>) {
    let lease = Rc::new(Cell::new(NS_PER_S));
    let storage = LeasedStorage { lease_left_ns: Rc::clone(&lease), tasks: VecDeque::new() };
    let config =
        binlog::Config { file_bytes: 1 << 20, sync: SyncPolicy::EachCommit, recover: false, nonce_seed: 1 };
    let (binlog, summary) = Binlog::open(Box::new(storage), config, START, 0, &mut |_, _, _, _| {}).unwrap();
    let mut server = server();
    server.executor.keep_binlog(binlog, SyncPolicy::EachCommit, summary.next_job_id, START);
    (server, lease)
}

impl Client {
    fn received(&self) -> String {
        String::from_utf8(std::mem::take(&mut self.wire.0.borrow_mut().received)).unwrap()
    }
}

/// A turn in which one client sends something, and then another turn, once the log has the changes.
fn turn_with(server: &mut Server<FakeStream>, client: &Client, bytes: &[u8]) {
    server.turn(std::iter::once(client.send(bytes)), START);
    server.poll_binlog(START);
    server.turn(std::iter::empty(), START);
}

#[test]
fn without_a_lease_no_reply_leaves_and_with_the_next_one_all_do_in_order() {
    let (mut server, lease) = leased_server();
    let client = connect(&mut server);
    turn_with(&mut server, &client, b"put 0 0 9 1\r\na\r\n");
    assert_eq!(client.received(), "INSERTED 1\r\n");
    assert_eq!(server.next_turn_at(), Some(START + NS_PER_S), "the loop wakes up when the lease ends");
    lease.set(0);
    turn_with(&mut server, &client, b"peek 1\r\nreserve-with-timeout 0\r\nreserve-with-timeout 0\r\nfoo\r\n");
    turn_with(&mut server, &client, b"delete 1\r\n");
    assert_eq!(client.received(), "");
    assert!(server.next_turn_at() > Some(START), "a loop that cannot send must not spin");
    lease.set(1);
    server.turn(std::iter::empty(), START);
    let replies = "FOUND 1 1\r\na\r\nRESERVED 1 1\r\na\r\nTIMED_OUT\r\nUNKNOWN_COMMAND\r\nDELETED\r\n";
    assert_eq!(client.received(), replies);
}

#[test]
fn the_lease_is_checked_after_the_last_command_of_the_turn() {
    let (mut server, lease) = leased_server();
    let (first, last) = (connect(&mut server), connect(&mut server));
    // The server stalls while it reads, and another server takes over.
    last.wire.0.borrow_mut().at_read = Some(Box::new(move || lease.set(0)));
    let events = [first.send(b"peek-ready\r\n"), last.send(b"peek-ready\r\n")];
    server.turn(events.into_iter(), START);
    assert_eq!((first.received(), last.received()), (String::new(), String::new()));
}

#[test]
fn the_rest_of_a_reply_stays_when_the_lease_ends() {
    let (mut server, lease) = leased_server();
    let client = connect(&mut server);
    let body = "x".repeat(60_000);
    turn_with(&mut server, &client, format!("put 0 0 9 60000\r\n{body}\r\n").as_bytes());
    assert_eq!(client.received(), "INSERTED 1\r\n");
    client.wire.0.borrow_mut().room = Some(100);
    turn_with(&mut server, &client, b"peek 1\r\n");
    assert_eq!(client.received().len(), 100);
    lease.set(0);
    client.wire.0.borrow_mut().room = None;
    let writable = (client.id, Readiness { writable: true, ..Readiness::default() });
    server.turn(std::iter::once(writable), START);
    assert_eq!(client.received(), "");
    assert_ne!(server.next_turn_at(), Some(Timestamp::AT_ONCE));
    lease.set(1);
    server.turn(std::iter::empty(), START);
    while server.next_turn_at() == Some(Timestamp::AT_ONCE) {
        server.turn(std::iter::empty(), START);
    }
    assert_eq!(client.received().len(), "FOUND 1 60000\r\n".len() + body.len() + 2 - 100);
}

#[test]
fn without_a_lease_a_client_that_waits_for_a_job_is_closed_without_a_reply() {
    let (mut server, lease) = leased_server();
    let (waiting, late, other) = (connect(&mut server), connect(&mut server), connect(&mut server));
    turn_with(&mut server, &waiting, b"put 0 0 9 1\r\na\r\nreserve\r\nreserve\r\n");
    assert_eq!(waiting.received_lines(), 3);
    lease.set(0);
    server.turn(std::iter::empty(), START);
    assert_eq!((server.client_count(), waiting.received_lines()), (2, 0));
    assert!(server.executor.queue().figures().jobs.ready == 1, "the job that it had is ready again");
    turn_with(&mut server, &late, b"ignore default\r\nreserve-with-timeout 9\r\nreserve-with-timeout 9\r\n");
    assert_eq!(server.client_count(), 1, "it would wait");
    turn_with(&mut server, &other, b"peek-ready\r\n");
    assert_eq!((server.client_count(), other.received_lines()), (1, 0));
    turn_with(&mut server, &other, b"quit\r\n");
    assert_eq!((late.received_lines(), other.received_lines()), (0, 0));
}

#[test]
fn a_log_that_fails_without_a_lease_is_not_reported() {
    for (left_ns, expected) in [(1, "INTERNAL_ERROR\r\n"), (0, "")] {
        let (mut server, lease) = leased_server();
        let client = connect(&mut server);
        server.turn(std::iter::once(client.send(b"put 0 0 9 1\r\na\r\n")), START);
        lease.set(left_ns);
        let completion = Completion {
            task: StoreTask::Sync(LogPosition::default()),
            elapsed_us: 0,
            result: Err(ErrorKind::Other.into()),
        };
        server.binlog_completed(completion, START);
        server.turn(std::iter::empty(), START);
        assert!(server.executor.has_failed());
        assert_eq!(client.received(), expected);
    }
}

#[test]
fn a_put_whose_tags_are_no_tags_counts_as_malformed() {
    let mut server = server();
    let client = connect(&mut server);
    server.turn(std::iter::once(client.send(b"put 0 0 60 4 foo\r\nstats\r\n")), START);
    let received = client.received();
    assert!(received.starts_with("BAD_FORMAT\r\nOK "), "{received}");
    assert!(received.contains("\nmalformed-commands: 1\n"), "{received}");
}

#[test]
fn the_log_does_not_say_that_memory_is_low_if_a_put_could_not_wait_for_its_pace() {
    let rules =
        "[identities.anna]\nunix-users = [1]\nproduce = [\"*\"]\nwork = [\"*\"]\nputs-per-second = 1\n";
    for (input, replies) in [
        ("put 0 0 9 1\r\na\r\nput 0 0 9 1\r\nb\r\n", "INSERTED 1\r\n"),
        (
            "put 0 0 1 1\r\na\r\nreserve\r\ncomplete 1 2\r\nput 0 0 9 1\r\nb\r\nput 0 0 9 1\r\nc\r\n",
            "INSERTED 1\r\nRESERVED 1 1\r\na\r\n",
        ),
        (
            "put 0 0 9 1\r\na\r\nreserve\r\ncomplete 1 2\r\nput 0 0 9 1\r\nb\r\nput 0 0 9 1\r\nc\r\n",
            "INSERTED 1\r\nRESERVED 1 1\r\na\r\n",
        ),
    ] {
        let mut server = server();
        server.executor.guard_with(AccessRules::parse(rules, &|_| None).unwrap());
        let client = connect(&mut server);
        server.identify(client.id, Peer::Unix(Some(1)), START);
        server.turn(std::iter::once(client.send(input.as_bytes())), START);
        // The client leaves while the put waits, if it waits.
        let end = Readiness { read_closed: true, ..Readiness::default() };
        server.turn(std::iter::once((client.id, end)), START);
        assert_eq!(client.received(), format!("{replies}OUT_OF_MEMORY\r\n"), "{input}");
        assert_eq!(server.executor.server_view(START).refused_puts, 1);
        assert_eq!(server.executor.next_line_of_refused_puts_at(), None, "{input}");
    }
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
    server.turn(std::iter::once(client.send(watch.as_bytes())), START);
    while server.next_turn_at() == Some(Timestamp::AT_ONCE) {
        server.turn(std::iter::empty(), START);
    }
    assert_eq!(client.received_lines(), TUBES);
    let examined = WATCHED_NAMES.get() - before;
    assert!(examined <= 3 * TUBES as u64, "{examined} names examined for {TUBES} commands");
    // The list of watched tubes comes in slices, none of which examines the earlier ones again.
    let before = WATCHED_NAMES.get();
    server.turn(std::iter::once(client.send(b"list-tubes-watched\r\n")), START);
    while server.next_turn_at() == Some(Timestamp::AT_ONCE) {
        server.turn(std::iter::empty(), START);
    }
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
        turn_with(&mut server, client, format!("{watch}reserve\r\n").as_bytes());
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
    server.turn(std::iter::empty(), START);
    assert!(clients.iter().all(|client| client.received() == "TIMED_OUT\r\n"));
}
