//! Memory: the limit of `--max-memory`, and a system without free memory.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use rustix::process::Signal;

use beanstalkd_testkit::has_tool;
use beanstalkd_testkit::panicking::{Client, Server, scale, wait_until};
use beanstalkd_testkit::system::MemoryGroup;

const MIB: usize = 1 << 20;

fn put_line(size: usize) -> Vec<u8> {
    let mut bytes = format!("put 0 0 60 {size}\r\n").into_bytes();
    bytes.resize(bytes.len() + size, b'x');
    bytes.extend_from_slice(b"\r\n");
    bytes
}

/// Puts jobs of `size` bytes until one is refused. Returns how many were accepted.
fn fill(client: &mut Client, size: usize) -> usize {
    let put = put_line(size);
    for count in 0.. {
        client.send(&put);
        let reply = client.line();
        if reply == "OUT_OF_MEMORY" {
            return count;
        }
        assert!(reply.starts_with("INSERTED"), "{reply}");
    }
    unreachable!("the memory limit is reached before")
}

#[test]
fn at_the_memory_limit_puts_are_refused_and_all_other_commands_work() {
    let server = Server::start(&["--max-memory", "16m"]);
    let mut client = server.connect();
    let count = fill(&mut client, 60_000);
    assert!(count > 250 && count < 280, "{count} jobs of 60 kB in 16 MiB");
    // All other commands still work, and the refused put has changed nothing.
    assert_eq!(client.stat("total-jobs"), count as u64);
    assert_eq!(client.ask("watch other"), "WATCHING 2");
    let id = client.reserve("reserve");
    assert_eq!(client.ask(&format!("release {id} 5 0")), "RELEASED");
    assert_eq!(client.ask("kick 10"), "KICKED 0");
    client.send(put_line(60_000));
    assert_eq!(client.line(), "OUT_OF_MEMORY");
    let id = client.reserve("reserve");
    assert_eq!(client.ask(&format!("delete {id}")), "DELETED");
    client.put(0, 60, &[b'y'; 50_000]);
}

