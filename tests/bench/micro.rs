//! Micro-benchmarks of the pure parts, which show in which part a regression is: `make micro`.
//!
//! Owns: the work that each part does alone. `make bench` measures the cost of a whole command. With
//! `BENCH_LARGE=1` the queue is also measured beside 10 million jobs, which takes about 2 GB.

use std::env;
use std::hint::black_box;

use beanstalkd::simulation::{Exchange, Output};
use beanstalkd_binlog::{Binlog, Config, SyncPolicy, WholeJob};
use beanstalkd_protocol::{Reply, ReplyBuffer, parse};
use beanstalkd_queue::{ClientId, NewJob, Queue, Release, Reserve};
use beanstalkd_testkit::random::Random;
use beanstalkd_testkit::tasks::ByHand;
use beanstalkd_types::clock::Timestamp;
use beanstalkd_types::job::{Body, Counters, Counting, JobId, JobRecord, JobState, Priority};
use beanstalkd_types::tags::EncodedTags;
use beanstalkd_types::tube_name::TubeName;
use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};

use crate::memory_disk::MemoryDisk;

mod memory_disk;

// The server's allocator, because allocation is a large part of what an operation costs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const NOW: Timestamp = Timestamp(1_700_000_000_000_000_000);
const BODY: &[u8] = &[b'x'; 64];
/// Operations that are timed together, because one alone takes about as long as reading the timer.
const OPERATIONS: u32 = 1000;

fn main() {
    divan::main();
}

/// The numbers of other jobs in the queue while an operation is measured.
fn backlogs() -> Vec<usize> {
    let mut sizes = vec![10, 10_000, 1_000_000];
    if env::var_os("BENCH_LARGE").is_some() {
        sizes.push(10_000_000);
    }
    sizes
}

#[divan::bench(args = [
    "put 1024 0 120 64",
    "reserve",
    "reserve-with-timeout 10",
    "delete 123456789",
    "release 123456789 1024 0",
    "watch some-tube",
    "no such command",
])]
fn parse_line(bencher: Bencher, line: &str) {
    bencher.bench(|| parse(black_box(line.as_bytes())).is_ok());
}

/// Framing and parsing of 32 commands that arrive in one read.
#[divan::bench]
fn frame_32_deletes(bencher: Bencher) {
    let input = b"delete 123456789\r\n".repeat(32);
    let mut exchange = Exchange::<()>::default();
    bencher.counter(ItemsCount::new(32_usize)).bench_local(|| {
        let mut rest = black_box(input.as_slice());
        let mut count = 0;
        while exchange.next_request(&mut rest).is_some() {
            count += 1;
        }
        assert_eq!(count, 32);
    });
}

#[divan::bench]
fn write_reserved(bencher: Bencher) {
    let body = Body::copy_of(BODY).unwrap();
    let mut output = Output::default();
    bencher.bench_local(|| {
        output.bytes().clear();
        black_box(&mut output).write(&Reply::Reserved(JobId(123_456_789), (&body).into())).unwrap();
    });
}

/// A queue with a client and some jobs.
struct Filled {
    queue: Queue,
    client: ClientId,
    random: Random,
}

impl Filled {
    fn new(jobs: usize, mut put: impl FnMut(&mut Self)) -> Self {
        let mut queue = Queue::default();
        let client = queue.connect();
        let mut filled = Self { queue, client, random: Random::new(1) };
        for _ in 0..jobs {
            put(&mut filled);
        }
        filled
    }

    fn put(&mut self, priority: u32, delay_s: u32) {
        let id = self.queue.allocate_id();
        let body = Body::copy_of(black_box(BODY)).unwrap();
        self.queue.make_room_for_put().unwrap();
        self.queue.put(
            self.client,
            NewJob { id, priority: Priority(priority), delay_s: delay_s.into(), ttr_s: 120.into() },
            body,
            NOW,
        );
    }

    fn put_random_priority(&mut self) {
        let priority = self.random.next() as u32;
        self.put(priority, 0);
    }

    fn put_random_delay(&mut self) {
        let delay_s = 1 + self.random.next() as u32 % 3600;
        self.put(1024, delay_s);
    }

    fn reserve_and_delete(&mut self) {
        let Reserve::Job(id) = self.queue.reserve(self.client, None, NOW) else {
            unreachable!("a job was put")
        };
        assert!(self.queue.delete(self.client, id, NOW).is_some());
    }
}

/// Put, reserve and delete beside ready jobs of one priority.
#[divan::bench(args = backlogs(), sample_size = OPERATIONS)]
fn cycle_in_order(bencher: Bencher, jobs: usize) {
    let mut filled = Filled::new(jobs, |filled| filled.put(1024, 0));
    bencher.bench_local(|| {
        filled.put(1024, 0);
        filled.reserve_and_delete();
    });
}

/// Put, reserve and delete beside ready jobs of random priorities.
#[divan::bench(args = backlogs(), sample_size = OPERATIONS)]
fn cycle_random_priorities(bencher: Bencher, jobs: usize) {
    let mut filled = Filled::new(jobs, Filled::put_random_priority);
    bencher.bench_local(|| {
        filled.put_random_priority();
        filled.reserve_and_delete();
    });
}

