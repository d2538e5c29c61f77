//! Tubes with a rule: how they get it, and how a reload changes the rules of existing tubes and jobs.
//!
//! Owns: the walk of a reload, which changes the [`TubeRuleState`] of tubes. A new tube gets the rule for its name at
//! once. A reload walks three times, a slice in each `advance`:
//!
//! 1. over the tubes: from then on, a tube follows its new rule;
//! 2. over the existing jobs, so that each tube knows its own;
//! 3. over the tubes again, to remove the state of tubes without a rule.
//!
//! A job in a tube with a rule is marked (`Marks::RULED`) when the rule knows it.

use beanstalkd_structures::Timer;

use super::ages::{self, Ages};
use super::limits::TubeLimits;
use super::{MarkedJob, Rule};
use crate::Queue;
use crate::clock::Timestamp;
use crate::job::JobId;
use crate::state::jobs::Marks;
use crate::state::keys::TubeKey;
use crate::state::rotation;
use crate::state::tube_rule::{RuleBook, TubeRule};
use crate::state::tubes::TubeRuleState;
use crate::tags::JobTags;

/// Tubes and jobs in one step of a reload: about 50 microseconds.
const ITEMS_PER_STEP: usize = 256;

/// How many items of a step cost as much as a simple command.
const ITEMS_PER_COST: u64 = 16;

/// With more entries than this in the file, a step handles fewer tubes, because each name is compared with the entries
/// until one matches.
const ENTRIES_AT_FULL_STEP: usize = 16;

/// The state of rules that is shared by all tubes.
#[derive(Debug, Default)]
pub(crate) struct SharedRuleState {
    /// The progress of the running reload.
    walk: Option<ReloadWalk>,
    /// Closed gates that may be open now.
    pub(crate) to_open: Vec<TubeKey>,
    /// Jobs that become too old unless a client reserves them in time.
    pub(crate) aging_jobs: usize,
    /// Jobs in the rotations of fair tubes.
    pub(crate) rotating_jobs: usize,
    /// The jobs that could not go to a full dead tube, since the caller last took them.
    pub(crate) kept_from_dead_tube: Option<Box<KeptFromDeadTube>>,
}

/// Jobs that are buried because their dead tube is full.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the other fields say everything")]
pub struct KeptFromDeadTube {
    pub jobs: u64,
    /// The tube of the first one.
    pub tube: Box<str>,
    pub dead_tube: Box<str>,
}

/// The position of the walk of a reload.
#[derive(Clone, Copy, Debug)]
enum ReloadWalk {
    /// Gives rules to the tubes from this index on.
    Tubes(usize),
    /// Adds the jobs with this id and above to their tubes.
    Jobs(JobId),
    /// Removes the state that tubes no longer need.
    Ends(usize),
}

impl SharedRuleState {
    /// Whether a reload is running: rules may not know all jobs of their tubes.
    pub(crate) fn is_reloading(&self) -> bool {
        self.walk.is_some()
    }

    /// The memory of the orders of jobs that rules need, in bytes.
    pub(crate) fn index_bytes(&self) -> usize {
        self.aging_jobs * ages::BYTES_PER_JOB + self.rotating_jobs * rotation::BYTES_PER_JOB
    }

    /// Removes the state of tubes without a rule, as at the end of a reload.
    pub(crate) fn remove_ended_rules(&mut self) {
        self.walk.get_or_insert(ReloadWalk::Ends(0));
    }
}

impl Queue {
    /// Whether jobs were buried because their dead tube is full, since the last call of `take_kept_from_dead_tube`.
    #[inline]
    #[must_use]
    pub fn has_kept_from_dead_tube(&self) -> bool {
        self.rules.tubes.kept_from_dead_tube.is_some()
    }

    /// The jobs that were buried because their dead tube is full, since the last call.
    pub fn take_kept_from_dead_tube(&mut self) -> Option<KeptFromDeadTube> {
        self.rules.tubes.kept_from_dead_tube.take().map(|kept| *kept)
    }

    /// Puts new rules for tubes in force. If there are few tubes, they follow them from now on; otherwise `advance`
    /// does the rest.
    pub fn set_tube_rules(&mut self, rules: Vec<TubeRule>, now: Timestamp) {
        if rules.is_empty() && self.tubes.rules.is_empty() {
            return;
        }
        self.tubes.rules = RuleBook::new(rules);
        self.rules.tubes.walk = Some(ReloadWalk::Tubes(0));
        self.continue_reload(now);
        self.note_overdue(now);
    }

    /// Whether a reload of the rules for tubes is running.
    #[inline]
    pub(crate) fn is_reloading_rules(&self) -> bool {
        self.rules.tubes.is_reloading()
    }

