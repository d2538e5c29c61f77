//! The commands `drain` and `undrain`.

use super::{Executor, Outcome, answer};
use crate::protocol::Reply;
use crate::session::Output;

impl Executor {
    pub(super) fn drain(&mut self, draining: bool, output: &mut Output) -> Outcome {
        self.draining = draining;
        answer(output, &if draining { Reply::Draining } else { Reply::NotDraining })
    }
}
