//! C beanstalkd and this binlog use the same directory in turn.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use beanstalkd_binlog::{
    Binlog, Cooldown, Directory, DirectoryStorage, NoRoom, ReplaySummary, SideEffects, SyncPolicy, Warning,
    WholeJob, check,
};
use beanstalkd_types::clock::{NS_PER_S, Timestamp};
use beanstalkd_types::job::{Body, Counters, JobId, JobRecord, JobState, Priority};
use beanstalkd_types::seconds::Seconds;
use beanstalkd_types::tags::{Dead, EncodedTags, Failures, JobTags, Name};
use beanstalkd_types::tube_name::TubeName;

use crate::after_crash::as_free;
use crate::c_server::{CServer, peer};
use crate::harness::config;
use beanstalkd_testkit::disk::Random;
use beanstalkd_testkit::simulated::{Cooldowns, Restored, cooldowns_of, open_log};
use beanstalkd_testkit::tags::{TagChoice, encoded};
use beanstalkd_testkit::tasks::ByHand;

/// The default number of random histories.
const HISTORIES: u64 = 200;
/// How many times the two servers alternate in a history.
const ALTERNATIONS: u64 = 5;
const FILE_BYTES: u64 = 8192;
/// How many times C is killed while it works.
const KILLS: u64 = 200;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Job {
    record: JobRecord,
    tube: String,
    body: Vec<u8>,
    /// The encoded tags; empty if the job has none, or has lost them in C.
    tags: Vec<u8>,
    /// The number of starts of C while the job was buried. C counts each as a burial.
    phantom_burials: u32,
    buried: u64,
}

#[derive(Default)]
struct History {
    jobs: BTreeMap<u64, Job>,
    /// Every id that was ever assigned. A restart may skip many ids.
    ids: BTreeSet<u64>,
    burials: u64,
    /// The cooldowns that deletes have started. C may lose them.
    cooldowns: Cooldowns,
    /// How many jobs have kept their tags while C used the directory, and how many have lost them.
    kept_tags: u64,
    lost_tags: u64,
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp(u64::try_from(since.as_nanos()).unwrap())
}

fn close_to(a: u64, b: u64) -> bool {
    a.abs_diff(b) <= 2
}

/// A body, of which one in `rarity` can be larger than a file.
fn random_body(random: &mut Random, rarity: u64) -> Vec<u8> {
    let max_length = if random.once_in(rarity) { 10_000 } else { 400 };
    let length = random.below(max_length);
    (0..length).map(|_| random.next() as u8).collect()
}

fn random_tags(random: &mut Random) -> Vec<u8> {
    let key: &str = "k".repeat(1 + random.below(200) as usize).leak();
    let choice = TagChoice {
        keys: (3, &[key]),
        cooldowns_s: &[Seconds::new(5000, 0)],
        groups: (3, &["g"]),
        awaited: (3, &["g"]),
        ..TagChoice::NEVER
    };
    let mut tags = JobTags::from(choice.tags(random));
    if random.once_in(3) {
        let since_s = random.next() as u32;
        let (is_dead, failures) = (random.once_in(2), random.below(9) as u32);
        let dead = Failures::Dead(Dead { from: key.try_into().unwrap(), since_s, failures });
        tags.failures = Some(if is_dead { dead } else { Failures::Forgiven(failures) });
    }
    if tags.is_empty() { Vec::new() } else { encoded(tags) }
}

fn random_tube(random: &mut Random) -> String {
    match random.below(3) {
        0 => "default".to_owned(),
        1 => "mail;fast".to_owned(),
        _ => "t".repeat(1 + random.below(200) as usize),
    }
}

impl History {
    fn pick(&self, random: &mut Random) -> Option<u64> {
        let count = self.jobs.len() as u64;
        (count > 0).then(|| *self.jobs.keys().nth(random.below(count) as usize).unwrap())
    }

