//! Copies of the tubes' figures, taken a few tubes at a time.
//!
//! Owns: which tubes a response tells of, and what of them. Driven by a response, a slice a turn.

use std::collections::HashSet;

use super::families::TUBE;
use crate::clock::Timestamp;
use crate::queue::Queue;
use crate::tube_name::TubeName;

/// Tubes looked at in a slice.
pub const TUBES_PER_SLICE: usize = 256;

/// A tube's figures at an instant, in the order of the table of families.
#[derive(Clone, Debug)]
pub struct TubeSample {
    /// Its name.
    pub name: TubeName,
    /// Its figures.
    pub values: [u64; TUBE.len()],
}

/// Which tubes are chosen where there are too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The first ones of `list-tubes`: the choice stays the same while tubes are made.
    Oldest(usize),
    /// Those with the most jobs.
    Fullest(usize),
}

/// The figures of the chosen tubes.
#[derive(Debug)]
pub struct Snapshot {
    choice: Choice,
    /// A tube that is removed and made again meanwhile stands at the end of the list anew. Prometheus refuses
    /// a scrape that has it twice; a person does not mind, so for the fullest this stays empty.
    seen: HashSet<TubeName>,
    /// How many tubes of the list were looked at.
    position: usize,
    samples: Vec<TubeSample>,
    /// How many tubes were not chosen.
    pub omitted: usize,
}

impl Snapshot {
    /// A snapshot that nothing was copied into yet.
    #[must_use]
    pub fn new(choice: Choice, queue: &Queue) -> Self {
        // With room for all from the start, no slice has to hash what others have seen.
        let seen = match choice {
            Choice::Oldest(count) => HashSet::with_capacity(count.min(queue.tube_count()) + TUBES_PER_SLICE),
            Choice::Fullest(_) => HashSet::new(),
        };
        Self { choice, seen, position: 0, samples: Vec::new(), omitted: 0 }
    }

    /// Looks at the next tubes; tells whether it has looked at all that matter.
    pub fn gather(&mut self, queue: &Queue, now: Timestamp) -> bool {
        let end = self.position + TUBES_PER_SLICE;
        for tube in queue.tubes_from(self.position, now).take(TUBES_PER_SLICE) {
            self.position += 1;
            let is_new = matches!(self.choice, Choice::Fullest(_)) || self.seen.insert(tube.name.clone());
            if is_new {
                let values = TUBE.map(|family| (family.read)(&tube));
                self.samples.push(TubeSample { name: tube.name.clone(), values });
            }
        }
        let at_end = self.position < end;
        match self.choice {
            Choice::Oldest(count) if self.samples.len() >= count || at_end => {
                self.keep(count);
                self.omitted = queue.tube_count().saturating_sub(self.samples.len());
                true
            }
            Choice::Oldest(_) => false,
            Choice::Fullest(count) => {
                if self.samples.len() > 2 * count || at_end {
                    let fullness = |sample: &TubeSample| std::cmp::Reverse(sample.jobs());
                    self.samples.sort_by_key(fullness);
                    self.keep(count);
                }
                at_end
            }
        }
    }

    fn keep(&mut self, count: usize) {
        self.omitted += self.samples.len().saturating_sub(count);
        self.samples.truncate(count);
    }

    /// What was copied.
    #[must_use]
    pub fn samples(&self) -> &[TubeSample] {
        &self.samples
    }
}

impl TubeSample {
    /// Jobs in the tube, whatever their state.
    #[must_use]
    pub fn jobs(&self) -> u64 {
        TUBE.iter()
            .zip(self.values)
            .filter(|(family, _)| family.is_jobs_by_state)
            .map(|(_, value)| value)
            .sum()
    }
}
