//! The timers of tubes, clients and rules.
//!
//! Owns: when the queue looks at each of them next: no later than its deadline. Driven by each change of a deadline.

use beanstalkd_structures::Timer;

use crate::Queue;
use crate::clock::Timestamp;
use crate::state::clients::ClientKind;

impl Queue {
    /// Whether the tube or the client of this timer no longer exists. Then it has no deadline.
    #[inline]
    pub(crate) fn is_timer_gone(&self, timer: Timer) -> bool {
        match timer {
            Timer::Client(client) => !self.clients.records.contains(client.index()),
            Timer::Tube(tube) => !self.tubes.contains(tube),
            Timer::Rules => false,
        }
    }

    /// The next deadline of the tube, of the client, or of the rules.
    #[inline]
    pub(crate) fn deadline_of(&self, timer: Timer) -> Option<Timestamp> {
        match timer {
            Timer::Tube(tube) => self.tubes.get(tube).deadline(),
            Timer::Client(client) => {
                let record = &self.clients[client];
                if matches!(record.kind, ClientKind::Attached | ClientKind::Session) {
                    return self.deadline_with_session(client);
                }
                record.deadline()
            }
            Timer::Rules => self.rules.next_due(),
        }
    }

    /// Updates the timer, whose deadline may be earlier than before.
    #[inline]
    pub(crate) fn schedule(&mut self, timer: Timer) {
        if let Some(at) = self.deadline_of(timer) {
            self.deadlines.note(timer, at);
        }
        debug_assert!(self.is_scheduled(timer), "the deadline is not passed over");
    }

    /// Whether the queue checks the timer in time.
    #[inline]
    pub(crate) fn is_scheduled(&self, timer: Timer) -> bool {
        let scheduled = self.deadlines.of(timer);
        self.deadline_of(timer).is_none_or(|at| scheduled.is_some_and(|scheduled| scheduled <= at))
    }

    /// Asserts that the queue checks the timer in time.
    pub(crate) fn check_deadline(&self, timer: Timer) {
        let scheduled = self.deadlines.of(timer);
        let deadline = self.deadline_of(timer);
        assert!(
            self.is_scheduled(timer),
            "{timer:?} is checked at {scheduled:?}, after its deadline {deadline:?}"
        );
    }
}
