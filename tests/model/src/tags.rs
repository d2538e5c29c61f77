//! The effects of tags: unique keys, slots, groups, expiry.

use beanstalkd_queue::{AwaitedEnd, Change, LastMember, WaitOutcome};
use beanstalkd_types::clock::{NS_PER_S, Timestamp};
use beanstalkd_types::job::JobId;
use beanstalkd_types::tags::{Concurrency, Idempotency, Name, TagSet};

use crate::queue::{GIVEN_BACK, Job, Model, State, Tube, TubeIndex, after_s};

/// How many ended groups the server remembers.
const MAX_ENDED_GROUPS: usize = 1024;

/// A cooldown: a key that counts after the delete of its job.
#[derive(Clone, Debug)]
pub struct Cooldown {
    pub id: u64,
    pub tube: TubeIndex,
    pub key: Name<'static>,
    pub until: Timestamp,
}

/// How a job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Deleted,
    Flushed,
    Expired,
}

/// The original of a duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duplicate {
    pub first: u64,
    /// `None` if it is deleted.
    pub state: Option<State>,
    /// Its new priority, if it gets one.
    pub priority: Option<u32>,
}

impl Duplicate {
    /// The reply to the put. The id of the original is not that of the model if the server chose it.
    pub fn reply(&self, id: u64) -> String {
        let state = self.state.map_or("deleted", State::as_str).to_uppercase();
        let priority = self.priority.map(|priority| format!(" {priority}")).unwrap_or_default();
        format!("INSERTED {id} {state}{priority}")
    }
}

impl Model {
    /// The job of the tube with this key.
    pub fn with_key(&self, tube: TubeIndex, key: Name<'_>) -> Option<&Job> {
        self.jobs
            .iter()
            .find(|job| job.tube == tube && job.tags.idempotency.is_some_and(|tag| tag.key == key))
    }

    /// The original, if a put into the client's tube is a duplicate. An original in the queue gets the more urgent
    /// priority.
    pub fn duplicate(
        &mut self,
        client: u32,
        tags: &TagSet<'_>,
        priority: u32,
        now: Timestamp,
    ) -> Option<Duplicate> {
        let (tube, key) = (self.client(client).using, tags.idempotency?.key);
        if let Some(job) = self.with_key(tube, key) {
            let (id, state, is_upgrade) = (job.id, job.state, priority < job.priority);
            if is_upgrade {
                self.set_priority(id, priority);
                self.job_mut(id).upgraded = matches!(state, State::Reserved { .. });
                self.note(Change::Updated(JobId(id)));
            }
            let priority = is_upgrade.then_some(priority);
            return Some(Duplicate { first: id, state: Some(state), priority });
        }
        let cooling = self
            .cooldowns
            .iter()
            .filter(|cooldown| cooldown.tube == tube && cooldown.key == key && cooldown.until > now)
            .max_by_key(|cooldown| cooldown.id);
        cooling.map(|cooldown| Duplicate { first: cooldown.id, state: None, priority: None })
    }

    /// The job of the other tube with the same key.
    pub fn duplicate_in(&self, id: u64, name: &str) -> Option<u64> {
        let (job, tube) = (self.job(id)?, self.find(name)?);
        let key = job.tags.idempotency?.key;
        if tube == job.tube { None } else { self.with_key(tube, key).map(|job| job.id) }
    }

    fn reserved_with(&self, key: Name<'_>) -> u32 {
        let has_key = |job: &&Job| job.tags.concurrency.is_some_and(|tag| tag.key == key);
        let is_reserved = |job: &&Job| matches!(job.state, State::Reserved { by, .. } if by != GIVEN_BACK);
        self.jobs.iter().filter(has_key).filter(is_reserved).count() as u32
    }

    /// Whether the tags of a job that is not reserved allow its reservation.
    pub fn may_be_reserved(&self, job: &Job) -> bool {
        !job.held && job.tags.concurrency.is_none_or(|tag| self.reserved_with(tag.key) < tag.limit)
    }

    /// Whether the tube has a more urgent ready job with the same key and limit.
    pub(crate) fn is_behind(&self, id: u64) -> bool {
        let job = self.job(id).expect("the job is there");
        let Some(tag) = job.tags.concurrency else { return false };
        self.jobs.iter().any(|other| {
            other.state == State::Ready
                && (other.tube, other.tags.concurrency) == (job.tube, Some(tag))
                && (other.priority, other.id) < (id_key(job))
        })
    }

    pub fn members(&self, group: Name<'_>) -> impl Iterator<Item = &Job> {
        self.jobs.iter().filter(move |job| job.tags.group == Some(group))
    }

    pub fn waiting_for(&self, group: Name<'_>) -> impl Iterator<Item = &Job> {
        self.jobs
            .iter()
            .filter(move |job| job.held && job.tags.after.is_some_and(|after| after.group == group))
    }

