//! The min-heap of deadlines that sets the time-out of the poll.
//!
//! Owns: for each tube and each client one instant, before which nothing of it becomes due. A deadline that comes
//! closer moves its entry; one that moves away or ends leaves it where it is, because the next one, which is often set
//! at once, need not move it then. An entry may therefore be too early. Whoever finds it due sets it to what it should
//! be. The heap knows the position of every owner, so that each has one entry at most. It does not know what becomes
//! due. Driven by `Queue`.

use std::collections::TryReserveError;

use crate::clock::Timestamp;

/// The owner of a deadline. Deadlines at the same instant are processed in the order of this type, not in the order
/// of the heap: a job whose delay ends at the same instant as a client's wait still reaches that client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// A tube: the end of its pause, or of its first delay.
    Tube(u32),
    /// A client: a reservation that ends, a safety margin that begins, a wait that is over.
    Client(u32),
    /// The tags of all jobs: a job that expires, or a cooldown that ends.
    Tags,
}

/// The position of an owner without a deadline.
const ABSENT: u32 = u32::MAX;
/// Children of a node: four deadlines share a cache line.
const WAYS: usize = 4;

/// An instant for every pending deadline, the earliest first.
#[derive(Debug, Default)]
pub struct Deadlines {
    heap: Vec<(Timestamp, Owner)>,
    tubes: Vec<u32>,
    clients: Vec<u32>,
    tags: Vec<u32>,
}

impl Deadlines {
    /// The earliest instant and its owner.
    pub fn first(&self) -> Option<(Timestamp, Owner)> {
        self.heap.first().copied()
    }

    /// Makes sure that there is room for so many tubes and clients, whether they have deadlines or not.
    ///
    /// # Errors
    /// If the allocator has no memory. Nothing has changed.
    pub fn reserve(&mut self, tubes: usize, clients: usize) -> Result<(), TryReserveError> {
        reserve_all(&mut self.heap, tubes + clients + 1)?;
        reserve_all(&mut self.tubes, tubes)?;
        reserve_all(&mut self.clients, clients)
    }

    /// `owner` has a deadline at `at`, and none before.
    #[inline]
    pub fn note(&mut self, owner: Owner, at: Timestamp) {
        let position = *self.position(owner);
        if position == ABSENT || at < self.heap[position as usize].0 {
            self.set(owner, Some(at));
        }
    }

    /// Sets the instant of `owner` to `at`, or removes it if `at` is `None`.
    pub fn set(&mut self, owner: Owner, at: Option<Timestamp>) {
        let position = *self.position(owner);
        match (position, at) {
            (ABSENT, None) => {}
            (ABSENT, Some(at)) => {
                self.heap.push((at, owner));
                self.rise(self.heap.len() - 1);
            }
            (position, Some(at)) => {
                let position = position as usize;
                let before = std::mem::replace(&mut self.heap[position].0, at);
                if at < before {
                    self.rise(position);
                } else if at > before {
                    self.sink(position);
                }
            }
            (position, None) => {
                let position = position as usize;
                *self.position(owner) = ABSENT;
                self.heap.swap_remove(position);
                if position < self.heap.len() {
                    let position = self.rise(position);
                    self.sink(position);
                }
            }
        }
    }

    /// The position of `owner` in the heap.
    fn position(&mut self, owner: Owner) -> &mut u32 {
        let (positions, key) = match owner {
            Owner::Tube(key) => (&mut self.tubes, key as usize),
            Owner::Client(key) => (&mut self.clients, key as usize),
            Owner::Tags => (&mut self.tags, 0),
        };
        if positions.len() <= key {
            positions.resize(key + 1, ABSENT);
        }
        &mut positions[key]
    }

    /// Moves the entry at `index` towards the root until its parent does not come after it; returns where it ends.
    fn rise(&mut self, mut index: usize) -> usize {
        let entry = self.heap[index];
        while index > 0 {
            let parent = (index - 1) / WAYS;
            if self.heap[parent] <= entry {
                break;
            }
            self.place(index, self.heap[parent]);
            index = parent;
        }
        self.place(index, entry);
        index
    }

