//! The queue: the required result of each of its operations.

mod deadlines;
mod lookups;
mod moves;
mod tubes;

use std::sync::Arc;

use beanstalkd_queue::{
    Change, NewJob, PoisonLimits, Release, Released, Reserve, TubeCounters, TubeRule, WaitOutcome,
};
use beanstalkd_types::clock::{NS_PER_S, Timestamp};
use beanstalkd_types::job::{Counters, Counting, JobId, JobRecord, JobState, Priority};
use beanstalkd_types::seconds::Seconds;
use beanstalkd_types::tags::{JobTags, Name};

use crate::rotation::RotationKey;
use crate::sessions::Session;
use crate::tags::{Cooldown, Ending};

/// An index into `Model::tubes`.
pub type TubeIndex = usize;

/// A job. A row of `stats-job` or a rule of the protocol needs each field.
#[derive(Clone, Debug)]
pub struct Job {
    pub id: u64,
    pub tube: TubeIndex,
    pub priority: u32,
    pub delay_s: Seconds,
    pub ttr_s: Seconds,
    pub body: Arc<[u8]>,
    pub created_at: Timestamp,
    pub counters: Counters,
    pub state: State,
    /// When it last became ready.
    pub ready_since: Timestamp,
    /// When it was last reserved.
    pub reserved_since: Timestamp,
    pub tags: JobTags<'static>,
    /// Whether the job waits for its group; its state is delayed.
    pub held: bool,
    /// Whether a duplicate has raised its priority since it was reserved.
    pub upgraded: bool,
    /// Whether it was too old for its tube, but its dead tube did not take it.
    pub is_left: bool,
    /// Whether a reserve may take it.
    pub is_in_front: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Ready,
    Delayed { until: Timestamp },
    Reserved { until: Timestamp, by: u32 },
    Buried { number: u64 },
}

impl State {
    /// The word for the state in `stats-job`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Delayed { .. } => "delayed",
            Self::Reserved { .. } => "reserved",
            Self::Buried { .. } => "buried",
        }
    }
}

