//! A restart with the log: the facts of a job that it keeps, and the queue afterwards.

use std::sync::Arc;

use beanstalkd_types::clock::{NS_PER_MS, Timestamp};
use beanstalkd_types::job::{JobId, JobRecord, JobState};
use beanstalkd_types::tags::{JobTags, Name};

use crate::queue::{Job, Model, State};
use crate::sessions::Session;
use crate::tags::Cooldown;

/// The facts of a job that a restart keeps, without its place in the order of burial: `crash_steps` of the simulation
/// and `after_crash` of tests/binlog compare that order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Without the id, the time of the put, which may have waited for room in the log, and the number of reservations,
    /// which are not always logged.
    pub record: JobRecord,
    pub tube: String,
    /// Whether it waits for a group; the state is delayed.
    pub is_held: bool,
    /// Whether it expires unless a client reserves it.
    pub may_expire: bool,
    pub failures: u32,
    pub dead_from: String,
    /// The session that has reserved it, and its grace in milliseconds.
    pub session: Option<(String, u32)>,
}

impl Facts {
    /// The facts of a job of the model or of the server, which count its failures in their own ways.
    pub fn new(
        mut record: JobRecord,
        tube: &str,
        is_held: bool,
        tags: &JobTags<'_>,
        failures: u32,
        session: Option<(String, u32)>,
    ) -> Self {
        let may_expire = tags.expires_after_s.is_some() && record.counters.reserves == 0;
        (record.id, record.created_at, record.counters.reserves) = (JobId(0), Timestamp::default(), 0);
        let dead_from = tags.dead().map_or(String::new(), |dead| dead.from.as_str().to_owned());
        Self { record, tube: tube.to_owned(), is_held, may_expire, failures, dead_from, session }
    }

    /// The facts after a restart, without times, for tests that do not know when a command was executed: reservations
    /// without a session are forgotten.
    pub fn forget_times(mut self) -> Self {
        self.record.deadline_at = Timestamp::default();
        if self.record.state == JobState::Reserved && self.session.is_none() {
            self.record.state = JobState::Ready;
        }
        self
    }

    /// The facts of a held job, without times, after its group has lost its last member.
    pub fn freed(&self) -> Self {
        let mut free = Self { is_held: false, ..self.clone() };
        if free.record.delay_s == 0 {
            free.record.state = JobState::Ready;
        }
        free
    }

    /// These facts with the reservation of `after`: the log has lost the other changes before it.
    pub fn reserved_as(&self, after: &Self) -> Self {
        let mut reserved = Self { session: after.session.clone(), ..self.clone() };
        (reserved.record.state, reserved.record.deadline_at) = (after.record.state, after.record.deadline_at);
        reserved
    }
}

impl Model {
    /// The facts of a job that a restart keeps.
    pub fn facts(&self, id: u64) -> Option<Facts> {
        let job = self.job(id)?;
        let name = self.session_of_job(job);
        let session = self.sessions.iter().find(|session| name == Some(session.name.as_str()));
        let session = session.map(|session| (session.name.clone(), session.grace_ms));
        let (tube, failures) = (&self.tube(job.tube).name, self.failures(job));
        Some(Facts::new(job.record(), tube, job.held, &job.tags, failures, session))
    }

    /// A start finds this job in the log. `finish_restart` follows when all jobs are there.
    pub fn restore(
        &mut self,
        record: &JobRecord,
        tube: &str,
        body: Arc<[u8]>,
        tags: impl Into<JobTags<'static>>,
        now: Timestamp,
    ) {
        let (tube, tags) = (self.find_or_make(tube), tags.into());
        let is_delayed = record.state == JobState::Delayed;
        let held = is_delayed && tags.after.is_some_and(|after| !after.is_free);
        // The last record of a job that was freed is from before that.
        let state = match record.state {
            JobState::Buried => State::Buried { number: self.next_burial() },
            JobState::Delayed if held || record.deadline_at > now => {
                State::Delayed { until: record.deadline_at }
            }
            JobState::Delayed | JobState::Ready | JobState::Reserved => State::Ready,
        };
        self.jobs.push(Job {
            id: record.id.0,
            tube,
            priority: record.priority.0,
            delay_s: record.delay_s,
            ttr_s: record.ttr_s,
            body,
            created_at: record.created_at,
            counters: record.counters,
            state,
            ready_since: now,
            reserved_since: now,
            tags,
            held,
            upgraded: false,
            is_left: false,
            is_in_front: false,
        });
    }

