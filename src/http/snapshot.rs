//! Copies of the tubes' figures, taken a few tubes at a time.
//!
//! Owns: which tubes a response tells of, and what of them. Driven by a response, a slice a turn.

use std::collections::HashSet;

use super::page::Query;
use crate::clock::Timestamp;
use crate::queue::{Queue, TubeView};
use crate::tube_name::TubeName;

/// Tubes looked at in a slice.
pub const TUBES_PER_SLICE: usize = 256;

/// Which tubes are chosen where there are too many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The first ones of `list-tubes`: the choice stays the same while tubes are made.
    Oldest(usize),
    /// The first ones in the order of the query, among all that it asks for.
    First(usize, Query),
}

/// The figures of the chosen tubes.
#[derive(Debug)]
pub struct Snapshot {
    choice: Choice,
    /// A tube that is removed and made again meanwhile stands at the end of the list anew. Prometheus refuses
    /// a scrape that has it twice; a person does not mind, so for a query this stays empty.
    seen: HashSet<TubeName>,
    /// How many tubes of the list were looked at.
    position: usize,
    tubes: Vec<TubeView>,
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
            Choice::First(..) => HashSet::new(),
        };
        Self { choice, seen, position: 0, tubes: Vec::new(), omitted: 0 }
    }

    /// Looks at the next tubes; tells whether it has looked at all that matter.
    pub fn gather(&mut self, queue: &Queue, now: Timestamp) -> bool {
        let end = self.position + TUBES_PER_SLICE;
        for tube in queue.tubes_from(self.position, now).take(TUBES_PER_SLICE) {
            self.position += 1;
            let is_wanted = match &self.choice {
                Choice::Oldest(_) => self.seen.insert(tube.name.clone()),
                Choice::First(_, query) => query.wants(tube.name.as_str()),
            };
            if is_wanted {
                self.tubes.push(tube);
            }
        }
        let at_end = self.position < end;
        match &self.choice {
            &Choice::Oldest(count) if self.tubes.len() >= count || at_end => {
                self.keep(count);
                self.omitted = queue.tube_count().saturating_sub(self.tubes.len());
                true
            }
            Choice::Oldest(_) => false,
            Choice::First(count, query) => {
                let count = *count;
                if self.tubes.len() > 2 * count || at_end {
                    self.tubes.sort_by(|a, b| query.compare(a, b));
                    self.keep(count);
                }
                at_end
            }
        }
    }

    fn keep(&mut self, count: usize) {
        self.omitted += self.tubes.len().saturating_sub(count);
        self.tubes.truncate(count);
    }

    /// What was copied.
    #[must_use]
    pub fn tubes(&self) -> &[TubeView] {
        &self.tubes
    }
}
