//! The rules for the tags of a `put`, and the rules for tubes; C has neither. There is a file for each rule.
//!
//! | rule | file | what it decides |
//! |---|---|---|
//! | [`UniqueKeys`] | `unique.rs` | a key is in use once in a tube, and for its cooldown after the delete |
//! | [`Slots`] | `slots/` | at most N jobs with a key are reserved at once |
//! | [`Groups`] | `groups.rs` | jobs that wait for a group are held until it has no member left |
//! | [`Expiry`] | `expiry.rs` | a job that nobody reserves in time is deleted |
//! | [`Owners`] | `owners.rs` | how many bytes count for each owner |
//! | [`Awaited`] | `awaited.rs` | the clients that get an answer when the job is deleted or buried |
//! | [`TubeLimits`] | `limits.rs` | how many jobs and bytes a tube takes |
//! | [`Ages`] | `ages.rs` | a job that is too long in a tube goes to the dead tube, or is deleted |
//! | [`Rotation`] | `rotation.rs` | the keys of a fair tube rotate within a priority |
//!
//! `ruled_tubes.rs` gives each tube its entry of the file of rules. Three rules of that file do not use these hooks. A
//! gate (`gate.rs`) also holds back jobs without tags; a hook would have to read the tags of every job. A job that is
//! released, times out or is given back has exactly one next state: `retries.rs` decides it, also for a job without
//! marks. [`Rotation`] has only a check: a job, also one without tags, joins it in [`Queue::enqueue`], which comes
//! after all hooks.
//!
//! The moves and operations check the marks of a job once. About a job without marks no rule is asked. For a job with
//! marks they call one function of `calls.rs` or of this file for each event, and that function calls the hooks of the
//! rules ([`Rule`]). Each rule names the marks at which its hook is called; if a job has none of those of all rules,
//! its tags are not read, which saves time. A job in a tube with a rule, or for whose end a client waits, has marks
//! even if it has no tags. A new rule is therefore a file, its state in [`Rules`], and its name in `each_rule`; a job
//! that it concerns needs a mark, at which its hooks are called. One place decides whether a ready job may be reserved,
//! [`Queue::admit`], and the job's collection shows the decision: the tube's ready queue has only jobs that no rule
//! keeps back; the others are parked. Delayed jobs that wait for a group are held. Jobs whose time is over are ended
//! before a client gets them (`moves/overdue.rs`). A rule keeps its own collections, but makes no job ready, reserved
//! or buried: it notes the change, and the moves do the rest. A command that changes the decision for other jobs calls
//! [`Queue::serve_waiting`] at the end.
//!
//! `tag_storage.rs` has the tags, `timers.rs` when the queue looks at each deadline, `idle_tubes.rs` which tubes only
//! their buckets keep, `description.rs` what a hand-over needs of the rules, and `tests/` the tests of several rules
//! together.

pub(crate) mod ages;
pub(crate) mod awaited;
mod calls;
mod description;
pub(crate) mod expiry;
pub(crate) mod gate;
pub(crate) mod groups;
mod hooks;
mod idle_tubes;
pub(crate) mod limits;
mod owners;
pub(crate) mod retries;
mod rotation;
pub(crate) mod ruled_tubes;
pub(crate) mod slots;
mod tag_storage;
#[cfg(test)]
mod tests;
mod timers;
pub(crate) mod unique;

use std::hash::RandomState;

use beanstalkd_structures::Timer;
use bitflags::bitflags;

use self::ages::Ages;
use self::awaited::Awaited;
use self::calls::each_rule;
pub(crate) use self::calls::{asks_rules_when_ready, calls_rules_at_end};
use self::expiry::Expiry;
use self::groups::Groups;
pub(crate) use self::hooks::{Ending, MarkedJob};
use self::hooks::{JobEnd, Rule, Tick};
use self::limits::TubeLimits;
use self::owners::Owners;
use self::ruled_tubes::SharedRuleState;
use self::slots::{OfferedSlots, Slots};
use self::tag_storage::TagStorage;
use self::unique::UniqueKeys;
use crate::clock::Timestamp;
use crate::job::{Body, Counters, JobId, JobState, Priority};
use crate::state::jobs::{Job, Marks};
use crate::state::keys::DueKey;
use crate::state::rotation::Rotation;
use crate::tags::{Concurrency, JobTags, TagSet};
use crate::{Change, LastMember, Queue};

