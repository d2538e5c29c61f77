//! A server's worth of jobs beside a log: a random life, and what must be left of it.

use std::collections::{BTreeMap, VecDeque};

use beanstalkd::binlog::{
    Binlog, BinlogError, Config, NoRoom, OpenError, ReplaySummary, SequenceNumber, SyncPolicy, Task,
};
use beanstalkd::clock::Timestamp;
use beanstalkd::job::{Body, Counters, JobId, JobRecord, JobState, Priority};
use beanstalkd::tube_name::TubeName;

use crate::tagged_world::{TaggedWorld, cooldowns_of};
use beanstalkd_testkit::disk::{Random, SimDisk};

/// A job at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub record: JobRecord,
    pub tube: TubeName,
    pub body: Vec<u8>,
    /// As `TagSet` encodes them; empty for none.
    pub tags: Vec<u8>,
    /// Counts burials, so that their order is known.
    pub buried: u64,
}

/// One state in a job's life; `None` once it is deleted.
#[derive(Clone, Debug)]
pub struct Version {
    pub logged: SequenceNumber,
    pub job: Option<Job>,
}

pub fn config(sync: SyncPolicy, file_bytes: u64, seed: u64) -> Config {
    Config { file_bytes, sync, recover: false, nonce_seed: seed }
}

/// What a restart gives back: the jobs in the order of their restoration.
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

/// Where a life ended.
#[derive(Debug)]
pub enum End {
    Crashed,
    Failed,
    Done,
}

pub struct World {
    pub disk: SimDisk,
    pub log: Binlog,
    pub now: Timestamp,
    /// All versions of each job since it was last known to be durable.
    pub versions: BTreeMap<u64, Vec<Version>>,
    /// Tasks that the store was given, oldest first.
    helper: VecDeque<Task>,
    next_id: u64,
    burials: u64,
    /// The durable position that the server has seen: replies up to here may have left.
    pub seen_durable: SequenceNumber,
    /// The highest id whose put may have been acknowledged.
    pub acknowledged_id: u64,
    /// Whether replies leave before the medium has what they acknowledge, but no id may be given twice.
    acknowledges_at_commit: bool,
    pub max_body: u64,
    /// Whether jobs go to other tubes, too.
    pub relocates: bool,
    /// What the tags lead to; `None` if no job has tags.
    pub tagged: Option<TaggedWorld>,
}

impl World {
    /// A new server on what `before` left, or on nothing. Checks that nothing acknowledged is lost.
    pub fn begin(disk: SimDisk, config: Config, before: Option<&World>) -> Result<Self, OpenError> {
        let now = before.map_or(Timestamp(1_000_000_000_000), |before| before.now);
        let (log, summary, restored) = open(&disk, config, now)?;
        let mut world = Self {
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
            tagged: before.and_then(|before| before.tagged.as_ref()).map(|_| TaggedWorld::default()),
        };
        assert!(summary.next_job_id > world.acknowledged_id, "an id would be given twice");
        // Without syncing, nothing is promised but that the server starts.
        if let Some(before) = before.filter(|_| config.sync != SyncPolicy::Never) {
            before.check(&restored, config.sync);
            before.check_tags(&restored, &cooldowns_of(&world.log), config.sync);
        }
        if let Some(tagged) = &mut world.tagged {
            tagged.restart(cooldowns_of(&world.log));
        }
        for (record, tube, body, tags) in restored {
            world.burials += 1;
            let job = Job { record, tube, body, tags, buried: world.burials };
            let version = Version { logged: SequenceNumber::default(), job: Some(job) };
            world.versions.insert(record.id.0, vec![version]);
        }
        Ok(world)
    }

