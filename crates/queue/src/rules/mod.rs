//! What the tags of a `put` ask for, beyond C's protocol: a file for each rule, and all with the same hooks.
//!
//! | rule | file | what it decides |
//! |---|---|---|
//! | [`UniqueKeys`] | `unique.rs` | a key is in use once in a tube, and for its cooldown after the delete |
//! | [`Slots`] | `slots.rs`, `offered_slots.rs` | at most N jobs with a concurrency key are reserved at once |
//! | [`Groups`] | `groups.rs` | jobs that wait for a group are held until it has no member left |
//! | [`Expiry`] | `expiry.rs` | a job that nobody reserves in time is deleted |
//! | [`Owners`] | `owners.rs` | how many bytes count for each owner |
//! | [`Awaited`] | `awaited.rs` | which clients are told that the job is deleted or buried |
//! | [`Limits`] | `limits.rs` | how many jobs and bytes a tube takes |
//! | [`Ages`] | `ages.rs` | a job that is too long in a tube goes to the dead tube, or is deleted |
//! | [`Turns`] | `turns.rs` | keys take turns within a priority |
//!
//! `tube_rule.rs` has what an entry of the file of rules says, `ruled.rs` which entry a tube has. Two rules of that
//! file have no hooks: `gate.rs` is asked when a tube is chosen, and `retries.rs` when a job fails.
//!
//! A job without tags has no marks, and no rule is asked about it: the operations look at `marks` once. For a job with
//! marks they call one function of this file for each thing that happens to it, and that function calls the hook of
//! every rule ([`Rule`]). So a new rule is a file, its state in [`Rules`], and its name in `each_rule`; a job that it
//! concerns needs a mark. Three functions name the rules that they ask, because the hooks return something: a rule that
//! has `became_ready`, `allows`, or `next_due` with `tick` must be added to [`Queue::admit`],
//! [`Queue::may_be_reserved`] or [`Rules::due`]. Whether a ready job may be reserved has one answer, the place where it
//! stands, and one place that decides, [`Queue::admit`]: the tube's ready queue has only jobs that no rule keeps back;
//! the others are parked. Delayed jobs that wait for a group are held. A function that changes the answer for other
//! jobs calls [`Queue::settle`] at the end: it tells clients that wait.
//!
//! `tag_storage.rs` keeps the tags, `index.rs` has the keys of the indexes.

pub(crate) mod ages;
pub(crate) mod awaited;
mod description;
pub(crate) mod expiry;
pub(crate) mod gate;
pub(crate) mod groups;
mod index;
pub(crate) mod limits;
mod offered_slots;
mod owners;
pub(crate) mod retries;
pub(crate) mod ruled;
mod slots;
#[cfg(test)]
mod steps;
pub(crate) mod tag_storage;
#[cfg(test)]
mod tests;
pub(crate) mod tube_rule;
#[cfg(test)]
mod tube_rule_crowd_tests;
#[cfg(test)]
mod tube_rule_tests;
mod turns;
pub(crate) mod unique;

use std::collections::VecDeque;
use std::hash::RandomState;

use beanstalkd_structures::{OrderedQueue, Timer};

use self::ages::Ages;
use self::awaited::Awaited;
use self::expiry::Expiry;
use self::groups::Groups;
use self::limits::Limits;
use self::offered_slots::OfferedSlots;
use self::owners::Owners;
use self::ruled::RuledTubes;
use self::slots::Slots;
use self::tag_storage::TagStorage;
use self::turns::Turns;
use self::unique::{CooldownSums, UniqueKeys};
use crate::clock::Timestamp;
use crate::job::{Body, Counters, JobId, JobState, Priority};
use crate::state::jobs::{Job, Link, Place, marks};
use crate::state::keys::{DueKey, ReadyKey, TubeKey};
use crate::tags::{Concurrency, TagSet};
use crate::{Change, ClientId, Queue};