#[test]
fn bodies_that_have_arrived_in_part_count_towards_the_memory_limit() {
    let server = Server::start(&["--max-memory", "64m", "-z", "60000000"]);
    let mut senders: Vec<_> = (0..4).map(|_| server.connect()).collect();
    let before = server.usage().memory();
    // Each of them alone would fit.
    let body = vec![b'x'; 40 * MIB];
    let replies: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = senders
            .iter_mut()
            .map(|sender| {
                scope.spawn(|| {
                    sender.send(format!("put 0 0 60 {}\r\n", body.len()));
                    sender.send(&body);
                    sender.send("\r\n");
                    sender.line()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(replies.iter().any(|reply| reply == "OUT_OF_MEMORY"), "{replies:?}");
    assert!(replies.iter().filter(|reply| reply.starts_with("INSERTED")).count() <= 1, "{replies:?}");
    let growth = server.usage().peak_memory() - before;
    assert!(growth < 96 * MIB, "the memory has grown by {growth} bytes");
    let mut other = server.connect();
    wait_until("the buffers of the refused bodies are free", || other.stat("buffer-bytes") < 1 << 20);
    other.put(0, 60, &vec![b'y'; MIB]);
}

#[test]
fn unsent_replies_count_towards_the_memory_limit() {
    let server = Server::start(&["--max-memory", "16m"]);
    let mut other = server.connect();
    let mut readers = Vec::new();
    // Each reader still gets some jobs that are deleted by then.
    let mut refused = false;
    while !refused && readers.len() < 1_000 {
        let mut reader = server.connect();
        let jobs: Vec<u64> = (0..20).map_while(|_| try_put(&mut other, 60_000)).collect();
        refused = jobs.len() < 20;
        let peeks = other.stat("cmd-peek");
        reader.send(jobs.iter().map(|id| format!("peek {id}\r\n")).collect::<String>());
        // The server executes at most a megabyte in advance.
        let executed = peeks + jobs.len().min(17) as u64;
        wait_until("the peeks are executed", || other.stat("cmd-peek") >= executed);
        jobs.iter().for_each(|id| assert_eq!(other.ask(&format!("delete {id}")), "DELETED"));
        readers.push(reader);
    }
    assert!(refused, "expected OUT_OF_MEMORY with {} clients that do not read", readers.len());
    drop(readers);
    wait_until("the memory is free again", || try_put(&mut other, 60_000).is_some());
}

fn try_put(client: &mut Client, size: usize) -> Option<u64> {
    client.send(put_line(size));
    client.line().strip_prefix("INSERTED ").map(|id| id.parse().unwrap())
}

/// How many bytes the server's loop, and how many its other threads, have given back to the system, as `strace` shows.
fn given_back(trace: &Path, loop_thread: u32) -> (usize, usize) {
    let (mut by_loop, mut by_others) = (0, 0);
    for line in std::fs::read_to_string(trace).unwrap().lines().filter(|line| line.contains("MADV_DONTNEED"))
    {
        let thread: u32 = line.split_whitespace().next().unwrap().parse().unwrap();
        let bytes: usize = line.split(", ").nth(1).unwrap().parse().unwrap();
        *(if thread == loop_thread { &mut by_loop } else { &mut by_others }) += bytes;
    }
    (by_loop, by_others)
}

/// The system needs a millisecond for some twenty megabytes. The loop would serve no client during that time.
#[test]
fn a_separate_thread_gives_the_memory_of_a_large_body_back() {
    const BODY: usize = 200 * MIB;
    if !has_tool("strace") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("trace");
    // With -D strace keeps the server's process id as it was.
    let tracing = ["strace", "-D", "-f", "-qq", "-e", "trace=madvise", "-o", trace.to_str().unwrap()];
    let server = Server::try_start_in(&tracing, &["-z", "1073741824"]).expect("the server starts");
    let mut client = server.connect();
    let loop_thread = server.usage().0;
    let id = client.put(0, 60, &vec![b'x'; BODY]);
    let (at_start, _) = given_back(&trace, loop_thread);
    assert_eq!(client.ask(&format!("delete {id}")), "DELETED");
    wait_until("a body is given back", || {
        let (by_loop, by_others) = given_back(&trace, loop_thread);
        assert!(
            by_loop - at_start < 16 * MIB,
            "the event loop itself gave {} bytes back",
            by_loop - at_start
        );
        by_others > BODY / 10 * 9
    });
}

/// The allocator gives whole pages back. While jobs end in no order, nearly every page has one that is still there.
#[test]
fn the_memory_of_jobs_that_end_in_no_order_is_given_back() {
    const JOBS: usize = 400_000;
    const AT_ONCE: usize = 1_000;
    let server = Server::start(&[]);
    let mut client = server.connect();
    // The numbers have no common divisor, so that each comes once.
    let scattered = |number: usize| number * 7_919 % JOBS;
    for first in (0..JOBS).step_by(AT_ONCE) {
        let put = |number| format!("put {} 0 60 1\r\nx\r\n", scattered(number));
        client.send((first..first + AT_ONCE).map(put).collect::<String>());
        (0..AT_ONCE).for_each(|_| assert!(client.line().starts_with("INSERTED ")));
    }
    let resident = || server.usage().memory();
    assert!(resident() > 32 * MIB, "{} bytes", resident());
    for first in (0..JOBS).step_by(AT_ONCE) {
        let delete = |number| format!("delete {}\r\n", 1 + scattered(number));
        client.send((first..first + AT_ONCE).map(delete).collect::<String>());
        (0..AT_ONCE).for_each(|_| assert_eq!(client.line(), "DELETED"));
    }
    wait_until("less than 20 MiB are resident", || resident() < 20 * MIB);
}

/// Sends a server that runs out of memory bodies of all sizes, many jobs and many tubes.
fn exhaust(server: &Server) {
    let mut client = server.connect();
    // The largest bodies are announced, and sent until the server takes no more.
    let mut announcer = server.connect();
    announcer.send("put 0 0 60 1073741824\r\n");
    announcer.send(vec![b'x'; 3 * MIB]);
    for size in [10 * MIB, MIB, 60_000, 1_000] {
        fill(&mut client, size);
    }
    // Small jobs, which take less memory than their records.
    let mut refused = false;
    let puts = put_line(1).repeat(500);
    while !refused {
        client.send(&puts);
        for _ in 0..500 {
            refused |= client.line() == "OUT_OF_MEMORY";
        }
    }
    // Structures that grow without a body.
    let mut watcher = server.connect();
    for number in 0..2_000 {
        let reply = watcher.ask(&format!("watch tube-{number}-{}", "x".repeat(150)));
        assert!(reply.starts_with("WATCHING") || reply == "OUT_OF_MEMORY", "{reply}");
    }
    watcher.send("list-tubes\r\n");
    let reply = watcher.line();
    match reply.strip_prefix("OK ") {
        Some(size) => drop(watcher.body(size.parse().unwrap())),
        None => assert_eq!(reply, "OUT_OF_MEMORY"),
    }
    // Jobs can be reserved and deleted however little memory is left.
    let stats = client.data("stats-tube default");
    assert_ne!(stats["current-jobs-ready"], "0");
    assert_eq!(client.ask("peek 4000000000"), "NOT_FOUND");
}

#[test]
fn the_server_survives_when_its_address_space_is_full() {
    if !has_tool("prlimit") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut started = 0;
    for step in 0..20 {
        let size = (80 + step * 16 + step * step) * MIB;
        let limit = format!("--as={size}");
        // Every third server has a binlog.
        let binlog = directory.path().join(step.to_string());
        std::fs::create_dir(&binlog).unwrap();
        let flags = ["-z", "1073741824", "-s", "20000000", "-b", binlog.to_str().unwrap()];
        let flags = if step % 3 == 0 { &flags[..] } else { &flags[..2] };
        let mut server = match Server::try_start_in(&["prlimit", &limit], flags) {
            Ok(server) => server,
            Err(status) => {
                assert_eq!(status.signal(), None, "a server that cannot start exits with a code: {status}");
                continue;
            }
        };
        started += 1;
        exhaust(&server);
        recover(&mut server);
    }
    assert!(started >= 15, "the server has started with only {started} of the limits");
}

#[test]
fn three_quarters_of_the_memory_of_the_control_group_are_the_limit_of_the_server() {
    let Some(group) = MemoryGroup::new(64 * MIB) else { return };
    let server = Server::start_in(&["sh", "-c", &group.script(), "sh"], &[]);
    assert!(server.log().contains(&format!(", {} bytes of memory", 48 * MIB)), "{}", server.log());
    let bytes = 60_000 * fill(&mut server.connect(), 60_000);
    assert!((44 * MIB..=48 * MIB).contains(&bytes), "{bytes} bytes of bodies");
}

#[test]
fn the_server_survives_at_the_memory_limit_of_the_control_group() {
    for step in 0..20 {
        let size = (24 + step * 8 + step * step) * MIB;
        let group = match MemoryGroup::new(size) {
            None if step == 0 => return,
            group => group.expect("an earlier group could be made"),
        };
        let mut server = Server::start_in(&["sh", "-c", &group.script(), "sh"], &["-z", "1073741824"]);
        exhaust(&server);
        recover(&mut server);
    }
}

/// Deleted jobs make room for new ones, and the server ends with status 0.
fn recover(server: &mut Server) {
    let mut client = server.connect();
    let mut deleted = 0;
    while client.stat("current-jobs-ready") > 0 {
        deleted += (0..50).filter_map(|_| peek_ready(&mut client)).count();
    }
    assert!(deleted > 0, "{}", server.log());
    wait_until("there is room again", || {
        client.send(put_line(1_000));
        client.line().starts_with("INSERTED")
    });
    server.signal(Signal::TERM);
    let status = server.end();
    assert_eq!((status.code(), status.signal()), (Some(0), None), "{}", server.log());
}

/// Deletes the first ready job, without reserving it.
fn peek_ready(client: &mut Client) -> Option<u64> {
    let reply = client.ask("peek-ready");
    let mut words = reply.strip_prefix("FOUND ")?.split(' ');
    let id = words.next()?.parse().ok()?;
    client.body(words.next()?.parse().ok()?);
    assert_eq!(client.ask(&format!("delete {id}")), "DELETED");
    Some(id)
}

#[test]
fn slow_senders_and_idle_clients_take_little_memory() {
    let clients = scale("SURVIVE_SENDERS", 1_000);
    let server = Server::start(&[]);
    let mut other = server.connect();
    other.ask("use x");
    let before = server.usage().memory();
    let idle: Vec<_> = (0..clients).map(|_| server.connect()).collect();
    let mut senders: Vec<_> = (0..clients).map(|_| server.connect()).collect();
    for sender in &mut senders {
        sender.send("put 0 0 60 60000\r\n");
    }
    for _ in 0..10 {
        senders.iter_mut().for_each(|sender| sender.send("x"));
        assert_eq!(other.ask("peek-ready"), "NOT_FOUND");
    }
    wait_until("all slow senders have sent their command", || other.stat("cmd-put") == clients as u64);
    // The part for these clients of the 64 MiB that 5,000 of each kind may take.
    let growth = server.usage().memory() - before;
    assert!(growth < 64 * MIB * clients / 5_000 + 8 * MIB, "{growth} bytes");
    drop(idle);
}
