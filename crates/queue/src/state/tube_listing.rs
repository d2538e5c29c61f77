//! The list of all tubes that is being made, a few tubes at a time.
//!
//! Owns: the position of the list while tubes are created and removed.

use std::mem;

use crate::state::tubes::Tube;
use crate::tube_name::TubeName;

/// The position of the list.
#[derive(Debug, Default)]
pub(crate) struct TubeListing {
    /// The number of the list. A tube with this number is already listed, or is not in the list.
    pub number: u32,
    /// How many tubes of the order have been examined; `None` if no list is being made.
    pub position: Option<usize>,
    /// Tubes that were moved from after the position to before it and must still be listed.
    pub moved: Vec<TubeName>,
}

impl TubeListing {
    /// The number that a new tube gets: a list that is being made does not include it.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Notes that the tube has moved to `index` in the order.
    pub(crate) fn note_move(&mut self, tube: &mut Tube, index: usize) {
        let is_passed = self.position.is_some_and(|position| index < position);
        if is_passed && mem::replace(&mut tube.listed, self.number) != self.number {
            self.moved.push(tube.name.clone());
        }
    }
}