    fn add(&mut self, id: u64, tube: String, record: JobRecord, body: Vec<u8>, tags: Vec<u8>) {
        // After a restart, C assigns the ids of deleted jobs again.
        assert!(!self.jobs.contains_key(&id), "id {id} is in use");
        self.ids.insert(id);
        self.jobs.insert(id, Job { record, tube, body, tags, phantom_burials: 0, buried: 0 });
    }

    fn bury(&mut self, id: u64) {
        self.burials += 1;
        let job = self.jobs.get_mut(&id).unwrap();
        job.buried = self.burials;
        (job.record.state, job.record.deadline_at) = (JobState::Buried, Timestamp(0));
        job.record.counters.buries += 1;
    }

    /// Sends C random commands whose effects it logs.
    fn change_jobs_in_c(&mut self, server: &mut CServer, random: &mut Random) {
        for _ in 0..random.below(60) {
            let id = self.pick(random);
            match (id, random.below(4)) {
                (Some(id), 0) => {
                    assert_eq!(server.ask(&format!("delete {id}")), "DELETED");
                    self.jobs.remove(&id);
                }
                (Some(id), 1) => self.change_in_c(id, server, random),
                _ => {
                    let (tube, body) = (random_tube(random), random_body(random, 30));
                    let delay = if random.once_in(3) { 5000 } else { 0 };
                    let id = server.put(&tube, 7, delay, 60, &body);
                    let record = record(id, 7, delay);
                    self.add(id, tube, record, body, Vec::new());
                }
            }
        }
    }

    fn change_in_c(&mut self, id: u64, server: &mut CServer, random: &mut Random) {
        let state = self.jobs[&id].record.state;
        if state == JobState::Ready {
            server.reserve_job(id);
            let release = random.once_in(2);
            let (command, reply) = if release { ("release", "RELEASED") } else { ("bury", "BURIED") };
            let delay = if release { " 7000" } else { "" };
            assert_eq!(server.ask(&format!("{command} {id} 11{delay}")), reply);
            let record = &mut self.jobs.get_mut(&id).unwrap().record;
            record.counters.reserves += 1;
            record.priority = Priority(11);
            if release {
                record.counters.releases += 1;
                (record.state, record.delay_s) = (JobState::Delayed, 7000.into());
                record.deadline_at = now().plus_seconds(7000);
            } else {
                self.bury(id);
            }
        } else {
            assert_eq!(server.ask(&format!("kick-job {id}")), "KICKED");
            let record = &mut self.jobs.get_mut(&id).unwrap().record;
            (record.state, record.deadline_at) = (JobState::Ready, Timestamp(0));
            record.counters.kicks += 1;
        }
    }

    /// Compares C's counters of every job that was ever put.
    fn check_in_c(&mut self, server: &mut CServer) {
        for job in self.jobs.values_mut().filter(|job| job.record.state == JobState::Buried) {
            job.phantom_burials += 1;
        }
        for &id in &self.ids {
            let stats = server.stats_job(id);
            let Some(job) = self.jobs.get(&id) else {
                assert_eq!(stats, None, "job {id} was deleted");
                continue;
            };
            let stats = stats.unwrap_or_else(|| panic!("job {id} is lost: {job:?}"));
            let number = |key: &str| stats[key].parse::<u64>().unwrap();
            let record = &job.record;
            assert_eq!(stats["tube"], job.tube);
            assert_eq!(stats["state"], record.state.as_str());
            assert_eq!(number("pri"), u64::from(record.priority.0));
            assert_eq!(number("delay"), u64::from(record.delay_s.whole()));
            assert_eq!(number("ttr"), u64::from(record.ttr_s.whole()));
            assert_eq!(number("reserves"), u64::from(record.counters.reserves));
            assert_eq!(number("timeouts"), u64::from(record.counters.timeouts));
            assert_eq!(number("releases"), u64::from(record.counters.releases));
            assert_eq!(number("kicks"), u64::from(record.counters.kicks));
            check_burials(job, u32::try_from(number("buries")).unwrap());
            assert!(close_to(number("age"), now().since_s(record.created_at)), "age of job {id}");
            if record.state == JobState::Delayed {
                assert!(
                    close_to(number("time-left"), record.deadline_at.since_s(now())),
                    "delay of job {id}"
                );
            }
            assert_eq!(server.peek(id).as_ref(), Some(&job.body), "body of job {id}");
        }
    }

