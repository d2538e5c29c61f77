//! A long run with the commands of C, from connections that open and close, and with the extensions of this server,
//! from workers with sessions, over restarts, kills and reloads of the rules. No acknowledged command may be lost or
//! undone, no job may be damaged or belong to two workers, no limit may be exceeded, and memory and descriptors must
//! not leak.
//!
//! `SOAK_MINUTES` is the time (by default some seconds, so that the soak itself is tested), `SOAK_RATE` the number of
//! commands of C per second, `SOAK_WORKERS` the number of workers (at most 4), `SEED` the seed of the random numbers.
//! The restarts are in the first third of the time. In the rest one server runs without a restart, and its memory and
//! descriptors are watched.

mod clients;
mod harness;
mod own_tube;
mod rules;
mod samples;
mod session;
mod tagged;
mod worker;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use beanstalkd_testkit::PATIENCE;
use beanstalkd_testkit::client::{Client, body_of, id_of, put_command};
use beanstalkd_testkit::history::{History, body};
use beanstalkd_testkit::random::{Random, number_from_environment};
use beanstalkd_testkit::server::{Server, Transport};
use harness::Harness;
use rules::Rules;
use samples::{Sample, memory_slope};
use tagged::{Tagged, WORKERS};
use worker::{Worker, jobs_of_sessions};

/// The default time.
const SHORT: Duration = Duration::from_secs(9);
/// The default rate in commands of C per second, which takes a few percent of a core.
const RATE: u64 = 1_000;
/// The number of clients with the commands of C at a time, besides the slow reader.
const CLIENTS: u32 = 10;
/// The time between two restarts.
const LIFE: Duration = Duration::from_secs(15);
/// The number of restarts in a short run.
const MIN_RESTARTS: u32 = 3;
/// How long drain mode lasts before SIGTERM.
const DRAIN: Duration = Duration::from_millis(500);
const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
/// The part of the long run in which memory may still grow.
const WARM_UP_SHARE: u32 = 6;
/// The growth of the memory is judged only in runs of at least this length. In shorter runs the noise is too large.
const JUDGED: Duration = Duration::from_secs(15 * 60);
const MAX_MIB_PER_HOUR: f64 = 1.0;
/// By how much the number of descriptors may differ: the binlog may be making one file and removing another.
const BINLOG_DESCRIPTORS: u64 = 2;
/// The server syncs each change before it acknowledges it, has small files, and takes bodies of up to a megabyte.
const FLAGS: &[&str] = &["-b", "{dir}", "-f", "0", "-s", "1048576", "-z", "1048576"];
/// How many peeks are sent at once when all jobs are checked.
const DEPTH: usize = 50;

/// How a run of the server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// SIGKILL while clients work.
    Kill,
    /// SIGUSR1, then SIGTERM while clients still work.
    Terminate,
    /// The clients disconnect, and the server keeps running.
    Quiet,
}

struct Soak {
    server: Server,
    rules: Rules,
    workers: Vec<Worker>,
    tagged: Mutex<Tagged>,
    history: Mutex<History>,
    violations: usize,
    random: Random,
    pause: Duration,
    /// The first id that was not used at the last check.
    next_id: u64,
    replies: u64,
    connections: u64,
}

impl Soak {
    fn new() -> Self {
        let rules = Rules::new();
        let path = rules.path().to_str().expect("the path is text").to_owned();
        let flags = FLAGS.iter().map(|&flag| flag.to_owned()).chain(["--tubes".to_owned(), path]);
        let flags: Vec<String> = flags.collect();
        let program = Path::new(env!("CARGO_BIN_EXE_beanstalkd"));
        let rate = number_from_environment("SOAK_RATE").unwrap_or(RATE);
        let mut random = Random::new(number_from_environment("SEED").unwrap_or(1));
        let workers =
            number_from_environment("SOAK_WORKERS").map_or(WORKERS, |count| WORKERS.min(count as usize));
        Self {
            server: Server::start(program, Transport::Tcp, &flags).unwrap(),
            rules,
            workers: (0..workers).map(|number| Worker::new(number, random.next())).collect(),
            tagged: Mutex::default(),
            history: Mutex::default(),
            violations: 0,
            random,
            pause: Duration::from_secs(CLIENTS.into()) / u32::try_from(rate.max(1)).unwrap(),
            next_id: 1,
            replies: 0,
            connections: 0,
        }
    }

    /// The history, between two runs.
    fn history(&mut self) -> &mut History {
        self.history.get_mut().expect("no client has panicked")
    }