/// What happens to jobs with tags, as a rule sees it. The job is in no collection while a hook runs, but for
/// `reserved`, `buried` and a `moved` reservation.
pub(crate) trait Rule {
    /// The job has come: it was put, or comes back from a log.
    fn came(_queue: &mut Queue, _job: &TaggedJob<'_>) {}

    /// The job is ready from now on; a rule can keep it back. [`Queue::admit`] names the rules that it asks.
    fn became_ready(_queue: &mut Queue, _job: &TaggedJob<'_>) -> Readiness {
        Readiness::Open
    }

    /// Whether the job may be reserved, whatever its state: `reserve-job` asks. [`Queue::may_be_reserved`] names the
    /// rules that it asks.
    fn allows(_queue: &Queue, _job: &TaggedJob<'_>) -> bool {
        true
    }

    /// The job was reserved, whatever its state was.
    fn reserved(_queue: &mut Queue, _job: &TaggedJob<'_>) {}

    /// The job is in this state no more: it was taken from its tube, or given back by its client.
    fn left(_queue: &mut Queue, _job: &TaggedJob<'_>, _state: JobState) {}

    /// The job was buried.
    fn buried(_queue: &mut Queue, _job: &TaggedJob<'_>) {}

    /// The job has come into its tube from the tube `from`.
    fn moved(_queue: &mut Queue, _job: &TaggedJob<'_>, _from: TubeKey) {}

    /// A job has other tags than before: those of `after`.
    fn retagged(_queue: &mut Queue, _before: &TaggedJob<'_>, _after: &TaggedJob<'_>) {}

    /// The job is gone.
    fn ended(_queue: &mut Queue, _job: &TaggedJob<'_>, _end: &mut End) {}

    /// What is due next. [`Rules::due`] names the rules that it asks.
    fn next_due(_rules: &Rules) -> Option<DueKey> {
        None
    }

    /// What `next_due` has named is due.
    fn tick(_queue: &mut Queue, _id: JobId, _now: Timestamp) {}

    /// Asserts the invariants of the rule's state.
    fn check(_queue: &Queue) {}
}

/// Calls a hook of every rule, in this order.
macro_rules! each_rule {
    ($hook:ident($($argument:expr),*)) => {{
        Expiry::$hook($($argument),*);
        Owners::$hook($($argument),*);
        Limits::$hook($($argument),*);
        Ages::$hook($($argument),*);
        UniqueKeys::$hook($($argument),*);
        Slots::$hook($($argument),*);
        Groups::$hook($($argument),*);
        Turns::$hook($($argument),*);
        Awaited::$hook($($argument),*);
    }};
}

/// [`Rule::tick`] of a rule.
type Tick = fn(&mut Queue, JobId, Timestamp);

/// A job with tags, as the hooks see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaggedJob<'a> {
    pub(crate) id: JobId,
    pub(crate) tube: TubeKey,
    pub(crate) created_at: Timestamp,
    pub(crate) marks: u16,
    /// Without the tags.
    pub(crate) body_bytes: usize,
    pub(crate) tags: &'a TagSet<'a>,
}

impl<'a> TaggedJob<'a> {
    pub(crate) fn new(id: JobId, job: &Job, tags: &'a TagSet<'a>) -> Self {
        let &Job { tube, created_at, marks, .. } = job;
        Self { id, tube, created_at, marks, body_bytes: job.body().len(), tags }
    }
}

/// What a rule says of a job that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// It may be reserved.
    Open,
    /// It may not be reserved now.
    KeptBack,
}

/// How a job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By a client's delete: the cooldown of its key begins.
    Deleted,
    /// By a flush.
    Flushed,
    /// By itself.
    Expired,
}

/// The end of a job, and what the rules make of it.
#[derive(Debug)]
pub(crate) struct End {
    ending: Ending,
    now: Timestamp,
    /// Whether a cooldown begins with it.
    begins_cooldown: bool,
    /// The group that it frees.
    freed_group: Option<Box<str>>,
}

/// The state of all rules. It has more fields than other types because each rule has one.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    tags: TagStorage,
    unique: UniqueKeys,
    pub(crate) slots: Slots,
    offered: OfferedSlots,
    pub(crate) groups: Groups,
    pub(crate) expiry: Expiry,
    pub(crate) awaited: Awaited,
    owners: Owners,
    pub(crate) tubes: RuledTubes,
    /// Seeds the hashes against chosen names; nothing that can be observed depends on it.
    hasher: RandomState,
    /// Jobs that have tags.
    jobs: usize,
    /// What the indexes take for their tags.
    index_bytes: usize,
    /// The groups that the ends of jobs have freed, in the order of the changes [`Change::DeletedWith`].
    freed_groups: VecDeque<Option<Box<str>>>,
    /// Room for a copy of a job's tags.
    scratch: Vec<u8>,
}

/// The jobs of a tube that may not be reserved, and the keys that its deleted jobs have left.
#[derive(Debug, Default)]
pub(crate) struct TubeRules {
    /// Ready jobs.
    pub(crate) parked: OrderedQueue<ReadyKey>,
    /// Delayed jobs, by the end of their delay.
    pub(crate) held: OrderedQueue<DueKey>,
    /// Deleted jobs whose idempotency keys still count.
    pub(crate) cooldowns: OrderedQueue<JobId>,
    /// What these keys take, in bytes.
    pub(crate) cooldown_bytes: usize,
}

impl TubeRules {
    pub(crate) fn cooldown_sums(&self) -> CooldownSums {
        CooldownSums { count: self.cooldowns.len() as u64, bytes: self.cooldown_bytes as u64 }
    }

    /// Whether nothing of this keeps the tube.
    pub(crate) fn is_empty(&self) -> bool {
        self.parked.is_empty() && self.held.is_empty() && self.cooldowns.is_empty()
    }
}

/// Whether a rule may want to know that a job leaves its place.
fn leaves_rules(link: Link) -> bool {
    match link.place {
        Place::Ready(_) | Place::Reserved(_) => link.marks & marks::KEYED != 0,
        Place::Buried(_) => link.marks & marks::TAGGED != 0,
        Place::Delayed(_) => false,
    }
}

/// What the indexes take for these tags, in bytes, at their usual size. Keys in the order of hashes fill two thirds of
/// their blocks.
fn index_bytes(tags: &TagSet<'_>) -> usize {
    let if_any = |is_any, bytes| if is_any { bytes } else { 0 };
    if_any(tags.idempotency.is_some(), 24)
        + if_any(tags.concurrency.is_some(), 48)
        + if_any(tags.after.is_some(), 32)
        + if_any(tags.expires_after_s.is_some(), 24)
}

impl Rules {
    /// The memory of tags and indexes, in bytes. Tags behind bodies count with them.
    pub(crate) fn bytes(&self) -> usize {
        let beside = self.tubes.index_bytes + self.groups.ended_bytes();
        self.job_bytes() + beside + self.unique.bytes() + self.owners.bytes() + self.awaited.bytes()
    }

    /// The memory of tags and indexes that does not outlive the jobs, in bytes.
    pub(crate) fn job_bytes(&self) -> usize {
        self.index_bytes + self.tags.bytes() + self.slots.bytes() + self.groups.bytes()
    }

    /// When something becomes due.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.due().map(|((at, _), _)| at)
    }

    /// What is due first, and the hook for it.
    fn due(&self) -> Option<(DueKey, Tick)> {
        let hooks: [(_, Tick); 3] = [
            (Expiry::next_due(self), Expiry::tick),
            (UniqueKeys::next_due(self), UniqueKeys::tick),
            (Awaited::next_due(self), Awaited::tick),
        ];
        hooks.into_iter().filter_map(|(due, tick)| Some((due?, tick))).min_by_key(|&(due, _)| due)
    }
}

impl Queue {
    /// The tags of a job that has some.
    pub(crate) fn expect_tags(&self, id: JobId) -> TagSet<'_> {
        self.tags(id).expect("it has tags")
    }

