//! Tubes with a rule: how they get it, and how a reload changes the rules of tubes and jobs that are there.
//!
//! Owns: what a tube with a rule has beside others ([`Ruled`]), and the walk of a reload. A tube that is made gets the
//! rule for its name at once. A reload walks, a slice in each `advance`, first over the tubes: from then on a tube
//! follows its new rule; then over the jobs that were there, so that each tube knows its own; then over the tubes
//! again, to forget what has no rule any more. A job that is in a tube with a rule is marked (`marks::RULED`) when the
//! rule knows it.

use std::rc::Rc;

use beanstalkd_structures::{OrderedQueue, Timer};

use super::ages::Ages;
use super::gate::Gate;
use super::limits::Limits;
use super::tube_rule::{RuleBook, TubeRule};
use super::turns::Turns;
use super::{Rule, TaggedJob};
use crate::Queue;
use crate::clock::Timestamp;
use crate::job::JobId;
use crate::state::jobs::marks;
use crate::state::keys::{DueKey, TubeKey};
use crate::tags::TagSet;

/// Tubes and jobs that one step of a reload comes to: some 50 microseconds.
const ITEMS_PER_STEP: usize = 256;

/// Items of a step that cost as much as a simple command.
const ITEMS_PER_WORK: u64 = 16;

/// With more entries than this in the file, a step comes to fewer tubes, because each name is held against all entries
/// until one matches.
const ENTRIES_AT_FULL_STEP: usize = 16;

/// What a tube with a rule has.
#[derive(Debug)]
pub(crate) struct Ruled {
    /// `None` once a reload has taken it away: the jobs that it knows are forgotten then, and last of all this.
    pub(crate) rule: Option<Rc<TubeRule>>,
    /// The bodies of the jobs that are marked, together.
    pub(crate) bytes: u64,
    /// Jobs that were refused because the tube was full.
    pub(crate) rejected: u64,
    /// Jobs that were sent from here to the dead tube.
    pub(crate) dead: u64,
    pub(crate) gate: Gate,
    /// The jobs that age, by the instant at which they came.
    pub(crate) ages: OrderedQueue<DueKey>,
    /// The row of keys, if jobs are reserved by turns.
    pub(crate) turns: Option<Box<Turns>>,
}

impl Ruled {
    pub(crate) fn new(rule: &Rc<TubeRule>) -> Box<Self> {
        Box::new(Self {
            rule: Some(rule.clone()),
            bytes: 0,
            rejected: 0,
            dead: 0,
            gate: Gate::default(),
            ages: OrderedQueue::default(),
            turns: rule.is_fair.then(Box::default),
        })
    }

    /// Whether a reservation may close its gate.
    #[inline]
    pub(crate) fn has_gate(&self) -> bool {
        self.rule.as_ref().is_some_and(|rule| rule.rate.is_some() || rule.max_reserved.is_some())
    }
}

/// What is over all tubes.
#[derive(Debug, Default)]
pub(crate) struct RuledTubes {
    /// How far the reload has come that is under way.
    walk: Option<Walk>,
    /// Closed gates that may be open now.
    pub(crate) to_open: Vec<TubeKey>,
    /// What the orders of jobs take that rules need, in bytes.
    pub(crate) index_bytes: usize,
}

/// Where the walk of a reload goes on.
#[derive(Clone, Copy, Debug)]
enum Walk {
    /// Gives rules to the tubes from this place of their store on.
    Tubes(usize),
    /// Tells the tubes of their jobs with this id and above.
    Jobs(JobId),
    /// Takes from the tubes what they need no more.
    Ends(usize),
}

impl RuledTubes {
    /// Whether a reload is under way: jobs may be unknown to the rules of their tubes.
    pub(crate) fn is_changing(&self) -> bool {
        self.walk.is_some()
    }
}

impl Queue {
    /// Puts other rules for tubes in force. If there are few tubes, they follow them from now on; otherwise `advance`
    /// does the rest.
    pub fn set_tube_rules(&mut self, rules: Vec<TubeRule>, now: Timestamp) {
        if rules.is_empty() && self.tubes.rules.is_empty() {
            return;
        }
        self.tubes.rules = RuleBook::new(rules);
        self.rules.tubes.walk = Some(Walk::Tubes(0));
        self.go_on_with_rules(now);
    }

    /// Whether a reload of the rules for tubes is under way.
    #[inline]
    pub(crate) fn changes_rules(&self) -> bool {
        self.rules.tubes.is_changing()
    }

