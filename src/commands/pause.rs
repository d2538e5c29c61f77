//! The command `pause-tube`.

use super::{Executor, Outcome, found};
use crate::clock::Timestamp;
use crate::protocol::Reply;
use crate::seconds::Seconds;
use crate::session::Output;

impl Executor {
    pub(super) fn pause_tube(
        &mut self,
        tube: &str,
        delay_s: Seconds,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        found(self.queue.pause_tube(tube, delay_s, now), Reply::Paused, output)
    }
}
