//! Flushes, a step at a time.

use std::collections::BTreeSet;

use beanstalkd_queue::{BeginFlush, ClientId, FlushScope, FlushStep, Queue};
use beanstalkd_types::clock::Timestamp;
use beanstalkd_types::job::JobId;

/// A flush that goes on while other operations come.
pub(super) struct Flush {
    pub(super) client: ClientId,
    pub(super) tube: &'static str,
    pub(super) only_buried: bool,
    /// The jobs that have stayed there since it began.
    pub(super) jobs: BTreeSet<JobId>,
}

impl Flush {
    pub(super) fn begin(
        queue: &mut Queue,
        client: ClientId,
        tube: &'static str,
        only_buried: bool,
    ) -> Option<Self> {
        let begun = queue.begin_flush(client, tube, scope(only_buried));
        let jobs = queue.job_ids().collect();
        (begun == BeginFlush::Begun).then_some(Self { client, tube, only_buried, jobs })
    }
}

fn scope(only_buried: bool) -> FlushScope {
    if only_buried { FlushScope::Buried } else { FlushScope::All }
}

/// Flushes the tube in the smallest possible slices.
pub(super) fn flush(
    queue: &mut Queue,
    client: ClientId,
    tube: &str,
    only_buried: bool,
    now: Timestamp,
) -> u64 {
    if queue.begin_flush(client, tube, scope(only_buried)) == BeginFlush::NoTube {
        return 0;
    }
    let mut count = 0;
    loop {
        let step = flush_step(queue, client, now);
        end_slices(queue, now);
        match step {
            FlushStep::Job(_) => count += 1,
            FlushStep::Cooldown(_) | FlushStep::Unfinished => {}
            FlushStep::Done => return count,
        }
    }
}

/// Takes the smallest possible step of a flush.
pub(super) fn flush_step(queue: &mut Queue, client: ClientId, now: Timestamp) -> FlushStep {
    let step = queue.next_to_flush(client, &mut 1);
    match step {
        FlushStep::Job(job) => drop(queue.flush_job(job, now)),
        FlushStep::Cooldown(job) => queue.end_cooldown(job),
        FlushStep::Unfinished => queue.check_invariants(),
        FlushStep::Done => queue.end_flush(client, now),
    }
    step
}

/// Ends the work that is due at once.
pub(super) fn end_slices(queue: &mut Queue, now: Timestamp) {
    while queue.next_deadline() == Some(Timestamp::AT_ONCE) {
        queue.advance(now);
    }
}
