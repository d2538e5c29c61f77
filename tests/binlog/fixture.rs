//! A log on a simulated disk, with a caller that does what the server does: the fixture of several tests.

use std::collections::VecDeque;

use beanstalkd_binlog::{Binlog, BinlogError, NoRoom, StoreTask, SyncPolicy, WholeJob};
use beanstalkd_testkit::disk::SimDisk;
use beanstalkd_types::clock::Timestamp;
use beanstalkd_types::job::{Body, Counters, JobId, JobRecord, JobState, Priority};
use beanstalkd_types::tags::EncodedTags;
use beanstalkd_types::tube_name::TubeName;

use crate::harness::{config, open};

pub const START: Timestamp = Timestamp(3_000_000_000_000);

pub fn job(id: u64) -> JobRecord {
    JobRecord {
        id: JobId(id),
        priority: Priority(0),
        delay_s: 0.into(),
        ttr_s: 1.into(),
        created_at: START,
        deadline_at: Timestamp(0),
        counters: Counters::default(),
        state: JobState::Ready,
    }
}

/// A log on a simulated disk, with the tasks of its helper thread, and jobs with equal bodies.
pub struct Fixture {
    pub disk: SimDisk,
    pub log: Binlog,
    pub now: Timestamp,
    pub body: Body,
    pub next_id: u64,
}

impl Fixture {
    pub fn open(disk: &SimDisk, sync: SyncPolicy, file_bytes: u64) -> Self {
        let (log, summary, _) = open(disk, config(sync, file_bytes, 7), START).unwrap();
        let body = Body::copy_of(&[b'x'; 100]).unwrap();
        Self { disk: disk.clone(), log, now: START, body, next_id: summary.next_job_id }
    }

    pub fn put(&mut self) -> Result<(), NoRoom> {
        let tube = TubeName::default_tube();
        self.reserve(|log, body| log.reserve_put(7, body.len(), &EncodedTags::NONE))?;
        self.log.append_put(&WholeJob::plain(&job(self.next_id), &tube, &self.body), self.now);
        self.next_id += 1;
        Ok(())
    }

    pub fn update(&mut self, record: &JobRecord) -> Result<(), NoRoom> {
        self.reserve(|log, _| log.reserve_update())?;
        self.log.append_update(record, self.body.len(), self.now);
        Ok(())
    }

    fn reserve(&mut self, ask: impl Fn(&mut Binlog, &Body) -> Result<(), NoRoom>) -> Result<(), NoRoom> {
        while let Err(no_room) = ask(&mut self.log, &self.body) {
            if no_room == NoRoom::Full {
                return Err(no_room);
            }
            self.help().unwrap();
        }
        Ok(())
    }

    pub fn help(&mut self) -> Result<(), BinlogError> {
        while let Some(task) = self.disk.next_task() {
            let completion = task.run(&mut self.disk.clone());
            self.log.on_completion(completion, self.now)?;
        }
        Ok(())
    }

    /// The time is `now`: what was due is done, also by the helper.
    pub fn reach(&mut self, now: Timestamp) {
        self.now = now;
        self.log.on_deadline(now).unwrap();
        self.help().unwrap();
    }

    pub fn commit(&mut self) {
        self.commit_alone();
        self.help().unwrap();
    }

    pub fn migrate(&mut self) {
        while let Some(id) = self.log.next_migration() {
            self.log.append_migrated(
                &WholeJob::plain(&job(id.0), &TubeName::default_tube(), &self.body),
                self.now,
            );
        }
    }

    pub fn commit_alone(&mut self) {
        self.migrate();
        self.log.commit(self.now).unwrap();
        self.log.check_invariants();
    }

    /// Does a task that makes a file, or, if there is none, the oldest of the other `tasks`.
    pub fn help_late(&mut self, tasks: &mut VecDeque<StoreTask>) {
        tasks.extend(std::iter::from_fn(|| self.disk.next_task()));
        let creation = tasks.iter().position(|task| matches!(task, StoreTask::Make { .. }));
        let task = tasks.remove(creation.unwrap_or(0)).expect("room is pending, but there is no task");
        let completion = task.run(&mut self.disk.clone());
        self.log.on_completion(completion, self.now).unwrap();
        self.migrate();
    }

    pub fn fill(&mut self) -> u64 {
        let first = self.next_id;
        while self.put().is_ok() {
            self.commit();
        }
        self.next_id - first
    }
}
