//! A log on a simulated disk with a random workload, and a model of the jobs that must come back after a crash.

use std::collections::{BTreeMap, VecDeque};

use beanstalkd_binlog::{
    Binlog, BinlogError, Config, NoRoom, OpenError, ReplaySummary, SequenceNumber, StoreTask, SyncPolicy,
    WholeJob,
};
use beanstalkd_types::clock::Timestamp;
use beanstalkd_types::job::{Body, Counters, JobId, JobRecord, JobState, Priority};
use beanstalkd_types::seconds::Seconds;
use beanstalkd_types::tags::EncodedTags;
use beanstalkd_types::tube_name::TubeName;

use crate::tag_model::{TagModel, cooldowns_of};
use beanstalkd_testkit::disk::{Random, SimDisk};

/// The state of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub record: JobRecord,
    pub tube: TubeName,
    pub body: Vec<u8>,
    /// The tags, encoded by `TagSet`; empty if there are none.
    pub tags: Vec<u8>,
    /// The number of the job's last burial, counted over all jobs.
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

/// The jobs that a start restores, in the order of their restoration, with tube, body and tags.
pub type Restored = Vec<(JobRecord, TubeName, Vec<u8>, Vec<u8>)>;

/// Opens the log on `disk`.
pub fn open(
    disk: &SimDisk,
    config: Config,
    now: Timestamp,
) -> Result<(Binlog, ReplaySummary, Restored), OpenError> {
    let mut restored = Vec::new();
    let (log, summary) = Binlog::open(disk.storage(), config, now, 0, &mut |record, tube, body, tags| {
        restored.push((record, tube.clone(), body.as_slice().to_vec(), tags.to_vec()));
    })?;
    Ok((log, summary, restored))
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
    /// All states of each job since the start.
    pub versions: BTreeMap<u64, Vec<Version>>,
    /// Tasks of the helper thread that are not done, the oldest first.
    helper: VecDeque<StoreTask>,
    next_id: u64,
    burials: u64,
    /// The durable position that the log has reported: replies up to here may have been sent.
    pub seen_durable: SequenceNumber,
    /// The greatest id whose put may have been acknowledged.
    pub acknowledged_id: u64,
    /// Whether replies are sent before the sync (`-f MS`). No id may be assigned twice even then.
    acknowledges_at_commit: bool,
    pub max_body: u64,
    /// Whether the workload moves jobs to other tubes.
    pub relocates: bool,
    /// The model of the tags; `None` if no job has tags.
    pub tag_model: Option<TagModel>,
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
            versions: BTreeMap::new(),
            helper: VecDeque::new(),
            next_id: summary.next_job_id,
            burials: 0,
            seen_durable: SequenceNumber::default(),
            acknowledged_id: before.map_or(0, |before| before.acknowledged_id),
            acknowledges_at_commit: matches!(config.sync, SyncPolicy::Every(_)),
            max_body: 300,
            relocates: before.is_some_and(|before| before.relocates),
            tag_model: before.and_then(|before| before.tag_model.as_ref()).map(|_| TagModel::default()),
        };
        assert!(summary.next_job_id > harness.acknowledged_id, "an id would be assigned twice");
        // With `-F` nothing is promised but that the server starts.
        if let Some(before) = before.filter(|_| config.sync != SyncPolicy::Never) {
            before.check(&restored, config.sync);
            before.check_tags(&restored, &cooldowns_of(&harness.log), config.sync);
        }
        if let Some(model) = &mut harness.tag_model {
            model.restart(cooldowns_of(&harness.log));
        }
        for (record, tube, body, tags) in restored {
            harness.burials += 1;
            let job = Job { record, tube, body, tags, buried: harness.burials };
            let version = Version { logged: SequenceNumber::default(), job: Some(job) };
            harness.versions.insert(record.id.0, vec![version]);
        }
        Ok(harness)
    }

    /// Checks that a crash may leave the restored jobs.
    fn check(&self, restored: &Restored, sync: SyncPolicy) {
        let mut found = BTreeMap::new();
        for (record, tube, body, _) in restored {
            assert!(found.insert(record.id.0, (record, tube, body)).is_none(), "restored twice");
        }
        let mut order = Vec::new();
        for (id, versions) in &self.versions {
            let back = found.remove(id);
            let durable = versions.iter().rposition(|version| version.logged <= self.seen_durable);
            // A job without a durable record may be lost.
            let allowed = &versions[durable.unwrap_or(0)..];
            // Of the records that are not durable, some may be lost: if a move is lost and a later change is not, the
            // job comes back changed, in its old tube. A tube from before the last durable record would be a loss.
            let is_tube = |tube: &TubeName| {
                allowed.iter().filter_map(|version| version.job.as_ref()).any(|job| job.tube == *tube)
            };
            let matches = |version: &&Version| match (&version.job, back) {
                (None, None) => true,
                (Some(job), Some((record, tube, body))) => {
                    job.record == *record && is_tube(tube) && job.body == *body
                }
                _ => false,
            };
            let matched = allowed.iter().rev().find(matches);
            assert!(
                matched.is_some() || (durable.is_none() && back.is_none()),
                "{sync:?}: job {id} came back as {back:?}, not one of {allowed:?}; durable {:?}",
                self.seen_durable
            );
            if let Some(job) = matched.and_then(|version| version.job.as_ref()) {
                order.push((job.record.state == JobState::Buried, job.buried, *id));
            }
        }
        assert!(found.is_empty(), "jobs that were never put: {found:?}");
        let mut expected: Vec<u64> = Vec::new();
        expected.extend(order.iter().filter(|(buried, ..)| !buried).map(|(_, _, id)| *id));
        let mut buried: Vec<_> = order.iter().filter(|(buried, ..)| *buried).collect();
        buried.sort();
        expected.extend(buried.iter().map(|(_, _, id)| *id));
        assert!(restored.iter().map(|(record, ..)| record.id.0).eq(expected), "order of restoration");
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
        self.note_file();
        for _ in 0..random.below(6) {
            self.command(random)?;
        }
        self.migrate();
        self.log.commit(self.now)?;
        self.log.check_invariants();
        if self.acknowledges_at_commit {
            self.acknowledged_id = self.next_id - 1;
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

    pub fn logged(&mut self, id: u64, job: Option<Job>) {
        let logged = self.log.appended();
        self.versions.entry(id).or_default().push(Version { logged, job });
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
        if self.tag_model.is_some() && random.once_in(8) {
            self.end_some_cooldown(random);
        }
        let count = self.versions.len() as u64;
        if count == 0 || random.below(10) < 4 {
            return self.put(random);
        }
        let nth = random.below(count) as usize;
        let id = *self.versions.keys().nth(nth).unwrap();
        match (self.newest(id), random.below(if self.relocates { 4 } else { 3 })) {
            (None, _) => self.put(random),
            (Some(job), 3) => self.relocate(job, random),
            (Some(_), 0) => {
                self.delete(id);
                Ok(())
            }
            (Some(job), _) => self.update(job, random),
        }
    }

    pub fn put(&mut self, random: &mut Random) -> Result<(), BinlogError> {
        let length = match random.below(40) {
            0 => random.below(12_000),
            _ => random.below(self.max_body),
        };
        let body: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        let tube = TubeName::parse(if random.once_in(2) { b"default" } else { b"another/tube" }).unwrap();
        self.log.reserve_id(JobId(self.next_id)).expect("fewer ids are used than announced");
        let tags = self.random_tags(random);
        let encoded = EncodedTags::read(&tags).unwrap();
        let room = self.reserve(|log| log.reserve_put(tube.as_bytes().len(), length as usize, &encoded))?;
        if room.is_err() {
            return Ok(());
        }
        let record = JobRecord {
            id: JobId(self.next_id),
            priority: Priority(random.below(5) as u32),
            delay_s: 0.into(),
            ttr_s: 60.into(),
            created_at: self.now,
            deadline_at: Timestamp(0),
            counters: Counters::default(),
            state: JobState::Ready,
        };
        self.next_id += 1;
        self.log.append_put(
            &WholeJob { tags: encoded, ..WholeJob::plain(&record, &tube, &Body::copy_of(&body).unwrap()) },
            self.now,
        );
        self.logged(record.id.0, Some(Job { record, tube, body, tags, buried: 0 }));
        Ok(())
    }

    pub fn delete(&mut self, id: u64) {
        match self.newest(id) {
            Some(job) if !job.tags.is_empty() => self.delete_tagged(&job),
            _ => {
                self.log.append_delete(JobId(id));
                self.logged(id, None);
            }
        }
    }

    /// Moves the job to another tube.
    pub fn relocate(&mut self, mut job: Job, random: &mut Random) -> Result<(), BinlogError> {
        let tube = TubeName::parse(if random.once_in(2) { b"moved" } else { b"moved/again" }).unwrap();
        let lengths = (tube.as_bytes().len(), job.body.len());
        let encoded = EncodedTags::read(&job.tags).unwrap();
        if self.reserve(|log| log.reserve_move(lengths.0, lengths.1, &encoded, None))?.is_err() {
            return Ok(());
        }
        job.tube = tube;
        self.log.append_moved(
            &WholeJob {
                tags: encoded,
                ..WholeJob::plain(&job.record, &job.tube, &Body::copy_of(&job.body).unwrap())
            },
            self.now,
        );
        self.logged(job.record.id.0, Some(job));
        Ok(())
    }

    pub fn update(&mut self, mut job: Job, random: &mut Random) -> Result<(), BinlogError> {
        if self.reserve(|log| log.reserve_update())?.is_err() {
            return Ok(());
        }
        let record = &mut job.record;
        record.priority = Priority(random.below(5) as u32);
        record.counters.releases += 1;
        (record.state, record.delay_s, record.deadline_at) = match random.below(3) {
            0 => (JobState::Ready, Seconds::ZERO, Timestamp(0)),
            1 => (JobState::Delayed, Seconds::new(9, 0), self.now.plus_seconds(Seconds::new(9, 125))),
            _ => (JobState::Buried, record.delay_s, Timestamp(0)),
        };
        self.burials += 1;
        job.buried = self.burials;
        self.log.append_update(&job.record, job.body.len(), self.now);
        self.logged(job.record.id.0, Some(job));
        Ok(())
    }
}

fn failed(error: &BinlogError) -> End {
    assert!(!matches!(error, BinlogError::NotReserved | BinlogError::Stopped), "{error}");
    End::Failed
}
