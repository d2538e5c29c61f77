//! The tubes of the jobs during the replay.
//!
//! Owns: the number of each name, so that a job has 4 bytes for its tube. Driven by the table of jobs.

use std::collections::HashMap;

use crate::OpenError;
use crate::tube_name::TubeName;

/// The names of the tubes, each with a number.
#[derive(Debug, Default)]
pub(crate) struct LoggedTubes {
    names: Vec<TubeName>,
    numbers: HashMap<TubeName, u32>,
    /// The number of the last record's tube: most records have the same tube as the one before.
    latest: u32,
}

impl LoggedTubes {
    /// The name of the tube with this number.
    pub(crate) fn name(&self, number: u32) -> &TubeName {
        &self.names[number as usize]
    }

    /// The number of the tube with this name; `None` if the name is not valid.
    pub(crate) fn number(&mut self, name: &[u8]) -> Result<Option<u32>, OpenError> {
        if self.names.get(self.latest as usize).is_some_and(|tube| tube.as_bytes() == name) {
            return Ok(Some(self.latest));
        }
        let Some(name) = TubeName::check(name) else { return Ok(None) };
        self.latest = match self.numbers.get(&*name) {
            Some(&number) => number,
            None => {
                let tube = TubeName::from(name);
                let number = u32::try_from(self.names.len()).map_err(|_| OpenError::OutOfMemory)?;
                self.names.try_reserve(1)?;
                self.numbers.try_reserve(1)?;
                self.names.push(tube.clone());
                self.numbers.insert(tube, number);
                number
            }
        };
        Ok(Some(self.latest))
    }
}
