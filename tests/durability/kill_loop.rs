//! SIGKILL during the work of several clients, many times on one directory. Acknowledged commands must hold.
//!
//! `KILLS` sets the number of kills, and `SEED` the random numbers. `PEER` names another server, for which the test
//! only counts the lost jobs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::process::{Pid, Signal, kill_process};

use crate::jobs::{SeenJob, ours, see_jobs, start_program};
use crate::script::{Repertoire, Step, Tube};
use beanstalkd_testkit::client::{Client, id_of, put_command};
use beanstalkd_testkit::random::{Random, number_from_environment};
use beanstalkd_testkit::server::Server;

/// The number of kills, unless `KILLS` is set.
const KILLS: u64 = 25;
/// Clients, each with a separate tube.
const CLIENTS: u64 = 4;
/// The maximum number of commands that a client sends before it reads the replies.
const MAX_DEPTH: u64 = 40;
/// The maximum number of replies before the kill.
const MAX_REPLIES: u64 = 1500;
/// Small files, so that files are often filled and removed, and their jobs migrated.
const FLAGS: &[&str] = &["-f", "0", "-s", "16384"];

/// Kills the server when all clients together have read a random number of replies.
struct Fuse {
    replies: AtomicU64,
    target: u64,
    pid: Pid,
    blown: AtomicBool,
}

impl Fuse {
    fn burn(&self) {
        if self.replies.fetch_add(1, Ordering::Relaxed) + 1 >= self.target
            && !self.blown.swap(true, Ordering::Relaxed)
        {
            kill_process(self.pid, Signal::KILL).unwrap();
        }
    }
}

/// A client with a model of its tube as acknowledged, and the steps that were not answered.
struct TubeClient {
    tube: Tube,
    unanswered: Vec<Step>,
    random: Random,
}

impl TubeClient {
    /// Sends random steps until the server is killed.
    fn work(&mut self, mut client: Client, fuse: &Fuse, repertoire: Repertoire) {
        let name = self.tube.name.clone();
        let hello = format!("use {name}\r\nwatch {name}\r\nignore default\r\n");
        if client.send(hello.as_bytes()).is_err() || (0..3).any(|_| client.read_reply().is_err()) {
            return;
        }
        loop {
            let count = 1 + self.random.below(MAX_DEPTH);
            self.unanswered = self.tube.invent(&mut self.random, count, repertoire);
            let commands: Vec<u8> = self.unanswered.iter().flat_map(|step| self.tube.command(step)).collect();
            // All bodies of a pipeline fit into the buffers of the socket and of the server.
            if client.send(&commands).is_err() {
                return;
            }
            let mut answered = 0;
            while answered < self.unanswered.len() {
                let Ok(reply) = client.read_reply() else {
                    self.unanswered.drain(..answered);
                    return;
                };
                let step = &self.unanswered[answered];
                self.tube.acknowledge(step, &reply).unwrap_or_else(|problem| panic!("{name}: {problem}"));
                answered += 1;
                fuse.burn();
            }
        }
    }

    /// Finds how many of the unanswered steps were executed, so that the model has the jobs that were seen.
    fn reconcile(&mut self, seen: &BTreeMap<u64, SeenJob>) -> Result<(), String> {
        let mut candidate = self.tube.clone();
        let mut problems = Vec::new();
        for done in 0..=self.unanswered.len() {
            let next = self.unanswered.get(done);
            // A kick of many jobs may have been executed in part.
            let most = if let Some(Step::Kick(bound)) = next { *bound } else { 0 };
            for kicked in 0..=most {
                let mut restarted = candidate.clone();
                drop(restarted.apply(&Step::Kick(kicked)));
                restarted.restart();
                let Some(problem) = restarted.difference(seen) else {
                    restarted.adopt(seen, true);
                    self.tube = restarted;
                    self.unanswered.clear();
                    return Ok(());
                };
                problems.push(format!("after {done} of the unanswered steps: {problem}"));
            }
            if let Some(step) = next {
                candidate.apply(step);
            }
        }
        // The problems of consecutive steps are mostly about the same job.
        problems.dedup_by(|a, b| a.split(": ").nth(1) == b.split(": ").nth(1));
        Err(format!("{}: {}", self.tube.name, problems.join("\n  ")))
    }

    /// The numbers of acknowledged jobs that another server has lost, and of deleted jobs that are back.
    fn count_losses(&self, seen: &BTreeMap<u64, SeenJob>) -> (u64, u64) {
        let mut later = self.tube.clone();
        self.unanswered.iter().for_each(|step| drop(later.apply(step)));
        let mut lost = 0;
        for (key, id) in self.tube.jobs() {
            let found = id.and_then(|id| seen.get(&id));
            let whole = found.is_some_and(|found| self.tube.holds_body(key, &found.body));
            lost += u64::from(!whole && later.has(key));
        }
        let known =
            |id: u64| later.jobs().chain(self.tube.jobs()).any(|(_, known)| known.is_none_or(|it| it == id));
        let back = seen.iter().filter(|(id, job)| job.tube == self.tube.name && !known(**id)).count();
        (lost, back as u64)
    }
}