impl Job {
    /// The job as the log records it.
    pub fn record(&self) -> JobRecord {
        let (state, deadline_at) = match self.state {
            State::Ready => (JobState::Ready, Timestamp::default()),
            State::Delayed { until } => (JobState::Delayed, until),
            State::Reserved { until, .. } => (JobState::Reserved, until),
            State::Buried { .. } => (JobState::Buried, Timestamp::default()),
        };
        JobRecord {
            id: JobId(self.id),
            priority: Priority(self.priority),
            // The queue keeps only whole seconds.
            delay_s: self.delay_s.whole().into(),
            ttr_s: self.ttr_s,
            created_at: self.created_at,
            deadline_at,
            counters: self.counters,
            state,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Tube {
    pub name: String,
    /// The end and the length in seconds of the current pause.
    pub pause: Option<(Timestamp, u32)>,
    pub pauses: u64,
    pub counters: TubeCounters,
    /// The number of jobs that were refused because it was full.
    pub rejected: u64,
    /// The number of jobs that were sent from it to its dead tube.
    pub dead: u64,
    /// Whether its rule lets no job be reserved.
    pub is_closed: bool,
    /// The number of its reserved jobs when its gate was closed, or was last found to stay closed.
    pub reserved_when_closed: u64,
    /// The tokens that its bucket lacks, in parts of a token, and the time for which this holds.
    pub(crate) deficit: (u128, Timestamp),
    /// The keys of a fair tube in the order of the rotation.
    pub(crate) rotation: Vec<RotationKey>,
    /// For each reservation of a ready job: its time, and the nanoseconds for which the job had been ready.
    pub waits: Vec<(Timestamp, u64)>,
    /// For each job that its holder deleted: the time of the delete, and the nanoseconds for which it had been
    /// reserved.
    pub runs: Vec<(Timestamp, u64)>,
}

#[derive(Clone, Debug)]
pub struct Client {
    pub index: u32,
    pub using: TubeIndex,
    pub watching: Vec<TubeIndex>,
    pub wait: Option<Wait>,
    /// The job for whose end it waits, and the wait.
    pub job_wait: Option<(u64, Wait)>,
    pub producer: bool,
    pub worker: bool,
    /// Whether the reserve mode chooses its tubes at random.
    pub is_weighted: bool,
}

impl Client {
    /// Whether it waits for anything.
    pub fn waits(&self) -> bool {
        self.wait.is_some() || self.job_wait.is_some()
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Wait {
    pub number: u64,
    pub until: Option<Timestamp>,
}

/// What a deadline belongs to. Of deadlines at the same instant, those of tubes come first.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DeadlineOf {
    Tube(TubeIndex),
    Client(u32),
    Tags,
}

/// The whole queue. Each list and each count stands by itself: an index over them could be wrong.
#[derive(Clone, Debug)]
pub struct Model {
    pub jobs: Vec<Job>,
    /// A tube keeps its index. A new tube takes the index that was freed last.
    pub tubes: Vec<Option<Tube>>,
    free: Vec<TubeIndex>,
    /// The order of `list-tubes`.
    pub listed: Vec<TubeIndex>,
    pub clients: Vec<Client>,
    pub next_id: u64,
    next_wait: u64,
    next_burial: u64,
    last_delay: Timestamp,
    pub counters: TubeCounters,
    /// The jobs that were sent to dead tubes.
    pub dead: u64,
    limits: PoisonLimits,
    pub(crate) rules: Vec<TubeRule>,
    /// Replies to clients that waited, since the last call of the test that took them.
    pub deliveries: Vec<(u32, WaitOutcome)>,
    pub changes: Vec<Change>,
    pub burials: Vec<JobId>,
    pub cooldowns: Vec<Cooldown>,
    /// The last groups that have lost their last member, in the order of their last ends.
    pub ended_groups: Vec<String>,
    /// The group that does not end with its last member, because a `complete` is about to put another one.
    pub(crate) kept_group: Option<Name<'static>>,
    /// The jobs of ended groups, to be freed at the end of the command.
    pub(crate) to_free: Vec<Vec<u64>>,
    pub sessions: Vec<Session>,
    /// How often a job was reserved before an older one because of the position of its key.
    pub overtakes: u64,
    /// Clients whose sessions others have taken over, since the last call of the test that took them. Their connections
    /// end.
    pub taken_over: Vec<u32>,
    /// The number of jobs that are given back at once.
    pub share: usize,
    pub(crate) free_numbers: Vec<u32>,
    pub(crate) next_number: u32,
}

pub const DEFAULT: TubeIndex = 0;

/// Stands for the client that has reserved a job while the jobs of a client that is gone are given back.
pub(crate) const GIVEN_BACK: u32 = u32::MAX;

/// Tests do not advance the clock beyond this time, because the longest delay (136 years) would overflow it.
pub const NO_JUMPS_FROM: Timestamp = Timestamp(9_000_000_000_000_000_000);

pub(crate) fn after_s(now: Timestamp, seconds: Seconds) -> Timestamp {
    Timestamp(
        now.0 + u64::from(seconds.whole()) * NS_PER_S + u64::from(seconds.thousandths()) * NS_PER_S / 1000,
    )
}

impl Model {
    pub fn new(limits: PoisonLimits) -> Self {
        let mut model = Self {
            jobs: Vec::new(),
            tubes: Vec::new(),
            free: Vec::new(),
            listed: Vec::new(),
            clients: Vec::new(),
            next_id: 1,
            next_wait: 0,
            next_burial: 0,
            last_delay: Timestamp(0),
            counters: TubeCounters::default(),
            dead: 0,
            limits,
            rules: Vec::new(),
            deliveries: Vec::new(),
            changes: Vec::new(),
            burials: Vec::new(),
            cooldowns: Vec::new(),
            ended_groups: Vec::new(),
            kept_group: None,
            to_free: Vec::new(),
            sessions: Vec::new(),
            overtakes: 0,
            taken_over: Vec::new(),
            share: usize::MAX,
            free_numbers: Vec::new(),
            next_number: 0,
        };
        model.find_or_make("default");
        model
    }

    pub fn pause_tube(&mut self, name: &str, length_s: Seconds, now: Timestamp) -> bool {
        let Some(index) = self.find(name) else { return false };
        let tube = self.tube_mut(index);
        tube.pause = Some((after_s(now, length_s), length_s.whole()));
        tube.pauses += 1;
        if length_s == 0 {
            self.end_pause(index, now);
        }
        true
    }

    pub fn allocate_id(&mut self, client: u32) -> u64 {
        self.client_mut(client).producer = true;
        self.next_id += 1;
        self.next_id - 1
    }

    pub fn put(&mut self, client: u32, new: NewJob, body: Arc<[u8]>, now: Timestamp) {
        self.put_tagged(client, new, body, JobTags::default(), now);
    }

    /// A put with tags that is no duplicate.
    pub fn put_tagged(
        &mut self,
        client: u32,
        new: NewJob,
        body: Arc<[u8]>,
        tags: impl Into<JobTags<'static>>,
        now: Timestamp,
    ) {
        let NewJob { id: JobId(id), priority: Priority(priority), delay_s, ttr_s } = new;
        let (tube, mut tags) = (self.client(client).using, tags.into());
        let state =
            State::Delayed { until: if delay_s == 0 { now } else { self.end_of_delay(delay_s, now) } };
        let (ttr_s, counters) = (ttr_s.max(1.into()), Counters::default());
        let (created_at, ready_since, reserved_since) = (now, now, now);
        let held = tags.after.is_some_and(|after| {
            [tags.group, self.kept_group].contains(&Some(after.group))
                || self.members(after.group).next().is_some()
        });
        if let Some(after) = &mut tags.asked.after {
            after.is_free = !held;
        }
        self.jobs.push(Job {
            id,
            tube,
            priority,
            delay_s,
            ttr_s,
            body,
            created_at,
            counters,
            state,
            ready_since,
            reserved_since,
            tags,
            held,
            upgraded: false,
            is_left: false,
            is_in_front: false,
        });
        self.count(tube, |counters| &mut counters.puts);
        self.note(Change::Put(JobId(id)));
        if delay_s == 0 && !held {
            self.make_ready(id, now);
        }
    }

    pub fn delete(&mut self, client: u32, id: u64, now: Timestamp) -> bool {
        self.delete_with(client, id, Ending::Deleted, now)
    }

    /// A client deletes the job with this ending.
    pub(crate) fn delete_with(&mut self, client: u32, id: u64, ending: Ending, now: Timestamp) -> bool {
        let Some(job) = self.job(id) else { return false };
        if matches!(job.state, State::Reserved { by, .. } if by != self.holder_for(client)) {
            return false;
        }
        let (tube, run_ns) = (job.tube, now.since_ns(job.reserved_since));
        if matches!(job.state, State::Reserved { .. }) {
            self.tube_mut(tube).runs.push((now, run_ns));
        }
        self.end(id, ending, now);
        self.remove_if_idle(tube);
        true
    }

    /// Any of the reserves. If the mode chooses at random, `drawn` is the job that the client has got; the client must
    /// have been allowed to get it.
    pub fn reserve(
        &mut self,
        client: u32,
        timeout_s: Option<Seconds>,
        drawn: Option<u64>,
        now: Timestamp,
    ) -> Reserve {
        self.client_mut(client).worker = true;
        let watching = self.client(client).watching.clone();
        watching.iter().for_each(|&tube| self.refresh_head(tube, now));
        let open = watching.into_iter().filter(|&tube| self.lets_through(tube));
        let heads: Vec<(u32, u64)> = open.filter_map(|tube| self.head(tube)).collect();
        let is_drawn = |&&(_, id): &&(u32, u64)| self.client(client).is_weighted && drawn == Some(id);
        let found = heads.iter().find(is_drawn).or_else(|| heads.iter().min());
        if let Some(&(_, id)) = found {
            self.advance_rotation(id);
            self.assign(client, id, now);
            return Reserve::Job(JobId(id));
        }
        if self.margin_at(self.holder_for(client)).is_some_and(|margin| margin <= now) {
            return Reserve::DeadlineSoon;
        }
        if timeout_s == Some(Seconds::ZERO) {
            return Reserve::TimedOut;
        }
        let wait = Wait { number: self.next_wait, until: timeout_s.map(|timeout| after_s(now, timeout)) };
        self.next_wait += 1;
        self.client_mut(client).wait = Some(wait);
        Reserve::Waiting
    }

    pub fn reserve_job(&mut self, client: u32, id: u64, now: Timestamp) -> bool {
        let job = self.job(id).filter(|job| !matches!(job.state, State::Reserved { .. }));
        if job.is_none_or(|job| !self.may_be_reserved(job) || self.tube(job.tube).is_closed) {
            return false;
        }
        if job.is_some_and(|job| job.state != State::Ready) && self.holder_for(client) == client {
            self.note(Change::Postponable(JobId(id)));
        }
        self.client_mut(client).worker = true;
        let before = self.job(id).expect("it is there").clone();
        self.leave_front(&before);
        self.assign(client, id, now);
        true
    }

    /// The job is as if the client had not reserved it, and becomes ready. The sums and times of the tube and the
    /// position of its key keep the reservation.
    pub fn undo_reserve(&mut self, client: u32, id: u64, now: Timestamp) -> bool {
        if !self.has_reserved(client, id) {
            return false;
        }
        self.job_mut(id).counters.reserves -= 1;
        let job = self.job(id).expect("it is there");
        let (tube, has_expired) = (job.tube, self.expires_at(job).is_some_and(|at| at <= now));
        self.return_token(tube);
        if has_expired {
            let freed = self.end_quietly(id, Ending::Expired, now);
            self.to_free.push(freed);
        } else {
            match self.check_age(id, now) {
                None => self.give_back(id, now),
                Some(Released::Buried) => self.note(Change::Postponable(JobId(id))),
                Some(Released::Queued) => {}
            }
        }
        self.serve_free_slots(now);
        self.remove_if_idle(tube);
        true
    }

    pub fn stop_waiting(&mut self, client: u32) -> bool {
        let client = self.client_mut(client);
        let (wait, job_wait) = (client.wait.take(), client.job_wait.take());
        wait.is_some() || job_wait.is_some()
    }

    pub fn release(&mut self, client: u32, id: u64, release: Release, now: Timestamp) -> Option<Released> {
        let Release { priority: Priority(priority), delay_s, counting } = release;
        if !self.has_reserved(client, id) {
            return None;
        }
        let job = self.job_mut(id);
        job.priority = if job.upgraded { priority.min(job.priority) } else { priority };
        job.delay_s = delay_s;
        let counts = counting == Counting::Counted;
        job.counters.releases += u32::from(counts);
        let (tube, releases) = (job.tube, job.counters.releases);
        if counts {
            self.count(tube, |counters| &mut counters.releases);
        }
        self.note(Change::Updated(JobId(id)));
        if let Some(released) = self.check_age(id, now) {
            self.serve_free_slots(now);
            self.remove_if_idle(tube);
            return Some(released);
        }
        if !counts {
            self.give_back_after(id, delay_s, now);
            self.serve_free_slots(now);
            return Some(Released::Queued);
        }
        let is_poisoned = self.limits.releases.is_some_and(|limit| releases >= limit);
        let released = self.fail(id, is_poisoned, delay_s, now);
        self.serve_free_slots(now);
        self.remove_if_idle(tube);
        Some(released)
    }

    pub fn bury(&mut self, client: u32, id: u64, priority: u32, now: Timestamp) -> bool {
        if !self.has_reserved(client, id) {
            return false;
        }
        let job = self.job_mut(id);
        job.priority = if job.upgraded { priority.min(job.priority) } else { priority };
        let tube = job.tube;
        self.count(tube, |counters| &mut counters.buries);
        self.note(Change::Updated(JobId(id)));
        let is_too_old = self.is_too_old(id, now);
        self.job_mut(id).counters.buries += 1;
        if !is_too_old || !self.leave_by_age(id, now) {
            self.put_among_buried(id);
            self.job_mut(id).is_left = is_too_old;
        }
        self.serve_free_slots(now);
        self.remove_if_idle(tube);
        true
    }

    pub fn touch(&mut self, client: u32, id: u64, for_s: Option<Seconds>, now: Timestamp) -> bool {
        if !self.has_reserved(client, id) {
            return false;
        }
        let job = self.job_mut(id);
        let State::Reserved { by, until: before } = job.state else { return false };
        let until = after_s(now, for_s.unwrap_or(job.ttr_s).max(1.into()));
        job.state = State::Reserved { until, by };
        if by != client && until != before {
            self.note(Change::SessionReserved(JobId(id)));
        }
        true
    }

    /// Touches all reservations of the client; returns their number.
    pub fn touch_all(&mut self, client: u32, now: Timestamp) -> u64 {
        let reservations = self.reservations(self.holder_for(client), usize::MAX);
        reservations.iter().for_each(|&(_, id)| assert!(self.touch(client, id, None, now)));
        reservations.len() as u64
    }

    pub fn set_weighted(&mut self, client: u32, is_weighted: bool) {
        self.client_mut(client).is_weighted = is_weighted;
    }

    /// Kicks buried jobs in the order of their burials, or, if there are none, delayed jobs in the order of their
    /// deadlines.
    pub fn kick(&mut self, client: u32, bound: u64, now: Timestamp) -> u64 {
        let tube = self.client(client).using;
        let any_buried = self.first_buried(tube).is_some();
        let mut kicked = 0;
        while kicked < bound {
            let next =
                if any_buried { self.first_buried(tube) } else { self.first_delayed(tube).map(|(_, id)| id) };
            let Some(id) = next else { break };
            self.kick_job(id, now);
            kicked += 1;
        }
        kicked
    }

    pub fn kick_job(&mut self, id: u64, now: Timestamp) -> bool {
        match self.job(id).filter(|job| !job.held).map(|job| job.state) {
            Some(State::Buried { .. } | State::Delayed { .. }) => {}
            _ => return false,
        }
        let job = self.job_mut(id);
        job.counters.kicks += 1;
        let tube = job.tube;
        self.count(tube, |counters| &mut counters.kicks);
        self.note(Change::Updated(JobId(id)));
        self.make_ready(id, now);
        true
    }
}
