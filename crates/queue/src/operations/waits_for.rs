//! The reasons for which a job waits, in words: `waits-for` in `stats-job`.
//!
//! Owns: the words and their order. Never decides anything: it asks the rules that keep jobs back.

use crate::Queue;
use crate::clock::Timestamp;
use crate::job::JobId;
use crate::state::jobs::{Collection, Marks};

impl Queue {
    /// The words, separated by spaces; empty if there is no such job. A reserved job waits for its `client`, a buried
    /// one for a `kick`, a delayed one for the end of its `group` or of its `delay`. A ready one waits for everything
    /// that keeps it back: the end of a `pause`, a slot of its `key`, or of its tube (`max-reserved`), the next token
    /// of its `rate`, its `turn` in a fair tube while another job goes first. If none of these applies, it waits for
    /// a `worker`: any reserve of its tube may take it.
    #[must_use]
    pub fn waits_for(&self, id: JobId, now: Timestamp) -> String {
        let Some(job) = self.jobs.get(id) else { return String::new() };
        let words: [Option<&str>; 5] = match job.collection() {
            Collection::Reserved(_) => [Some("client"), None, None, None, None],
            Collection::Buried(_) => [Some("kick"), None, None, None, None],
            Collection::Delayed(until) => {
                let is_held = self.is_held(id);
                let is_delayed = !is_held || Timestamp::from(until) > now;
                [is_held.then_some("group"), is_delayed.then_some("delay"), None, None, None]
            }
            Collection::Ready(_) => {
                let tube = self.tubes.get(job.tube);
                let key = if job.has(Marks::KEYED) { self.expect_tags(id).concurrency } else { None };
                let is_used_up = key.is_some_and(|key| !self.is_below_limit(key));
                let [is_full, has_no_token] = tube.throttled_by(now);
                [
                    tube.pause.is_some().then_some("pause"),
                    is_used_up.then_some("key"),
                    is_full.then_some("max-reserved"),
                    has_no_token.then_some("rate"),
                    (!is_used_up && self.is_passed_over(id, job.tube)).then_some("turn"),
                ]
            }
        };
        match words.into_iter().flatten().collect::<Vec<_>>() {
            nothing if nothing.is_empty() => "worker".to_owned(),
            words => words.join(" "),
        }
    }
}
