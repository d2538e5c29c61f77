//! Copies of the tubes' figures, made for a few tubes at a time.
//!
//! Owns: the choice of the tubes of a response, and the copies of their figures. Driven by a response, one slice in
//! each turn.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

use super::tube_query::Query;
use crate::clock::Timestamp;
use crate::queue::{Queue, TubeView};

/// How many tubes a slice examines.
pub const TUBES_PER_SLICE: usize = 256;

/// How many copies of figures a slice frees: each has a name in another part of the memory.
const FREED_PER_SLICE: usize = 512;

/// How many tubes a slice compares with a pattern.
const MATCHED_PER_SLICE: usize = 32;

/// The choice of tubes if there are too many.
#[derive(Debug)]
pub enum TubeChoice {
    /// The first tubes of `list-tubes`. This choice does not change when tubes are made.
    Oldest(usize),
    /// The first tubes in the order of the query, among all tubes that match it.
    First(usize, Query),
}

/// The figures of the chosen tubes.
#[derive(Debug)]
pub struct Snapshot {
    choice: TubeChoice,
    /// The indexes of the copies in `tubes`, by their names. A tube that is removed and made again during the response
    /// appears again at the end of the list, and Prometheus rejects a scrape that has a tube twice. For a query this
    /// table stays empty, because a page may show a tube twice.
    seen: HashTable<u32>,
    hasher: RandomState,
    /// How many tubes of the list the snapshot has examined.
    position: usize,
    tubes: Vec<TubeView>,
    /// How many tubes were not chosen.
    pub omitted: usize,
    /// How many tubes match the query, at any position.
    pub matched: usize,
}

impl Snapshot {
    /// An empty snapshot.
    #[must_use]
    pub fn new(choice: TubeChoice, queue: &Queue) -> Self {
        // The snapshot has room for all from the start, so that no slice has to move the copies of the earlier ones.
        let room = match choice {
            TubeChoice::Oldest(count) => count.min(queue.figures().tubes) + TUBES_PER_SLICE,
            TubeChoice::First(..) => 0,
        };
        Self {
            choice,
            seen: HashTable::with_capacity(room),
            hasher: RandomState::new(),
            position: 0,
            tubes: Vec::with_capacity(room),
            omitted: 0,
            matched: 0,
        }
    }

    /// Copies the next tubes. Returns whether the snapshot is complete.
    pub fn gather(&mut self, queue: &Queue, now: Timestamp) -> bool {
        let has_pattern = self.query().is_some_and(Query::has_pattern);
        let share = if has_pattern { MATCHED_PER_SLICE } else { TUBES_PER_SLICE };
        let end = self.position + share;
        for tube in queue.tubes_from(self.position, now).take(share) {
            self.position += 1;
            let is_wanted = match &self.choice {
                TubeChoice::Oldest(_) => {
                    let (tubes, index) = (&self.tubes, self.tubes.len() as u32);
                    let hash_of = |index: &u32| self.hasher.hash_one(&tubes[*index as usize].name);
                    let hash = self.hasher.hash_one(&tube.name);
                    let is_new =
                        self.seen.find(hash, |&other| tubes[other as usize].name == tube.name).is_none();
                    if is_new {
                        self.seen.insert_unique(hash, index, hash_of);
                    }
                    is_new
                }
                TubeChoice::First(_, query) => {
                    let is_wanted = query.wants(tube.name.as_str());
                    self.matched += usize::from(is_wanted);
                    is_wanted && query.is_ahead(&tube)
                }
            };
            if is_wanted {
                self.tubes.push(tube);
            }
        }
        let at_end = self.position < end;
        match &self.choice {
            &TubeChoice::Oldest(count) if self.tubes.len() >= count || at_end => {
                self.keep(count);
                self.omitted = queue.figures().tubes.saturating_sub(self.tubes.len());
                true
            }
            TubeChoice::Oldest(_) => false,
            TubeChoice::First(count, query) => {
                let count = *count;
                if self.tubes.len() > 2 * count || at_end {
                    if self.tubes.len() > count {
                        // Selecting the first tubes takes fewer steps than sorting all of them.
                        self.tubes.select_nth_unstable_by(count, |a, b| query.compare(a, b));
                    }
                    self.omitted += self.tubes.len().saturating_sub(count);
                    self.tubes.truncate(count);
                }
                if at_end {
                    self.tubes.sort_unstable_by(|a, b| query.compare(a, b));
                }
                at_end
            }
        }
    }

    /// Frees a slice of the copies, which are no longer needed; returns whether none are left. To free a hundred
    /// thousand at once would take milliseconds.
    pub fn free_slice(&mut self) -> bool {
        self.tubes.truncate(self.tubes.len().saturating_sub(FREED_PER_SLICE));
        self.tubes.is_empty()
    }

    fn keep(&mut self, count: usize) {
        self.omitted += self.tubes.len().saturating_sub(count);
        self.tubes.truncate(count);
    }

    /// The query that chooses the tubes, if there is one.
    #[must_use]
    pub fn query(&self) -> Option<&Query> {
        match &self.choice {
            TubeChoice::Oldest(_) => None,
            TubeChoice::First(_, query) => Some(query),
        }
    }

    /// The copies.
    #[must_use]
    pub fn tubes(&self) -> &[TubeView] {
        &self.tubes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copies_of_many_tubes_never_move_and_are_freed_in_slices() {
        const TUBES: usize = 20_000;
        let mut queue = Queue::default();
        let client = queue.connect();
        (1..TUBES).for_each(|number| _ = queue.watch(client, &format!("tube-{number}")));
        let mut snapshot = Snapshot::new(TubeChoice::Oldest(TUBES), &queue);
        let (start, room) = (snapshot.tubes.as_ptr(), snapshot.seen.capacity());
        while !snapshot.gather(&queue, Timestamp(1)) {}
        assert_eq!((snapshot.tubes.as_ptr(), snapshot.seen.capacity()), (start, room));
        let (mut slices, mut left) = (0, TUBES);
        while left > 0 {
            let is_last = snapshot.free_slice();
            assert!(left - snapshot.tubes.len() <= FREED_PER_SLICE);
            assert_eq!(is_last, snapshot.tubes.is_empty());
            (slices, left) = (slices + 1, snapshot.tubes.len());
        }
        assert!(slices >= TUBES / FREED_PER_SLICE);
    }
}