    /// The tags of a job.
    pub(crate) fn tags(&self, id: JobId) -> Option<TagSet<'_>> {
        let job = self.jobs.get(id).filter(|job| job.has(marks::TAGGED))?;
        TagSet::decode(self.rules.tags.get(id, job))
    }

    /// The tag `con` of a job.
    pub(crate) fn concurrency(&self, id: JobId) -> Option<Concurrency<'_>> {
        self.concurrency_of(id, self.jobs.get(id)?)
    }

    /// The same of a job that has been looked up.
    fn concurrency_of<'a>(&'a self, id: JobId, job: &'a Job) -> Option<Concurrency<'a>> {
        job.has(marks::KEYED).then(|| TagSet::concurrency_in(self.rules.tags.get(id, job)))?
    }

    /// The bytes of the job's tags for the log, none if it has none. They stand in `room` if they are not those that
    /// the queue keeps: the job is free, and still among the held ones.
    pub fn tags_for_log<'a>(&'a self, id: JobId, room: &'a mut Vec<u8>) -> &'a [u8] {
        let Some(job) = self.jobs.get(id).filter(|job| job.has(marks::TAGGED)) else { return &[] };
        let tags = self.rules.tags.get(id, job);
        if !job.has(marks::HELD) || self.is_held(id) {
            return tags;
        }
        room.clear();
        room.extend_from_slice(tags);
        TagSet::set_free(room);
        room
    }

    /// Has a change made with a copy of the job's tags.
    fn with_tags<T>(&mut self, id: JobId, change: impl FnOnce(&mut Self, &TaggedJob<'_>) -> T) -> T {
        let mut bytes = std::mem::take(&mut self.rules.scratch);
        let job = self.jobs.get(id).expect("the job is there");
        bytes.clear();
        bytes.extend_from_slice(self.rules.tags.get(id, job));
        let tags = TagSet::decode(&bytes).expect("it has tags");
        let job = TaggedJob::new(id, job, &tags);
        let result = change(self, &job);
        self.rules.scratch = bytes;
        result
    }

    /// Stores a job with tags, which is in no collection yet, with what has happened to it. `separate_tags` are the
    /// tags that do not stand behind its body.
    pub(crate) fn insert_tagged<'a>(
        &mut self,
        id: JobId,
        mut job: Job,
        counters: Counters,
        separate_tags: Option<Box<[u8]>>,
        tags: &'a TagSet<'a>,
    ) -> TaggedJob<'a> {
        let mark = |is_set, mark| if is_set { mark } else { 0 };
        job.marks = marks::TAGGED
            | mark(separate_tags.is_none(), marks::BEHIND_BODY)
            | mark(tags.concurrency.is_some(), marks::KEYED);
        let came = TaggedJob::new(id, &job, tags);
        self.jobs.insert(id, job);
        self.jobs.set_counters(id, counters);
        self.rules.jobs += 1;
        self.rules.index_bytes += index_bytes(tags);
        if let Some(tags) = separate_tags {
            self.rules.tags.insert(id, tags);
        }
        each_rule!(came(self, &came));
        came
    }

    /// Makes a job with tags ready that is in no collection, and whose place says so already.
    pub(crate) fn enter_ready_tagged(&mut self, id: JobId, now: Timestamp) {
        let job = self.jobs.expect_mut(id);
        let (tube, priority) = (job.tube, job.priority);
        let is_keyed = job.has(marks::KEYED);
        self.offer_before(ReadyKey::new(priority, id), now);
        if is_keyed {
            self.with_tags(id, |queue, job| queue.admit(job, priority, now));
        } else {
            self.enqueue(id, tube, priority, now);
        }
    }

    /// Decides where a ready job stands: each rule may keep it back.
    pub(crate) fn admit(&mut self, job: &TaggedJob<'_>, priority: Priority, now: Timestamp) {
        match Slots::became_ready(self, job) {
            Readiness::Open => self.enqueue(job.id, job.tube, priority, now),
            Readiness::KeptBack => self.park(job.id, job.tube),
        }
    }

    /// Whether no rule keeps a client from reserving this job, which has tags, by its id.
    pub(crate) fn may_be_reserved(&self, id: JobId) -> bool {
        let Some(job) = self.jobs.get(id) else { return false };
        let Some(tags) = self.tags(id) else { return true };
        let job = TaggedJob::new(id, job, &tags);
        Groups::allows(self, &job) && Slots::allows(self, &job)
    }

    /// Takes a job with tags out of the collection that has it; as `unlink_from`.
    pub(crate) fn unlink_tagged(&mut self, id: JobId, link: Link) -> Option<Timestamp> {
        let since = self.take_out_tagged(id, link);
        if leaves_rules(link) {
            self.left_tagged(id, link.place.state());
        }
        since
    }

    /// Takes a job with tags out of the collection that has it, without calling `left`.
    fn take_out_tagged(&mut self, id: JobId, link: Link) -> Option<Timestamp> {
        match link.place {
            Place::Ready(_) if link.marks & marks::IN_ROW != 0 => {
                self.take_out_of_row(ReadyKey::new(link.priority, id), link.tube);
                self.count_unready(link.tube, link.priority);
                None
            }
            Place::Ready(_) if link.marks & marks::PARKED != 0 => {
                self.take_out_of_parked(id, ReadyKey::new(link.priority, id), link.tube);
                None
            }
            Place::Delayed(until) if link.marks & marks::HELD != 0 => {
                self.take_out_of_held(id, Timestamp(until.into()));
                None
            }
            Place::Ready(_) | Place::Delayed(_) | Place::Reserved(_) | Place::Buried(_) => {
                self.unlink_plain(id, link)
            }
        }
    }

    /// A job with tags has left this state.
    pub(crate) fn left_tagged(&mut self, id: JobId, state: JobState) {
        self.with_tags(id, |queue, job| each_rule!(left(queue, job, state)));
    }

    /// A job with tags was reserved.
    #[inline(never)]
    pub(crate) fn reserved_tagged(&mut self, id: JobId) {
        let job = self.jobs.expect_mut(id);
        job.marks &= !marks::UPGRADED;
        if job.has(marks::KEYED | marks::EXPIRES | marks::AGES) {
            self.with_tags(id, |queue, job| each_rule!(reserved(queue, job)));
        }
    }

    /// A job with tags was buried.
    #[inline(never)]
    pub(crate) fn buried_tagged(&mut self, id: JobId) {
        if !self.jobs.expect_mut(id).has(marks::TAGGED | marks::AWAITED) {
            return;
        }
        self.with_tags(id, |queue, job| each_rule!(buried(queue, job)));
    }

    /// A job with tags is in another tube.
    pub(crate) fn moved_tagged(&mut self, id: JobId, from: TubeKey) {
        self.with_tags(id, |queue, job| each_rule!(moved(queue, job, from)));
    }

    /// A job gets the tags of `after` in place of those of `before`.
    fn retagged(&mut self, before: &TaggedJob<'_>, after: &TaggedJob<'_>) {
        each_rule!(retagged(self, before, after));
    }

    /// The priority that a reserved job gets when it is given back with `priority`.
    pub(crate) fn given_priority(job: &Job, priority: Priority) -> Priority {
        if job.has(marks::UPGRADED) { priority.min(job.priority) } else { priority }
    }

    /// Ends a job with tags. Returns since when it was reserved, if it was, and its body, which may have more behind
    /// it.
    pub(crate) fn end_tagged(
        &mut self,
        id: JobId,
        link: Link,
        ending: Ending,
        now: Timestamp,
    ) -> (Option<Timestamp>, Body) {
        let since = self.take_out_tagged(id, link);
        let body = self.with_tags(id, |queue, job| {
            if leaves_rules(link) {
                each_rule!(left(queue, job, link.place.state()));
            }
            queue.remove_tagged(job, ending, now)
        });
        (since, body)
    }

    /// Removes a job that is in no collection.
    fn remove_tagged(&mut self, ended: &TaggedJob<'_>, ending: Ending, now: Timestamp) -> Body {
        debug_assert!(!self.is_linked(ended.id));
        let job = self.jobs.remove(ended.id).expect("what a queue held is there");
        if job.has(marks::TAGGED) {
            if !job.has(marks::BEHIND_BODY) {
                self.rules.tags.remove(ended.id);
            }
            self.rules.jobs -= 1;
            self.rules.index_bytes -= index_bytes(ended.tags);
        }
        let mut end = End { ending, now, begins_cooldown: false, freed_group: None };
        each_rule!(ended(self, ended, &mut end));
        match ending {
            Ending::Deleted | Ending::Flushed => self.count(ended.tube, |counters| &mut counters.deletes),
            Ending::Expired => self.count(ended.tube, |counters| &mut counters.expirations),
        }
        if !end.begins_cooldown && end.freed_group.is_none() {
            self.note(Change::Deleted(ended.id));
        } else {
            self.note(Change::DeletedWith(ended.id));
            if self.outbox.keeps_changes {
                self.rules.freed_groups.push_back(end.freed_group);
            }
        }
        job.body
    }

    /// The group that the next [`Change::DeletedWith`] has freed, because it was the end of its last member.
    pub fn next_freed_group(&mut self) -> Option<Box<str>> {
        self.rules.freed_groups.pop_front().flatten()
    }

    /// A command, of the client `cause` if it is one of a client, has changed whether other jobs may be reserved: they
    /// go to clients that wait.
    pub(crate) fn settle(&mut self, cause: Option<ClientId>, now: Timestamp) {
        self.offer_free_slots(cause, now);
        if !self.rules.tubes.to_open.is_empty() {
            self.open_gates(now);
        }
        if self.frees_jobs() {
            self.go_on_freeing(now);
        }
    }

    /// Whether `advance` has something to do, whatever the time.
    pub(crate) fn has_more_to_do(&self) -> bool {
        !self.rules.offered.is_empty()
            || self.frees_jobs()
            || self.changes_rules()
            || !self.rules.tubes.to_open.is_empty()
    }

    /// What a rule has to do at an instant is due.
    pub(crate) fn rules_are_due(&mut self, now: Timestamp) {
        if let Some(((_, id), tick)) = self.rules.due() {
            tick(self, id, now);
        }
    }

    /// Asserts the invariants of the fields.
    #[inline]
    pub(crate) fn check_rules(&self) {
        let with_tags =
            self.jobs.ids().filter(|&id| self.jobs.get(id).is_some_and(|job| job.has(marks::TAGGED)));
        let (mut separate_tags, mut indexed, mut count) = (0, 0, 0);
        for id in with_tags {
            let job = self.jobs.get(id).expect("an indexed job is there");
            let tags = self.expect_tags(id);
            count += 1;
            separate_tags += usize::from(!job.has(marks::BEHIND_BODY));
            indexed += index_bytes(&tags);
            assert!(job.has(marks::KEYED) == tags.concurrency.is_some());
        }
        assert_eq!(count, self.rules.jobs);
        assert_eq!((separate_tags, indexed), (self.rules.tags.len(), self.rules.index_bytes));
        self.check_deadline(Timer::Rules);
        let all = self.jobs.ids().filter_map(|id| self.jobs.get(id));
        let bytes = all.map(|job| {
            let is = |mark, bytes| if job.has(mark) { bytes } else { 0 };
            is(marks::AGES, ages::BYTES_PER_JOB) + is(marks::IN_ROW, turns::BYTES_PER_JOB)
        });
        assert_eq!(self.rules.tubes.index_bytes, bytes.sum::<usize>());
        assert!(self.outbox.keeps_changes || self.rules.freed_groups.is_empty());
        each_rule!(check(self));
    }
}