    /// Takes the next step of a reload.
    pub(crate) fn go_on_with_rules(&mut self, now: Timestamp) {
        let Some(walk) = self.rules.tubes.walk else { return };
        self.work += ITEMS_PER_STEP as u64 / ITEMS_PER_WORK;
        self.rules.tubes.walk = match walk {
            Walk::Tubes(place) => {
                let entries = self.tubes.rules.len().max(ENTRIES_AT_FULL_STEP);
                let step = (ITEMS_PER_STEP * ENTRIES_AT_FULL_STEP / entries).max(1);
                let (tubes, is_end) = self.tubes.slots_from(place, step);
                tubes.into_iter().for_each(|tube| self.attach(tube, now));
                Some(if is_end { Walk::Jobs(JobId(0)) } else { Walk::Tubes(place + step) })
            }
            Walk::Jobs(from) => {
                let mut next = Some(from);
                for _ in 0..ITEMS_PER_STEP {
                    next = next.and_then(|from| self.jobs.first_from(from));
                    let Some(id) = next else { break };
                    self.adopt(id);
                    next = id.0.checked_add(1).map(JobId);
                }
                Some(next.map_or(Walk::Ends(0), Walk::Jobs))
            }
            Walk::Ends(place) => {
                let (tubes, is_end) = self.tubes.slots_from(place, ITEMS_PER_STEP);
                let is_opening = tubes.iter().any(|&tube| self.tubes.get(tube).opens_for_ever());
                tubes.into_iter().for_each(|tube| self.end_rule(tube));
                let next = if is_opening { Some(place) } else { (!is_end).then_some(place + ITEMS_PER_STEP) };
                next.map(Walk::Ends)
            }
        };
    }

    /// The tube follows the rule for its name from now on.
    fn attach(&mut self, tube: TubeKey, now: Timestamp) {
        let rule = self.tubes.rules.find(self.tubes.get(tube).name.as_str()).cloned();
        let record = self.tubes.get_mut(tube);
        match (&mut record.ruled, rule) {
            (Some(ruled), rule) => {
                ruled.gate.change(ruled.rule.as_deref(), rule.as_deref(), now);
                match (&mut ruled.turns, rule.as_ref().is_some_and(|rule| rule.is_fair)) {
                    (Some(turns), is_fair) => turns.is_ending = !is_fair,
                    (turns @ None, true) => *turns = Some(Box::default()),
                    (None, false) => {}
                }
                ruled.rule = rule;
            }
            (ruled, Some(rule)) => *ruled = Some(Ruled::new(&rule)),
            (None, None) => return,
        }
        self.close_gate(tube);
        self.note_gate(tube);
        self.schedule(Timer::Tube(tube));
    }

    /// The tube keeps nothing of a rule that is gone. While clients that wait still get its jobs, in slices, its gate
    /// stays, because a tube without one would have both.
    fn end_rule(&mut self, tube: TubeKey) {
        let record = self.tubes.get_mut(tube);
        if record.opens_for_ever() {
            return;
        }
        let ruled = &mut record.ruled;
        *ruled = ruled.take().filter(|ruled| ruled.rule.is_some());
        if let Some(ruled) = ruled {
            ruled.turns = ruled.turns.take().filter(|turns| !turns.is_ending);
        }
        self.remove_tube_if_idle(tube);
    }

    /// The rule of the job's tube learns of the job, or forgets it if there is none any more.
    fn adopt(&mut self, id: JobId) {
        let job = self.jobs.get(id).expect("the walk has found it");
        let Some(ruled) = &self.tubes.get(job.tube).ruled else { return };
        let is_known = job.has(marks::RULED);
        if ruled.rule.is_some() != is_known {
            let job = TaggedJob::new(id, job, &TagSet::NONE);
            if is_known {
                // It comes again, and nothing counts it.
                Limits::moved(self, &job, job.tube);
            } else {
                Limits::came(self, &job);
            }
        }
        self.age_by_rule(id);
        self.turn_by_rule(id);
    }

    /// A job without tags has come to its tube, which may have a rule.
    #[inline]
    pub(crate) fn came_plain(&mut self, id: JobId, tube: TubeKey) {
        if self.tubes.get(tube).ruled.is_some() {
            self.came_to_ruled(id, tube);
        }
    }

    /// A job without tags has come to a tube that has a rule, or had one.
    #[inline(never)]
    fn came_to_ruled(&mut self, id: JobId, tube: TubeKey) {
        let job = self.jobs.expect_mut(id);
        let Some(ruled) = &mut self.tubes.get_mut(tube).ruled else { return };
        let Some(rule) = &ruled.rule else { return };
        // As `Limits` does for a job with tags.
        ruled.bytes += job.body.len() as u64;
        job.marks |= marks::RULED;
        if rule.max_age_s.is_some() {
            let job = TaggedJob::new(id, job, &TagSet::NONE);
            Ages::came(self, &job);
        }
    }
}