/// A delayed put, and the delete of that job, beside delayed jobs.
#[divan::bench(args = backlogs(), sample_size = OPERATIONS)]
fn delay_and_delete(bencher: Bencher, jobs: usize) {
    let mut filled = Filled::new(jobs, Filled::put_random_delay);
    bencher.bench_local(|| {
        filled.put_random_delay();
        let newest = filled.queue.allocate_id();
        let deleted = filled.queue.delete(filled.client, JobId(newest.0 - 1), NOW);
        assert!(deleted.is_some());
    });
}

/// Release and the reserve that follows it, beside ready jobs.
#[divan::bench(args = backlogs(), sample_size = OPERATIONS)]
fn reserve_and_release(bencher: Bencher, jobs: usize) {
    let mut filled = Filled::new(jobs, Filled::put_random_priority);
    bencher.bench_local(|| {
        let Reserve::Job(id) = filled.queue.reserve(filled.client, None, NOW) else {
            unreachable!("jobs are ready")
        };
        let priority = Priority(filled.random.next() as u32);
        let release = Release { priority, delay_s: 0.into(), counting: Counting::Counted };
        filled.queue.release(filled.client, id, release, NOW)
    });
}

/// A binlog on a disk in memory, and the jobs whose changes it records.
struct Log {
    binlog: Binlog,
    disk: MemoryDisk,
    tasks: ByHand,
    tube: TubeName,
    body: Body,
    next_id: u64,
}

impl Log {
    fn new(body_bytes: usize) -> Self {
        let disk = MemoryDisk::default();
        let tasks = ByHand::default();
        let (binlog, _) = open(&disk, &tasks, |_, _, _, _| {});
        let body = Body::copy_of(&vec![b'x'; body_bytes]).unwrap();
        Self { binlog, disk, tasks, tube: TubeName::default_tube(), body, next_id: 1 }
    }

    /// Does the helper thread's tasks in this thread.
    fn work(&mut self) {
        while let Some(task) = self.tasks.next() {
            let completion = task.run(&mut self.disk);
            self.binlog.on_completion(completion, NOW).unwrap();
        }
    }

    fn put(&mut self) -> JobRecord {
        while self
            .binlog
            .reserve_put(self.tube.as_bytes().len(), self.body.len(), &EncodedTags::NONE)
            .is_err()
        {
            self.work();
        }
        let job = JobRecord {
            id: JobId(self.next_id),
            priority: Priority(1024),
            delay_s: 0.into(),
            ttr_s: 120.into(),
            created_at: NOW,
            deadline_at: Timestamp(0),
            counters: Counters::default(),
            state: JobState::Ready,
        };
        self.next_id += 1;
        self.binlog.append_put(&WholeJob::plain(&job, &self.tube, &self.body), NOW);
        job
    }

    fn reserve(&mut self, job: &JobRecord) {
        let reserved = JobRecord { state: JobState::Reserved, deadline_at: NOW, ..*job };
        if self.binlog.reserve_update().is_ok() {
            self.binlog.append_update(&reserved, self.body.len(), NOW);
        }
    }

    fn commit(&mut self) {
        self.binlog.commit(NOW).unwrap();
        self.work();
    }
}

fn open(
    disk: &MemoryDisk,
    tasks: &ByHand,
    mut restore: impl FnMut(JobRecord, &TubeName, Body, &[u8]),
) -> (Binlog, u64) {
    let config =
        Config { file_bytes: 10 * 1024 * 1024, sync: SyncPolicy::Every(50), recover: false, nonce_seed: 1 };
    let (binlog, summary) = Binlog::open(tasks.storage(disk.clone()), config, NOW, 0, &mut restore).unwrap();
    (binlog, summary.bytes)
}

/// Put, reserve and delete as the binlog records them, with a commit after every 32 jobs. The time is that of one
/// job's three records.
#[divan::bench(args = [64, 16 * 1024], sample_size = 100)]
fn log_32_cycles(bencher: Bencher, body_bytes: usize) {
    let mut log = Log::new(body_bytes);
    bencher.counter(ItemsCount::new(3 * 32_usize)).bench_local(|| {
        let jobs: [JobRecord; 32] = std::array::from_fn(|_| log.put());
        for job in &jobs {
            log.reserve(job);
        }
        for job in &jobs {
            log.binlog.append_delete(job.id);
        }
        log.commit();
    });
}

/// The start on a binlog of 100,000 jobs, each of which goes into a queue.
#[divan::bench(sample_count = 20)]
fn replay(bencher: Bencher) {
    let mut log = Log::new(138);
    for _ in 0..100_000 {
        log.put();
    }
    log.commit();
    log.binlog.close(NOW).unwrap();
    let files = log.disk;
    let bytes = open(&files.copy(), &ByHand::default(), |_, _, _, _| {}).1;
    bencher.counter(BytesCount::new(bytes)).with_inputs(|| files.copy()).bench_local_values(|disk| {
        let mut queue = Queue::default();
        let (binlog, _) = open(&disk, &ByHand::default(), |record, tube, body, _| {
            queue.restore(&record, tube.as_str(), body, &[], NOW).unwrap();
        });
        (queue, binlog)
    });
}
