//! Compares beanstalk-client with the other clients on the registry: jobs a second, and for each command the
//! allocations and the processor time, in the program and in the kernel.
//!
//! `make client-bench` runs it. `BEANSTALKD` names the server to start, by default that of the workspace's release
//! build. Each row is the median of `ROUNDS` rounds of `JOBS` jobs of 100 bytes over TCP, in turns, and is also given
//! as a ratio to the first row, which does not depend on the speed of the machine. Only the measuring thread is
//! counted, so the server is not.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use beanstalk_client::{Command as Line, Connector, JobId, PutOptions, Reply, Request};

const JOBS: usize = 5_000;
const ROUNDS: usize = 7;
const BODY: &str = "01234567890123456789012345678901234567890123456789\
    01234567890123456789012345678901234567890123456789";

/// Counts the allocations of the thread that measures.
struct CountingAllocator;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The processor time of this thread, in the program and in the kernel. Only Linux has it.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split(' ').next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.unwrap_or_default())
}

struct Server(Child, u16);

impl Server {
    fn start() -> Self {
        let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../target/release/beanstalkd");
        let program = std::env::var_os("BEANSTALKD").map_or_else(|| default.into(), PathBuf::from);
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let arguments = ["-l", "127.0.0.1", "-p", &port.to_string()];
        let child = Command::new(&program).args(arguments).stderr(Stdio::null()).spawn();
        let child = child.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        Self(child, port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Each job is put, reserved and deleted, one command after another.
fn ours(port: u16) {
    let mut client = Connector::new().connect(&address(port)).unwrap();
    let options = PutOptions::new();
    for _ in 0..JOBS {
        client.put(BODY.as_bytes(), &options).unwrap();
        let job = client.reserve().unwrap();
        client.delete(job.id).unwrap();
    }
}

fn ours_with_tokio(port: u16) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = Connector::new().connect_async(&address(port)).await.unwrap();
        let options = PutOptions::new();
        for _ in 0..JOBS {
            client.put(BODY.as_bytes(), &options).await.unwrap();
            let job = client.reserve().await.unwrap();
            client.delete(job.id).await.unwrap();
        }
    });
}

fn of_beanstalkc(port: u16) {
    let mut client = beanstalkc::Beanstalkc::new().host("127.0.0.1").port(port).connect().unwrap();
    for _ in 0..JOBS {
        client.put(BODY.as_bytes(), 1024, Duration::ZERO, Duration::from_secs(60)).unwrap();
        client.reserve().unwrap().delete().unwrap();
    }
}

fn of_beanstalkd(port: u16) {
    let mut client = beanstalkd::Beanstalkd::connect("127.0.0.1", port).unwrap();
    for _ in 0..JOBS {
        client.put(BODY, 1024, 0, 60).unwrap();
        let (id, _) = client.reserve().unwrap();
        client.delete(id).unwrap();
    }
}

/// The puts of all jobs, then the reserves, then the deletes, each as a pipeline.
fn ours_pipelined(port: u16) {
    let mut client = Connector::new().connect(&address(port)).unwrap();
    let options = PutOptions::new();
    client.pipeline((0..JOBS).map(|_| Request::Put(&options, BODY.as_bytes())), |_, _| {}).unwrap();
    let mut ids = Vec::with_capacity(JOBS);
    client
        .pipeline((0..JOBS).map(|_| Line::Reserve), |_, reply| match reply {
            Reply::Reserved(id, _) => ids.push(id),
            other => panic!("{other:?}"),
        })
        .unwrap();
    client.pipeline(ids.iter().map(|id: &JobId| Line::Delete(*id)), |_, _| {}).unwrap();
}

/// This client, with batches of a hundred jobs.
fn ours_in_batches(port: u16) {
    let mut client = Connector::new().connect(&address(port)).unwrap();
    let options = PutOptions::new();
    client.pipeline((0..JOBS).map(|_| Request::Put(&options, BODY.as_bytes())), |_, _| {}).unwrap();
    for _ in 0..JOBS / 100 {
        let ids: Vec<u64> = client.reserve_batch(100, None).unwrap().iter().map(|job| job.id).collect();
        client.delete_batch(&ids).unwrap();
    }
}

fn address(port: u16) -> beanstalk_client::Address {
    beanstalk_client::Address::Tcp { host: "127.0.0.1".to_owned(), port }
}

type Row = (&'static str, fn(u16));

const ROWS: &[Row] = &[
    ("beanstalk-client", ours),
    ("beanstalk-client with tokio", ours_with_tokio),
    ("beanstalkc 1.0.0", of_beanstalkc),
    ("beanstalkd 0.4.1", of_beanstalkd),
    ("beanstalk-client, pipelined", ours_pipelined),
    ("beanstalk-client, batches of 100", ours_in_batches),
];

fn main() {
    let server = Server::start();
    let mut times = vec![Vec::new(); ROWS.len()];
    let mut worked = times.clone();
    let mut allocations = vec![0; ROWS.len()];
    for _ in 0..ROUNDS {
        for (index, (_, run)) in ROWS.iter().enumerate() {
            let before = ALLOCATIONS.with(Cell::get);
            let (began, worked_before) = (Instant::now(), processor_time());
            run(server.1);
            times[index].push(began.elapsed());
            worked[index].push(processor_time() - worked_before);
            allocations[index] = ALLOCATIONS.with(Cell::get) - before;
        }
    }
    println!("| client | jobs/s | ratio | processor a command | ratio | allocations a command |");
    println!("|---|---|---|---|---|---|");
    let median = |times: &mut Vec<Duration>| {
        times.sort();
        times[times.len() / 2]
    };
    let (first, first_worked) = (median(&mut times[0]), median(&mut worked[0]));
    for (index, (name, _)) in ROWS.iter().enumerate() {
        let time = median(&mut times[index]);
        let rate = JOBS as f64 / time.as_secs_f64();
        let ratio = first.as_secs_f64() / time.as_secs_f64();
        let each = allocations[index] as f64 / (3 * JOBS) as f64;
        let work = median(&mut worked[index]);
        let of_work = work.as_secs_f64() / first_worked.as_secs_f64();
        let us = work.as_secs_f64() * 1e6 / (3 * JOBS) as f64;
        println!("| {name} | {rate:.0} | {ratio:.2} | {us:.2} µs | {of_work:.2} | {each:.2} |");
    }
}
