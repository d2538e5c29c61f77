//! A log on a simulated disk with a random workload: operations of the model, whose changes are logged, as the server
//! logs those of its queue.
//!
//! Owns: the states of each job and cooldown, with the positions of their records in the log. `after_crash` compares
//! them with what a start finds.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Mutex;

use beanstalkd_binlog::{
    Binlog, BinlogError, Config, Cooldown, NoRoom, OpenError, ReplaySummary, SequenceNumber, SideEffects,
    StoreTask, SyncPolicy, WholeJob,
};
use beanstalkd_model::{Model, State};
use beanstalkd_queue::{Change, NewJob, PoisonLimits, Release};
use beanstalkd_testkit::disk::{Random, SimDisk};
use beanstalkd_testkit::simulated::{Restored, RunningCooldown, cooldowns_of, open_log};
use beanstalkd_testkit::tags::{TagChoice, encoded};
use beanstalkd_types::clock::Timestamp;
use beanstalkd_types::job::{Body, Counting, JobId, JobRecord, Priority};
use beanstalkd_types::seconds::Seconds;
use beanstalkd_types::tags::{EncodedTags, JobTags};
use beanstalkd_types::tube_name::TubeName;

/// The client of the model.
const CLIENT: u32 = 0;
/// Keys and groups.
const NAMES: [&str; 3] =
    ["g", "group/two", "a.name.that.takes.more.than.one.record.of.the.log.and.then.some"];
pub const TAGS: TagChoice<'_> = TagChoice {
    none: 3,
    keys: (2, &NAMES),
    cooldowns_s: &[Seconds::ZERO, Seconds::ONE, Seconds::new(3600, 0)],
    limited: (4, &NAMES),
    limits: &[1, 2],
    groups: (2, &NAMES),
    awaited: (3, &NAMES),
    expiries_s: (4, &[Seconds::ONE, Seconds::new(50, 0), Seconds::new(100, 0)]),
    trace: 4,
};

/// The state of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub record: JobRecord,
    pub tube: TubeName,
    pub body: Vec<u8>,
    /// The tags, encoded by `JobTags`; empty if there are none.
    pub tags: Vec<u8>,
    /// The number of its burial, counted over all jobs, if it is buried.
    pub buried: u64,
}

/// A state of a job and the position of its record in the log; `None` after the delete.
#[derive(Clone, Debug)]
pub struct Version {
    pub logged: SequenceNumber,
    pub job: Option<Job>,
}

pub fn config(sync: SyncPolicy, file_bytes: u64, seed: u64) -> Config {
    Config { file_bytes, sync, recover: false, nonce_seed: seed }
}

pub fn open(
    disk: &SimDisk,
    config: Config,
    now: Timestamp,
) -> Result<(Binlog, ReplaySummary, Restored), OpenError> {
    open_log(disk.storage(), config, now)
}

/// Why a workload ended.
#[derive(Debug)]
pub enum End {
    Crashed,
    Failed,
    Done,
}

pub struct Harness {
    pub disk: SimDisk,
    pub log: Binlog,
    pub now: Timestamp,
    pub model: Model,
    /// All states of each job since the start.
    pub versions: BTreeMap<u64, Vec<Version>>,
    /// All states of each cooldown since the start; `None` after its end.
    pub cooldowns: BTreeMap<u64, Vec<(SequenceNumber, Option<RunningCooldown>)>>,
    /// The file that was written at each position of the log.
    pub files: Vec<(SequenceNumber, u32)>,
    /// Tasks of the helper thread that are not done, the oldest first.
    helper: VecDeque<StoreTask>,
    /// The durable position that the log has reported: replies up to here may have been sent.
    pub seen_durable: SequenceNumber,
    /// The greatest id whose put may have been acknowledged.
    pub acknowledged_id: u64,
    /// With `-f MS`, replies are sent before the sync. No id may be assigned twice even then.
    sync: SyncPolicy,
    pub max_body: u64,
    /// Whether the workload moves jobs to other tubes.
    pub relocates: bool,
    /// The tags of the jobs that the workload puts.
    pub tags: TagChoice<'static>,
}