/// The state of all rules.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    tags: TagStorage,
    unique: UniqueKeys,
    pub(crate) slots: Slots,
    pub(crate) offered: OfferedSlots,
    pub(crate) groups: Groups,
    pub(crate) expiry: Expiry,
    pub(crate) awaited: Awaited,
    owners: Owners,
    pub(crate) tubes: SharedRuleState,
    head_checks: HeadChecks,
    /// Seeds the hashes against chosen names; nothing that can be observed depends on it.
    hasher: RandomState,
    /// Jobs that have tags.
    jobs: usize,
    /// The memory of the indexes for their tags.
    index_bytes: usize,
    /// A buffer for a copy of a job's tags.
    scratch: Vec<u8>,
}

bitflags! {
    /// Why a reserve must check the first jobs of its tubes.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    struct HeadChecks: u8 {
        /// Keys of jobs in several tubes are used up or being offered.
        const STALE = 1;
        /// There may be jobs whose time is over and that have not been removed yet.
        const OVERDUE = 1 << 1;
    }
}

/// Whether `stored` is the stored form of these tags, possibly marked as free of its group.
#[inline]
fn are_stored_as(tags: &JobTags<'_>, stored: &JobTags<'_>) -> bool {
    let asked = TagSet { after: stored.after, ..tags.asked };
    *stored == JobTags { asked, ..*tags } && stored.after.is_some() == tags.after.is_some()
}

/// The memory of the indexes for these tags, in bytes, in the usual case. Keys in the order of hashes fill two thirds
/// of their blocks.
fn index_bytes(tags: &JobTags<'_>) -> usize {
    let if_any = |is_any, bytes| if is_any { bytes } else { 0 };
    if_any(tags.idempotency.is_some(), 24)
        + if_any(tags.concurrency.is_some(), 48)
        + if_any(tags.after.is_some(), 32)
        + if_any(tags.expires_after_s.is_some(), 24)
}

impl Rules {
    /// The memory of tags and indexes, in bytes. Tags after bodies count with the bodies.
    pub(crate) fn bytes(&self) -> usize {
        let beside = self.tubes.index_bytes() + self.groups.ended.bytes();
        self.job_bytes() + beside + self.unique.bytes() + self.owners.bytes() + self.awaited.bytes()
    }

    /// The memory of tags and indexes that does not outlive the jobs, in bytes.
    pub(crate) fn job_bytes(&self) -> usize {
        self.index_bytes + self.tags.bytes() + self.slots.bytes() + self.groups.bytes()
    }

    /// Whether a reserve must check the first jobs of its tubes: heads may be stale, or jobs may be overdue.
    #[inline]
    pub(crate) fn must_refresh_heads(&self) -> bool {
        !self.head_checks.is_empty()
    }

    /// Whether the first jobs of tubes may have no slot.
    #[inline]
    pub(crate) fn has_stale_heads(&self) -> bool {
        self.head_checks.contains(HeadChecks::STALE)
    }

    /// Whether there may be jobs whose time is over.
    #[inline]
    pub(crate) fn has_overdue(&self) -> bool {
        self.head_checks.contains(HeadChecks::OVERDUE)
    }

    /// Whether the time of any job can end.
    #[inline]
    fn can_jobs_end(&self) -> bool {
        !self.expiry.is_empty() || self.tubes.aging_jobs > 0
    }

    /// The next deadline.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.due().map(|((at, _), _)| at)
    }

    /// The first deadline, and its hook.
    pub(crate) fn due(&self) -> Option<(DueKey, Tick)> {
        let mut first = None;
        each_rule!(note_due(self, &mut first));
        first
    }
}

