//! The gate: a server whose log belongs to it only for a time, the lease, lets no reply leave after that time.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::rc::Rc;

use beanstalkd_binlog::{Completion, Config, Listing, LogPosition, Storage, StoreTask, SyncPolicy};
use beanstalkd_queue::PoisonLimits;
use beanstalkd_types::clock::{NS_PER_S, Timestamp};

use beanstalkd_testkit::disk::SimDisk;
use beanstalkd_testkit::simulated::{Connection, OpenedLog, START, SimulatedServer, executor};
use beanstalkd_testkit::sockets::Pipe;

/// How long the lease lasts.
#[derive(Default)]
struct Lease {
    left_ns: Cell<u64>,
    /// The client whose bytes the server reads so slowly that the lease ends meanwhile.
    slow: OnceCell<Rc<RefCell<Pipe>>>,
}

/// A store that keeps nothing, and that belongs to this server as long as the test decides.
struct LeasedStorage {
    lease: Rc<Lease>,
    tasks: VecDeque<StoreTask>,
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
        self.tasks.pop_front().map(|task| Completion { task, elapsed_us: 0, result: Ok(()) })
    }

    fn is_busy(&self) -> bool {
        !self.tasks.is_empty()
    }

    fn wait(&mut self) -> Option<Completion> {
        self.poll()
    }

    fn start(&mut self, _: Box<dyn Fn() + Send>) -> io::Result<()> {
        Ok(())
    }

    fn lease_left_ns(&self) -> Option<u64> {
        let is_over = self.lease.slow.get().is_some_and(|slow| slow.borrow().read > 0);
        Some(if is_over { 0 } else { self.lease.left_ns.get() })
    }

    fn keep_tail(&mut self, _: u32, _: u64) -> io::Result<u64> {
        Ok(0)
    }

    fn set_aside(&mut self, _: u32) -> io::Result<()> {
        Ok(())
    }
}

/// A server with its log in such a store, and the lease.
fn leased_server() -> (SimulatedServer, Rc<Lease>) {
    let lease = Rc::new(Lease { left_ns: NS_PER_S.into(), ..Lease::default() });
    let storage = LeasedStorage { lease: Rc::clone(&lease), tasks: VecDeque::new() };
    let config = Config { file_bytes: 1 << 20, sync: SyncPolicy::EachCommit, recover: false, nonce_seed: 1 };
    let log = OpenedLog::open(Box::new(storage), config, START).expect("it is empty");
    let server = log.start(executor(PoisonLimits::default(), 1 << 16), START);
    (SimulatedServer { server, disk: SimDisk::default(), now: START }, lease)
}

/// A turn in which one client sends something, and then another turn, once the log has the changes.
fn turn_with(server: &mut SimulatedServer, client: &Connection, commands: &str) {
    client.send(commands);
    server.one_turn([client]);
    server.poll_binlog(START);
    server.one_turn([]);
}

#[test]
fn without_a_lease_no_reply_leaves_and_with_the_next_one_all_do_in_order() {
    let (mut server, lease) = leased_server();
    let client = server.connect();
    turn_with(&mut server, &client, "put 0 0 9 1\r\na\r\n");
    assert_eq!(client.received(), "INSERTED 1\r\n");
    assert_eq!(server.next_turn_at(), Some(START + NS_PER_S), "the loop wakes up when the lease ends");
    lease.left_ns.set(0);
    turn_with(&mut server, &client, "peek 1\r\nreserve-with-timeout 0\r\nreserve-with-timeout 0\r\nfoo\r\n");
    turn_with(&mut server, &client, "delete 1\r\n");
    assert_eq!(client.received(), "");
    assert!(server.next_turn_at() > Some(START), "a loop that cannot send must not spin");
    lease.left_ns.set(1);
    server.one_turn([]);
    let replies = "FOUND 1 1\r\na\r\nRESERVED 1 1\r\na\r\nTIMED_OUT\r\nUNKNOWN_COMMAND\r\nDELETED\r\n";
    assert_eq!(client.received(), replies);
}

#[test]
fn the_lease_is_checked_after_the_last_command_of_the_turn() {
    let (mut server, lease) = leased_server();
    let [first, last] = server.connect_each();
    // The server stalls while it reads, and another server takes over.
    assert!(lease.slow.set(Rc::clone(&last.pipe)).is_ok());
    first.send("peek-ready\r\n");
    last.send("peek-ready\r\n");
    server.one_turn([&first, &last]);
    assert_eq!((first.received(), last.received()), (String::new(), String::new()));
}

#[test]
fn the_rest_of_a_reply_stays_when_the_lease_ends() {
    let (mut server, lease) = leased_server();
    let client = server.connect_with_room(100);
    let body = "x".repeat(60_000);
    turn_with(&mut server, &client, &format!("put 0 0 9 60000\r\n{body}\r\n"));
    assert_eq!(client.received(), "INSERTED 1\r\n");
    turn_with(&mut server, &client, "peek 1\r\n");
    assert_eq!(client.received().len(), 100);
    lease.left_ns.set(0);
    client.pipe.borrow_mut().widen();
    server.one_turn([&client]);
    assert_eq!(client.received(), "");
    assert_ne!(server.next_turn_at(), Some(Timestamp::AT_ONCE));
    lease.left_ns.set(1);
    server.turn([]);
    assert_eq!(client.received().len(), "FOUND 1 60000\r\n".len() + body.len() + 2 - 100);
}

#[test]
fn without_a_lease_a_client_that_waits_for_a_job_is_closed_without_a_reply() {
    let (mut server, lease) = leased_server();
    let [waiting, late, other] = server.connect_each();
    turn_with(&mut server, &waiting, "put 0 0 9 1\r\na\r\nreserve\r\nreserve\r\n");
    assert_eq!(waiting.received(), "INSERTED 1\r\nRESERVED 1 1\r\na\r\n");
    lease.left_ns.set(0);
    server.one_turn([]);
    assert_eq!((server.client_count(), waiting.received().as_str()), (2, ""));
    assert_eq!(server.queue().figures().jobs.ready, 1, "the job that it had is ready again");
    turn_with(&mut server, &late, "ignore default\r\nreserve-with-timeout 9\r\nreserve-with-timeout 9\r\n");
    assert_eq!(server.client_count(), 1, "it would wait");
    turn_with(&mut server, &other, "peek-ready\r\n");
    assert_eq!((server.client_count(), other.received().as_str()), (1, ""));
    turn_with(&mut server, &other, "quit\r\n");
    assert_eq!((late.received(), other.received()), (String::new(), String::new()));
}

#[test]
fn a_log_that_fails_without_a_lease_is_not_reported() {
    for (left_ns, expected) in [(1, "INTERNAL_ERROR\r\n"), (0, "")] {
        let (mut server, lease) = leased_server();
        let client = server.connect();
        client.send("put 0 0 9 1\r\na\r\n");
        server.one_turn([&client]);
        lease.left_ns.set(left_ns);
        let completion = Completion {
            task: StoreTask::Sync(LogPosition::default()),
            elapsed_us: 0,
            result: Err(ErrorKind::Other.into()),
        };
        server.binlog_completed(completion, START);
        server.one_turn([]);
        assert!(server.executor().has_failed());
        assert_eq!(client.received(), expected);
    }
}