impl Harness {
    /// Starts on the disk that `before` left, or on an empty one. Checks that no acknowledged change is lost.
    pub fn begin(disk: SimDisk, config: Config, before: Option<&Harness>) -> Result<Self, OpenError> {
        let now = before.map_or(Timestamp(1_000_000_000_000), |before| before.now);
        let (log, summary, restored) = open(&disk, config, now)?;
        let mut harness = Self {
            disk,
            log,
            now,
            model: Model::new(PoisonLimits::default()),
            versions: BTreeMap::new(),
            cooldowns: BTreeMap::new(),
            files: Vec::new(),
            helper: VecDeque::new(),
            seen_durable: SequenceNumber::default(),
            acknowledged_id: before.map_or(0, |before| before.acknowledged_id),
            sync: config.sync,
            max_body: 300,
            relocates: before.is_some_and(|before| before.relocates),
            tags: before.map_or(TagChoice::NEVER, |before| before.tags),
        };
        assert!(summary.next_job_id > harness.acknowledged_id, "an id would be assigned twice");
        // With `-F` nothing is promised but that the server starts.
        if let Some(before) = before.filter(|before| before.sync != SyncPolicy::Never) {
            before.check(&restored, &cooldowns_of(&harness.log), before.sync);
        }
        harness.restore(restored, summary.next_job_id);
        Ok(harness)
    }

    /// Restores the jobs and cooldowns that the log has.
    fn restore(&mut self, restored: Restored, next_id: u64) {
        for (record, tube, body, tags) in restored {
            let body_in_model = body.as_slice().into();
            self.model.restore(&record, tube.as_str(), body_in_model, interned(&tags), self.now);
            let job = Job { record, tube, body, tags, buried: burial(&self.model, record.id.0) };
            let version = Version { logged: SequenceNumber::default(), job: Some(job) };
            self.versions.insert(record.id.0, vec![version]);
        }
        for (id, cooldown) in cooldowns_of(&self.log) {
            let (tube, key, until) = &cooldown;
            let key = NAMES.into_iter().find(|name| name == key).expect("a key that was put");
            self.model.restore_cooldown(id, tube, key.try_into().unwrap(), *until);
            self.cooldowns.insert(id, vec![(SequenceNumber::default(), Some(cooldown))]);
        }
        self.model.finish_restart();
        self.model.next_id = next_id;
        self.model.connect(CLIENT);
    }

    /// Runs `turns` turns, or until the disk fails.
    pub fn run(&mut self, turns: u64, random: &mut Random) -> End {
        for _ in 0..turns {
            if let Err(error) = self.turn(random) {
                return if self.disk.has_crashed() { End::Crashed } else { failed(&error) };
            }
        }
        End::Done
    }

    /// Runs a turn of a server: some random commands, compaction, a commit, and some tasks of the helper thread.
    pub fn turn(&mut self, random: &mut Random) -> Result<(), BinlogError> {
        self.now = self.now + random.below(20_000_000);
        self.files.push((self.log.appended(), self.log.stats().current_index));
        for _ in 0..random.below(6) {
            self.command(random)?;
        }
        self.migrate();
        self.log.commit(self.now)?;
        self.log.check_invariants();
        if let SyncPolicy::Every(_) = self.sync {
            self.acknowledged_id = self.model.next_id - 1;
        }
        let done = random.below(4);
        self.help(done)?;
        if self.log.next_deadline().is_some_and(|at| at <= self.now) {
            self.log.on_deadline(self.now)?;
        }
        Ok(())
    }

    /// Appends the copies that compaction requests.
    pub fn migrate(&mut self) {
        while let Some(id) = self.log.next_migration() {
            let job = self.newest(id.0).expect("only jobs that exist are copied");
            let body = Body::copy_of(&job.body).unwrap();
            self.log.append_migrated(
                &WholeJob {
                    tags: EncodedTags::read(&job.tags).unwrap(),
                    ..WholeJob::plain(&job.record, &job.tube, &body)
                },
                self.now,
            );
            // A copy is not a new state of the job.
        }
    }

    /// Does up to `count` tasks of the helper thread.
    pub fn help(&mut self, count: u64) -> Result<(), BinlogError> {
        while let Some(task) = self.disk.next_task() {
            self.helper.push_back(task);
        }
        for _ in 0..count {
            let Some(task) = self.helper.pop_front() else { return Ok(()) };
            let completion = task.run(&mut self.disk.clone());
            self.log.on_completion(completion, self.now)?;
            self.see_durable();
            while let Some(task) = self.disk.next_task() {
                self.helper.push_back(task);
            }
        }
        Ok(())
    }

    /// Does all tasks of the helper thread.
    pub fn help_all(&mut self) -> Result<(), BinlogError> {
        loop {
            self.help(1)?;
            if self.helper.is_empty() {
                return Ok(());
            }
        }
    }

