//! The hooks of a rule: the events of jobs with marks, and the order in which the hooks are called.
//!
//! Owns: the trait [`Rule`], the list of all rules ([`each_rule`]), what the hooks are given, and the calls for a job
//! that changes its state. Driven by the moves, the operations and the functions of `mod.rs`.

use super::Rules;
use super::ages::Ages;
use super::awaited::Awaited;
use super::expiry::Expiry;
use super::groups::Groups;
use super::limits::TubeLimits;
use super::owners::Owners;
use super::rotation::Rotation;
use super::slots::Slots;
use super::unique::UniqueKeys;
use crate::Queue;
use crate::clock::Timestamp;
use crate::job::{JobId, JobState};
use crate::state::jobs::{Job, Marks};
use crate::state::keys::{DueKey, TubeKey};
use crate::tags::JobTags;

/// The events of jobs with marks, as a rule sees them. `each_rule` calls a hook below a constant of its name for the
/// jobs that have one of these marks, and for no others. The job is in no collection while a hook runs, except for
/// `reserved`, `buried` and a `moved` reservation.
pub(crate) trait Rule {
    const ADDED: Marks = Marks::empty();
    /// The job is new: it was put, or restored from a log. For a job without tags in a tube with a rule (`RULED`),
    /// `added_to_ruled` does what the rules do.
    fn added(_queue: &mut Queue, _job: &MarkedJob<'_>) {}

    const ADMITS: Marks = Marks::empty();
    /// The job is ready from now on. The rule returns whether clients may reserve it; otherwise it is parked.
    fn admits(_queue: &mut Queue, _job: &MarkedJob<'_>) -> bool {
        true
    }

    const MAY_BE_RESERVED: Marks = Marks::empty();
    /// Whether the job may be reserved, in any state; asked by `reserve-job`.
    fn may_be_reserved(_queue: &Queue, _job: &MarkedJob<'_>) -> bool {
        true
    }

    const RESERVED: Marks = Marks::empty();
    /// The job was reserved, from any state.
    fn reserved(_queue: &mut Queue, _job: &MarkedJob<'_>) {}

    const LEFT_READY: Marks = Marks::empty();
    /// The job is no longer ready: it was taken from its tube.
    fn left_ready(_queue: &mut Queue, _job: &MarkedJob<'_>) {}

    const LEFT_RESERVED: Marks = Marks::empty();
    /// The job is no longer reserved: its client has released it, or it was taken from the client.
    fn left_reserved(_queue: &mut Queue, _job: &MarkedJob<'_>) {}

    const LEFT_BURIED: Marks = Marks::empty();
    /// The job is no longer buried.
    fn left_buried(_queue: &mut Queue, _job: &MarkedJob<'_>) {}

    const BURIED: Marks = Marks::empty();
    /// The job was buried.
    fn buried(_queue: &mut Queue, _job: &MarkedJob<'_>) {}

    /// The job has come into its tube from the tube `from`. Called for jobs with marks, and in tubes with a rule.
    fn moved(_queue: &mut Queue, _job: &MarkedJob<'_>, _from: TubeKey) {}

    /// The job has new tags, those of `after`.
    fn retagged(_queue: &mut Queue, _before: &MarkedJob<'_>, _after: &MarkedJob<'_>) {}

    const ENDED: Marks = Marks::empty();
    /// The job has ended.
    fn ended(_queue: &mut Queue, _job: &MarkedJob<'_>, _end: &mut JobEnd) {}

    /// The next deadline.
    fn next_due(_rules: &Rules) -> Option<DueKey> {
        None
    }

    /// Replaces `first` by the next deadline of this rule if `first` is later.
    fn note_due(rules: &Rules, first: &mut Option<(DueKey, Tick)>) {
        if let Some(due) = Self::next_due(rules)
            && first.is_none_or(|(at, _)| due < at)
        {
            *first = Some((due, Self::tick));
        }
    }

    /// Handles the deadline of `next_due`, which has come.
    fn tick(_queue: &mut Queue, _id: JobId, _now: Timestamp) {}

    /// Asserts the invariants of the rule's state.
    fn check(_queue: &Queue) {}
}

/// Calls a hook of every rule, in the order of the list below: `each_rule!(hook(arguments))`. If the hook has a
/// constant, that and the job stand before it, as in `each_rule!(job, ENDED: ended(arguments))`; with `all` in front,
/// the result is whether all rules have returned true. `each_rule!(union ENDED)` has the marks at which any rule is
/// called, and `each_rule!(count ENDED, marks)` is the number of rules that are called at one of these marks.
macro_rules! each_rule {
    (@[$($rule:ident)*] union $constant:ident) => {
        const { Marks::empty()$(.union($rule::$constant))* }
    };
    (@[$($rule:ident)*] count $constant:ident, $marks:expr) => {
        0 $(+ $rule::$constant.intersects($marks) as usize)*
    };
    (@[$($rule:ident)*] $hook:ident $arguments:tt) => {{
        $($rule::$hook $arguments;)*
    }};
    (@[$($rule:ident)*] $job:ident, $marks:ident: $hook:ident $arguments:tt) => {{
        $(if $job.marks.intersects($rule::$marks) {
            $rule::$hook $arguments;
        })*
    }};
    (@[$($rule:ident)*] all $job:ident, $marks:ident: $hook:ident $arguments:tt) => {
        // Each is called, even if another one has returned false.
        true $(& (!$job.marks.intersects($rule::$marks) || $rule::$hook $arguments))*
    };
    ($($call:tt)*) => {
        each_rule!(@[Expiry Owners TubeLimits Ages UniqueKeys Slots Groups Rotation Awaited] $($call)*)
    };
}
pub(super) use each_rule;

/// The hook [`Rule::tick`] of a rule.
pub(super) type Tick = fn(&mut Queue, JobId, Timestamp);

/// A job with marks, as the hooks see it. Its tags are empty if only its tube, or a client that waits, has marked it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MarkedJob<'a> {
    pub(crate) id: JobId,
    pub(crate) tube: TubeKey,
    pub(crate) created_at: Timestamp,
    pub(crate) marks: Marks,
    /// The size of the body, without the tags.
    pub(crate) body_bytes: usize,
    pub(crate) tags: &'a JobTags<'a>,
}

impl<'a> MarkedJob<'a> {
    pub(crate) fn new(id: JobId, job: &Job, tags: &'a JobTags<'a>) -> Self {
        let &Job { tube, created_at, marks, .. } = job;
        Self { id, tube, created_at, marks, body_bytes: job.body().len(), tags }
    }
}

/// How a job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By a client's delete: the cooldown of its key begins.
    Deleted,
    /// By a flush, or because another job takes over its key: no cooldown begins.
    Flushed,
    /// By itself.
    Expired,
}

/// The end of a job, and its side effects.
#[derive(Debug)]
pub(crate) struct JobEnd {
    pub(super) ending: Ending,
    pub(super) now: Timestamp,
    /// Whether it begins a cooldown.
    pub(super) begins_cooldown: bool,
    /// Whether it frees the job's group.
    pub(super) frees_group: bool,
}

/// How many rules are called for a new job without tags in a tube with a rule.
pub(super) const ADDED_TO_RULED: usize = each_rule!(count ADDED, Marks::RULED);

/// The marks at which rules are called when a job leaves this state.
fn marks_of_left(state: JobState) -> Marks {
    match state {
        JobState::Ready => each_rule!(union LEFT_READY),
        JobState::Reserved => each_rule!(union LEFT_RESERVED),
        JobState::Buried => each_rule!(union LEFT_BURIED),
        JobState::Delayed => Marks::empty(),
    }
}

/// Whether rules are called when a job with these marks ends. For a job that has only the mark of its tube's rule,
/// `Queue::end` does what `TubeLimits` does.
#[inline]
pub(crate) fn calls_rules_at_end(marks: Marks) -> bool {
    const CALLED: usize = each_rule!(count LEFT_READY, Marks::RULED)
        + each_rule!(count LEFT_RESERVED, Marks::RULED)
        + each_rule!(count LEFT_BURIED, Marks::RULED)
        + each_rule!(count ENDED, Marks::RULED);
    const { assert!(CALLED == 1 && TubeLimits::ENDED.contains(Marks::RULED), "`end` does not call another rule") };
    marks.intersects(!Marks::RULED)
}

impl Queue {
    /// Calls the rules when a job has left this state.
    pub(crate) fn call_left(&mut self, id: JobId, marks: Marks, state: JobState) {
        if marks.intersects(marks_of_left(state)) {
            self.with_tags(id, |queue, job| queue.left_marked(job, state));
        }
    }

    pub(super) fn left_marked(&mut self, job: &MarkedJob<'_>, state: JobState) {
        match state {
            JobState::Ready => each_rule!(job, LEFT_READY: left_ready(self, job)),
            JobState::Reserved => each_rule!(job, LEFT_RESERVED: left_reserved(self, job)),
            JobState::Buried => each_rule!(job, LEFT_BURIED: left_buried(self, job)),
            JobState::Delayed => {}
        }
    }

    /// Calls the rules when a job was reserved.
    #[inline]
    pub(crate) fn call_reserved(&mut self, id: JobId, marks: Marks) {
        if marks.intersects(each_rule!(union RESERVED).union(Marks::UPGRADED)) {
            self.reserved_marked(id);
        }
        debug_assert!(!self.jobs.expect(id).has(Marks::EXPIRES | Marks::AGES), "it neither expires nor ages");
        debug_assert!(self.jobs.expect(id).marks.are_possible_in(JobState::Reserved), "it has left its line");
    }

    #[inline(never)]
    fn reserved_marked(&mut self, id: JobId) {
        debug_assert!(
            self.is_linked_as(id, JobState::Reserved),
            "the job is reserved when the rules are called"
        );
        const {
            assert!(
                each_rule!(count RESERVED, Slots::RESERVED) == 1,
                "no other rule misses `takes_only_slot`"
            )
        };
        let job = self.jobs.expect_mut(id);
        job.marks &= !Marks::UPGRADED;
        let called = job.marks & each_rule!(union RESERVED);
        if called.is_empty() || called == Slots::RESERVED && self.takes_only_slot(id) {
            return;
        }
        self.with_tags(id, |queue, job| each_rule!(job, RESERVED: reserved(queue, job)));
    }

    /// Calls the rules when a job was buried.
    #[inline]
    pub(crate) fn call_buried(&mut self, id: JobId, marks: Marks) {
        if marks.intersects(each_rule!(union BURIED)) {
            self.buried_marked(id);
        }
    }

    #[inline(never)]
    fn buried_marked(&mut self, id: JobId) {
        debug_assert!(self.is_linked_as(id, JobState::Buried), "the job is buried when the rules are called");
        self.with_tags(id, |queue, job| each_rule!(job, BURIED: buried(queue, job)));
        debug_assert!(self.is_linked_as(id, JobState::Buried), "no rule takes a buried job away");
    }

    /// Calls the rules when a job with marks has moved to another tube.
    pub(crate) fn moved_marked(&mut self, id: JobId, from: TubeKey) {
        debug_assert!(
            self.jobs.get(id).is_some_and(|job| job.tube != from),
            "the job has moved when the rules are called"
        );
        self.with_tags(id, |queue, job| each_rule!(moved(queue, job, from)));
    }

    /// Replaces the tags of `before` by those of `after`.
    pub(super) fn retagged(&mut self, before: &MarkedJob<'_>, after: &MarkedJob<'_>) {
        each_rule!(retagged(self, before, after));
    }
}