impl Queue {
    /// The tags of a job that must have some.
    pub(crate) fn expect_tags(&self, id: JobId) -> JobTags<'_> {
        self.tags(id).expect("the job has tags")
    }

    /// The tags of a job.
    pub(crate) fn tags(&self, id: JobId) -> Option<JobTags<'_>> {
        let job = self.jobs.get(id).filter(|job| job.has(Marks::TAGGED))?;
        JobTags::decode(self.rules.tags.get(id, job))
    }

    /// The tag `con` of a job.
    pub(crate) fn concurrency(&self, id: JobId) -> Option<Concurrency<'_>> {
        self.concurrency_of(id, self.jobs.get(id)?)
    }

    /// The tag `con` of a job that has been looked up.
    fn concurrency_of<'a>(&'a self, id: JobId, job: &'a Job) -> Option<Concurrency<'a>> {
        job.has(Marks::KEYED).then(|| JobTags::concurrency_in(self.rules.tags.get(id, job)))?
    }

    /// The encoded tags of the job for the log, empty if it has none. They are in `room` if they differ from the tags
    /// that the queue keeps: the job is free, but still among the held jobs.
    pub fn tags_for_log<'a>(&'a self, id: JobId, room: &'a mut Vec<u8>) -> &'a [u8] {
        let Some(job) = self.jobs.get(id).filter(|job| job.has(Marks::TAGGED)) else { return &[] };
        let tags = self.rules.tags.get(id, job);
        if !job.has(Marks::HELD) || self.is_held(id) {
            return tags;
        }
        room.clear();
        room.extend_from_slice(tags);
        JobTags::set_free(room);
        room
    }

    /// Makes a change with a copy of the job's tags.
    pub(crate) fn with_tags<T>(
        &mut self,
        id: JobId,
        change: impl FnOnce(&mut Self, &MarkedJob<'_>) -> T,
    ) -> T {
        let mut bytes = std::mem::take(&mut self.rules.scratch);
        let job = self.jobs.expect(id);
        bytes.clear();
        bytes.extend_from_slice(self.rules.tags.get(id, job));
        let tags = JobTags::decode(&bytes).expect("the job has tags");
        let job = MarkedJob::new(id, job, &tags);
        let result = change(self, &job);
        self.rules.scratch = bytes;
        result
    }

    /// Stores a job with tags, which is in no collection yet, with its history. `separate_tags` are the tags that are
    /// not stored after its body.
    pub(crate) fn insert_tagged<'a>(
        &mut self,
        id: JobId,
        mut job: Job,
        counters: Counters,
        separate_tags: Option<Box<[u8]>>,
        tags: &'a JobTags<'a>,
    ) -> MarkedJob<'a> {
        job.marks = Marks::of_tags(tags, separate_tags.is_some());
        let added = MarkedJob::new(id, &job, tags);
        debug_assert!(!tags.is_empty(), "a job without tags has no marks");
        self.jobs.insert(id, job);
        self.jobs.set_counters(id, counters);
        self.rules.jobs += 1;
        self.rules.index_bytes += index_bytes(tags);
        if let Some(tags) = separate_tags {
            self.rules.tags.insert(id, tags);
        }
        each_rule!(added, ADDED: added(self, &added));
        debug_assert!(
            self.tags(id).is_some_and(|stored| are_stored_as(tags, &stored)),
            "the tags are stored"
        );
        debug_assert!(!self.is_linked(id), "the job is in no collection yet");
        added
    }

    /// Whether all rules permit a client to reserve this job by its id.
    pub(crate) fn may_be_reserved(&self, id: JobId) -> bool {
        let Some(job) = self.jobs.get(id) else { return false };
        if !job.has(each_rule!(union MAY_BE_RESERVED)) {
            return true;
        }
        let tags = self.tags(id).unwrap_or(JobTags::NONE);
        let job = MarkedJob::new(id, job, &tags);
        each_rule!(all job, MAY_BE_RESERVED: may_be_reserved(self, &job))
    }

    /// The priority that a reserved job gets when it is released with `priority`.
    pub(crate) fn given_priority(job: &Job, priority: Priority) -> Priority {
        if job.has(Marks::UPGRADED) { priority.min(job.priority) } else { priority }
    }

    /// Removes a job that is in no collection. `left` is the state that it has left, if no rule was called for that;
    /// never `Ready`.
    pub(crate) fn remove_marked(
        &mut self,
        id: JobId,
        left: Option<JobState>,
        ending: Ending,
        now: Timestamp,
    ) -> Body {
        debug_assert!(!self.is_linked(id), "a job ends in no collection");
        debug_assert_ne!(left, Some(JobState::Ready), "the rules need the record of a job that was ready");
        let job = self.jobs.remove(id).expect("the queue has this job");
        let is_separate = job.has(Marks::TAGGED) && !job.has(Marks::BEHIND_BODY);
        let separate_tags = if is_separate { self.rules.tags.remove(id) } else { None };
        let bytes = match &separate_tags {
            Some(tags) => tags,
            None => TagStorage::behind_body(&job),
        };
        let tags = JobTags::decode(bytes).expect("the job has tags");
        let ended = MarkedJob::new(id, &job, &tags);
        if let Some(state) = left {
            self.left_marked(&ended, state);
        }
        if job.has(Marks::TAGGED) {
            debug_assert!(!tags.is_empty(), "tags are behind the body or beside the jobs");
            self.rules.jobs -= 1;
            self.rules.index_bytes -= index_bytes(&tags);
        }
        self.note_end(&ended, ending, now);
        job.body
    }

    /// Calls the rules when a job has ended, and notes the change.
    fn note_end(&mut self, ended: &MarkedJob<'_>, ending: Ending, now: Timestamp) {
        let mut end = JobEnd { ending, now, begins_cooldown: false, frees_group: false };
        each_rule!(ended, ENDED: ended(self, ended, &mut end));
        match ending {
            Ending::Deleted | Ending::Flushed => self.count(ended.tube, |counters| &mut counters.deletes),
            Ending::Expired => self.count(ended.tube, |counters| &mut counters.expirations),
        }
        if self.outbox.keeps_changes {
            let id = ended.id;
            self.note(match ended.tags.group.filter(|_| end.frees_group) {
                Some(group) => Change::DeletedLast(Box::new(LastMember { id, group: group.as_str().into() })),
                None if end.begins_cooldown => Change::DeletedWithCooldown(id),
                None => Change::Deleted(id),
            });
        }
        debug_assert_eq!(
            end.begins_cooldown,
            self.cooldown(ended.id).is_some(),
            "a cooldown that begins is running"
        );
        debug_assert!(
            self.rules.awaited.has_answered(ended.id),
            "a client that waits for the end gets an answer"
        );
    }

    /// Notes whether there may be jobs whose time is over. Must be called before a job can get to a client after the
    /// time has changed, or after a reload or a move has changed the maximum age of jobs.
    #[inline]
    pub(crate) fn note_overdue(&mut self, now: Timestamp) {
        let is_due = |queue: &Self| queue.deadlines.first().is_some_and(|(at, _)| at <= now);
        let has_overdue = self.rules.can_jobs_end() && is_due(self);
        self.rules.head_checks.set(HeadChecks::OVERDUE, has_overdue);
    }

    /// Whether the time of the job is over.
    #[inline]
    pub(crate) fn is_overdue(&self, id: JobId, now: Timestamp) -> bool {
        self.rules.has_overdue() && (self.has_expired(id, now) || self.is_too_old(id, now))
    }

    /// Asserts the invariants of the fields.
    #[inline]
    pub(crate) fn check_rules(&self) {
        let with_tags =
            self.jobs.ids().filter(|&id| self.jobs.get(id).is_some_and(|job| job.has(Marks::TAGGED)));
        let (mut separate_tags, mut indexed, mut count) = (0, 0, 0);
        for id in with_tags {
            let job = self.jobs.expect(id);
            let tags = self.expect_tags(id);
            count += 1;
            separate_tags += usize::from(!job.has(Marks::BEHIND_BODY));
            indexed += index_bytes(&tags);
            assert!(job.has(Marks::KEYED) == tags.concurrency.is_some());
        }
        assert_eq!(count, self.rules.jobs);
        assert_eq!((separate_tags, indexed), (self.rules.tags.len(), self.rules.index_bytes));
        self.check_deadline(Timer::Rules);
        let marked = |mark| self.jobs.ids().filter(|&id| self.jobs.expect(id).has(mark)).count();
        assert_eq!(self.rules.tubes.aging_jobs, marked(Marks::AGES));
        assert_eq!(self.rules.tubes.rotating_jobs, marked(Marks::IN_ROTATION));
        each_rule!(check(self));
    }
}
