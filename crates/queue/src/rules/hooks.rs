//! The hooks of a rule: the events of jobs with marks, and the order in which the hooks are called.
//!
//! Owns: the trait [`Rule`], the list of all rules ([`each_rule`]), and what the hooks are given. Driven by the
//! functions of `mod.rs`.

use super::Rules;
use crate::Queue;
use crate::clock::Timestamp;
use crate::job::{JobId, JobState};
use crate::state::jobs::{Job, Marks};
use crate::state::keys::{DueKey, TubeKey};
use crate::tags::TagSet;

/// The events of jobs with marks, as a rule sees them. The job is in no collection while a hook runs, except for
/// `reserved`, `buried` and a `moved` reservation.
pub(crate) trait Rule {
    /// The job is new: it was put, or restored from a log. Called for jobs with tags; for others in a tube with a rule,
    /// `added_to_ruled` does what `TubeLimits` and `Ages` do.
    fn added(_queue: &mut Queue, _job: &MarkedJob<'_>) {}

    /// The job is ready from now on. The rule returns whether clients may reserve it; otherwise it is parked. Called
    /// for jobs with tags when they are put, and afterwards for those with a key (`KEYED`).
    fn admits(_queue: &mut Queue, _job: &MarkedJob<'_>) -> bool {
        true
    }

    /// Whether the job may be reserved, in any state; asked by `reserve-job` for jobs with tags.
    fn may_be_reserved(_queue: &Queue, _job: &MarkedJob<'_>) -> bool {
        true
    }

    /// The job was reserved, from any state. Called for jobs that expire, age or have a key.
    fn reserved(_queue: &mut Queue, _job: &MarkedJob<'_>) {}

    /// The job has left this state: it was taken from its tube, or released by its client. Called for jobs with a key
    /// that were ready or reserved, and for jobs with tags that were buried; for delayed ones never.
    fn left(_queue: &mut Queue, _job: &MarkedJob<'_>, _state: JobState) {}

    /// The job was buried. Called for jobs with tags, and those for whose end a client waits.
    fn buried(_queue: &mut Queue, _job: &MarkedJob<'_>) {}

    /// The job has come into its tube from the tube `from`.
    fn moved(_queue: &mut Queue, _job: &MarkedJob<'_>, _from: TubeKey) {}

    /// The job has new tags, those of `after`.
    fn retagged(_queue: &mut Queue, _before: &MarkedJob<'_>, _after: &MarkedJob<'_>) {}

    /// The job has ended. Called unless its only mark is that its tube has a rule.
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

/// Calls a hook of every rule, in this order. An operator before the hook, such as `&`, joins the results of the calls.
macro_rules! each_rule {
    ($hook:ident $arguments:tt) => {
        each_rule!(; $hook $arguments)
    };
    ($between:tt $hook:ident $arguments:tt) => {{
        Expiry::$hook $arguments
            $between Owners::$hook $arguments
            $between TubeLimits::$hook $arguments
            $between Ages::$hook $arguments
            $between UniqueKeys::$hook $arguments
            $between Slots::$hook $arguments
            $between Groups::$hook $arguments
            $between Turns::$hook $arguments
            $between Awaited::$hook $arguments
    }};
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
    pub(crate) tags: &'a TagSet<'a>,
}

impl<'a> MarkedJob<'a> {
    pub(crate) fn new(id: JobId, job: &Job, tags: &'a TagSet<'a>) -> Self {
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
    /// The group that it frees.
    pub(super) freed_group: Option<Box<str>>,
}