    /// Compares the jobs that the binlog restores.
    fn check_in_ours(&mut self, restored: Restored) {
        let mut buried = Vec::new();
        assert_eq!(restored.len(), self.jobs.len());
        for (found, tube, body, tags) in restored {
            let job = self.jobs.get_mut(&found.id.0).unwrap_or_else(|| panic!("{found:?} was deleted"));
            check_burials(job, found.counters.buries);
            assert!(tags.is_empty() || as_free(&tags) == as_free(&job.tags), "tags of {found:?}");
            self.kept_tags += u64::from(!tags.is_empty());
            self.lost_tags += u64::from(tags.is_empty() && !job.tags.is_empty());
            job.tags = tags;
            let record = &job.record;
            assert!(close_to(found.created_at.0 / NS_PER_S, record.created_at.0 / NS_PER_S));
            assert!(close_to(found.deadline_at.0 / NS_PER_S, record.deadline_at.0 / NS_PER_S));
            let counters = Counters { buries: found.counters.buries, ..record.counters };
            let (created_at, deadline_at) = (found.created_at, found.deadline_at);
            assert_eq!(found, JobRecord { counters, created_at, deadline_at, ..*record });
            assert_eq!((tube.as_str(), &body), (job.tube.as_str(), &job.body));
            if found.state == JobState::Buried {
                buried.push(job.buried);
            }
            // C may or may not have logged the burials that it has counted.
            job.record.counters.buries = found.counters.buries;
        }
        assert!(buried.is_sorted(), "order of burial: {buried:?}");
    }

    fn change_jobs_in_ours(
        &mut self,
        log: &mut Binlog,
        helper: &mut Helper,
        next_id: u64,
        random: &mut Random,
    ) {
        let mut next_id = next_id;
        for _ in 0..random.below(60) {
            let id = self.pick(random);
            match (id, random.below(4)) {
                (Some(id), 0) => {
                    self.delete_in_ours(id, log);
                }
                (Some(id), 1) => self.change_in_ours(id, log, helper, random),
                _ => {
                    let (tube, body) = (random_tube(random), random_body(random, 30));
                    let delay = if random.once_in(3) { 5000 } else { 0 };
                    let record = record(next_id, 3, delay);
                    next_id += 1;
                    let tags = random_tags(random);
                    let encoded = EncodedTags::read(&tags).unwrap();
                    with_room(log, helper, |log| log.reserve_put(tube.len(), body.len(), &encoded));
                    let name = TubeName::parse(tube.as_bytes()).unwrap();
                    log.append_put(
                        &WholeJob {
                            tags: encoded,
                            ..WholeJob::plain(&record, &name, &Body::copy_of(&body).unwrap())
                        },
                        now(),
                    );
                    self.add(record.id.0, tube, record, body, tags);
                }
            }
            while let Some(id) = log.next_migration() {
                let job = &self.jobs[&id.0];
                let name = TubeName::parse(job.tube.as_bytes()).unwrap();
                let body = Body::copy_of(&job.body).unwrap();
                log.append_migrated(
                    &WholeJob {
                        tags: EncodedTags::read(&job.tags).unwrap(),
                        ..WholeJob::plain(&job.record, &name, &body)
                    },
                    now(),
                );
            }
            log.commit(now()).unwrap();
            help(log, helper);
        }
    }