    /// A start finds this cooldown in the log.
    pub fn restore_cooldown(&mut self, id: u64, tube: &str, key: Name<'static>, until: Timestamp) {
        let tube = self.find_or_make(tube);
        self.cooldowns.push(Cooldown { id, tube, key, until });
    }

    /// The server ends in any way, and starts again with its log: its clients are gone. Sessions keep their
    /// reservations for their grace from now on, or for the rest of the time to run; other reservations are forgotten.
    pub fn restart_with_log(&mut self, now: Timestamp) {
        self.clients.clear();
        for session in &mut self.sessions {
            session.client = None;
            session.ends_at = Some(Timestamp(now.0 + u64::from(session.grace_ms) * NS_PER_MS));
        }
        for job in &mut self.jobs {
            let is_over = match job.state {
                State::Reserved { until, by } => {
                    until <= now || !self.sessions.iter().any(|session| session.number == by)
                }
                State::Delayed { until } => until <= now && !job.held,
                State::Ready | State::Buried { .. } => false,
            };
            if is_over {
                (job.state, job.upgraded) = (State::Ready, false);
            }
        }
        self.finish_restart();
    }

    /// Takes the job from `other`, another model of the same restart: a crash can keep some of the last changes of
    /// several jobs and lose others.
    pub fn take_job_of(&mut self, other: &Self, id: u64) {
        self.jobs.retain(|job| job.id != id);
        let Some(job) = other.job(id) else { return };
        let tube = self.find_or_make(&other.tube(job.tube).name);
        let mut job = Job { tube, ..job.clone() };
        if let State::Reserved { until, by } = job.state {
            let session = other.sessions.iter().find(|session| session.number == by).expect("it has the job");
            let own = self.sessions.iter_mut().find(|own| own.name == session.name);
            let by = match own {
                Some(own) => {
                    (own.grace_ms, own.ends_at) = (session.grace_ms, session.ends_at);
                    own.number
                }
                None => {
                    let number = 1 + self.sessions.iter().map(|session| session.number).max().unwrap_or(0);
                    self.sessions.push(Session { number, ..session.clone() });
                    number
                }
            };
            job.state = State::Reserved { until, by };
        }
        self.jobs.push(job);
        self.jobs.sort_by_key(|job| job.id);
    }

    /// Removes sessions and tubes without jobs. The remaining sessions get the first numbers, in the order of their
    /// jobs.
    pub fn finish_restart(&mut self) {
        let mut numbers: Vec<u32> = Vec::new();
        for job in &mut self.jobs {
            if let State::Reserved { until, by } = job.state {
                let number = numbers.iter().position(|&number| number == by).unwrap_or_else(|| {
                    numbers.push(by);
                    numbers.len() - 1
                });
                job.state = State::Reserved { until, by: number as u32 };
            }
        }
        self.sessions.retain(|session| numbers.contains(&session.number));
        for session in &mut self.sessions {
            let number = numbers.iter().position(|&number| number == session.number);
            session.number = number.expect("it has a job") as u32;
        }
        (self.free_numbers, self.next_number) = (Vec::new(), numbers.len() as u32);
        self.line_up_again_with_reserved();
        (0..self.tubes.len()).for_each(|index| self.remove_if_idle(index));
    }

    /// All jobs that are ready join new rows. Those of the sessions do so, too, because they are reserved again only
    /// when all jobs are there.
    fn line_up_again_with_reserved(&mut self) {
        let is_reserved = |job: &&Job| matches!(job.state, State::Reserved { .. });
        let mut reserved: Vec<(u64, State)> =
            self.jobs.iter().filter(is_reserved).map(|job| (job.id, job.state)).collect();
        reserved.sort_unstable_by_key(|&(id, _)| id);
        reserved.iter().for_each(|&(id, _)| self.job_mut(id).state = State::Ready);
        self.line_up_again();
        for (id, state) in reserved {
            let before = self.job(id).expect("it is there").clone();
            self.leave_front(&before);
            self.job_mut(id).state = state;
        }
    }
}
