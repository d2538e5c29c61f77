//! The command `ready-age`: how long ago the oldest ready job of a tube was put.

use crate::clock::Timestamp;
use crate::executor::Executor;
use crate::protocol::DictionaryWriter;

impl Executor {
    /// The answer, if there is such a tube.
    pub(super) fn ready_age(&self, tube: &str, now: Timestamp) -> Option<Vec<u8>> {
        let tube = self.queue.tube(tube, now)?;
        let mut answer = DictionaryWriter::default();
        answer.plain("age", tube.oldest_ready_age_s);
        Some(answer.into_bytes())
    }
}
