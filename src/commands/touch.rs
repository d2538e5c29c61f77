//! The commands `touch` and `touch-all`.
//!
//! Owns: how many jobs `touch-all` touches in a turn.

use crate::access::Roles;
use crate::clock::Timestamp;
use crate::exchange::Until;
use crate::executor::{Caller, Executor, Outcome, answer, stall};
use crate::job::JobId;
use crate::protocol::Reply;
use crate::seconds::Seconds;

/// Reservations that a `touch-all` touches in a turn.
const TOUCHES_PER_TURN: usize = 400;

/// A `touch-all` that came at `at`. It has touched all reservations up to `after`, in the order of their ends, except
/// in tubes from which the client may no longer reserve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TouchAll {
    at: Timestamp,
    after: Option<(Timestamp, JobId)>,
    /// How many it has touched and will not meet again.
    touched: u64,
}

impl TouchAll {
    /// A `touch-all` that comes now.
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { at: now, after: None, touched: 0 }
    }
}

impl Executor {
    pub(super) fn touch(&mut self, caller: &mut Caller<'_>, id: JobId, for_s: Option<Seconds>) -> Outcome {
        if self.queue.touch(caller.client, id, for_s, caller.now) {
            self.answer_when_logged(caller, Reply::Touched, Some(id))
        } else {
            answer(caller.output, &Reply::NotFound)
        }
    }

    /// Touches a turn's share of the client's reservations, and answers if these were the last. The times to run start
    /// again at the instant of the command. Jobs of tubes from which the client may no longer reserve are skipped.
    pub(super) fn touch_all(&mut self, caller: &mut Caller<'_>, mut touch: TouchAll) -> Outcome {
        let mut left = TOUCHES_PER_TURN;
        let grants = self.guard.as_ref().map(|guard| guard.grants(caller.client));
        let may_touch = |tube: &str| match grants {
            None => true,
            Some(grants) => grants.is_some_and(|grants| grants.on(tube).meets(Roles::WORK)),
        };
        touch.after = self.queue.touch_after(
            caller.client,
            touch.after,
            &mut left,
            &mut touch.touched,
            may_touch,
            touch.at,
        );
        self.count_cost((TOUCHES_PER_TURN - left) as u64);
        if touch.after.is_some() {
            return stall(Until::NextTurn, move |executor, caller| executor.touch_all(caller, touch));
        }
        let touched = Reply::TouchedAll(touch.touched);
        if self.queue.has_session(caller.client) {
            return self.answer_when_logged(caller, touched, None);
        }
        answer(caller.output, &touched)
    }
}