    fn see_durable(&mut self) {
        self.seen_durable = self.log.durable();
        for (id, versions) in &self.versions {
            if versions.first().is_some_and(|first| first.logged <= self.seen_durable) {
                self.acknowledged_id = self.acknowledged_id.max(*id);
            }
        }
    }

    pub fn newest(&self, id: u64) -> Option<Job> {
        self.versions.get(&id)?.last()?.job.clone()
    }

    /// The job as the model has it.
    fn job(&self, id: u64) -> Option<Job> {
        let job = self.model.job(id)?;
        let tube = TubeName::parse(self.model.tube(job.tube).name.as_bytes()).unwrap();
        let (body, tags) = (job.body.to_vec(), encoded(job.tags));
        Some(Job { record: job.record(), tube, body, tags, buried: burial(&self.model, id) })
    }

    fn note(&mut self, id: u64, job: Option<Job>) {
        let logged = self.log.appended();
        self.versions.entry(id).or_default().push(Version { logged, job });
    }

    /// Logs what an operation has changed in the model.
    fn log_changes(&mut self) {
        for id in std::mem::take(&mut self.model.burials) {
            self.log.note_burial(id, self.now);
        }
        for change in std::mem::take(&mut self.model.changes) {
            match change {
                Change::Put(id) | Change::Moved(id) => {
                    let job = self.job(id.0).expect("it is there");
                    let body = Body::copy_of(&job.body).unwrap();
                    let tags = EncodedTags::read(&job.tags).unwrap();
                    let whole = WholeJob { tags, ..WholeJob::plain(&job.record, &job.tube, &body) };
                    if let Change::Put(_) = change {
                        self.log.append_put(&whole, self.now);
                    } else {
                        self.log.append_moved(&whole, self.now);
                    }
                    self.note(id.0, Some(job));
                }
                Change::Updated(id) | Change::Postponable(id) => {
                    let job = self.job(id.0).expect("it is there");
                    self.log.append_update(&job.record, job.body.len(), self.now);
                    self.note(id.0, Some(job));
                }
                Change::Deleted(id) => {
                    self.log.append_delete(id);
                    self.note(id.0, None);
                }
                Change::DeletedWithCooldown(id) => self.log_delete(id, None),
                Change::DeletedLast(last) => self.log_delete(last.id, Some(&last.group)),
                Change::CooldownOver(id) => {
                    self.log.forget_cooldown(id, self.now);
                    self.cooldowns.entry(id.0).or_default().push((self.log.appended(), None));
                }
                Change::Reserved(_) | Change::SessionReserved(_) | Change::Died(_) => {
                    unreachable!("{change:?}: no job stays reserved, and no tube has a rule")
                }
            }
        }
        self.model.forget_the_past();
    }

    /// Logs a delete with its cooldown and the group that it frees.
    fn log_delete(&mut self, id: JobId, freed_group: Option<&str>) {
        let cooldown = self.model.cooldowns.iter().find(|cooldown| cooldown.id == id.0);
        let cooldown = cooldown.map(|cooldown| Cooldown {
            tube: &self.model.tube(cooldown.tube).name,
            key: cooldown.key.as_str(),
            until: cooldown.until,
        });
        let side_effects = SideEffects { cooldown, freed_group, completes: None };
        self.log.append_delete_with(id, &side_effects);
        let state = cooldown.map(|found| (found.tube.to_owned(), found.key.to_owned(), found.until));
        if state.is_some() {
            self.cooldowns.entry(id.0).or_default().push((self.log.appended(), state));
        }
        self.note(id.0, None);
        // The records of the jobs that it has freed are from before that.
        for job in self.model.jobs.clone() {
            let newest = self.newest(job.id).expect("it was logged");
            let tags = encoded(job.tags);
            if newest.tags != tags {
                self.note(job.id, Some(Job { tags, ..newest }));
            }
        }
    }

    /// Reserves room, and does tasks of the helper thread while the room is pending.
    pub fn reserve(
        &mut self,
        reserve: impl Fn(&mut Binlog) -> Result<(), NoRoom>,
    ) -> Result<Result<(), NoRoom>, BinlogError> {
        loop {
            match reserve(&mut self.log) {
                Err(NoRoom::Pending) => {
                    self.help(1)?;
                    if self.helper.is_empty() && reserve(&mut self.log) == Err(NoRoom::Pending) {
                        self.help(0)?;
                        assert!(!self.helper.is_empty(), "room is pending, but there is no task");
                    }
                }
                other => return Ok(other),
            }
        }
    }