    /// Moves the entry at `index` away from the root until no child comes before it.
    fn sink(&mut self, mut index: usize) {
        let entry = self.heap[index];
        loop {
            let first = index * WAYS + 1;
            let children = first..self.heap.len().min(first + WAYS);
            let Some(child) = children.min_by_key(|&child| self.heap[child]) else { break };
            if self.heap[child] >= entry {
                break;
            }
            self.place(index, self.heap[child]);
            index = child;
        }
        self.place(index, entry);
    }

    fn place(&mut self, index: usize, entry: (Timestamp, Owner)) {
        self.heap[index] = entry;
        *self.position(entry.1) = index as u32;
    }

    /// The instant of `owner`, for the check of the invariants.
    pub fn of(&self, owner: Owner) -> Option<Timestamp> {
        let (positions, key) = match owner {
            Owner::Tube(key) => (&self.tubes, key),
            Owner::Client(key) => (&self.clients, key),
            Owner::Tags => (&self.tags, 0),
        };
        let position = *positions.get(key as usize).filter(|&&position| position != ABSENT)?;
        let (at, found) = self.heap[position as usize];
        assert_eq!(found, owner, "the heap knows each owner's position");
        Some(at)
    }
}

/// Makes room for `count` entries in all. Most of the room may never be used, and then takes no memory: unlike a
/// reallocation, this copies nothing but the entries that are there.
fn reserve_all<T>(entries: &mut Vec<T>, count: usize) -> Result<(), TryReserveError> {
    if entries.capacity() < count {
        let mut larger = Vec::new();
        larger.try_reserve_exact(2 * count)?;
        larger.append(entries);
        *entries = larger;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_first_is_the_earliest_whatever_was_set_moved_or_removed() {
        let mut deadlines = Deadlines::default();
        let mut model = BTreeMap::new();
        let mut seed = 3u64;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = (seed >> 33) as u32 % 50;
            let owner = match seed >> 40 & 1 {
                _ if key == 49 => Owner::Tags,
                0 => Owner::Tube(key),
                _ => Owner::Client(key),
            };
            let at = (seed >> 50 & 3 != 0).then_some(Timestamp(seed >> 44 & 0xff));
            deadlines.set(owner, at);
            let kind = |owner| match owner {
                Owner::Tube(key) => (0, key),
                Owner::Client(key) => (1, key),
                Owner::Tags => (2, 0),
            };
            model.remove(&kind(owner));
            model.extend(at.map(|at| (kind(owner), at)));
            let first = model.iter().map(|(&(kind, key), &at)| (at, kind, key)).min();
            assert_eq!(deadlines.first().map(|(at, owner)| (at, kind(owner).0, kind(owner).1)), first);
            assert_eq!((deadlines.of(owner), deadlines.heap.len()), (at, model.len()));
        }
    }

    #[test]
    fn a_deadline_that_comes_closer_moves_and_one_that_moves_away_stays() {
        let mut deadlines = Deadlines::default();
        deadlines.note(Owner::Client(1), Timestamp(7));
        deadlines.note(Owner::Client(1), Timestamp(9));
        assert_eq!(deadlines.first(), Some((Timestamp(7), Owner::Client(1))));
        deadlines.note(Owner::Client(1), Timestamp(5));
        deadlines.note(Owner::Tube(0), Timestamp(6));
        assert_eq!(deadlines.first(), Some((Timestamp(5), Owner::Client(1))));
    }

    #[test]
    fn with_room_for_all_owners_nothing_grows() {
        let mut deadlines = Deadlines::default();
        for owners in 1..=100 {
            deadlines.reserve(owners, owners).unwrap();
        }
        let room = |deadlines: &Deadlines| {
            (deadlines.heap.capacity(), deadlines.tubes.capacity(), deadlines.clients.capacity())
        };
        let before = room(&deadlines);
        for key in 0..100 {
            deadlines.set(Owner::Tube(key), Some(Timestamp(1)));
            deadlines.set(Owner::Client(key), Some(Timestamp(1)));
        }
        deadlines.set(Owner::Tags, Some(Timestamp(1)));
        assert_eq!(room(&deadlines), before);
    }
}
