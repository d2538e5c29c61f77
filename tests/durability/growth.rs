//! The size of the binlog's directory under load, and that clients never notice the limits of its files.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::jobs::start;
use beanstalkd_testkit::client::put_command;
use beanstalkd_testkit::random::Random;

/// The files of the binlog, in order.
fn log_names(directory: &Path) -> BTreeSet<OsString> {
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with("binlog.")).collect()
}

/// The total length of all files of the binlog; `None` if a file was made or removed in the meantime.
fn directory_bytes(directory: &Path) -> Option<u64> {
    let names = log_names(directory);
    let lengths = names.iter().map(|name| Some(directory.join(name).metadata().ok()?.len()));
    let bytes = lengths.sum::<Option<u64>>()?;
    (log_names(directory) == names).then_some(bytes)
}

/// The largest total length of the files while `work` runs, and the number of measurements, which follow each other
/// without a pause.
fn largest_while(directory: &Path, work: impl FnOnce()) -> (u64, u64) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let (mut largest, mut measurements) = (0, 0);
            while !done.load(Ordering::Relaxed) {
                let Some(bytes) = directory_bytes(directory) else { continue };
                largest = bytes.max(largest);
                measurements += 1;
            }
            (largest, measurements)
        });
        // The other thread must end, even if `work` panics.
        let worked = std::panic::catch_unwind(AssertUnwindSafe(work));
        done.store(true, Ordering::Relaxed);
        let seen = watch.join().unwrap();
        worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        seen
    })
}

/// The limit must hold in each measurement while pipelines of 500 commands run, and not only afterwards.
#[test]
fn endless_release_with_a_delay_leaves_the_directory_small() {
    const JOBS: u64 = 50;
    const ROUNDS: u64 = 100_000;
    const DEPTH: u64 = 500;
    const FILE: u64 = 16_384;
    let server = start(&["-f", "50", "-s", &FILE.to_string()]);
    let mut client = server.connect().unwrap();
    for id in 1..=JOBS {
        client
            .exchange(&put_command(0, 0, 60, &[b'x'; 500]), format!("INSERTED {id}\r\n").as_bytes())
            .unwrap();
    }
    let (largest, measurements) = largest_while(server.directory(), || {
        for start in (0..ROUNDS).step_by(DEPTH as usize) {
            let ids = (start..start + DEPTH).map(|round| 1 + round % JOBS);
            let commands: String =
                ids.map(|id| format!("reserve-job {id}\r\nrelease {id} {start} 1000\r\n")).collect();
            client.send(commands.as_bytes()).unwrap();
            for _ in 0..DEPTH {
                assert!(client.read_reply().unwrap().starts_with(b"RESERVED "));
                client.expect(b"RELEASED\r\n").unwrap();
            }
        }
    });
    let bound = 3 * client.stat("binlog-live-bytes").unwrap() + 2 * FILE;
    println!("{ROUNDS} rounds: at most {largest} bytes in {measurements} measurements, limit {bound}");
    assert!(measurements > 100, "{measurements} measurements");
    assert!(largest <= bound, "{largest} bytes, bound {bound}");
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
                            (0..PUTS).flat_map(|_| put_command(0, 0, 60, &vec![b'x'; length()])).collect();
                        let sending = client.send_in_background(commands).unwrap();
                        for _ in 0..PUTS {
                            let reply = client.read_reply().unwrap();
                            assert!(reply.starts_with(b"INSERTED "), "{}", String::from_utf8_lossy(&reply));
                        }
                        sending.join().unwrap().unwrap();
                    });
                }
            });
            assert_eq!(server.connect().unwrap().job_count().unwrap(), WRITERS * PUTS, "-s {size} -f {sync}");
        }
    }
}

#[test]
fn a_job_larger_than_a_file_gets_a_file_of_its_own() {
    let mut server = start(&["-f", "0", "-s", "4096"]);
    let mut client = server.connect().unwrap();
    let body = vec![b'x'; 60_000];
    client.exchange(&put_command(0, 0, 60, &body), b"INSERTED 1\r\n").unwrap();
    client.exchange(&put_command(1, 0, 60, b"small"), b"INSERTED 2\r\n").unwrap();
    let files = std::fs::read_dir(server.directory()).unwrap().flatten();
    let files = files.filter(|entry| entry.file_name().to_string_lossy().starts_with("binlog."));
    // A file that is being made gets another name in the meantime.
    let lengths = files.filter_map(|file| Some(file.metadata().ok()?.len()));
    assert_eq!(lengths.filter(|&length| length > 60_000).count(), 1);
    server.restart(rustix::process::Signal::KILL).unwrap();
    let mut client = server.connect().unwrap();
    let reply = client.ask(b"reserve\r\n").unwrap();
    assert!(reply.starts_with(b"RESERVED 1 60000\r\n") && crate::jobs::body(&reply) == body);
    client.exchange(b"reserve\r\n", b"RESERVED 2 5\r\nsmall\r\n").unwrap();
}
