//! The tests of several rules together, and of rules at full size. The tests of one rule are in its file.

mod crowd;
mod slots;
mod tags;
mod tube_rules;

use crate::job::JobId;
use crate::tags::TagSet;
use crate::testing::{NOW, TestJob};
use crate::{ClientId, Queue};

fn put(queue: &mut Queue, client: ClientId, priority: u32, tags: TagSet<'_>) -> JobId {
    TestJob { priority, ttr_s: 10, tags, ..TestJob::default() }.put(queue, client, NOW)
}
