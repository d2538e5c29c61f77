//! Bodies of deleted jobs that unsent replies still hold.
//!
//! Owns: the size of these bodies, but none of the bodies. A client that does not read keeps such bodies alive, so they
//! count towards the memory limit like jobs.

use std::collections::VecDeque;
use std::rc::Weak;

use crate::executor::Executor;
use crate::job::Body;

/// The minimum number of bodies probed in a turn.
const PROBES_PER_TURN: usize = 16;
/// A turn probes one in this many bodies, so that each is probed soon, however many there are.
const PROBES_PER_TURN_PART: usize = 32;

/// How many bytes of a body can be freed for the cost of a simple request.
const FREED_BYTES_PER_COST: usize = 32 * 1024;

/// All bodies that only replies hold.
#[derive(Debug, Default)]
pub(crate) struct DetachedBodies {
    bodies: VecDeque<(Weak<Vec<u8>>, usize)>,
    bytes: usize,
}

impl DetachedBodies {
    /// Adds a body of `bytes` whose job has been deleted, if a reply holds the body.
    pub(crate) fn watch(&mut self, body: Weak<Vec<u8>>, bytes: usize) {
        if body.strong_count() > 0 {
            self.bytes += bytes;
            self.bodies.push_back((body, bytes));
        }
    }

    /// Whether there are none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.bodies.is_empty() && self.bodies.capacity() <= PROBES_PER_TURN
    }

    /// The size of the bodies in bytes. Bodies that were freed in the last few turns may still be counted.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Asserts that the size of the bodies is the sum of their sizes.
    pub(super) fn check_invariants(&self) {
        let bytes: usize = self.bodies.iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(bytes, self.bytes, "the bodies that only replies hold are counted");
    }

    /// Probes some of the bodies, and removes those that no reply holds any more.
    pub(crate) fn forget_freed(&mut self) {
        let probes = PROBES_PER_TURN.max(self.bodies.len() / PROBES_PER_TURN_PART);
        for _ in 0..probes.min(self.bodies.len()) {
            let Some((body, bytes)) = self.bodies.pop_front() else { break };
            if body.strong_count() > 0 {
                self.bodies.push_back((body, bytes));
            } else {
                self.bytes -= bytes;
            }
        }
        if self.bodies.is_empty() && self.bodies.capacity() > PROBES_PER_TURN {
            self.bodies = VecDeque::new();
        }
    }
}

impl Executor {
    /// Notes that the job of a large body has been deleted; replies may still hold the body.
    #[cold]
    pub(crate) fn detach_body(&mut self, watch: Weak<Vec<u8>>, body: Body) {
        let bytes = body.len();
        drop(body);
        self.count_cost((bytes / FREED_BYTES_PER_COST) as u64);
        self.memory.detached_bodies.watch(watch, bytes);
    }

    /// Notes the large bodies of jobs that may have expired.
    #[inline]
    pub(in crate::executor) fn detach_expired_bodies(&mut self) {
        while let Some(body) = self.queue.next_expired_body() {
            if let Some(watch) = body.watch() {
                self.detach_body(watch, body);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::SHARED_FROM_BYTES;

    #[test]
    fn a_body_counts_as_long_as_a_reply_holds_it() {
        let mut detached = DetachedBodies::default();
        let body = Body::copy_of(&[7; SHARED_FROM_BYTES]).unwrap();
        let watch = body.watch().unwrap();
        detached.watch(watch.clone(), body.len());
        detached.forget_freed();
        assert_eq!(detached.bytes(), SHARED_FROM_BYTES);
        drop(body);
        detached.forget_freed();
        assert_eq!(detached.bytes(), 0);
        detached.watch(watch, SHARED_FROM_BYTES);
        assert_eq!(detached.bytes(), 0, "nobody holds it");
    }
}
