//! What a normal client feels of hostile ones.
//!
//! Owns: the hostile loads and their threads. These run on the generator's core, because the server has the other
//! one to itself, at the lowest priority, so that the normal client's threads go first. What they take from it all
//! the same is in the figures, which therefore are upper bounds.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::client::{Client, unexpected};
use crate::failure::Failure;
use crate::load::{CYCLE, Generator, Load, Until};
use crate::rows::CONNECTIONS_AT_ONCE;
use crate::runner::{Bench, column};
use crate::server::{Contender, Role, Setup};
use crate::table::{Row, Target};

/// The normal client: a cycle at a time on each of so many connections.
const NORMAL_CONNECTIONS: usize = 4;
/// Each of the two stretches of a round: long enough for a thousand cycles of a client that is badly off.
const STRETCH: Duration = Duration::from_secs(2);
/// What hostile clients do before anything is measured.
const WARM_UP: Duration = Duration::from_millis(300);

const SLOW: usize = 5_000;
const IDLE: usize = 5_000;
/// What each slow sender announces, so that a server that trusts announcements would need 300 MB.
const SLOW_BODY_BYTES: usize = 60_000;
/// Slow senders that have their turn together, and the pause after it: each sends one byte a second.
const SLOW_AT_ONCE: usize = 50;
const SLOW_PAUSE: Duration = Duration::from_millis(10);

const MAX_JOB_BYTES: usize = 1 << 30;
const PEEKED_BYTES: usize = 1 << 20;
const CHUNK_BYTES: usize = 1 << 20;
/// Commands in one write of a client that pipelines without end.
const PIPELINED: usize = 8_192;

const LOWEST_PRIORITY: i32 = 19;

/// How to begin a hostile load.
type Begin = fn(SocketAddr) -> Result<Hostile, Failure>;

/// The four kinds of hostile clients and what they may cost others: times the p99 of the same client alone.
const KINDS: [(&str, f64, Begin); 4] = [
    ("5,000 slow senders and 5,000 idle", 2.0, Hostile::slow),
    ("one that pipelines without end", 3.0, Hostile::pipelining),
    ("one that sends bodies of 1 GiB", 3.0, Hostile::large_bodies),
    ("one that peeks jobs of 1 MiB without end", 3.0, Hostile::peeking),
];

/// The p99 of a normal client alone and beside each kind of hostile clients, in turns.
pub fn neighbours(bench: &Bench) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, most, begin) in KINDS {
        let figures = bench.in_turns(|contender| Ok(contender.clone()), |c| round(bench, c, begin));
        let name = format!("4 x 1 beside {name}");
        rows.push(Row::new(
            format!("{name}: p99, to that of the same client alone"),
            "ratio",
            Target::AtMost(most),
            column(&figures, 0),
        ));
        for (index, what) in ["p99 alone", "p99", "p50 alone", "p50", "worst"].into_iter().enumerate() {
            rows.push(Row::new(format!("{name}: {what}"), "µs", Target::None, column(&figures, index + 1)));
        }
        let target = if name.contains("slow") { Target::AtMost(64.0) } else { Target::None };
        rows.push(Row::new(format!("{name}: resident"), "MiB", target, column(&figures, 6)));
        rows.push(Row::new(format!("{name}: CPU"), "% of a core", Target::None, column(&figures, 7)));
    }
    rows
}

/// On a server of its own: p99 beside to p99 alone; p99 alone and beside, p50 alone and beside, worst beside, in µs;
/// resident MiB beside, and the server's processor time in percent of a core, which tells how hostile that was.
fn round(bench: &Bench, contender: &Contender, begin: Begin) -> Result<[f64; 8], Failure> {
    if contender.role == Role::Floor {
        return Err(Failure::Meaningless);
    }
    let server = bench.start(contender, Setup { max_job_bytes: MAX_JOB_BYTES, ..Setup::PLAIN })?;
    let mut normal = Generator::connect(server.address, Load::new(NORMAL_CONNECTIONS, 1))?;
    normal.run(CYCLE, Until::Elapsed(WARM_UP))?;
    let alone = normal.run(CYCLE, Until::Elapsed(STRETCH))?;
    let hostile = begin(server.address)?;
    thread::sleep(WARM_UP);
    let (cpu, beside) = server.cpu_of(|| normal.run(CYCLE, Until::Elapsed(STRETCH)))?;
    let busy_percent = cpu.as_secs_f64() / beside.elapsed.as_secs_f64() * 100.0;
    let resident_mib = server.resident_bytes()? / f64::from(1 << 20);
    hostile.check()?;
    let (p99_alone, p99) = (alone.latency_us(0.99), beside.latency_us(0.99));
    let (p50_alone, p50) = (alone.latency_us(0.5), beside.latency_us(0.5));
    Ok([p99 / p99_alone, p99_alone, p99, p50_alone, p50, beside.latency_us(1.0), resident_mib, busy_percent])
}

