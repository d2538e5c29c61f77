//! The effect of hostile clients on a normal client.
//!
//! Owns: the hostile loads and their threads. The threads run on the generator's core, because the server needs the
//! other core for itself, and at the lowest priority, so that the normal client's threads go first. The figures are
//! upper bounds, because they include the processor time that the hostile threads still take from the normal client.

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

/// The normal client's connections, each of which does one cycle after the other.
pub const NORMAL_CONNECTIONS: usize = 4;
/// The length of each half of a round: long enough for a thousand cycles even of a slowed client.
pub const STRETCH: Duration = Duration::from_secs(2);
/// How long hostile clients work before the measurement begins.
pub const WARM_UP: Duration = Duration::from_millis(300);

const SLOW: usize = 5_000;
const IDLE: usize = 5_000;
/// The body size that each slow sender announces. A server that allocates announced sizes would need 300 MB.
const SLOW_BODY_BYTES: usize = 60_000;
/// The number of slow senders that send a byte together, and the pause after them. Each sends one byte a second.
const SLOW_AT_ONCE: usize = 50;
const SLOW_PAUSE: Duration = Duration::from_millis(10);

const MAX_JOB_BYTES: usize = 1 << 30;
const PEEKED_BYTES: usize = 1 << 20;
const CHUNK_BYTES: usize = 1 << 20;
/// Commands in one write of a client that pipelines without end.
const PIPELINED: usize = 8_192;

/// The number of clients that ask for a list at the same time.
const LISTS: usize = 60;
/// Puts a ready job without a body.
pub const JOB: &str = "put 0 0 9999 0\r\n\r\n";
/// Commands sent before their replies are read.
const BATCH: usize = 500;

const LOWEST_PRIORITY: i32 = 19;

/// How to begin a hostile load.
type Begin = fn(SocketAddr) -> Result<Hostile, Failure>;

/// Each kind of hostile client: its name, the target (at most this many times the p99 of the normal client alone), and
/// how it begins.
const KINDS: [(&str, f64, Begin); 4] = [
    ("5,000 slow senders and 5,000 idle clients", 2.0, Hostile::slow),
    ("a client that pipelines without end", 3.0, Hostile::pipelining),
    ("a client that sends bodies of 1 GiB", 3.0, Hostile::large_bodies),
    ("a client that peeks jobs of 1 MiB without end", 3.0, Hostile::peeking),
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

/// Measures on a separate server. "Beside" means beside the hostile clients. Returns the p99 beside divided by the
/// p99 alone; p99 alone and beside, p50 alone and beside, and the worst latency beside, in µs; resident MiB beside; and
/// the server's processor time beside, in percent of a core, which shows how much work the hostile clients caused.
fn round(bench: &Bench, contender: &Contender, begin: Begin) -> Result<[f64; 8], Failure> {
    if contender.role == Role::Floor {
        return Err(Failure::Meaningless);
    }
    let server = bench.start(contender, Setup { max_job_bytes: MAX_JOB_BYTES, ..Setup::PLAIN })?;
    let mut normal = Generator::connect(server.endpoint(), Load::new(NORMAL_CONNECTIONS, 1))?;
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

/// Prepares a command, or a batch of commands, that is much work of the given size, and sends it a moment later.
type Strike = fn(SocketAddr, usize) -> Result<Hostile, Failure>;

/// Each long command: its name, its size for our server, its size for peers, and how it is sent. C gets a smaller size
/// where it would take too long, and 0 where it has no such command.
const STRIKES: [(&str, usize, usize, Strike); 11] = [
    ("reserves by a client that watches 20,000 tubes", 20_000, 2_000, Hostile::reserving),
    ("reserves by a client that watches 300,000 tubes", 300_000, 2_000, Hostile::reserving),
    ("the end of a pause in which 5,000 clients wait for 5,000 jobs", 5_000, 5_000, Hostile::ending_pause),
    ("the disconnect of a client with a million reservations", 1_000_000, 100_000, Hostile::leaving),
    ("a kick of a million jobs", 1_000_000, 1_000_000, Hostile::kicking),
    ("1,500 deletes of 1 MB", 1_500, 1_500, Hostile::deleting),
    ("60 lists of 20,000 tubes", 20_000, 2_000, Hostile::listing),
    ("80,000 stats", 80_000, 80_000, Hostile::asking),
    ("a flush of a million jobs", 1_000_000, 0, Hostile::flushing),
    ("pages of a million jobs", 1_000_000, 0, Hostile::paging),
    ("peeks at the oldest of a million reservations", 1_000_000, 0, Hostile::looking),
];

/// The latency of a normal client while the server executes a long command of another client.
pub fn long_commands(bench: &Bench) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, ours, peers, strike) in STRIKES {
        let figures = bench.in_turns(
            |contender| Ok(contender.clone()),
            |contender| {
                if contender.role == Role::Floor {
                    return Err(Failure::Meaningless);
                }
                let size = if contender.role == Role::Ours { ours } else { peers };
                if size == 0 {
                    return Err(Failure::Meaningless);
                }
                let server =
                    bench.start(contender, Setup { max_job_bytes: MAX_JOB_BYTES, ..Setup::PLAIN })?;
                let mut normal = Generator::connect(server.endpoint(), Load::new(NORMAL_CONNECTIONS, 1))?;
                normal.run(CYCLE, Until::Elapsed(WARM_UP))?;
                let _hostile = strike(server.address, size)?;
                let beside = normal.run(CYCLE, Until::Elapsed(STRETCH))?;
                Ok([beside.latency_us(0.99), beside.latency_us(1.0)])
            },
        );
        for (index, (what, most)) in [("p99", 2_000.0), ("worst", 10_000.0)].into_iter().enumerate() {
            let name = format!("4 x 1 beside {name}: {what}");
            rows.push(Row::new(name, "µs", Target::AtMost(most), column(&figures, index)));
        }
    }
    rows
}

