//! The management commands, and the waiting and running times in the stats.

use beanstalkd_queue::Change;
use beanstalkd_types::clock::{NS_PER_S, Timestamp};
use beanstalkd_types::job::{JobId, JobState};
use beanstalkd_types::seconds::Seconds;

use crate::queue::{Job, Model, State, TubeIndex};
use crate::tags::Ending;

/// "Recent" times are those of the current two minutes of the clock and of the two minutes before.
const WINDOW_NS: u64 = 120 * NS_PER_S;

/// A summary of durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    pub count: u64,
    pub mean_ns: u64,
    pub max_ns: u64,
    /// The smallest possible p50, p95 and p99. The server's figures may be a quarter larger.
    pub percentiles_ns: [u64; 3],
    /// The number of durations since the tube was made.
    pub total: u64,
}

impl Model {
    /// Deletes the jobs of the tube, or only its buried jobs. Returns the number of deleted jobs.
    pub fn flush(&mut self, name: &str, only_buried: bool, now: Timestamp) -> u64 {
        let Some(tube) = self.find(name) else { return 0 };
        // The list of changes shows the order.
        let mut jobs: Vec<(u8, u64, u64)> = Vec::new();
        for job in self.jobs.iter().filter(|job| job.tube == tube) {
            let (state, index) = match job.state {
                State::Delayed { until } if job.held => (0, until.0),
                State::Ready => (1, u64::from(job.priority)),
                State::Delayed { until } => (2, until.0),
                State::Buried { number } => (3, number),
                // By client, then by deadline.
                State::Reserved { until, by } => (4 + by as u8, until.0),
            };
            if state == 3 || !only_buried {
                jobs.push((state, index, job.id));
            }
        }
        jobs.sort_unstable();
        // Held jobs that the flush itself frees are deleted, too, before a client can get them.
        let held = jobs.partition_point(|&(state, ..)| state == 0);
        let freed: Vec<_> =
            jobs[..held].iter().map(|&(_, _, id)| self.end_alone(id, Ending::Flushed, now)).collect();
        freed.into_iter().for_each(|freed| self.free(freed, now));
        jobs[held..].iter().for_each(|&(_, _, id)| self.end(id, Ending::Flushed, now));
        if !only_buried {
            let mut keys: Vec<u64> = self
                .cooldowns
                .iter()
                .filter(|cooldown| cooldown.tube == tube)
                .map(|cooldown| cooldown.id)
                .collect();
            keys.sort_unstable();
            keys.into_iter().for_each(|id| self.end_cooldown(id));
        }
        if self.find(name).is_some() {
            self.remove_if_idle(tube);
        }
        self.end_idle_sessions();
        jobs.len() as u64
    }

    /// A step of a flush deletes a job that is not held.
    pub fn flush_job(&mut self, id: u64, now: Timestamp) {
        let tube = self.job(id).expect("the flush has found it").tube;
        self.end(id, Ending::Flushed, now);
        self.remove_if_idle(tube);
        self.end_idle_sessions();
    }

    pub fn is_movable(&self, client: u32, id: u64) -> bool {
        self.job(id).is_some_and(
            |job| !matches!(job.state, State::Reserved { by, .. } if by != self.holder_for(client)),
        )
    }

    pub fn move_job(&mut self, client: u32, id: u64, name: &str, now: Timestamp) -> bool {
        let Some(job) = self.job(id) else { return false };
        if matches!(job.state, State::Reserved { by, .. } if by != self.holder_for(client)) {
            return false;
        }
        let (from, state) = (job.tube, job.state);
        let before = job.clone();
        let to = self.find_or_make(name);
        if from == to {
            return true;
        }
        self.leave_front(&before);
        self.revive_in(id, name);
        self.job_mut(id).tube = to;
        self.note_arrival(id, now);
        self.note(Change::Moved(JobId(id)));
        if state == State::Ready {
            let since = self.job_mut(id).ready_since;
            // The job has left its old tube.
            self.job_mut(id).state = State::Delayed { until: now };
            self.make_ready_since(id, since, now);
        }
        let is_reserved = matches!(state, State::Reserved { .. });
        if is_reserved && self.session_of_job(self.job(id).expect("the job is there")).is_some() {
            self.note(Change::SessionReserved(JobId(id)));
        }
        self.close_if_needed(to);
        self.serve_free_slots(now);
        self.remove_if_idle(from);
        true
    }

