//! Operations that come between the slices of others, on the queue alone: who gets which job depends on what is left.

use std::collections::BTreeSet;

use beanstalkd_queue::{Change, FlushStep, JobCounts, PoisonLimits, Queue, Reserve, Slices, TubeRule};
use beanstalkd_types::job::{JobId, JobState};
use beanstalkd_types::pattern::Pattern;
use beanstalkd_types::seconds::Seconds;
use beanstalkd_types::tags::{Concurrency, TagSet};

use super::drive::Pair;
use super::flushes::flush_step;
use super::{ClientCommand, Operation, TUBES, case, rules};
use crate::random::Random;
use crate::tags::name;
use crate::weighted;

/// The smallest slices with which everything ends.
const SLICES: Slices = Slices { given_back: 1, delivered: 1, probed_tubes: 2, few_tubes: 2 };
/// Takes a slice of the unfinished work.
const SLICE: Operation = Operation::Pass { ns: 0 };

/// The limits and the operations of a case, with slices of unfinished work between the operations.
pub fn sliced_case(seed: u64) -> (PoisonLimits, Vec<Operation>) {
    let (limits, usual) = case(seed);
    let mut random = Random::new(!seed);
    let operations =
        usual.into_iter().filter(|one| !matches!(one, Operation::List { .. })).flat_map(|operation| {
            let slices = random.pick(&[0, 0, 0, 1, 1, 2, 30]);
            let others = [operation, contending(&mut random), contending(&mut random)];
            others.into_iter().chain((0..slices).map(|_| SLICE))
        });
    (limits, operations.collect())
}

/// An operation that begins long work, or for which such work matters: jobs of all tubes contend for one slot.
fn contending(random: &mut Random) -> Operation {
    use ClientCommand as C;
    let (client, job, tube) = (random.below(64), random.below(64), random.pick(&TUBES));
    let slot = TagSet { concurrency: Some(Concurrency { key: name("k"), limit: 1 }), ..TagSet::NONE };
    let (priority, ttr_s, tags) = (random.below(4) as u32, 60.into(), slot.into());
    let command = weighted!(
        random,
        (4, C::Put { priority, delay_s: Seconds::ZERO, ttr_s, tags, is_announced: false }),
        (4, C::Reserve { timeout_s: None }),
        (2, C::Use { tube }),
        (2, C::Watch { tube }),
        (2, C::Delete { job }),
        (1, C::Flush { tube, only_buried: false }),
    );
    weighted!(
        random,
        (15, Operation::Command { client, command }),
        (3, Operation::Connect),
        (2, Operation::Disconnect { client }),
        (1, Operation::SetRules { number: random.next() }),
    )
}

/// Applies the operations, and ends all work that they have left. Returns how many of them came while work was left.
///
/// # Panics
/// If something is lost between the slices.
pub fn run_in_slices(limits: PoisonLimits, operations: &[Operation]) -> usize {
    let mut pair = Pair::new(limits);
    (pair.queue, pair.keeps_slices) = (Queue::new(limits, SLICES), true);
    pair.queue.keep_changes();
    let mut run = Run { pair, rules: Vec::new() };
    let mut met = 0;
    for &operation in operations {
        met += usize::from(!run.is_at_rest());
        run.step(operation);
    }
    run.finish();
    run.check_reserves();
    met
}

struct Run {
    pair: Pair,
    rules: Vec<TubeRule>,
}

impl Run {
    fn is_at_rest(&self) -> bool {
        self.pair.flushing.is_empty() && self.pair.queue.next_deadline().is_none_or(|at| at > self.pair.now)
    }

    fn finish(&mut self) {
        let mut slices = 0..10_000;
        while !self.is_at_rest() {
            assert!(slices.next().is_some(), "the work ends");
            self.step(SLICE);
        }
    }