    fn delete_in_ours(&mut self, id: u64, log: &mut Binlog) {
        let job = self.jobs.remove(&id).unwrap();
        let tags = JobTags::decode(&job.tags).unwrap_or_default();
        let until = now().plus_seconds(5000);
        let cooldown = tags.idempotency.map(|tag| Cooldown { tube: &job.tube, key: tag.key.as_str(), until });
        let is_member = |job: &Job| {
            JobTags::decode(&job.tags).is_some_and(|tags| tags.group.is_some_and(|group| group == "g"))
        };
        let freed_group = tags.group.map(Name::as_str).filter(|_| !self.jobs.values().any(is_member));
        log.append_delete_with(JobId(id), &SideEffects { cooldown, freed_group, completes: None });
        if let Some(Cooldown { tube, key, until }) = cooldown {
            self.cooldowns.insert(id, (tube.to_owned(), key.to_owned(), until));
        }
        if freed_group.is_some() {
            self.jobs.values_mut().for_each(|job| job.tags = as_free(&job.tags));
        }
    }

    fn change_in_ours(&mut self, id: u64, log: &mut Binlog, helper: &mut Helper, random: &mut Random) {
        if random.once_in(4) {
            return self.move_in_ours(id, log, helper, random);
        }
        with_room(log, helper, Binlog::reserve_update);
        let record = &mut self.jobs.get_mut(&id).unwrap().record;
        record.priority = Priority(random.below(2000) as u32);
        record.counters.reserves += 1;
        match random.below(3) {
            0 => {
                record.counters.releases += 1;
                (record.state, record.delay_s) = (JobState::Delayed, 9000.into());
                record.deadline_at = now().plus_seconds(9000);
            }
            1 => {
                record.counters.timeouts += 1;
                (record.state, record.deadline_at) = (JobState::Ready, Timestamp(0));
            }
            _ => {
                self.bury(id);
                log.note_burial(JobId(id), now());
            }
        }
        let job = &self.jobs[&id];
        log.append_update(&job.record, job.body.len(), now());
    }

    fn move_in_ours(&mut self, id: u64, log: &mut Binlog, helper: &mut Helper, random: &mut Random) {
        let tube = random_tube(random);
        let job = self.jobs.get_mut(&id).unwrap();
        let encoded = EncodedTags::read(&job.tags).unwrap();
        with_room(log, helper, |log| log.reserve_move(tube.len(), job.body.len(), &encoded, None));
        let name = TubeName::parse(tube.as_bytes()).unwrap();
        log.append_moved(
            &WholeJob {
                tags: encoded,
                ..WholeJob::plain(&job.record, &name, &Body::copy_of(&job.body).unwrap())
            },
            now(),
        );
        job.tube = tube;
    }
}

#[test]
fn c_finds_a_moved_job_in_its_new_tube_and_ours_finds_it_there_again() {
    let Some(program) = peer() else { return };
    let directory = tempfile::tempdir().unwrap();
    let settings = config(SyncPolicy::EachCommit, FILE_BYTES, 1);
    let mut helper = Helper { disk: Directory::new(directory.path()), tasks: ByHand::default() };
    let tasks = helper.tasks.clone();
    let open = |found: &mut Vec<(JobId, Priority, JobState, String)>| {
        let storage = tasks.storage(Directory::new(directory.path()));
        Binlog::open(storage, settings, now(), 0, &mut |job, tube, _, _| {
            found.push((job.id, job.priority, job.state, tube.as_str().to_owned()));
        })
        .unwrap()
        .0
    };
    let mut log = open(&mut Vec::new());
    let (from, to) = (TubeName::parse(b"from").unwrap(), TubeName::parse(b"to").unwrap());
    let body = Body::copy_of(b"body").unwrap();
    let mut job = record(1, 5, 0);
    with_room(&mut log, &mut helper, |log| log.reserve_put(4, 4, &EncodedTags::NONE));
    log.append_put(&WholeJob::plain(&job, &from, &body), now());
    with_room(&mut log, &mut helper, |log| log.reserve_move(2, 4, &EncodedTags::NONE, None));
    log.append_moved(&WholeJob::plain(&job, &to, &body), now());
    // A new priority is an ordinary change.
    job.priority = Priority(9);
    with_room(&mut log, &mut helper, Binlog::reserve_update);
    log.append_update(&job, 4, now());
    log.commit(now()).unwrap();
    log.close(now()).unwrap();
    for _ in 0..2 {
        let mut server = CServer::start(&program, directory.path(), FILE_BYTES);
        let stats = server.stats_job(1).expect("C has the job");
        assert_eq!(
            (stats["tube"].as_str(), stats["pri"].as_str(), stats["state"].as_str()),
            ("to", "9", "ready")
        );
        assert_eq!(server.peek(1), Some(b"body".to_vec()));
        assert_eq!(server.kill(), "");
        let mut found = Vec::new();
        open(&mut found).close(now()).unwrap();
        assert_eq!(found, [(JobId(1), Priority(9), JobState::Ready, "to".to_owned())]);
    }
}