    pub fn reprioritize(&mut self, id: u64, priority: u32) -> bool {
        if self.job(id).is_none_or(|job| matches!(job.state, State::Reserved { .. })) {
            return false;
        }
        self.set_priority(id, priority);
        self.note(Change::Updated(JobId(id)));
        true
    }

    /// Gives a ready or delayed job another delay, which ends at `until`; without a delay, it is ready.
    pub fn set_delay(&mut self, id: u64, delay_s: Seconds, until: Timestamp, now: Timestamp) -> bool {
        let is_delayable =
            |job: &&Job| !job.held && matches!(job.state, State::Ready | State::Delayed { .. });
        let Some(before) = self.job(id).filter(is_delayable).cloned() else { return false };
        let job = self.job_mut(id);
        (job.delay_s, job.state) = (delay_s, State::Delayed { until });
        self.leave_front(&before);
        self.note(Change::Updated(JobId(id)));
        if delay_s == 0 {
            self.make_ready(id, now);
        }
        self.serve_free_slots(now);
        true
    }

    /// Changes the priority of a ready job, and so its place. Its key keeps its place in the rotation.
    pub(crate) fn set_priority(&mut self, id: u64, priority: u32) {
        let before = self.job(id).expect("it is there").clone();
        self.step_aside(&before);
        self.job_mut(id).priority = priority;
        if before.state == State::Ready {
            self.line_up(id);
        }
    }

    /// The jobs of the tube in this state, in the order of `list-jobs`, each with its position there.
    pub fn in_order(&self, tube: TubeIndex, state: JobState) -> Vec<(u64, u64)> {
        let position = |job: &Job| match (job.state, state) {
            (State::Ready, JobState::Ready) => Some(u64::from(job.priority)),
            (State::Delayed { until }, JobState::Delayed) => Some(until.0),
            (State::Buried { number }, JobState::Buried) => Some(number),
            (State::Reserved { until, .. }, JobState::Reserved) => Some(until.0),
            _ => None,
        };
        let jobs = self.jobs.iter().filter(|job| job.tube == tube);
        let mut jobs: Vec<_> = jobs.filter_map(|job| Some((job.held, position(job)?, job.id))).collect();
        jobs.sort_unstable();
        jobs.into_iter().map(|(_, position, id)| (position, id)).collect()
    }

    /// The job of the tube that has been reserved longest.
    pub fn first_reserved_of(&self, tube: TubeIndex) -> Option<u64> {
        let is_reserved = |job: &&Job| job.tube == tube && matches!(job.state, State::Reserved { .. });
        let reserved = self.jobs.iter().filter(is_reserved);
        reserved.min_by_key(|job| (job.reserved_since, job.id)).map(|job| job.id)
    }

    /// The job of the tube in this state with the smallest id.
    pub fn oldest(&self, tube: TubeIndex, state: JobState) -> Option<&Job> {
        let ids = self.in_order(tube, state).into_iter().map(|(_, id)| id);
        self.job(ids.min()?)
    }

    /// The waiting times of the tube's jobs.
    pub fn waits(&self, tube: TubeIndex, now: Timestamp) -> Times {
        times(&self.tube(tube).waits, now)
    }

    /// The running times of the tube's jobs.
    pub fn runs(&self, tube: TubeIndex, now: Timestamp) -> Times {
        times(&self.tube(tube).runs, now)
    }
}

fn times(all: &[(Timestamp, u64)], now: Timestamp) -> Times {
    let is_recent = |at: Timestamp| at.0 / WINDOW_NS + 1 >= now.0 / WINDOW_NS;
    let mut recent: Vec<u64> = all.iter().filter(|(at, _)| is_recent(*at)).map(|&(_, ns)| ns).collect();
    recent.sort_unstable();
    let count = recent.len() as u64;
    let sum_ns = recent.iter().fold(0u64, |sum, &ns| sum.saturating_add(ns));
    let percentile = |of_100: u64| match (count * of_100).div_ceil(100) {
        0 => 0,
        rank => recent[rank as usize - 1],
    };
    Times {
        count,
        mean_ns: sum_ns.checked_div(count).unwrap_or(0),
        max_ns: recent.last().copied().unwrap_or(0),
        percentiles_ns: [50, 95, 99].map(percentile),
        total: all.len() as u64,
    }
}
