//! `pause-tube`: for a time, no client reserves a job of the tube.
//!
//! Owns: the beginning and the end of a pause. While the jobs of a tube go to clients that waited, in slices, its pause
//! has not ended.

use beanstalkd_structures::Timer;

use crate::Queue;
use crate::clock::Timestamp;
use crate::seconds::Seconds;
use crate::state::keys::TubeKey;
use crate::state::tubes::Pause;

impl Queue {
    /// The command `pause-tube`; returns whether the tube exists. A length of 0 ends a pause at once.
    pub fn pause_tube(&mut self, name: &str, length_s: Seconds, now: Timestamp) -> bool {
        let Some(key) = self.tubes.find(name) else { return false };
        let until = now.plus_seconds(length_s);
        self.tubes.get_mut(key).set_pause(Pause::new(until, length_s.whole()));
        if length_s.is_zero() {
            self.end_pause(key, now);
        }
        self.schedule(Timer::Tube(key));
        true
    }

    /// Ends a tube's pause: waiting clients get its ready jobs, a limited number at a time.
    pub(super) fn end_pause(&mut self, key: TubeKey, now: Timestamp) {
        let mut probes_left = self.slices.probed_tubes;
        for _ in 0..self.slices.delivered {
            let Some((_, client)) = self.first_waiting(key) else { break };
            if self.tubes.get(key).is_throttled()
                || self.rules.must_refresh_heads() && !self.refresh_head(key, &mut probes_left, now)
            {
                break;
            }
            let Some(id) = self.take_first_ready(key) else { break };
            self.deliver_job(id, client, now);
        }
        let has_ready = !self.tubes.get(key).ready.is_empty() && !self.tubes.get(key).is_throttled();
        // While ready jobs and waiting clients are left, the tube stays paused and due.
        if has_ready && self.first_waiting(key).is_some() {
            return;
        }
        self.tubes.get_mut(key).pause = None;
        if has_ready {
            self.announce(key);
        }
        debug_assert!(
            self.has_no_unserved_client(key),
            "after the pause, no client waits while a job of the tube is ready"
        );
    }
}
