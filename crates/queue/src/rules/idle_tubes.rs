//! Idle tubes: a tube is removed when it has no job and no client, unless the bucket of its rule keeps it.
//!
//! Owns: which tubes only their buckets keep.

use beanstalkd_structures::Timer;

use crate::Queue;
use crate::clock::Timestamp;
use crate::state::keys::TubeKey;
use crate::state::registry::TubeRemoval;

/// The maximum number of tubes of an entry that only their buckets keep. With a slow rate, a client could otherwise
/// fill the memory with tubes that it has left. These tubes take at most 4 MB.
pub(crate) const MAX_KEPT_TUBES: usize = 4096;

impl Queue {
    /// Removes the tube, and whatever refers to it, if it has no job and no client.
    #[inline]
    pub(crate) fn remove_tube_if_idle(&mut self, tube: TubeKey) {
        let record = self.tubes.get(tube);
        if record.watching == 0 || record.ruled.is_some() {
            self.remove_or_reschedule(tube);
        }
    }

    fn remove_or_reschedule(&mut self, tube: TubeKey) {
        if let TubeRemoval::Removed(ruled) = self.tubes.remove_if_idle(tube) {
            self.deadlines.set(Timer::Tube(tube), None);
            self.flushes.forget_tube(tube);
            if let Some(rule) = ruled.filter(|ruled| ruled.is_kept).and_then(|ruled| ruled.rule) {
                self.tubes.rules.forget_kept(tube, &rule);
            }
        } else if self.tubes.get(tube).ruled.as_ref().is_some_and(|ruled| ruled.gate.has_deficit()) {
            // Only the deficit depends on whether the tube is otherwise idle.
            self.schedule(Timer::Tube(tube));
            self.keep_for_bucket(tube);
        }
    }

    /// Notes that only its bucket may keep the tube. If its entry then keeps more than [`MAX_KEPT_TUBES`], the tube of
    /// this entry that was left first is removed.
    #[cold]
    pub(crate) fn keep_for_bucket(&mut self, tube: TubeKey) {
        let record = self.tubes.get_mut(tube);
        let is_unused = record.is_unused();
        let ruled =
            record.ruled.as_mut().filter(|ruled| is_unused && ruled.gate.has_deficit() && !ruled.is_kept);
        let Some(ruled) = ruled else { return };
        let Some(rule) = ruled.rule.clone() else { return };
        ruled.is_kept = true;
        let Some(kept) = self.tubes.rules.kept(&rule) else { return };
        kept.push_back(tube);
        if kept.len() > MAX_KEPT_TUBES
            && let Some(first) = kept.pop_front()
        {
            self.forget_bucket(first);
        }
    }

    /// Fills the bucket of a tube that nothing else keeps, and removes the tube. A tube that has come into use again
    /// stays.
    fn forget_bucket(&mut self, tube: TubeKey) {
        debug_assert!(self.tubes.contains(tube), "a tube that is gone is not among the kept ones");
        let record = self.tubes.get_mut(tube);
        let is_unused = record.is_unused();
        if let Some(ruled) = &mut record.ruled
            && std::mem::take(&mut ruled.is_kept)
            && is_unused
        {
            ruled.gate.fill();
            self.remove_tube_if_idle(tube);
        }
    }

    /// Handles the full bucket of a tube that nothing else keeps.
    pub(crate) fn end_deficit(&mut self, tube: TubeKey, now: Timestamp) {
        self.tubes.get_mut(tube).refill(now);
        self.remove_tube_if_idle(tube);
    }
}