/// Clients at work until they are dropped.
struct Hostile {
    over: Arc<AtomicBool>,
    /// Shut down in the end, so that no thread stays in a read or a write.
    streams: Vec<TcpStream>,
    threads: Vec<JoinHandle<()>>,
}

impl Hostile {
    fn new() -> Self {
        Self { over: Arc::default(), streams: Vec::new(), threads: Vec::new() }
    }

    fn slow(address: SocketAddr) -> Result<Self, Failure> {
        let mut hostile = Self::new();
        let mut control = Client::connect(address)?;
        let before = control.stat("current-connections")?;
        let mut slow = Vec::with_capacity(SLOW);
        for index in 1..=SLOW + IDLE {
            let mut stream = TcpStream::connect(address)?;
            if index <= SLOW {
                stream.write_all(format!("put 1024 0 120 {SLOW_BODY_BYTES}\r\n").as_bytes())?;
                slow.push(stream);
            } else {
                hostile.streams.push(stream);
            }
            if index % CONNECTIONS_AT_ONCE == 0 {
                control.await_stat("current-connections", |count| count >= before + index)?;
            }
        }
        hostile.spawn(move |over| {
            for turn in slow.chunks(SLOW_AT_ONCE).cycle() {
                if over.load(Ordering::Relaxed)
                    || turn.iter().any(|mut stream| stream.write_all(b"x").is_err())
                {
                    return;
                }
                thread::sleep(SLOW_PAUSE);
            }
        });
        Ok(hostile)
    }

    fn pipelining(address: SocketAddr) -> Result<Self, Failure> {
        Self::greedy(address, 1)
    }

    fn peeking(address: SocketAddr) -> Result<Self, Failure> {
        Self::greedy(address, PEEKED_BYTES)
    }

    /// One connection that peeks a job of `body_bytes`, and reads the answers as fast as it can.
    fn greedy(address: SocketAddr, body_bytes: usize) -> Result<Self, Failure> {
        let mut client = Client::connect(address)?;
        client.send(&put(body_bytes))?;
        let line = client.line()?;
        let id = line.strip_prefix(b"INSERTED ").ok_or_else(|| unexpected(line))?;
        let commands = [b"peek ", id].concat().repeat(PIPELINED);
        let mut writer = client.into_stream();
        let mut reader = writer.try_clone()?;
        let mut hostile = Self::new();
        hostile.streams.push(writer.try_clone()?);
        hostile.spawn(move |_| while writer.write_all(&commands).is_ok() {});
        hostile.spawn(move |_| {
            let mut buffer = vec![0; CHUNK_BYTES];
            while reader.read(&mut buffer).is_ok_and(|count| count > 0) {}
        });
        Ok(hostile)
    }

    /// One connection that puts a body of 1 GiB, deletes it, and begins again.
    fn large_bodies(address: SocketAddr) -> Result<Self, Failure> {
        let mut client = Client::connect(address)?;
        let mut hostile = Self::new();
        // An error ends the thread, which `check` reports.
        hostile.spawn(move |over| while put_and_delete(&mut client, over).is_ok_and(|goes_on| goes_on) {});
        Ok(hostile)
    }

    fn spawn(&mut self, work: impl FnOnce(&AtomicBool) + Send + 'static) {
        let over = self.over.clone();
        self.threads.push(thread::spawn(move || {
            // To lower one's own priority is never refused. In Linux it is this thread's alone.
            let _ = rustix::process::nice(LOWEST_PRIORITY);
            work(&over);
        }));
    }

    /// Fails where a thread has given up, so that the others were not measured beside anything.
    fn check(&self) -> Result<(), Failure> {
        if self.threads.iter().any(JoinHandle::is_finished) { Err(Failure::Closed) } else { Ok(()) }
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for stream in &self.streams {
            // One that the server has closed is shut down already.
            let _ = stream.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            // A panic of it has been printed, and `check` has seen its end.
            let _ = thread.join();
        }
    }
}

/// Returns whether to go on: the end may come amid a body.
fn put_and_delete(client: &mut Client, over: &AtomicBool) -> Result<bool, Failure> {
    let chunk = vec![b'x'; CHUNK_BYTES];
    client.send(format!("put 1024 0 120 {MAX_JOB_BYTES}\r\n").as_bytes())?;
    for _ in 0..MAX_JOB_BYTES / CHUNK_BYTES {
        if over.load(Ordering::Relaxed) {
            return Ok(false);
        }
        client.send(&chunk)?;
    }
    client.send(b"\r\n")?;
    let line = client.line()?;
    let id = line.strip_prefix(b"INSERTED ").ok_or_else(|| unexpected(line))?;
    let delete = [b"delete ", id].concat();
    client.send(&delete)?;
    client.expect("DELETED")?;
    Ok(true)
}

fn put(body_bytes: usize) -> Vec<u8> {
    let mut put = format!("put 1024 0 120 {body_bytes}\r\n").into_bytes();
    put.resize(put.len() + body_bytes, b'x');
    put.extend_from_slice(b"\r\n");
    put
}