    /// Whether what came back is what a crash may leave.
    fn check(&self, restored: &Restored, sync: SyncPolicy) {
        let mut found = BTreeMap::new();
        for (record, tube, body, _) in restored {
            assert!(found.insert(record.id.0, (record, tube, body)).is_none(), "restored twice");
        }
        let mut order = Vec::new();
        for (id, versions) in &self.versions {
            let back = found.remove(id);
            let durable = versions.iter().rposition(|version| version.logged <= self.seen_durable);
            // A job of which nothing was durable may be gone.
            let allowed = &versions[durable.unwrap_or(0)..];
            // What was not durable may be lost in part: a move, but not a later change of the job, which then comes
            // back changed in the tube before. A tube from before the last durable version would be a loss.
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
        assert!(found.is_empty(), "jobs from nowhere: {found:?}");
        let mut expected: Vec<u64> = Vec::new();
        expected.extend(order.iter().filter(|(buried, ..)| !buried).map(|(_, _, id)| *id));
        let mut buried: Vec<_> = order.iter().filter(|(buried, ..)| *buried).collect();
        buried.sort();
        expected.extend(buried.iter().map(|(_, _, id)| *id));
        assert!(restored.iter().map(|(record, ..)| record.id.0).eq(expected), "order of restoration");
    }

    /// Lives for `turns` turns, or until the disk ends it.
    pub fn live(&mut self, turns: u64, random: &mut Random) -> End {
        for _ in 0..turns {
            if let Err(error) = self.turn(random) {
                return if self.disk.has_crashed() { End::Crashed } else { failed(&error) };
            }
        }
        End::Done
    }

    /// Does what a server does in a turn.
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

    /// Copies what the log asks for.
    pub fn migrate(&mut self) {
        while let Some(id) = self.log.next_migration() {
            let job = self.newest(id.0).expect("the log migrates living jobs alone");
            let body = Body::copy_of(&job.body).unwrap();
            self.log.append_migrated(&job.record, &job.tube, &body, &job.tags, self.now);
            // A copy has a place in the log of its own, but is no new state.
        }
    }

    /// Has the helper do up to `count` tasks.
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

    /// Has the helper do all there is to do.
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

    /// Waits for room as long as there is hope.
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
                        assert!(!self.helper.is_empty(), "room is said to come, but nothing is under way");
                    }
                }
                other => return Ok(other),
            }
        }
    }

    fn command(&mut self, random: &mut Random) -> Result<(), BinlogError> {
        if self.tagged.is_some() && random.once_in(8) {
            self.forget_some_cooldown(random);
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
        self.log.reserve_id(JobId(self.next_id)).expect("fewer are put than are announced");
        let tags = self.random_tags(random);
        let room = self.reserve(|log| log.reserve_put(tube.as_bytes().len(), length as usize, &tags))?;
        if room.is_err() {
            return Ok(());
        }
        let record = JobRecord {
            id: JobId(self.next_id),
            priority: Priority(random.below(5) as u32),
            delay_s: 0,
            ttr_s: 60,
            created_at: self.now,
            deadline_at: Timestamp(0),
            counters: Counters::default(),
            state: JobState::Ready,
        };
        self.next_id += 1;
        self.log.append_put(&record, &tube, &Body::copy_of(&body).unwrap(), &tags, self.now);
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

    /// The job goes to another tube.
    pub fn relocate(&mut self, mut job: Job, random: &mut Random) -> Result<(), BinlogError> {
        let tube = TubeName::parse(if random.once_in(2) { b"moved" } else { b"moved/again" }).unwrap();
        let lengths = (tube.as_bytes().len(), job.body.len());
        if self.reserve(|log| log.reserve_move(lengths.0, lengths.1, &job.tags))?.is_err() {
            return Ok(());
        }
        job.tube = tube;
        self.log.append_moved(
            &job.record,
            &job.tube,
            &Body::copy_of(&job.body).unwrap(),
            &job.tags,
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
            0 => (JobState::Ready, 0, Timestamp(0)),
            1 => (JobState::Delayed, 9, self.now.plus_seconds(9)),
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
