//! Bodies whose jobs are gone, and which unsent replies still hold.
//!
//! Owns: how many bytes these are, but none of the bodies. A client that does not read keeps such bodies alive, so they
//! count against the bound on memory as jobs do.

use std::collections::VecDeque;
use std::rc::Weak;

use super::Executor;
use crate::job::Body;

/// The least number of bodies that are looked at in a turn.
const PROBES_PER_TURN: usize = 16;
/// A turn probes one in this many bodies, so that each has its turn soon, however many there are.
const PROBES_PER_TURN_PART: usize = 32;

/// Bytes of a body that cost as much as a simple request to free.
const FREED_BYTES_PER_WORK: usize = 32 * 1024;

/// All bodies that only replies hold.
#[derive(Debug, Default)]
pub struct DetachedBodies {
    bodies: VecDeque<(Weak<Vec<u8>>, usize)>,
    bytes: usize,
}

impl DetachedBodies {
    /// Adds a body of `bytes` whose job is gone, if a reply holds it.
    pub fn watch(&mut self, body: Weak<Vec<u8>>, bytes: usize) {
        if body.strong_count() > 0 {
            self.bytes += bytes;
            self.bodies.push_back((body, bytes));
        }
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bodies.is_empty() && self.bodies.capacity() <= PROBES_PER_TURN
    }

    /// Their size in bytes. Bodies that were freed in the last turns may still be counted.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Looks at some of the bodies, and forgets those that no reply holds any more.
    pub fn tend(&mut self) {
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
    /// The job of a large body is gone; replies may still hold the body.
    #[cold]
    pub(super) fn detach_body(&mut self, watch: Weak<Vec<u8>>, body: Body) {
        let bytes = body.len();
        drop(body);
        self.work += (bytes / FREED_BYTES_PER_WORK) as u64;
        self.detached_bodies.watch(watch, bytes);
    }

    /// The jobs of some large bodies may have expired.
    #[inline]
    pub(super) fn detach_expired_bodies(&mut self) {
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
        detached.tend();
        assert_eq!(detached.bytes(), SHARED_FROM_BYTES);
        drop(body);
        detached.tend();
        assert_eq!(detached.bytes(), 0);
        detached.watch(watch, SHARED_FROM_BYTES);
        assert_eq!(detached.bytes(), 0, "nobody holds it");
    }
}