struct KillLoop {
    server: Server,
    clients: Vec<TubeClient>,
    random: Random,
    /// The first id that this server gives.
    next_id: u64,
    acknowledged: u64,
}

impl KillLoop {
    fn new(program: &Path, seed: u64) -> Self {
        let client = |number| TubeClient {
            tube: Tube::new(&format!("tube-{number}"), 1000),
            unanswered: Vec::new(),
            random: Random::new(seed * CLIENTS + number),
        };
        let clients = (0..CLIENTS).map(client).collect();
        let server = start_program(program, "{dir}", FLAGS);
        Self { server, clients, random: Random::new(seed), next_id: 1, acknowledged: 0 }
    }

    /// Runs the server, kills it during work, and starts the next one.
    fn run_and_kill(&mut self, repertoire: Repertoire) {
        if self.random.once_in(6) {
            // During its replay, or just after it.
            self.server.restart(Signal::KILL).unwrap();
        }
        let mut control = self.server.connect().unwrap();
        let pid = Pid::from_raw(i32::try_from(control.stat("pid").unwrap()).unwrap()).unwrap();
        let target = 1 + self.random.below(MAX_REPLIES);
        let fuse = Fuse { replies: AtomicU64::new(0), target, pid, blown: AtomicBool::new(false) };
        let connections: Vec<Client> = self.clients.iter().map(|_| self.server.connect().unwrap()).collect();
        std::thread::scope(|scope| {
            for (client, connection) in self.clients.iter_mut().zip(connections) {
                let fuse = &fuse;
                scope.spawn(move || client.work(connection, fuse, repertoire));
            }
        });
        assert!(
            fuse.blown.load(Ordering::Relaxed),
            "the server has exited by itself: {}",
            self.server.stderr()
        );
        self.acknowledged += fuse.replies.load(Ordering::Relaxed);
        self.server.restart(Signal::KILL).unwrap();
    }

    /// All existing jobs after a restart, among all ids that may exist.
    fn observe(&mut self) -> BTreeMap<u64, SeenJob> {
        let mut control = self.server.connect().unwrap();
        control.exchange(b"use probe\r\n", b"USING probe\r\n").unwrap();
        let next_id = id_of(&control.ask(&put_command(0, 0, 1, b"probe")).unwrap(), "INSERTED").unwrap();
        control.exchange(format!("delete {next_id}\r\n").as_bytes(), b"DELETED\r\n").unwrap();
        let known = self.clients.iter().flat_map(|client| client.tube.jobs().filter_map(|(_, id)| id));
        let ids: Vec<u64> = known.filter(|&id| id < self.next_id).chain(self.next_id..next_id).collect();
        let seen = see_jobs(&mut control, ids).unwrap();
        assert_eq!(
            control.job_count().unwrap(),
            seen.len() as u64,
            "no job that was deleted long ago is back"
        );
        self.next_id = next_id + 1;
        seen
    }
}

#[test]
fn nothing_acknowledged_is_lost_damaged_or_undone_by_kills() {
    let kills = number_from_environment("KILLS").unwrap_or(KILLS);
    let seed = number_from_environment("SEED").unwrap_or(1);
    let mut life = KillLoop::new(ours(), seed);
    let mut jobs = 0;
    for kill in 1..=kills {
        life.run_and_kill(Repertoire::Tagged);
        let seen = life.observe();
        jobs += seen.len();
        for client in &mut life.clients {
            let outcome = client.reconcile(&seen);
            outcome.unwrap_or_else(|problem| panic!("SEED={seed}, kill {kill}: {problem}"));
        }
    }
    let lost = std::fs::read_dir(life.server.directory()).unwrap().flatten();
    let tails = lost.filter(|entry| entry.file_name().to_string_lossy().starts_with("lost.")).count();
    println!(
        "{kills} kills: {} commands acknowledged, {jobs} jobs compared, 0 lost or damaged, 0 back; {tails} torn tails",
        life.acknowledged
    );
}

#[test]
fn another_server_in_the_same_loop() {
    let Some(peer) = std::env::var_os("PEER").filter(|peer| !peer.is_empty()).map(PathBuf::from) else {
        println!("skipped: PEER is not set; it names another server");
        return;
    };
    let kills = number_from_environment("KILLS").unwrap_or(KILLS);
    let (mut lost, mut back, mut failures) = (0, 0, 0);
    for seed in 1..=kills {
        let mut life = KillLoop::new(&peer, seed);
        life.run_and_kill(Repertoire::KeptByC);
        let mut control = life.server.connect().unwrap();
        let seen = see_jobs(&mut control, 1..=2 * MAX_REPLIES).unwrap();
        let losses = life.clients.iter().map(|client| client.count_losses(&seen));
        let (now_lost, now_back) = losses.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        failures += u64::from(now_lost + now_back > 0);
        (lost, back) = (lost + now_lost, back + now_back);
    }
    println!("{}: {kills} kills, {failures} with losses: {lost} jobs lost, {back} back", peer.display());
}