fn record(id: u64, priority: u32, delay_s: u32) -> JobRecord {
    let state = if delay_s > 0 { JobState::Delayed } else { JobState::Ready };
    JobRecord {
        id: JobId(id),
        priority: Priority(priority),
        delay_s: delay_s.into(),
        ttr_s: 60.into(),
        created_at: now(),
        deadline_at: if delay_s > 0 { now().plus_seconds(delay_s) } else { Timestamp(0) },
        counters: Counters::default(),
        state,
    }
}

fn check_burials(job: &Job, found: u32) {
    let least = job.record.counters.buries;
    assert!((least..=least + job.phantom_burials).contains(&found), "{found} burials of {job:?}");
}

/// Does the tasks of the helper thread.
struct Helper {
    disk: Directory,
    tasks: ByHand,
}

fn help(log: &mut Binlog, helper: &mut Helper) {
    while let Some(task) = helper.tasks.next() {
        log.on_completion(task.run(&mut helper.disk), now()).unwrap();
    }
}

fn with_room(log: &mut Binlog, helper: &mut Helper, reserve: impl Fn(&mut Binlog) -> Result<(), NoRoom>) {
    while let Err(no_room) = reserve(log) {
        assert_eq!(no_room, NoRoom::Pending);
        help(log, helper);
    }
}

/// Plays a history, and returns how many jobs have kept their tags while C used the directory, and how many have lost
/// them.
fn alternate(program: &Path, seed: u64) -> [u64; 2] {
    let mut random = Random::new(seed);
    let directory = tempfile::tempdir().unwrap();
    let mut history = History::default();
    for _ in 0..ALTERNATIONS {
        let mut server = CServer::start(program, directory.path(), FILE_BYTES);
        history.check_in_c(&mut server);
        history.change_jobs_in_c(&mut server, &mut random);
        assert_eq!(server.kill(), "", "seed {seed}: C has complained");

        let mut helper = Helper { disk: Directory::new(directory.path()), tasks: ByHand::default() };
        let sync = if random.once_in(4) { SyncPolicy::EachCommit } else { SyncPolicy::Never };
        let settings = config(sync, FILE_BYTES, random.next());
        let storage = helper.tasks.storage(Directory::new(directory.path()));
        let (mut log, summary, restored) = open_log(storage, settings, now()).unwrap();
        // C was killed between two commands, and it replies only after it has written everything.
        assert!(summary.tails.is_empty() && summary.warnings.is_empty(), "seed {seed}: {summary:?}");
        help(&mut log, &mut helper);
        history.check_in_ours(restored);
        for (id, found) in cooldowns_of(&log) {
            assert_eq!(Some(&found), history.cooldowns.get(&id), "seed {seed}");
        }
        // C forgets the ids of deleted jobs, so the history chooses ids that were never used.
        let next_id = summary.next_job_id.max(history.ids.last().map_or(1, |id| id + 1));
        history.change_jobs_in_ours(&mut log, &mut helper, next_id, &mut random);
        if random.once_in(2) {
            log.close(now()).unwrap();
        }
        assert!(check(&mut DirectoryStorage::read_only(directory.path())).unwrap().is_sound(), "seed {seed}");
    }
    [history.kept_tags, history.lost_tags]
}

