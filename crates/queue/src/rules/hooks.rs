//! The hooks of a rule: the events of jobs with marks.
//!
//! Owns: the trait [`Rule`], and what the hooks are given. `calls.rs` calls them.

use super::Rules;
use crate::Queue;
use crate::clock::Timestamp;
use crate::job::JobId;
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
    /// The job is no longer ready: it was taken from its tube. Here and in the next two, its marks are those that it
    /// had before.
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

    /// The job has new tags: the tags of `after`.
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

    /// Handles the deadline of `next_due`, which has come. Returns whether the time of this job is over: then the
    /// caller ends it.
    fn tick(_queue: &mut Queue, _id: JobId) -> bool {
        false
    }

    /// Asserts the invariants of the rule's state.
    fn check(_queue: &Queue) {}
}

/// The hook [`Rule::tick`] of a rule.
pub(crate) type Tick = fn(&mut Queue, JobId) -> bool;

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
