//! The calls of the hooks, when a job with marks changes its state.
//!
//! Owns: the list of all rules ([`each_rule`]), and the order in which their hooks are called. Driven by the moves, the
//! operations and the functions of `mod.rs`.

use super::ages::Ages;
use super::awaited::Awaited;
use super::expiry::Expiry;
use super::groups::Groups;
use super::hooks::{MarkedJob, Rule};
use super::limits::TubeLimits;
use super::owners::Owners;
use super::slots::Slots;
use super::unique::UniqueKeys;
use crate::Queue;
use crate::job::{JobId, JobState};
use crate::state::jobs::Marks;
use crate::state::keys::TubeKey;
use crate::state::rotation::Rotation;

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

// For a new job without tags in a tube with a rule, `added_to_ruled` does what these two rules do.
const _: () = assert!(
    each_rule!(count ADDED, Marks::RULED) == 2
        && TubeLimits::ADDED.intersection(Ages::ADDED).contains(Marks::RULED),
    "`added_to_ruled` does not call another rule"
);

/// The marks at which rules are called when a job leaves this state.
fn marks_of_left(state: JobState) -> Marks {
    match state {
        JobState::Ready => each_rule!(union LEFT_READY),
        JobState::Reserved => each_rule!(union LEFT_RESERVED),
        JobState::Buried => each_rule!(union LEFT_BURIED),
        JobState::Delayed => Marks::empty(),
    }
}

/// Whether a rule may keep a job with these marks back when it becomes ready.
#[inline]
pub(crate) fn asks_rules_when_ready(marks: Marks) -> bool {
    marks.intersects(each_rule!(union ADMITS))
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
    /// Whether all rules permit clients to reserve this job, which is ready from now on.
    #[inline]
    pub(crate) fn call_admits(&mut self, job: &MarkedJob<'_>) -> bool {
        each_rule!(all job, ADMITS: admits(self, job))
    }

    /// Calls the rules when a job, which had these marks, has left this state.
    pub(crate) fn call_left(&mut self, id: JobId, marks: Marks, state: JobState) {
        if marks.intersects(marks_of_left(state)) {
            self.with_tags(id, |queue, job| queue.left_marked(&MarkedJob { marks, ..*job }, state));
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
            assert!(each_rule!(count RESERVED, Slots::RESERVED) == 1, "no other rule misses `take_only_slot`")
        };
        let job = self.jobs.expect_mut(id);
        job.marks &= !Marks::UPGRADED;
        let called = job.marks & each_rule!(union RESERVED);
        if called.is_empty() || called == Slots::RESERVED && self.take_only_slot(id) {
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
