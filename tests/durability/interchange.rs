//! C beanstalkd and our server serve one directory in turn. Each must have all jobs that the other one had.
//!
//! `HISTORIES` sets the number of random histories, and `SEED` the first seed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

use rustix::process::Signal;

use crate::jobs::{SeenJob, ours, see_jobs, start_program};
use crate::script::{Repertoire, Tube};
use beanstalkd_testkit::client::Client;
use beanstalkd_testkit::debian_server;
use beanstalkd_testkit::random::{Random, number_from_environment};
use beanstalkd_testkit::server::Server;

/// The number of histories, unless `HISTORIES` is set.
const HISTORIES: u64 = 20;
/// The number of times that each server serves the directory.
const ALTERNATIONS: usize = 5;
/// The maximum number of commands of one server, in each tube.
const MAX_STEPS: u64 = 80;
/// The file sizes of our server, from files that fill up often to files that never do.
const OUR_FILE_BYTES: [&str; 3] = ["8192", "65536", "10485760"];
/// A large size, because C loses changes in small files: it cannot reserve room across more than two files.
const C_FILE_BYTES: &str = "1048576";
/// Seconds by which an age or a time left may differ from the last comparison, beside the time since then.
const TOLERANCE_S: u64 = 3;

struct History {
    directory: tempfile::TempDir,
    random: Random,
    tubes: Vec<Tube>,
    seen: BTreeMap<u64, SeenJob>,
    /// Before the last comparison.
    seen_after: Instant,
    /// Every id that was ever given. A restart may skip many.
    ids: BTreeSet<u64>,
}

impl History {
    fn new(seed: u64) -> Self {
        // C orders buried jobs by the times at which their reservations would have ended.
        let tubes = ["default", "mail;fast", &"t".repeat(200)].map(|name| Tube::new(name, 1)).to_vec();
        let (directory, random) = (tempfile::tempdir().unwrap(), Random::new(seed));
        let (seen, seen_after, ids) = (BTreeMap::new(), Instant::now(), BTreeSet::new());
        Self { directory, random, tubes, seen, seen_after, ids }
    }

    /// Lets `program` serve the directory. All jobs must be as they were left. Then changes them.
    fn serve(&mut self, program: &Path, is_c: bool) -> usize {
        let size = if is_c { C_FILE_BYTES } else { self.random.pick(&OUR_FILE_BYTES) };
        let mut server = start_program(program, self.directory.path().to_str().unwrap(), &["-s", size]);
        let mut client = server.connect().unwrap();
        for tube in &mut self.tubes {
            tube.restart();
            if is_c {
                tube.restart_in_c();
            }
        }
        self.compare(&mut client, is_c);
        let repertoire = if is_c { Repertoire::KeptByC } else { Repertoire::All };
        let mut watched = "default".to_owned();
        for tube in &mut self.tubes {
            let name = tube.name.clone();
            // This client watches this tube alone.
            client.ask(format!("use {name}\r\n").as_bytes()).unwrap();
            client.ask(format!("watch {name}\r\n").as_bytes()).unwrap();
            if watched != name {
                client.ask(format!("ignore {watched}\r\n").as_bytes()).unwrap();
            }
            watched.clone_from(&name);
            for step in tube.invent(&mut self.random, MAX_STEPS, repertoire) {
                let reply = client.ask(&tube.command(&step)).unwrap();
                tube.acknowledge(&step, &reply).unwrap_or_else(|problem| panic!("{name}: {problem}"));
            }
        }
        self.ids.extend(self.tubes.iter().flat_map(|tube| tube.jobs().filter_map(|(_, id)| id)));
        self.compare(&mut client, is_c);
        let count = self.seen.len();
        self.end(&mut server, is_c);
        count
    }

    /// Compares all jobs with the model, and with their figures of the last comparison.
    fn compare(&mut self, client: &mut Client, is_c: bool) {
        let now = Instant::now();
        let seen = see_jobs(client, self.ids.iter().copied()).unwrap();
        let tolerance_s = TOLERANCE_S + self.seen_after.elapsed().as_secs();
        self.seen_after = now;
        assert_eq!(client.job_count().unwrap(), seen.len() as u64);
        for tube in &mut self.tubes {
            if let Some(problem) = tube.difference(&seen) {
                panic!("{}: {problem}", tube.name);
            }
            tube.adopt(&seen, !is_c);
        }
        for (id, now) in &seen {
            let Some(before) = self.seen.get(id) else { continue };
            assert!(now.age.abs_diff(before.age) <= tolerance_s, "age of {id}: {now:?}");
            let same_wait = now.state == before.state && now.delay == before.delay;
            assert!(
                !same_wait || now.time_left.abs_diff(before.time_left) <= tolerance_s,
                "time left of {id}: {now:?}, was {before:?}"
            );
        }
        self.seen = seen;
    }

    /// Kills the server, or sends it SIGTERM. C does the same in both cases.
    fn end(&mut self, server: &mut Server, is_c: bool) {
        let kill = self.random.once_in(2);
        let status = server.stop(if kill { Signal::KILL } else { Signal::TERM }).unwrap();
        if is_c {
            assert_eq!(server.stderr(), "", "C writes no error");
        } else {
            assert!(kill || status.success());
            assert!(!server.stderr().contains("warn"), "{}", server.stderr());
        }
    }

    /// Kicks and reserves all remaining jobs, and checks the order of burials and the order of priorities.
    fn drain(&mut self) {
        let server = start_program(ours(), self.directory.path().to_str().unwrap(), &[]);
        let mut client = server.connect().unwrap();
        self.tubes.iter_mut().for_each(Tube::restart);
        self.compare(&mut client, false);
        for tube in &self.tubes {
            let name = &tube.name;
            client.ask(format!("use {name}\r\n").as_bytes()).unwrap();
            client.ask(format!("watch {name}\r\n").as_bytes()).unwrap();
            for key in tube.buried() {
                let id = tube.id(key);
                let found = client.ask(b"peek-buried\r\n").unwrap();
                assert!(
                    found.starts_with(format!("FOUND {id} ").as_bytes()),
                    "{id} is not the first of {name}"
                );
                client.exchange(b"kick 1\r\n", b"KICKED 1\r\n").unwrap();
            }
            client.ask(b"kick 1000000\r\n").unwrap();
        }
        let mut order: Vec<(u64, u64)> = self.seen.iter().map(|(&id, job)| (job.priority, id)).collect();
        order.sort_unstable();
        for (_, id) in order {
            let reserved = client.ask(b"reserve\r\n").unwrap();
            assert!(reserved.starts_with(format!("RESERVED {id} ").as_bytes()), "{id} is not the next");
        }
        client.exchange(b"reserve-with-timeout 0\r\n", b"TIMED_OUT\r\n").unwrap();
    }
}

#[test]
fn histories_alternate_between_c_and_ours() {
    let Some(c) = debian_server() else { return };
    let count = number_from_environment("HISTORIES").unwrap_or(HISTORIES);
    let first = number_from_environment("SEED").unwrap_or(1);
    let mut compared = 0;
    for seed in first..first + count {
        println!("SEED={seed}");
        let mut history = History::new(seed);
        for _ in 0..ALTERNATIONS {
            compared += history.serve(&c, true) + history.serve(ours(), false);
        }
        history.drain();
    }
    println!("{count} histories of {ALTERNATIONS} alternations, {compared} jobs compared at each end");
}