    pub fn expires_at(&self, job: &Job) -> Option<Timestamp> {
        let seconds = job.tags.expires_after_s.filter(|_| job.counters.reserves == 0)?;
        Some(after_s(job.created_at, seconds))
    }

    pub fn expires_in_s(&self, job: &Job, now: Timestamp) -> u64 {
        self.expires_at(job).map_or(0, |at| at.since_ns(now).div_ceil(NS_PER_S).max(1))
    }

    /// The first job to expire and the first cooldown to end, whichever comes first.
    pub(crate) fn first_due_tag(&self) -> Option<(Timestamp, u64)> {
        let expiries = self.jobs.iter().filter_map(|job| Some((self.expires_at(job)?, job.id)));
        expiries.chain(self.cooldowns.iter().map(|cooldown| (cooldown.until, cooldown.id))).min()
    }

    /// The end of the first wait for a job: the instant, the job and the client.
    pub(crate) fn first_end_of_job_wait(&self) -> Option<(Timestamp, u64, u32)> {
        let waits = self.clients.iter().filter_map(|client| Some((client.job_wait?, client.index)));
        waits.filter_map(|((id, wait), client)| Some((wait.until?, id, client))).min()
    }

    pub(crate) fn tag_is_due(&mut self, now: Timestamp) {
        let tag = self.first_due_tag();
        if let Some((until, id, client)) = self.first_end_of_job_wait()
            && tag.is_none_or(|tag| (until, id) < tag)
        {
            self.client_mut(client).job_wait = None;
            self.deliveries.push((client, WaitOutcome::TimedOut));
            return;
        }
        let Some((_, id)) = tag else { return };
        if let Some(job) = self.job(id) {
            let tube = job.tube;
            self.end(id, Ending::Expired, now);
            self.remove_if_idle(tube);
        } else {
            self.end_cooldown(id);
        }
    }

    /// The key of a deleted job still counts. This takes the place of an earlier cooldown of the key.
    fn begin_cooldown(&mut self, id: u64, tube: TubeIndex, tag: Idempotency<'static>, now: Timestamp) {
        let until = after_s(now, tag.cooldown_s);
        let is_it = |cooldown: &Cooldown| cooldown.tube == tube && cooldown.key == tag.key;
        let earlier = self.cooldowns.iter().position(is_it).map(|at| self.cooldowns.remove(at));
        let until = earlier.as_ref().map_or(until, |earlier| until.max(earlier.until));
        self.changes.extend(earlier.map(|earlier| Change::CooldownOver(JobId(earlier.id))));
        self.cooldowns.push(Cooldown { id, tube, key: tag.key, until });
    }

    /// The key of a deleted job is forgotten.
    pub fn end_cooldown(&mut self, id: u64) {
        let at = self.cooldowns.iter().position(|cooldown| cooldown.id == id).expect("it runs");
        let tube = self.cooldowns.remove(at).tube;
        self.changes.push(Change::CooldownOver(JobId(id)));
        self.remove_if_idle(tube);
    }

    /// The job ends, with all side effects.
    pub(crate) fn end(&mut self, id: u64, ending: Ending, now: Timestamp) {
        let freed = self.end_quietly(id, ending, now);
        self.to_free.push(freed);
        self.serve_free_slots(now);
    }

    /// The job ends. Returns the jobs that are free because of it.
    pub(crate) fn end_alone(&mut self, id: u64, ending: Ending, now: Timestamp) -> Vec<u64> {
        let freed = self.end_quietly(id, ending, now);
        self.serve_free_slots(now);
        freed
    }

    /// The job ends, and `serve_free_slots` follows. Returns the jobs that are free because of it.
    pub(crate) fn end_quietly(&mut self, id: u64, ending: Ending, now: Timestamp) -> Vec<u64> {
        let before = self.job_mut(id).clone();
        let Job { tube, tags, .. } = before;
        self.jobs.retain(|job| job.id != id);
        self.leave_front(&before);
        self.answer_job_waits(id, AwaitedEnd::Deleted);
        let cooldown = tags.idempotency.filter(|tag| ending == Ending::Deleted && tag.cooldown_s > 0);
        if let Some(tag) = cooldown {
            self.begin_cooldown(id, tube, tag, now);
        }
        let is_empty = |&group: &Name<'_>| self.members(group).next().is_none();
        let empty = tags.group.filter(is_empty).filter(|_| self.kept_group != tags.group);
        if let Some(group) = empty {
            self.ended_groups.retain(|ended| ended != group.as_str());
            self.ended_groups.push(group.as_str().to_owned());
            let forgotten = self.ended_groups.len().saturating_sub(MAX_ENDED_GROUPS);
            self.ended_groups.drain(..forgotten);
        }
        let freed: Vec<u64> =
            empty.into_iter().flat_map(|group| self.waiting_for(group)).map(|job| job.id).collect();
        match ending {
            Ending::Deleted | Ending::Flushed => self.count(tube, |counters| &mut counters.deletes),
            Ending::Expired => self.count(tube, |counters| &mut counters.expirations),
        }
        let id = JobId(id);
        self.changes.push(match empty.filter(|_| !freed.is_empty()) {
            Some(group) => Change::DeletedLast(Box::new(LastMember { id, group: group.as_str().into() })),
            None if cooldown.is_some() => Change::DeletedWithCooldown(id),
            None => Change::Deleted(id),
        });
        freed
    }

