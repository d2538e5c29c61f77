//! Arbitrary bytes as the description of a server, and changed descriptions.

use std::sync::OnceLock;

use beanstalkd::access::Peer;
use beanstalkd::server::Server;
use beanstalkd::server::hand_over::{DescribedProcess, check as check_description, describe};
use beanstalkd_binlog::{Completion, Config, SyncPolicy};
use beanstalkd_queue::PoisonLimits;
use beanstalkd_types::description::Writer;

use crate::disk::SimDisk;
use crate::observer;
use crate::random::Random;
use crate::simulated::{Connection, START, executor, start_on};
use crate::sockets::{FakeStream, Pipe};

/// The bytes that some clients have sent to the described server: jobs in all states with all tags, waits, half a
/// command, half a body, and a reply that is not read.
const STREAMS: [&str; 8] = [
    "use a\r\nput 1 0 60 3 idp:k:60 con:c:1 grp:g exp:600\r\nabc\r\nput 2 0 60 1 con:c:1 aft:g\r\nx\r\n\
     put 3 9 60 0\r\n\r\n\
     put 4 0 60 1 con:c:1\r\ny\r\nreserve-job 1\r\nput 9 0 60 5 idp:gone:60\r\nhello\r\nreserve-job 5\r\ndelete 5\r\n",
    "watch a\r\nwatch b 3\r\nreserve-mode weighted\r\npause-tube default 100\r\nreserve-batch 4 60\r\n",
    "watch c\r\nignore default\r\nreserve-with-abort\r\n",
    "put 0 0 60 20\r\nhalf a b",
    "stats\r\nuse hal",
    "put 0 0 60 2\r\nzz\r\nreserve-job 7\r\nbury 7 3\r\nstats-tube a\r\nquit\r\n",
    "session s 60.5\r\nput 0 0 600 2\r\nss\r\nput 0 0 600 0\r\n\r\nreserve-job 8\r\n",
    "wait-job 9 600\r\n",
];

/// What another client sends when the disk is full, so often that the files are filled, and what it sends then: the log
/// has no room for the new state of the job.
const FILL: (&str, usize) = ("reprioritize 9 6\r\n", 200);
const CHANGE: &str = "reserve-job 9\r\nrelease 9 5 0\r\n";

/// Reads `input` as a description, and as changes of a valid one: index and byte.
pub fn check(input: &[u8]) {
    let _ = check_description(executor(PoisonLimits::default(), 1000), input);
    static WHOLE: OnceLock<Vec<u8>> = OnceLock::new();
    let mut changed = WHOLE.get_or_init(whole).clone();
    for change in input.chunks_exact(4) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]]));
        let Some(at) = at.checked_rem(changed.len()) else { break };
        match change[2] % 4 {
            0 => changed[at] = change[3],
            1 => changed[at] ^= 1 << (change[3] % 8),
            2 => drop(changed.splice(at..at, [change[3]; 8])),
            _ => changed.truncate(changed.len().max(at + 1) - usize::from(change[3]).min(at)),
        }
    }
    let _ = check_description(executor(PoisonLimits::default(), 1000), &changed);
}

/// The description of a server that has at least one of everything.
///
/// # Panics
/// If the server is in another state.
pub fn whole() -> Vec<u8> {
    observer::take();
    let disk = SimDisk::default();
    let executor = executor(PoisonLimits::default(), 1000);
    let config = Config { file_bytes: 4096, sync: SyncPolicy::Never, recover: false, nonce_seed: 1 };
    let mut server = start_on(&disk, executor, config, START).expect("the directory is empty");
    let mut clients: Vec<_> = STREAMS.iter().map(|stream| serve(&mut server, &disk, stream, 60)).collect();
    disk.set_room(Some(disk.used()));
    clients.push(serve(&mut server, &disk, &(FILL.0.repeat(FILL.1) + CHANGE), 1 << 16));
    assert!(server.is_quiet(), "nothing is half done");
    server.executor_mut().quiesce_binlog(START);
    assert!(!server.executor().has_unlogged_changes(), "the log is settled");
    let mut bytes = Vec::new();
    let mut sink = |piece: Vec<u8>| bytes.extend(piece);
    describe(
        &server,
        &DescribedProcess { now: START, ..DescribedProcess::default() },
        &mut Writer::new(&mut sink),
    );
    drop(server);
    observer::take();
    bytes
}

/// A client that has sent these bytes, and has this much room for replies.
fn serve(server: &mut Server<FakeStream>, disk: &SimDisk, stream: &str, room: usize) -> Connection {
    let client = Connection::open(server, Pipe::new(room, Random::new(3)), START);
    server.identify(client.id, Peer::Unix(None), START);
    client.send(stream);
    for _ in 0..200 {
        server.turn([client.take_event()].into_iter(), START);
        while let Some(task) = disk.next_task() {
            server.binlog_completed(Completion { elapsed_us: 1, ..task.run(&mut disk.clone()) }, START);
        }
    }
    client
}