    /// A single run of the server under load. Returns the samples.
    fn run(&mut self, length: Duration, end: End) -> Vec<Sample> {
        let start = Instant::now();
        let mut control = self.server.connect().unwrap();
        let pid = control.stat("pid").unwrap();
        let harness = Harness::new(self.server.address(), &self.tagged, &self.history, self.pause);
        let (mut samples, mut violations) = (Vec::new(), 0);
        let mut sample = |control: &mut Client| {
            let sample = Sample::take(start.elapsed(), pid, self.server.directory(), control).unwrap();
            println!("{sample}");
            violations += print_problems(&mut harness.history());
            samples.push(sample);
        };
        sample(&mut control);
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                let (harness, seed) = (&harness, self.random.next());
                scope.spawn(move || clients::run_sessions_for_life(harness, seed));
            }
            let (slow, seed) = (&harness, self.random.next());
            scope.spawn(move || clients::read_slowly_for_life(slow, seed));
            for worker in &mut self.workers {
                let harness = &harness;
                scope.spawn(move || worker.work_for_life(harness));
            }
            while let Some(left) = length.checked_sub(start.elapsed()) {
                let pause = left.min(SAMPLE_INTERVAL) / 2;
                std::thread::sleep(pause);
                self.rules.change(&self.server, &mut control).unwrap();
                std::thread::sleep(pause);
                sample(&mut control);
            }
            if end == End::Quiet {
                harness.stopping.store(true, Ordering::SeqCst);
                return;
            }
            if end == End::Terminate {
                self.server.signal(Signal::USR1).unwrap();
                std::thread::sleep(DRAIN);
            }
            harness.dying.store(true, Ordering::SeqCst);
            self.server.signal(signal_of(end)).unwrap();
        });
        self.replies += harness.replies.load(Ordering::Relaxed);
        self.connections += harness.connections.load(Ordering::Relaxed);
        if end == End::Quiet {
            control.wait_until_alone(PATIENCE).unwrap();
            sample(&mut control);
        }
        self.violations += violations;
        samples
    }

    /// Checks every job that exists or may exist, while no other client does anything.
    fn check(&mut self) {
        let mut control = self.server.connect().unwrap();
        let history = self.history.get_mut().expect("no client has panicked");
        let probe = history.putting();
        let reply = control.ask(&put_command(0, 0, 60, &body(probe, 10))).unwrap();
        let next_id = id_of(&reply, "INSERTED").unwrap();
        history.inserted(probe, next_id);
        let known = history.ids().into_iter().filter(|&id| id < self.next_id);
        let ids: Vec<u64> = known.chain(self.next_id..=next_id).collect();
        let found = peek_all(&mut control, &ids);
        self.next_id = next_id + 1;
        let tagged = self.tagged.get_mut().expect("no client has panicked");
        let jobs = control.job_count().unwrap() as usize;
        if !(found.len() - tagged.expiring().len().min(found.len())..=found.len()).contains(&jobs) {
            history.report(format!("the server counts {jobs} jobs, expected {}", found.len()));
        }
        self.settle(&mut control, &found);
    }

    /// Compares all jobs with the history, and the sessions with what their workers know.
    fn settle(&mut self, control: &mut Client, found: &BTreeMap<u64, Vec<u8>>) {
        let history = self.history.get_mut().expect("no client has panicked");
        let tagged = self.tagged.get_mut().expect("no client has panicked");
        let by_worker = jobs_of_sessions(control).unwrap();
        history.settle_sessions(found, &by_worker);
        by_worker.iter().for_each(|jobs| tagged.came_back(history, jobs));
        tagged.settle(history, control).unwrap();
        self.workers.iter_mut().for_each(|worker| worker.settle(history));
        self.violations += print_problems(history);
    }

    /// Deletes all remaining jobs. The server must then count none.
    fn empty(&mut self) {
        let mut control = self.server.connect().unwrap();
        let harness = Harness::new(self.server.address(), &self.tagged, &self.history, self.pause);
        self.workers.iter_mut().for_each(|worker| worker.leave(&harness).unwrap());
        let expiring = self.tagged.get_mut().expect("no client has panicked").expiring().clone();
        for id in self.history().ids() {
            let reply = control.ask(format!("delete {id}\r\n").as_bytes()).unwrap();
            if reply != b"DELETED\r\n" && !expiring.contains(&id) {
                self.history().report(format!("job {id} exists, but cannot be deleted"));
            }
        }
        // The cooldowns of deleted jobs keep their tubes.
        let tubes = control.ask(b"list-tubes\r\n").unwrap();
        for tube in String::from_utf8_lossy(&tubes).lines().filter_map(|line| line.strip_prefix("- ")) {
            control.exchange(format!("flush-tube {tube}\r\n").as_bytes(), b"FLUSHED 0\r\n").unwrap();
        }
        control.wait_until_alone(PATIENCE).unwrap();
        let pid = control.stat("pid").unwrap();
        let sample = Sample::take(Duration::ZERO, pid, self.server.directory(), &mut control).unwrap();
        println!("emptied: {sample}");
        if (sample.jobs, sample.tubes, sample.connections) != (0, 1, 1) {
            self.history().report("the server still counts jobs after all jobs were deleted".to_owned());
        }
        self.violations += print_problems(self.history());
    }

    /// Judges memory and descriptors over the long run.
    fn judge(&mut self, samples: &[Sample]) {
        let history = self.history.get_mut().expect("no client has panicked");
        let (first, last) = (samples[0], samples[samples.len() - 1]);
        let length = last.at;
        let warm: Vec<Sample> = samples[..samples.len() - 1]
            .iter()
            .filter(|it| it.at >= length / WARM_UP_SHARE)
            .copied()
            .collect();
        let own = samples.iter().map(Sample::own_descriptors);
        println!(
            "descriptors besides connections and files: {} at the beginning, {} at the end, {} to {} under load",
            first.own_descriptors(),
            last.own_descriptors(),
            own.clone().min().unwrap(),
            own.max().unwrap()
        );
        if first.own_descriptors().abs_diff(last.own_descriptors()) > BINLOG_DESCRIPTORS {
            history.report(format!(
                "{} descriptors at the end, expected {} as at the beginning",
                last.own_descriptors(),
                first.own_descriptors()
            ));
        }
        let largest = samples.iter().map(|it| it.binlog_bytes).max().unwrap();
        println!("binlog: at most {:.2} MiB", largest as f64 / f64::from(1 << 20));
        let share = last.processor_time.as_secs_f64() / length.as_secs_f64();
        println!("processor: {:.1} % of a core in the long run", share * 100.0);
        if warm.len() < 3 {
            println!("memory: too few samples to compute its growth");
            return;
        }
        let (slope, error) = memory_slope(&warm);
        println!(
            "memory: {slope:+.3} ± {error:.3} MiB an hour over {:.1} minutes after the warm-up, {} samples",
            (length - length / WARM_UP_SHARE).as_secs_f64() / 60.0,
            warm.len()
        );
        if length >= JUDGED && slope >= MAX_MIB_PER_HOUR {
            history.report(format!("memory grows by {slope:.3} MiB an hour"));
        }
    }
}

