//! How the directory grows and shrinks under load, and that its bounds are never a client's concern.

use std::path::Path;

use crate::jobs::{job_count, put, start, stat};
use crate::random::Random;
use crate::support::server::POLL_INTERVAL;

/// Length of all files of the log.
fn directory_bytes(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).unwrap().flatten();
    let log = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("binlog."));
    // One may be renamed or removed at any time.
    log.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}

#[test]
fn endless_release_with_a_delay_leaves_the_directory_small() {
    const JOBS: u64 = 50;
    const ROUNDS: u64 = 100_000;
    const DEPTH: u64 = 500;
    const FILE: u64 = 16_384;
    let server = start(&["-f", "50", "-s", &FILE.to_string()]);
    let mut client = server.connect().unwrap();
    for id in 1..=JOBS {
        client.exchange(&put(0, 0, 60, &[b'x'; 500]), format!("INSERTED {id}\r\n").as_bytes()).unwrap();
    }
    let mut largest = 0;
    for start in (0..ROUNDS).step_by(DEPTH as usize) {
        let ids = (start..start + DEPTH).map(|round| 1 + round % JOBS);
        let commands: String =
            ids.map(|id| format!("reserve-job {id}\r\nrelease {id} {start} 1000\r\n")).collect();
        client.send(commands.as_bytes()).unwrap();
        for _ in 0..DEPTH {
            assert!(client.read_reply().unwrap().starts_with(b"RESERVED "));
            client.expect(b"RELEASED\r\n").unwrap();
        }
        largest = largest.max(directory_bytes(server.directory()));
    }
    let bound = 3 * stat(&mut client, "binlog-live-bytes") + 2 * FILE;
    println!("{ROUNDS} rounds: at most {largest} bytes, bound {bound}");
    // What is to be removed waits for a sync; then nothing is left to do.
    while directory_bytes(server.directory()) > bound {
        std::thread::sleep(POLL_INTERVAL);
    }
    // Meanwhile, what a few turns have written waits for its removal.
    assert!(largest < 4 * bound, "{largest} bytes at times");
}

#[test]
fn fast_writers_never_see_that_files_are_small() {
    const WRITERS: u64 = 4;
    const PUTS: u64 = 1500;
    for size in ["4096", "16384"] {
        for sync in ["0", "50"] {
            let server = start(&["-f", sync, "-s", size]);
            let writers: Vec<_> = (0..WRITERS).map(|seed| (seed, server.connect().unwrap())).collect();
            std::thread::scope(|scope| {
                for (seed, mut client) in writers {
                    scope.spawn(move || {
                        let mut random = Random::new(seed);
                        let mut length = || {
                            let bound = if random.once_in(50) { 60_000 } else { 1500 };
                            random.below(bound) as usize
                        };
                        let commands: Vec<u8> =
                            (0..PUTS).flat_map(|_| put(0, 0, 60, &vec![b'x'; length()])).collect();
                        let sending = client.send_in_background(commands).unwrap();
                        for _ in 0..PUTS {
                            let reply = client.read_reply().unwrap();
                            assert!(reply.starts_with(b"INSERTED "), "{}", String::from_utf8_lossy(&reply));
                        }
                        sending.join().unwrap().unwrap();
                    });
                }
            });
            assert_eq!(job_count(&mut server.connect().unwrap()), WRITERS * PUTS, "-s {size} -f {sync}");
        }
    }
}

#[test]
fn a_job_larger_than_a_file_gets_a_file_of_its_own() {
    let mut server = start(&["-f", "0", "-s", "4096"]);
    let mut client = server.connect().unwrap();
    let body = vec![b'x'; 60_000];
    client.exchange(&put(0, 0, 60, &body), b"INSERTED 1\r\n").unwrap();
    client.exchange(&put(1, 0, 60, b"small"), b"INSERTED 2\r\n").unwrap();
    let lengths = std::fs::read_dir(server.directory()).unwrap().flatten();
    let lengths = lengths.filter(|entry| entry.file_name().to_string_lossy().starts_with("binlog."));
    assert_eq!(lengths.filter(|entry| entry.metadata().unwrap().len() > 60_000).count(), 1);
    server.restart(rustix::process::Signal::KILL).unwrap();
    let mut client = server.connect().unwrap();
    let reply = client.ask(b"reserve\r\n").unwrap();
    assert!(reply.starts_with(b"RESERVED 1 60000\r\n") && crate::jobs::body(&reply) == body);
    client.exchange(b"reserve\r\n", b"RESERVED 2 5\r\nsmall\r\n").unwrap();
}
