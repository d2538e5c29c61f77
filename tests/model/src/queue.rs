//! The queue: the required result of each of its operations.

use std::collections::BTreeSet;
use std::sync::Arc;

use beanstalkd_queue::{
    Change, JobCounts, NewJob, PoisonLimits, Release, Released, Reserve, TubeCounters, TubeRule, WaitOutcome,
};
use beanstalkd_types::clock::{NS_PER_S, Timestamp};
use beanstalkd_types::job::{Counters, Counting, JobId, JobState, Priority};
use beanstalkd_types::seconds::Seconds;
use beanstalkd_types::tags::{Name, TagSet};

use crate::sessions::Session;
use crate::tags::{Cooldown, Ending, id_key};
use crate::turns::TurnKey;

/// An index into `Model::tubes`.
pub type TubeIndex = usize;

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
    pub tags: TagSet<'static>,
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
    pub(crate) lack: (u128, Timestamp),
    /// The keys of a fair tube in the order of their turns.
    pub(crate) row: Vec<TurnKey>,
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

/// The owner of a deadline. Of deadlines at the same instant, those of tubes come first.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owner {
    Tube(TubeIndex),
    Client(u32),
    Tags,
}

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
    pub cooldowns: Vec<Cooldown>,
    /// The groups that deletes have freed, one for each `DeletedWith`.
    pub freed_groups: Vec<Option<String>>,
    /// The groups that have lost their last member at least once.
    pub ended_groups: BTreeSet<String>,
    /// The group that does not end with its last member, because a `complete` is about to put another one.
    pub(crate) kept_group: Option<Name<'static>>,
    /// The jobs of ended groups, to be freed at the end of the command.
    pub(crate) to_free: Vec<Vec<u64>>,
    pub sessions: Vec<Session>,
    /// How often a job was reserved before an older one because of the turn of its key.
    pub turns: u64,
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
            cooldowns: Vec::new(),
            freed_groups: Vec::new(),
            ended_groups: BTreeSet::new(),
            kept_group: None,
            to_free: Vec::new(),
            sessions: Vec::new(),
            turns: 0,
            taken_over: Vec::new(),
            share: usize::MAX,
            free_numbers: Vec::new(),
            next_number: 0,
        };
        model.find_or_make("default");
        model
    }

    // Lookups.

    pub fn find(&self, name: &str) -> Option<TubeIndex> {
        self.listed.iter().copied().find(|&index| self.tube(index).name == name)
    }

    pub fn tube(&self, index: TubeIndex) -> &Tube {
        self.tubes[index].as_ref().expect("the tube exists")
    }

    pub(crate) fn tube_mut(&mut self, index: TubeIndex) -> &mut Tube {
        self.tubes[index].as_mut().expect("the tube exists")
    }

    pub fn client(&self, index: u32) -> &Client {
        self.clients.iter().find(|client| client.index == index).expect("the client is connected")
    }

    pub(crate) fn client_mut(&mut self, index: u32) -> &mut Client {
        self.clients.iter_mut().find(|client| client.index == index).expect("the client is connected")
    }

    pub fn job(&self, id: u64) -> Option<&Job> {
        self.jobs.iter().find(|job| job.id == id)
    }

    pub(crate) fn job_mut(&mut self, id: u64) -> &mut Job {
        self.jobs.iter_mut().find(|job| job.id == id).expect("the job exists")
    }

    pub fn holds(&self, client: u32, id: u64) -> bool {
        self.job(id).is_some_and(
            |job| matches!(job.state, State::Reserved { by, .. } if by == self.holder_for(client)),
        )
    }

    /// The jobs of one tube, or of all, by state.
    pub fn counts(&self, tube: Option<TubeIndex>) -> JobCounts {
        let mut counts = JobCounts::default();
        for job in self.jobs.iter().filter(|job| tube.is_none_or(|tube| job.tube == tube)) {
            match job.state {
                State::Ready => {
                    counts.ready += 1;
                    counts.urgent += u64::from(job.priority < 1024);
                }
                State::Delayed { .. } => counts.delayed += 1,
                State::Reserved { .. } => counts.reserved += 1,
                State::Buried { .. } => counts.buried += 1,
            }
        }
        counts
    }

    pub fn clients_that(&self, holds: impl Fn(&Client) -> bool) -> u64 {
        self.clients.iter().filter(|client| holds(client)).count() as u64
    }

    /// The ready job of the tube that is reserved first: the smallest priority, then the smallest id.
    pub fn first_ready(&self, tube: TubeIndex) -> Option<u64> {
        let ready = self.jobs.iter().filter(|job| job.tube == tube && job.state == State::Ready);
        ready.min_by_key(|job| (job.priority, job.id)).map(|job| job.id)
    }

    /// The delayed job that `peek-delayed` shows: held ones come after the others.
    pub fn first_shown_as_delayed(&self, tube: TubeIndex) -> Option<u64> {
        self.in_order(tube, JobState::Delayed).first().map(|&(_, id)| id)
    }

    pub fn first_delayed(&self, tube: TubeIndex) -> Option<(Timestamp, u64)> {
        let delayed =
            self.jobs.iter().filter(|job| job.tube == tube && !job.held).filter_map(|job| match job.state {
                State::Delayed { until } => Some((until, job.id)),
                _ => None,
            });
        delayed.min()
    }

    pub fn first_buried(&self, tube: TubeIndex) -> Option<u64> {
        let buried = self.jobs.iter().filter(|job| job.tube == tube).filter_map(|job| match job.state {
            State::Buried { number } => Some((number, job.id)),
            _ => None,
        });
        buried.min().map(|(_, id)| id)
    }

    /// The reservation of the client that ends first.
    pub(crate) fn first_reserved(&self, client: u32) -> Option<(Timestamp, u64)> {
        let reserved = self.jobs.iter().filter_map(|job| match job.state {
            State::Reserved { until, by } if by == client => Some((until, job.id)),
            _ => None,
        });
        reserved.min()
    }

    /// The client's reservations that end first, at most `most` of them.
    pub(crate) fn held(&self, client: u32, most: usize) -> Vec<(Timestamp, u64)> {
        let reserved = self.jobs.iter().filter_map(|job| match job.state {
            State::Reserved { until, by } if by == client => Some((until, job.id)),
            _ => None,
        });
        let mut held: Vec<(Timestamp, u64)> = reserved.collect();
        held.sort_unstable();
        held.truncate(most);
        held
    }

    /// When the last second of the client's reservation that ends first begins.
    pub(crate) fn margin_at(&self, client: u32) -> Option<Timestamp> {
        self.first_reserved(client).map(|(until, _)| Timestamp(until.0 - NS_PER_S))
    }

    // Clients and tubes.

    pub fn connect(&mut self, index: u32) {
        self.number_is_taken(index);
        self.clients.push(Client {
            index,
            using: DEFAULT,
            watching: vec![DEFAULT],
            wait: None,
            job_wait: None,
            producer: false,
            worker: false,
            is_weighted: false,
        });
    }

    /// Releases the client's jobs in slices of `share` jobs. The reservations that end first are in the first slice;
    /// within a slice, the jobs are ordered by priority.
    pub fn disconnect(&mut self, index: u32, share: usize, now: Timestamp) {
        self.stop_waiting(index);
        self.leave_session(index, now);
        loop {
            let held = self.held(index, share);
            if held.is_empty() {
                break;
            }
            self.give_back_all(held.into_iter().map(|(_, id)| id).collect(), now);
        }
        // C's order, which shows in `list-tubes`.
        while !self.client(index).watching.is_empty() {
            let tube = self.client_mut(index).watching.swap_remove(0);
            self.remove_if_idle(tube);
        }
        let using = self.client(index).using;
        self.clients.retain(|client| client.index != index);
        self.remove_if_idle(using);
        self.free_number(index);
    }

    /// Clears the records for tests that compare more than jobs and replies.
    pub fn forget_the_past(&mut self) {
        (self.deliveries, self.changes, self.freed_groups) = Default::default();
        for tube in self.tubes.iter_mut().flatten() {
            (tube.waits, tube.runs) = Default::default();
        }
    }

    /// The server ends and starts again: reserved jobs become ready.
    pub fn restart(&mut self) {
        for job in self.jobs.iter_mut().filter(|job| matches!(job.state, State::Reserved { .. })) {
            (job.state, job.upgraded) = (State::Ready, false);
        }
        self.line_up_again();
    }

    pub(crate) fn find_or_make(&mut self, name: &str) -> TubeIndex {
        if let Some(index) = self.find(name) {
            return index;
        }
        let (waits, runs) = (Vec::new(), Vec::new());
        let counters = TubeCounters::default();
        let tube = Tube {
            name: name.to_owned(),
            pause: None,
            pauses: 0,
            counters,
            rejected: 0,
            dead: 0,
            is_closed: false,
            reserved_when_closed: 0,
            lack: (0, Timestamp(0)),
            row: Vec::new(),
            waits,
            runs,
        };
        let index = self.free.pop().unwrap_or_else(|| {
            self.tubes.push(None);
            self.tubes.len() - 1
        });
        self.tubes[index] = Some(tube);
        self.listed.push(index);
        index
    }

    /// Removes the tube if it has no jobs and no client uses or watches it.
    pub(crate) fn remove_if_idle(&mut self, index: TubeIndex) {
        let held = index == DEFAULT
            || self.tubes[index].is_none()
            || self.tube(index).lack.0 > 0
            || self.jobs.iter().any(|job| job.tube == index)
            || self.cooldowns.iter().any(|cooldown| cooldown.tube == index)
            || self.clients.iter().any(|client| client.using == index || client.watching.contains(&index));
        if !held {
            self.tubes[index] = None;
            self.free.push(index);
            let position = self.listed.iter().position(|&listed| listed == index);
            self.listed.swap_remove(position.expect("each tube is listed"));
        }
    }

    pub fn use_tube(&mut self, client: u32, name: &str) {
        let tube = self.find_or_make(name);
        let before = std::mem::replace(&mut self.client_mut(client).using, tube);
        self.remove_if_idle(before);
    }

    /// The client uses another tube for one put. Returns its used tube.
    pub fn use_for_put(&mut self, client: u32, name: &str) -> TubeIndex {
        let tube = self.find_or_make(name);
        std::mem::replace(&mut self.client_mut(client).using, tube)
    }

    pub fn use_again(&mut self, client: u32, tube: TubeIndex) {
        let other = std::mem::replace(&mut self.client_mut(client).using, tube);
        self.remove_if_idle(other);
    }

    pub fn watch(&mut self, client: u32, name: &str) -> usize {
        let tube = self.find_or_make(name);
        let watching = &mut self.client_mut(client).watching;
        if !watching.contains(&tube) {
            watching.push(tube);
        }
        watching.len()
    }

    pub fn ignore(&mut self, client: u32, name: &str) -> Option<usize> {
        let tube = self.find(name);
        let watching = &mut self.client_mut(client).watching;
        if let Some(position) = watching.iter().position(|&watched| Some(watched) == tube) {
            if watching.len() == 1 {
                return None;
            }
            let tube = watching.swap_remove(position);
            self.remove_if_idle(tube);
        }
        Some(self.client(client).watching.len())
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

    // Jobs.

    pub fn take_id(&mut self, client: u32) -> u64 {
        self.client_mut(client).producer = true;
        self.next_id += 1;
        self.next_id - 1
    }

    pub fn put(&mut self, client: u32, new: NewJob, body: Arc<[u8]>, now: Timestamp) {
        self.put_tagged(client, new, body, TagSet::default(), now);
    }

    /// A put with tags that is no duplicate.
    pub fn put_tagged(
        &mut self,
        client: u32,
        new: NewJob,
        body: Arc<[u8]>,
        mut tags: TagSet<'static>,
        now: Timestamp,
    ) {
        let NewJob { id: JobId(id), priority: Priority(priority), delay_s, ttr_s } = new;
        let tube = self.client(client).using;
        let state =
            State::Delayed { until: if delay_s == 0 { now } else { self.end_of_delay(delay_s, now) } };
        let (ttr_s, counters) = (ttr_s.at_least_one(), Counters::default());
        let (created_at, ready_since, reserved_since) = (now, now, now);
        let held = tags.after.is_some_and(|after| {
            [tags.group, self.kept_group].contains(&Some(after.group))
                || self.members(after.group).next().is_some()
        });
        if let Some(after) = &mut tags.after {
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
        watching.iter().for_each(|&tube| self.pass_used_up(tube));
        let open = watching.into_iter().filter(|&tube| self.lets_through(tube));
        let heads: Vec<(u32, u64)> = open.filter_map(|tube| self.head(tube)).collect();
        let is_drawn = |&&(_, id): &&(u32, u64)| self.client(client).is_weighted && drawn == Some(id);
        let found = heads.iter().find(is_drawn).or_else(|| heads.iter().min());
        if let Some(&(_, id)) = found {
            self.take_turn(id);
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
            self.note(Change::Updated(JobId(id)));
        }
        self.client_mut(client).worker = true;
        let before = self.job(id).expect("it is there").clone();
        self.leave_front(&before);
        self.assign(client, id, now);
        true
    }

    pub fn stop_waiting(&mut self, client: u32) -> bool {
        let client = self.client_mut(client);
        let (wait, job_wait) = (client.wait.take(), client.job_wait.take());
        wait.is_some() || job_wait.is_some()
    }

    pub fn release(&mut self, client: u32, id: u64, release: Release, now: Timestamp) -> Option<Released> {
        let Release { priority: Priority(priority), delay_s, counting } = release;
        if !self.holds(client, id) {
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
        if let Some(released) = self.judge_age(id, now) {
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
        if !self.holds(client, id) {
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
        if !self.holds(client, id) {
            return false;
        }
        let job = self.job_mut(id);
        let State::Reserved { by, until: before } = job.state else { return false };
        let until = after_s(now, for_s.unwrap_or(job.ttr_s).at_least_one());
        job.state = State::Reserved { until, by };
        if by != client && until != before {
            self.note(Change::SessionReserved(JobId(id)));
        }
        true
    }

    /// Touches all reservations of the client; returns their number.
    pub fn touch_all(&mut self, client: u32, now: Timestamp) -> u64 {
        let held = self.held(self.holder_for(client), usize::MAX);
        held.iter().for_each(|&(_, id)| assert!(self.touch(client, id, None, now)));
        held.len() as u64
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

    // Deadlines.

    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.earliest().map(|(at, _)| at)
    }

    /// Handles all deadlines that have passed, the earliest first.
    pub fn advance(&mut self, now: Timestamp) {
        while let Some((at, owner)) = self.earliest()
            && at <= now
        {
            match owner {
                Owner::Tube(index) => self.tube_is_due(index, now),
                Owner::Client(index) => self.client_is_due(index, now),
                Owner::Tags => self.tag_is_due(now),
            }
        }
    }

    pub(crate) fn earliest(&self) -> Option<(Timestamp, Owner)> {
        let mut due = Vec::new();
        for index in 0..self.tubes.len() {
            if let Some(tube) = &self.tubes[index] {
                due.extend(tube.pause.map(|(until, _)| (until, Owner::Tube(index))));
                let gate = self.gate_at(index).into_iter().chain(self.debt_ends_at(index));
                due.extend(gate.map(|at| (at, Owner::Tube(index))));
                due.extend(self.first_aged(index).map(|(at, _)| (at, Owner::Tube(index))));
                due.extend(self.first_delayed(index).map(|(until, _)| (until, Owner::Tube(index))));
            }
        }
        let clients = self.clients.iter().map(|client| {
            let at = match client.wait {
                Some(wait) => {
                    [self.margin_at(self.holder_for(client.index)), wait.until].into_iter().flatten().min()
                }
                None => self.first_reserved(client.index).map(|(until, _)| until),
            };
            (client.index, at)
        });
        let sessions = self.sessions.iter().map(|session| (session.number, self.session_due_at(session)));
        let mut clients: Vec<_> = clients.chain(sessions).collect();
        clients.sort_unstable();
        due.extend(clients.into_iter().filter_map(|(index, at)| Some((at?, Owner::Client(index)))));
        due.extend(self.first_due_tag().map(|(at, _)| (at, Owner::Tags)));
        due.extend(self.first_end_of_job_wait().map(|(at, ..)| (at, Owner::Tags)));
        // `min_by_key` returns the first of several equal deadlines.
        due.into_iter().min_by_key(|&(at, _)| at)
    }

    /// Handles the tube's first deadline. A delay that ends at the same instant as a pause ends before it.
    pub(crate) fn tube_is_due(&mut self, index: TubeIndex, now: Timestamp) {
        let never = Timestamp::NEVER;
        let pause = self.tube(index).pause.map_or(never, |(until, _)| until);
        let gate = self.gate_at(index).unwrap_or(never);
        let delay = self.first_delayed(index);
        let until = delay.map_or(never, |(until, _)| until);
        let age = self.first_aged(index).filter(|&(at, _)| at <= now && at < until.min(pause).min(gate));
        if let Some((_, id)) = age {
            self.end_age(id, now);
        } else if gate <= now && gate < until && gate <= pause {
            self.refill(index, now);
            self.serve_behind_gates(&[index], now);
            self.remove_if_idle(index);
        } else if pause <= now && pause < until {
            self.end_pause(index, now);
        } else if let Some((until, id)) = delay.filter(|&(until, _)| until <= now) {
            self.make_ready_since(id, until, now);
        } else {
            self.refill(index, now);
            self.remove_if_idle(index);
        }
    }

    pub(crate) fn end_pause(&mut self, index: TubeIndex, now: Timestamp) {
        while !self.tube(index).is_closed && self.deliver_next(index, now) {}
        self.tube_mut(index).pause = None;
    }

    pub(crate) fn client_is_due(&mut self, index: u32, now: Timestamp) {
        let session = self.sessions.iter().find(|session| session.number == index);
        let ends_at = session.and_then(|session| session.ends_at);
        if let Some(ends_at) = ends_at
            && self.first_reserved(index).is_none_or(|(until, _)| until > ends_at)
        {
            return self.end_of_grace(index, now);
        }
        if session.is_none()
            && let Some(wait) = self.client_mut(index).wait.take()
        {
            let margin = self.margin_at(self.holder_for(index));
            let soon = margin.is_some_and(|margin| wait.until.is_none_or(|until| margin <= until));
            let outcome = if soon { WaitOutcome::DeadlineSoon } else { WaitOutcome::TimedOut };
            self.deliveries.push((index, outcome));
            return;
        }
        let (_, id) = self.first_reserved(index).expect("only a reservation can be due");
        let job = self.job_mut(id);
        job.counters.timeouts += 1;
        let (tube, timeouts) = (job.tube, job.counters.timeouts);
        self.count(tube, |counters| &mut counters.timeouts);
        self.note(Change::Updated(JobId(id)));
        if self.judge_age(id, now).is_none() {
            self.fail(id, self.limits.timeouts.is_some_and(|limit| timeouts >= limit), 0.into(), now);
        }
        self.serve_free_slots(now);
        self.end_idle_sessions();
        self.remove_if_idle(tube);
    }

    // Helpers of the operations above.

    /// The client that has waited longest for a job of this tube.
    pub(crate) fn first_waiting(&self, tube: TubeIndex) -> Option<u32> {
        let waiting = self.clients.iter().filter(|client| client.watching.contains(&tube));
        let waiting = waiting.filter_map(|client| Some((client.wait?.number, client.index)));
        waiting.min().map(|(_, index)| index)
    }

    /// A reserved job, or one that has died, becomes ready. Before it goes to a waiting client, more urgent jobs whose
    /// slots are free now do.
    pub(crate) fn give_back(&mut self, id: u64, now: Timestamp) {
        let job = self.job_mut(id);
        job.state = State::Delayed { until: now };
        let key = id_key(job);
        self.serve_before(key, now);
        self.make_ready(id, now);
    }

    /// The end of a delay that a command sets. Of equal delays, the first ends first.
    pub(crate) fn end_of_delay(&mut self, delay_s: Seconds, now: Timestamp) -> Timestamp {
        self.last_delay = now.max(Timestamp(self.last_delay.0 + 1));
        after_s(self.last_delay, delay_s)
    }

    pub(crate) fn make_ready(&mut self, id: u64, now: Timestamp) {
        self.make_ready_since(id, now, now);
    }

    pub(crate) fn make_ready_since(&mut self, id: u64, since: Timestamp, now: Timestamp) {
        let job = self.job_mut(id);
        (job.state, job.ready_since) = (State::Ready, since);
        let tube = job.tube;
        if self.lets_through(tube)
            && self.may_be_reserved(self.job(id).expect("the job is there"))
            && !self.is_behind(id)
            && let Some(client) = self.first_waiting(tube)
        {
            self.deliver_job(client, id, now);
        } else {
            self.line_up(id);
        }
    }

    pub(crate) fn deliver_job(&mut self, client: u32, id: u64, now: Timestamp) {
        self.client_mut(client).wait = None;
        if self.job_mut(id).is_in_front {
            self.take_turn(id);
        }
        self.assign(client, id, now);
        self.deliveries.push((client, WaitOutcome::Reserved(JobId(id))));
    }

    pub(crate) fn assign(&mut self, client: u32, id: u64, now: Timestamp) {
        let by = self.holder_for(client);
        let job = self.job_mut(id);
        let wait_ns = (job.state == State::Ready).then(|| now.since_ns(job.ready_since));
        job.state = State::Reserved { until: after_s(now, job.ttr_s), by };
        job.reserved_since = now;
        (job.upgraded, job.is_left) = (false, false);
        job.counters.reserves += 1;
        let (tube, tag) = (job.tube, job.tags.concurrency);
        self.tube_mut(tube).waits.extend(wait_ns.map(|ns| (now, ns)));
        self.count(tube, |counters| &mut counters.reserves);
        self.pass_gate(tube, now);
        self.note(if by == client {
            Change::Reserved(JobId(id))
        } else {
            Change::SessionReserved(JobId(id))
        });
        self.bring_next(tube, tag, id);
    }

    pub(crate) fn make_buried(&mut self, id: u64) {
        self.job_mut(id).counters.buries += 1;
        self.put_among_buried(id);
    }

    fn put_among_buried(&mut self, id: u64) {
        let number = self.next_burial;
        self.next_burial += 1;
        let before = self.job(id).expect("it is there").clone();
        self.job_mut(id).state = State::Buried { number };
        self.leave_front(&before);
        self.answer_job_waits(id, WaitOutcome::Buried);
    }

    /// The command `wait-job`.
    pub fn wait_job(
        &mut self,
        client: u32,
        id: u64,
        timeout_s: Option<Seconds>,
        now: Timestamp,
    ) -> Option<&'static str> {
        match self.job(id).map(|job| job.state) {
            None => return Some("NOT_FOUND"),
            Some(State::Buried { .. }) => return Some("BURIED"),
            Some(_) if timeout_s == Some(Seconds::ZERO) => return Some("TIMED_OUT"),
            Some(_) => {}
        }
        let wait = Wait { number: self.next_wait, until: timeout_s.map(|timeout| after_s(now, timeout)) };
        self.next_wait += 1;
        self.client_mut(client).job_wait = Some((id, wait));
        None
    }

    /// The job is buried or gone: answers the clients that wait for it.
    pub(crate) fn answer_job_waits(&mut self, id: u64, outcome: WaitOutcome) {
        for client in
            self.clients.iter_mut().filter(|client| client.job_wait.is_some_and(|(job, _)| job == id))
        {
            client.job_wait = None;
            self.deliveries.push((client.index, outcome));
        }
    }

    pub(crate) fn bury_poisoned(&mut self, id: u64) {
        let tube = self.job_mut(id).tube;
        self.count(tube, |counters| &mut counters.poisoned);
        self.make_buried(id);
    }

    pub(crate) fn count(&mut self, tube: TubeIndex, counter: impl Fn(&mut TubeCounters) -> &mut u64) {
        *counter(&mut self.counters) += 1;
        *counter(&mut self.tube_mut(tube).counters) += 1;
    }

    /// Records a change for the binlog. A second update of the job that was recorded last is not recorded.
    pub(crate) fn note(&mut self, change: Change) {
        if let Change::Updated(id) | Change::Reserved(id) = change {
            let last = self.changes.last().copied();
            if [Change::Put(id), Change::Updated(id), Change::Moved(id)].map(Some).contains(&last) {
                return;
            }
            self.changes.pop_if(|last| *last == Change::Reserved(id));
        }
        self.changes.push(change);
    }
}