/// The jobs that exist among `ids`.
fn peek_all(client: &mut Client, ids: &[u64]) -> BTreeMap<u64, Vec<u8>> {
    let mut found = BTreeMap::new();
    for ids in ids.chunks(DEPTH) {
        let commands: String = ids.iter().map(|id| format!("peek {id}\r\n")).collect();
        client.send(commands.as_bytes()).unwrap();
        for &id in ids {
            let reply = client.read_reply().unwrap();
            if reply != b"NOT_FOUND\r\n" {
                found.insert(id, body_of(&reply).to_vec());
            }
        }
    }
    found
}

/// Prints the problems since the last call, and returns their number.
fn print_problems(history: &mut History) -> usize {
    let problems = history.problems();
    problems.iter().for_each(|problem| println!("VIOLATION: {problem}"));
    problems.len()
}

fn signal_of(end: End) -> Signal {
    if end == End::Kill { Signal::KILL } else { Signal::TERM }
}

#[test]
fn nothing_is_lost_and_nothing_leaks() {
    let time =
        number_from_environment("SOAK_MINUTES").map_or(SHORT, |minutes| Duration::from_secs(minutes * 60));
    let restarts = u32::try_from((time / 3).as_secs() / LIFE.as_secs()).unwrap().max(MIN_RESTARTS);
    let mut soak = Soak::new();
    for restart in 1..=restarts {
        let end = if restart % 3 == 0 { End::Terminate } else { End::Kill };
        soak.run(time / 3 / restarts, end);
        if restart % 4 == 0 {
            // During its replay, or just after it.
            soak.server.restart(signal_of(end)).unwrap();
            soak.server.restart(Signal::KILL).unwrap();
        } else {
            soak.server.restart(signal_of(end)).unwrap();
        }
        soak.check();
        println!("restart {restart} of {restarts} by {end:?}: {} jobs", soak.history().kept_count());
    }
    let samples = soak.run(time * 2 / 3, End::Quiet);
    soak.check();
    soak.judge(&samples);
    soak.server.restart(Signal::TERM).unwrap();
    soak.check();
    soak.empty();
    let puts = soak.history().put_count();
    println!(
        "{restarts} restarts during the work, {} replies, {} connections, {} jobs, {} violations",
        soak.replies, soak.connections, puts, soak.violations
    );
    assert_eq!(soak.violations, 0);
}
