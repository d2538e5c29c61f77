//! The opening of gates: waiting clients get the jobs that were behind them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use beanstalkd_structures::Timer;

use crate::Queue;
use crate::clock::Timestamp;
use crate::state::keys::{ReadyKey, TubeKey};

impl Queue {
    /// Opens the gates that may be open now: waiting clients get jobs, the most urgent first, a limited number at a
    /// time.
    pub(crate) fn open_gates(&mut self, now: Timestamp) {
        let mut tubes = std::mem::take(&mut self.rules.tubes.to_open);
        tubes.sort_unstable();
        tubes.dedup();
        tubes.retain(|&tube| self.tubes.contains(tube) && self.tubes.get(tube).is_throttled());
        tubes.iter().for_each(|&tube| self.tubes.get_mut(tube).refill(now));
        let mut probes_left = self.slices.probed_tubes;
        let heads = tubes
            .iter()
            .filter_map(|&tube| Some(Reverse((self.head_behind_gate(tube, &mut probes_left, now)?, tube))));
        let mut heads: BinaryHeap<_> = heads.collect();
        let mut deliveries = self.slices.delivered;
        while deliveries > 0
            && let Some(Reverse((key, tube))) = heads.pop()
        {
            // The client that waited for it may have received the job of another tube. No head becomes more urgent
            // here.
            let Some(head) = self.head_behind_gate(tube, &mut probes_left, now) else { continue };
            if head == key {
                // A job that is taken must go to a client, so the client comes first.
                let Some((_, client)) = self.first_waiting(tube) else { continue };
                let Some(id) = self.take_first_ready(tube) else { continue };
                self.deliver_job(id, client, now);
                deliveries -= 1;
            }
            let next = self.head_behind_gate(tube, &mut probes_left, now);
            heads.extend(next.map(|head| Reverse((head, tube))));
        }
        tubes.into_iter().for_each(|tube| self.end_opening(tube));
    }

    /// The most urgent job in a tube whose gate may open, if a client waits for it.
    fn head_behind_gate(
        &mut self,
        tube: TubeKey,
        probes_left: &mut usize,
        now: Timestamp,
    ) -> Option<ReadyKey> {
        let record = self.tubes.get(tube);
        if record.must_be_closed() || record.pause.is_some() || record.ready.is_empty() {
            return None;
        }
        self.first_waiting(tube)?;
        if self.rules.must_refresh_heads() && !self.refresh_head(tube, probes_left, now) {
            return None;
        }
        self.tubes.get(tube).ready.first()
    }

    /// Opens a closed gate whose time has come. If its bucket is then full, nothing may keep the tube any more.
    pub(crate) fn open_gate(&mut self, tube: TubeKey, now: Timestamp) {
        self.rules.tubes.to_open.push(tube);
        self.open_gates(now);
        self.remove_tube_if_idle(tube);
    }

    /// Leaves the gate open, unless it must be closed. If ready jobs and waiting clients are left, it stays closed and
    /// due.
    fn end_opening(&mut self, tube: TubeKey) {
        let is_paused = self.tubes.get(tube).pause.is_some();
        let has_ready = !self.tubes.get(tube).ready.is_empty();
        let is_closed = self.tubes.get(tube).must_be_closed()
            || has_ready && !is_paused && self.first_waiting(tube).is_some();
        if let Some(ruled) = &mut self.tubes.get_mut(tube).ruled {
            ruled.gate.is_closed = is_closed;
        }
        if has_ready && !is_closed && !is_paused {
            self.announce(tube);
        }
        self.schedule(Timer::Tube(tube));
        debug_assert!(self.is_gate_consistent(tube), "a gate that must be closed is closed");
        debug_assert!(
            self.has_no_unserved_client(tube),
            "after the gate opens, no client waits while a job is ready"
        );
    }
}