    /// Each job that comes or goes has a change for the log.
    fn step(&mut self, operation: Operation) {
        let before: BTreeSet<JobId> = self.pair.queue.job_ids().collect();
        if let Operation::SetRules { number } = operation {
            self.rules = rules(number);
        }
        if let Operation::Pass { ns: 0 } = operation
            && let Some(flush) = self.pair.flushing.pop()
        {
            if flush_step(&mut self.pair.queue, flush.client, self.pair.now) != FlushStep::Done {
                self.pair.flushing.insert(0, flush);
            } else {
                assert!(flush.jobs.is_empty(), "{:?} are left in {}", flush.jobs, flush.tube);
            }
        }
        self.pair.execute(operation);
        let Pair { queue, flushing, model, .. } = &mut self.pair;
        model.next_id = queue.next_id().0;
        queue.check_invariants();
        while queue.poll_delivery().is_some() {}
        let mut changes = Vec::new();
        queue.swap_changes(&mut changes);
        let put = |change: &Change| if let Change::Put(id) = change { Some(*id) } else { None };
        let found: BTreeSet<JobId> = queue.job_ids().collect();
        assert_eq!(&found - &before, changes.iter().filter_map(put).collect());
        let deleted = changes.iter().filter_map(Change::deleted).map(|(id, _)| id);
        assert_eq!(&before - &found, deleted.collect());
        for flush in flushing {
            let stays = |id| {
                let job = queue.job(id).filter(|job| job.tube.as_str() == flush.tube);
                job.is_some_and(|job| !flush.only_buried || job.record.state == JobState::Buried)
            };
            flush.jobs.retain(|&id| stays(id));
        }
        if self.is_at_rest() {
            self.check_rest();
        }
    }

    fn check_rest(&self) {
        let queue = &self.pair.queue;
        let mut all = JobCounts::default();
        for tube in queue.tubes_from(0, self.pair.now) {
            let rule = self.rules.iter().find(|rule| Pattern::new(&rule.pattern).matches(tube.name.as_str()));
            assert_eq!(format!("{:?}", tube.rule.as_deref()), format!("{rule:?}"), "{tube:?}");
            let mut found = JobCounts::default();
            for job in queue.job_ids().filter_map(|id| queue.job(id)).filter(|job| *job.tube == tube.name) {
                match job.record.state {
                    JobState::Ready => found.ready += 1,
                    JobState::Reserved => found.reserved += 1,
                    JobState::Delayed => found.delayed += 1,
                    JobState::Buried => found.buried += 1,
                }
                let is_urgent = job.record.state == JobState::Ready && job.record.priority.is_urgent();
                found.urgent += u64::from(is_urgent);
                let reason = queue.waits_for(job.record.id, self.pair.now);
                let is_served = tube.waiting == 0 || !["worker", "turn"].contains(&&*reason);
                assert!(is_served, "{} clients wait for {job:?}", tube.waiting);
            }
            assert_eq!(tube.jobs, found, "{tube:?}");
            all += found;
            let is_used =
                u64::from(tube.using + tube.watching) + tube.cooldowns.count > 0 || found.total() > 0;
            let stays = tube.name.as_str() == "default" || rule.is_some_and(|rule| rule.rate.is_some());
            assert!(is_used || stays, "{tube:?} is idle");
        }
        assert_eq!(queue.figures().jobs, all);
        assert_eq!(queue.job_ids().count(), all.total());
    }

    /// A client gets a job of a tube if one waits for a worker, and only then.
    fn check_reserves(&mut self) {
        let now = self.pair.now;
        let tubes: Vec<_> = self.pair.queue.tube_names().cloned().collect();
        for tube in tubes {
            let queue = &mut self.pair.queue;
            let is_here = |id| queue.job(id).is_some_and(|job| *job.tube == tube);
            let is_free = queue.job_ids().any(|id| is_here(id) && queue.waits_for(id, now) == "worker");
            let client = queue.connect();
            queue.watch(client, tube.as_str());
            if tube.as_str() != "default" {
                queue.ignore(client, "default");
            }
            let found = loop {
                match queue.reserve(client, Some(Seconds::ZERO), now) {
                    Reserve::Unfinished => queue.check_invariants(),
                    found => break found,
                }
            };
            assert_eq!(matches!(found, Reserve::Job(_)), is_free, "{found:?} in {tube}");
            if let Reserve::Job(id) = found {
                queue.undo_reserve(client, id, now);
            }
            queue.disconnect(client, now);
            self.finish();
        }
    }
}