    fn command(&mut self, random: &mut Random) -> Result<(), BinlogError> {
        if !self.model.cooldowns.is_empty() && random.once_in(8) {
            self.end_some_cooldown(random);
        }
        let count = self.versions.len() as u64;
        if count == 0 || random.below(10) < 4 {
            return self.put(random);
        }
        let nth = random.below(count) as usize;
        let id = *self.versions.keys().nth(nth).unwrap();
        let is_there = self.model.job(id).is_some();
        match random.below(if self.relocates { 4 } else { 3 }) {
            _ if !is_there => self.put(random),
            0 => {
                assert!(self.model.delete(CLIENT, id, self.now), "no client holds it");
                self.log_changes();
                Ok(())
            }
            3 => self.relocate(id, random),
            _ => self.update(id, random),
        }
    }

    /// Ends a random cooldown, as `flush-tube` does.
    fn end_some_cooldown(&mut self, random: &mut Random) {
        let id = self.model.cooldowns[random.index(self.model.cooldowns.len())].id;
        self.model.end_cooldown(id);
        self.log_changes();
    }

    pub fn put(&mut self, random: &mut Random) -> Result<(), BinlogError> {
        let length = match random.below(40) {
            0 => random.below(12_000),
            _ => random.below(self.max_body),
        };
        let body: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        let tube = if random.once_in(2) { "default" } else { "another/tube" };
        let id = JobId(self.model.next_id);
        self.log.reserve_id(id).expect("fewer ids are used than announced");
        let tags = self.tags.tags(random);
        let bytes = encoded(tags);
        let in_log = EncodedTags::of(&bytes, tags.into());
        if self.reserve(|log| log.reserve_put(tube.len(), length as usize, &in_log))?.is_err() {
            return Ok(());
        }
        self.model.allocate_id(CLIENT);
        self.model.use_tube(CLIENT, tube);
        let priority = Priority(random.below(5) as u32);
        let new = NewJob { id, priority, delay_s: 0.into(), ttr_s: 60.into() };
        self.model.put_tagged(CLIENT, new, body.into(), tags, self.now);
        self.log_changes();
        Ok(())
    }

    /// Moves the job to another tube.
    fn relocate(&mut self, id: u64, random: &mut Random) -> Result<(), BinlogError> {
        let tube = if random.once_in(2) { "moved" } else { "moved/again" };
        let job = self.job(id).expect("it is there");
        let tags = EncodedTags::read(&job.tags).unwrap();
        if job.tube.as_str() == tube
            || self.reserve(|log| log.reserve_move(tube.len(), job.body.len(), &tags, None))?.is_err()
        {
            return Ok(());
        }
        assert!(self.model.move_job(CLIENT, id, tube, self.now), "no client holds it");
        self.log_changes();
        Ok(())
    }

    /// Releases or buries the job, or changes its priority.
    fn update(&mut self, id: u64, random: &mut Random) -> Result<(), BinlogError> {
        if self.reserve(|log| log.reserve_update())?.is_err() {
            return Ok(());
        }
        let (priority, now) = (random.below(5) as u32, self.now);
        let delay_s = [Some(Seconds::ZERO), Some(Seconds::new(9, 125)), None][random.below(3) as usize];
        let is_done = if !random.once_in(4) && self.model.reserve_job(CLIENT, id, now) {
            match delay_s {
                Some(delay_s) => {
                    let (priority, counting) = (Priority(priority), Counting::Counted);
                    self.model.release(CLIENT, id, Release { priority, delay_s, counting }, now).is_some()
                }
                None => self.model.bury(CLIENT, id, priority, now),
            }
        } else {
            self.model.reprioritize(id, priority)
        };
        assert!(is_done, "no client holds it");
        self.log_changes();
        Ok(())
    }
}

/// The number of the job's burial.
fn burial(model: &Model, id: u64) -> u64 {
    match model.job(id).map(|job| job.state) {
        Some(State::Buried { number }) => number,
        _ => 0,
    }
}

/// The tags, which stay in memory. There are few different ones.
fn interned(tags: &[u8]) -> JobTags<'static> {
    static KNOWN: Mutex<BTreeSet<&[u8]>> = Mutex::new(BTreeSet::new());
    let mut known = KNOWN.lock().unwrap();
    if !known.contains(tags) {
        known.insert(tags.to_vec().leak());
    }
    JobTags::decode(known.get(tags).unwrap()).expect("tags that were put")
}

fn failed(error: &BinlogError) -> End {
    assert!(!matches!(error, BinlogError::NotReserved | BinlogError::Stopped), "{error}");
    End::Failed
}