/// Hostile clients, which work until this is dropped.
pub struct Hostile {
    over: Arc<AtomicBool>,
    /// Shut down on drop, so that no thread stays in a read or a write.
    pub streams: Vec<TcpStream>,
    threads: Vec<JoinHandle<()>>,
}

impl Hostile {
    pub fn new() -> Self {
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

    /// A connection that peeks a job of `body_bytes`, and reads the replies as fast as it can.
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

    /// A connection that puts a body of 1 GiB, deletes it, and starts over.
    fn large_bodies(address: SocketAddr) -> Result<Self, Failure> {
        let mut client = Client::connect(address)?;
        let mut hostile = Self::new();
        // An error ends the thread, which `check` reports.
        hostile.spawn(move |over| while put_and_delete(&mut client, over).is_ok_and(|goes_on| goes_on) {});
        Ok(hostile)
    }

    /// Sends `commands` on this connection a moment later, and discards the replies.
    pub fn strike(&mut self, client: Client, commands: Vec<u8>) -> Result<(), Failure> {
        let mut writer = client.into_stream();
        let mut reader = writer.try_clone()?;
        self.streams.push(writer.try_clone()?);
        self.spawn(move |_| {
            thread::sleep(WARM_UP);
            // An error means that the measurement is over.
            let _ = writer.write_all(&commands);
        });
        self.spawn(move |_| {
            let mut buffer = vec![0; CHUNK_BYTES];
            while reader.read(&mut buffer).is_ok_and(|count| count > 0) {}
        });
        Ok(())
    }

    /// A connection that sends these commands.
    pub fn one(client: Client, commands: Vec<u8>) -> Result<Self, Failure> {
        let mut hostile = Self::new();
        hostile.strike(client, commands)?;
        Ok(hostile)
    }

    fn reserving(address: SocketAddr, tubes: usize) -> Result<Self, Failure> {
        let client = watcher(address, tubes)?;
        Self::one(client, b"reserve-with-timeout 0\r\n".repeat(PIPELINED))
    }

    fn leaving(address: SocketAddr, jobs: usize) -> Result<Self, Failure> {
        let mut client = watcher(address, 1)?;
        in_batches(&mut client, jobs, 3, |_| "put 0 0 9999 0\r\n\r\nreserve\r\n".to_owned())?;
        let mut hostile = Self::new();
        let stream = client.into_stream();
        hostile.spawn(move |_| {
            thread::sleep(WARM_UP);
            drop(stream);
        });
        Ok(hostile)
    }

    fn kicking(address: SocketAddr, jobs: usize) -> Result<Self, Failure> {
        let mut client = watcher(address, 1)?;
        in_batches(&mut client, jobs, 1, |_| "put 0 9999 9999 0\r\n\r\n".to_owned())?;
        Self::one(client, format!("kick {jobs}\r\n").into_bytes())
    }

    fn flushing(address: SocketAddr, jobs: usize) -> Result<Self, Failure> {
        let mut client = watcher(address, 1)?;
        in_batches(&mut client, jobs, 1, |_| JOB.to_owned())?;
        Self::one(client, b"flush-tube hostile-0\r\n".to_vec())
    }

    fn paging(address: SocketAddr, jobs: usize) -> Result<Self, Failure> {
        let mut client = watcher(address, 1)?;
        in_batches(&mut client, jobs, 1, |_| JOB.to_owned())?;
        Self::one(client, b"list-jobs hostile-0 ready 1000\r\n".repeat(PIPELINED))
    }

    fn looking(address: SocketAddr, jobs: usize) -> Result<Self, Failure> {
        let mut client = watcher(address, 1)?;
        in_batches(&mut client, jobs, 3, |_| "put 0 0 9999 0\r\n\r\nreserve\r\n".to_owned())?;
        Self::one(client, b"peek-reserved\r\n".repeat(PIPELINED))
    }

    fn deleting(address: SocketAddr, jobs: usize) -> Result<Self, Failure> {
        let mut client = watcher(address, 1)?;
        let body = put(PEEKED_BYTES);
        let mut commands = Vec::new();
        for _ in 0..jobs {
            client.send(&body)?;
            let line = client.line()?;
            let id = line.strip_prefix(b"INSERTED ").ok_or_else(|| unexpected(line))?;
            commands.extend([b"delete ", id, b"\r\n"].concat());
        }
        Self::one(client, commands)
    }

    fn ending_pause(address: SocketAddr, clients: usize) -> Result<Self, Failure> {
        let mut client = watcher(address, 1)?;
        let mut hostile = Self::new();
        for count in 1..=clients {
            let mut stream = TcpStream::connect(address)?;
            stream.write_all(b"watch hostile-0\r\nreserve\r\n")?;
            hostile.streams.push(stream);
            if count % CONNECTIONS_AT_ONCE == 0 {
                client.await_stat("current-waiting", |waiting| waiting >= count)?;
            }
        }
        in_batches(&mut client, 1, 1, |_| "pause-tube hostile-0 9999\r\n".to_owned())?;
        in_batches(&mut client, clients, 1, |_| JOB.to_owned())?;
        hostile.strike(client, b"pause-tube hostile-0 0\r\n".to_vec())?;
        Ok(hostile)
    }

    fn listing(address: SocketAddr, tubes: usize) -> Result<Self, Failure> {
        let mut hostile = Self::one(watcher(address, tubes)?, Vec::new())?;
        for _ in 0..LISTS {
            hostile.strike(Client::connect(address)?, b"list-tubes\r\n".to_vec())?;
        }
        Ok(hostile)
    }

    fn asking(address: SocketAddr, times: usize) -> Result<Self, Failure> {
        Self::one(Client::connect(address)?, b"stats\r\n".repeat(times))
    }

    pub fn spawn(&mut self, work: impl FnOnce(&AtomicBool) + Send + 'static) {
        let over = self.over.clone();
        self.threads.push(thread::spawn(move || {
            // A thread may always lower its own priority. In Linux this does not affect the other threads.
            let _ = rustix::process::nice(LOWEST_PRIORITY);
            work(&over);
        }));
    }

    /// Fails if a hostile thread has ended, because the figures would then be those of a server without hostile
    /// clients.
    pub fn check(&self) -> Result<(), Failure> {
        if self.threads.iter().any(JoinHandle::is_finished) { Err(Failure::Closed) } else { Ok(()) }
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for stream in &self.streams {
            // An error means that the server has closed it already.
            let _ = stream.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            // If it panicked, the message was printed, and `check` has noticed that it ended.
            let _ = thread.join();
        }
    }
}

/// Returns whether to go on. The measurement may end while a body is being sent.
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

/// A client that watches this many tubes, and uses the first of them.
pub fn watcher(address: SocketAddr, tubes: usize) -> Result<Client, Failure> {
    let mut client = Client::connect(address)?;
    in_batches(&mut client, tubes, 1, |tube| format!("watch hostile-{tube}\r\n"))?;
    in_batches(&mut client, 1, 2, |_| "ignore default\r\nuse hostile-0\r\n".to_owned())?;
    Ok(client)
}

/// Sends `count` commands, each of which is answered in `lines` lines.
pub fn in_batches(
    client: &mut Client,
    count: usize,
    lines: usize,
    command: impl Fn(usize) -> String,
) -> Result<(), Failure> {
    for from in (0..count).step_by(BATCH) {
        let batch = from..count.min(from + BATCH);
        let answers = batch.len() * lines;
        client.send(batch.map(&command).collect::<String>().as_bytes())?;
        for _ in 0..answers {
            client.line()?;
        }
    }
    Ok(())
}

fn put(body_bytes: usize) -> Vec<u8> {
    let mut put = format!("put 1024 0 120 {body_bytes}\r\n").into_bytes();
    put.resize(put.len() + body_bytes, b'x');
    put.extend_from_slice(b"\r\n");
    put
}