    /// Frees the jobs that still exist.
    pub(crate) fn free(&mut self, mut ids: Vec<u64>, now: Timestamp) {
        ids.retain(|&id| self.job(id).is_some());
        ids.sort_unstable();
        for id in ids {
            let job = self.job_mut(id);
            job.held = false;
            job.tags.asked.after.as_mut().expect("it was held").is_free = true;
            match job.state {
                State::Delayed { until } if until > now => {}
                _ => self.make_ready(id, now),
            }
        }
    }

    /// Follows a command that may have freed slots, opened gates or ended groups: waiting clients get the jobs that are
    /// free now, the most urgent first. The remaining ones come to the front.
    pub(crate) fn serve_free_slots(&mut self, now: Timestamp) {
        self.serve_before((u32::MAX, u64::MAX), now);
        self.refresh_front();
        let indexes: Vec<TubeIndex> = (0..self.tubes.len()).filter(|&index| self.may_open(index)).collect();
        self.serve_behind_gates(&indexes, now);
        std::mem::take(&mut self.to_free).into_iter().for_each(|freed| self.free(freed, now));
    }

    /// Gives ready jobs before this place to waiting clients, the most urgent first.
    pub(crate) fn serve_before(&mut self, end: (u32, u64), now: Timestamp) {
        let is_served = |model: &Self, job: &Job| {
            job.state == State::Ready
                && id_key(job) < end
                && model.lets_through(job.tube)
                && model.may_be_reserved(job)
                && model.first_waiting(job.tube).is_some()
        };
        while let Some(job) =
            self.jobs.iter().filter(|job| is_served(self, job)).min_by_key(|job| id_key(job))
        {
            let (id, client) = (job.id, self.first_waiting(job.tube).expect("somebody waits"));
            if !self.ends_instead(id, now) {
                self.deliver_job(client, id, now);
            }
        }
    }

    /// Whether the gate of the tube is closed, and a reservation has ended since.
    fn may_open(&self, index: TubeIndex) -> bool {
        let reserved = self.counts(Some(index)).reserved;
        let is_due = |tube: &Tube| tube.is_closed && reserved < tube.reserved_when_closed;
        self.tubes[index].as_ref().is_some_and(is_due)
    }

    /// Opens the gates of these tubes that need not stay closed: waiting clients get the jobs behind them, the most
    /// urgent first.
    pub(crate) fn serve_behind_gates(&mut self, indexes: &[TubeIndex], now: Timestamp) {
        indexes.iter().for_each(|&index| self.refill(index, now));
        let is_passed = |model: &Self, index| {
            let is_open = !model.must_close(index) && model.tube(index).pause.is_none();
            is_open && model.first_waiting(index).is_some()
        };
        for &index in indexes.iter().filter(|&&index| is_passed(self, index)).collect::<Vec<_>>() {
            self.refresh_head(index, now);
        }
        loop {
            let open = indexes.iter().filter(|&&index| is_passed(self, index));
            let Some((head, index)) = open.filter_map(|&index| Some((self.head(index)?, index))).min() else {
                break;
            };
            self.refresh_head(index, now);
            if self.head(index) == Some(head) {
                self.deliver_next(index, now);
            }
        }
        for &index in indexes {
            self.tube_mut(index).is_closed = false;
            self.close_if_needed(index);
        }
    }
}

/// The order by priority, then by age.
pub(crate) fn id_key(job: &Job) -> (u32, u64) {
    (job.priority, job.id)
}

/// The words of a put into this tube with these tags, with a space before each.
pub fn words_of(tags: &TagSet<'_>, tube: Option<&str>) -> String {
    let mut words = String::new();
    if let Some(Idempotency { key, cooldown_s }) = tags.idempotency {
        words += &format!(" idp:{key}:{cooldown_s}");
    }
    if let Some(Concurrency { key, limit }) = tags.concurrency {
        words += &format!(" con:{key}:{limit}");
    }
    words.extend(tags.group.map(|group| format!(" grp:{group}")));
    words.extend(tags.after.map(|after| format!(" aft:{}", after.group)));
    words.extend(tags.expires_after_s.map(|seconds| format!(" exp:{seconds}")));
    words.extend(tube.map(|tube| format!(" tub:{tube}")));
    words.extend(tags.trace.map(|trace| format!(" trc:{}", trace.as_str())));
    words
}