    /// Takes the next step of a reload.
    pub(crate) fn continue_reload(&mut self, now: Timestamp) {
        let Some(walk) = self.rules.tubes.walk else { return };
        self.cost += ITEMS_PER_STEP as u64 / ITEMS_PER_COST;
        self.rules.tubes.walk = match walk {
            ReloadWalk::Tubes(index) => {
                let entries = self.tubes.rules.len().max(ENTRIES_AT_FULL_STEP);
                let step = (ITEMS_PER_STEP * ENTRIES_AT_FULL_STEP / entries).max(1);
                let (tubes, is_end) = self.tubes.with_keys_from(index, step);
                tubes.into_iter().for_each(|tube| self.attach(tube, now));
                Some(if is_end { ReloadWalk::Jobs(JobId(0)) } else { ReloadWalk::Tubes(index + step) })
            }
            ReloadWalk::Jobs(from) => {
                let mut next = Some(from);
                for _ in 0..ITEMS_PER_STEP {
                    next = next.and_then(|from| self.jobs.first_from(from));
                    let Some(id) = next else { break };
                    self.adopt(id);
                    next = id.0.checked_add(1).map(JobId);
                }
                Some(next.map_or(ReloadWalk::Ends(0), ReloadWalk::Jobs))
            }
            ReloadWalk::Ends(index) => {
                let (tubes, is_end) = self.tubes.with_keys_from(index, ITEMS_PER_STEP);
                let is_opening = tubes.iter().any(|&tube| self.tubes.get(tube).opens_for_good());
                tubes.into_iter().for_each(|tube| self.end_rule(tube));
                let next = if is_opening { Some(index) } else { (!is_end).then_some(index + ITEMS_PER_STEP) };
                next.map(ReloadWalk::Ends)
            }
        };
    }

    /// Gives the tube the rule for its name.
    fn attach(&mut self, tube: TubeKey, now: Timestamp) {
        if !self.tubes.contains(tube) {
            // An idle tube is removed if there are too many: this one was, while others got their rules in this step.
            return;
        }
        let rule = self.tubes.rules.find(self.tubes.get(tube).name.as_str()).cloned();
        self.tubes.change_ruled(tube, |ruled| match (ruled, rule) {
            (Some(ruled), rule) => {
                ruled.gate.change(ruled.rate(), rule.as_ref().and_then(|rule| rule.rate), now);
                match (&mut ruled.rotation, rule.as_ref().is_some_and(|rule| rule.is_fair)) {
                    (Some(rotation), is_fair) => rotation.is_ending = !is_fair,
                    (rotation @ None, true) => *rotation = Some(Box::default()),
                    (None, false) => {}
                }
                ruled.rule = rule;
                ruled.is_kept = false;
            }
            (ruled, Some(rule)) => *ruled = Some(TubeRuleState::new(&rule)),
            (None, None) => {}
        });
        if self.tubes.get(tube).ruled.is_none() {
            return;
        }
        self.close_gate(tube);
        self.note_gate(tube);
        self.keep_for_bucket(tube);
        if self.tubes.contains(tube) {
            self.schedule(Timer::Tube(tube));
        }
    }

    /// Removes the state of a rule that no longer exists. While waiting clients still get its jobs, in slices, its gate
    /// stays, because a tube without a gate would have both.
    fn end_rule(&mut self, tube: TubeKey) {
        if self.tubes.get(tube).opens_for_good() {
            return;
        }
        let knows_none =
            |ruled: &TubeRuleState| ruled.rule.is_some() || ruled.body_bytes == 0 && ruled.ages.is_empty();
        let ruled = self.tubes.get(tube).ruled.as_deref();
        debug_assert!(ruled.is_none_or(knows_none), "a rule ends when it has no job");
        self.tubes.change_ruled(tube, |ruled| {
            *ruled = ruled.take().filter(|ruled| ruled.rule.is_some());
            if let Some(ruled) = ruled {
                ruled.rotation = ruled.rotation.take().filter(|rotation| !rotation.is_ending);
            }
        });
        self.remove_tube_if_idle(tube);
    }

    /// Adds the job to the rule of its tube, or removes it if there is no rule any more.
    fn adopt(&mut self, id: JobId) {
        let job = self.jobs.expect(id);
        let Some(ruled) = &self.tubes.get(job.tube).ruled else { return };
        let is_known = job.has(Marks::RULED);
        if ruled.rule.is_some() != is_known {
            let job = MarkedJob::new(id, job, &JobTags::NONE);
            if is_known {
                TubeLimits::forget(self, &job, job.tube);
            } else {
                TubeLimits::added(self, &job);
            }
        }
        self.age_by_rule(id);
        self.rotate_by_rule(id);
        debug_assert!(
            self.is_known_to_rule(id),
            "the rule of the job's tube knows the job, or there is none"
        );
    }

    /// Whether the job is marked if its tube has a rule, and not otherwise.
    #[inline]
    fn is_known_to_rule(&self, id: JobId) -> bool {
        let job = self.jobs.get(id).filter(|job| self.tubes.contains(job.tube));
        job.is_some_and(|job| self.tubes.get(job.tube).rule().is_some() == job.has(Marks::RULED))
    }

    /// Adds a job without tags to its tube, which may have a rule.
    #[inline]
    pub(crate) fn added_plain(&mut self, id: JobId, tube: TubeKey) {
        if self.tubes.get(tube).ruled.is_some() {
            self.added_to_ruled(id, tube);
        }
    }

    /// Adds a job without tags to a tube that has or had a rule.
    #[inline(never)]
    fn added_to_ruled(&mut self, id: JobId, tube: TubeKey) {
        let job = self.jobs.expect_mut(id);
        let Some(ruled) = &mut self.tubes.get_mut(tube).ruled else { return };
        let Some(rule) = &ruled.rule else { return };
        // As `TubeLimits` does for a job with tags; `Ages` follows.
        ruled.body_bytes += job.body.len() as u64;
        debug_assert_eq!(
            job.marks,
            Marks::empty(),
            "a job without tags has no marks before a rule applies to it"
        );
        job.marks |= Marks::RULED;
        if rule.max_age_s.is_some() {
            let job = MarkedJob::new(id, job, &JobTags::NONE);
            Ages::added(self, &job);
        }
    }
}