/// Kills a C server during a pipeline of puts and deletes, after `answers` replies. Returns what a replay finds, and
/// the index of the newest file.
fn kill_c(program: &Path, directory: &Path, commands: &[u8], answers: u64) -> (ReplaySummary, u32) {
    let mut server = CServer::launch(program, directory, FILE_BYTES);
    server.send(commands);
    for _ in 0..answers {
        server.line();
    }
    server.kill();
    let names = directory.read_dir().unwrap().map(|entry| entry.unwrap().file_name());
    let indexes = names.filter_map(|name| name.to_str()?.strip_prefix("binlog.")?.parse().ok());
    let newest = indexes.max().unwrap_or(0);
    let disk = Box::new(DirectoryStorage::new(directory));
    let settings = config(SyncPolicy::Never, FILE_BYTES, 1);
    (Binlog::open(disk, settings, now(), 0, &mut |_, _, _, _| {}).unwrap().1, newest)
}

/// C does one thing at a time: it makes a file of zeros and writes its version, or it writes a record in up to four
/// pieces. A kill therefore leaves one of two findings, or none.
#[test]
fn a_killed_c_leaves_an_empty_file_or_one_torn_record() {
    let Some(program) = peer() else { return };
    let mut random = Random::new(5);
    let mut found = BTreeMap::new();
    for _ in 0..KILLS {
        let directory = tempfile::tempdir().unwrap();
        let mut commands = Vec::new();
        for id in 1..=60_u64 {
            let body = random_body(&mut random, 5);
            commands.extend_from_slice(format!("put 0 0 60 {}\r\n", body.len()).as_bytes());
            commands.extend_from_slice(&body);
            commands.extend_from_slice(format!("\r\ndelete {}\r\n", 1 + random.below(id)).as_bytes());
        }
        let answers = random.below(60);
        let (summary, newest) = kill_c(&program, directory.path(), &commands, answers);
        let finding = match (&summary.tails[..], &summary.warnings[..]) {
            ([], []) => "none",
            ([], [Warning::Blank { file }]) if *file == newest => "an empty file",
            ([tail], []) if tail.records_applied == 0 => "a torn record",
            _ => panic!("{summary:?}"),
        };
        *found.entry(finding).or_insert(0) += 1;
    }
    println!("{found:?}");
}

#[test]
fn c_and_ours_alternate_on_one_directory() {
    let Some(program) = peer() else { return };
    let count =
        std::env::var("BINLOG_HISTORIES").ok().and_then(|count| count.parse().ok()).unwrap_or(HISTORIES);
    let mut tags = [0, 0];
    for seed in 1..=count {
        let outcome = std::panic::catch_unwind(|| alternate(&program, seed));
        let [kept, lost] = outcome.unwrap_or_else(|_| panic!("seed {seed}"));
        tags = [tags[0] + kept, tags[1] + lost];
    }
    assert!(tags.iter().all(|&number| number > count), "C keeps the tags of some jobs: {tags:?}");
}

#[test]
fn a_job_that_c_has_buried_again_is_the_last_one_buried() {
    let Some(program) = peer() else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut server = CServer::start(&program, directory.path(), 1 << 20);
    for _ in 0..3 {
        server.put("default", 0, 0, 60, b"x");
    }
    for id in [1, 3, 2, 1] {
        server.reserve_job(id);
        assert_eq!(server.ask(&format!("bury {id} 0")), "BURIED");
    }
    server.kill();
    let mut buried = Vec::new();
    let disk = Box::new(DirectoryStorage::new(directory.path()));
    let settings = config(SyncPolicy::EachCommit, 1 << 20, 1);
    Binlog::open(disk, settings, Timestamp(1 << 60), 0, &mut |record, _, _, _| buried.push(record.id.0))
        .unwrap();
    assert_eq!(buried, [3, 2, 1], "in the order of the records");
}
