//! An indexed 4-ary min-heap of deadlines. The earliest deadline is the time-out of the poll.
//!
//! Owns: one instant for each tube, for each client and for the rules; nothing that a timer stands for becomes due
//! before its instant. If a deadline becomes earlier, its entry moves. If it becomes later or ends, the entry stays,
//! because the next deadline is often set at once and the entry need not move then. So an entry can be too early: code
//! that finds it due sets it to the right instant. The heap knows the position of every timer, so each timer has at
//! most one entry. The heap does not know what becomes due. Driven by the queue.

use std::collections::TryReserveError;

use crate::clock::Timestamp;

/// A tube's index, as long as it exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TubeKey(pub u32);

/// A client's index, as long as it exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientKey(pub u32);

impl TubeKey {
    /// Its index in a slab.
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl ClientKey {
    /// Its index in a slab.
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The tube, client or rules that a deadline belongs to. Deadlines at the same instant are processed in the order of
/// this type, not in the order of the heap: a job whose delay ends at the same instant as a client's wait still reaches
/// that client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// A tube: the end of its pause, of its first delay or of its first age, its gate that opens, or its full bucket.
    Tube(TubeKey),
    /// A client: the end of a reservation, the start of a safety margin, or the end of a wait.
    Client(ClientKey),
    /// The rules for tags: the expiry of a job, the end of a cooldown, or the end of a `wait-job`.
    Rules,
}

/// The position of a timer without a deadline.
const ABSENT: u32 = u32::MAX;
/// Children of a node: four deadlines fit into a cache line.
const WAYS: usize = 4;

/// An instant for every pending deadline, the earliest first.
#[derive(Debug, Default)]
pub struct Deadlines {
    heap: Vec<(Timestamp, Timer)>,
    tubes: Vec<u32>,
    clients: Vec<u32>,
    rules: Vec<u32>,
}

impl Deadlines {
    /// The earliest instant, and its timer.
    #[must_use]
    pub fn first(&self) -> Option<(Timestamp, Timer)> {
        self.heap.first().copied()
    }

    /// Makes sure that there is room for this many tubes and clients, with or without deadlines, and for the rules.
    ///
    /// # Errors
    /// If the allocator has no memory. Nothing has changed.
    pub fn try_reserve(&mut self, tubes: usize, clients: usize) -> Result<(), TryReserveError> {
        try_reserve_all(&mut self.heap, tubes + clients + 1)?;
        try_reserve_all(&mut self.tubes, tubes)?;
        try_reserve_all(&mut self.clients, clients)?;
        try_reserve_all(&mut self.rules, 1)
    }

    /// Notes a deadline of `timer` at `at`. Moves the timer's entry only if the entry is later than `at`.
    #[inline]
    pub fn note(&mut self, timer: Timer, at: Timestamp) {
        let position = *self.position(timer);
        if position == ABSENT || at < self.heap[position as usize].0 {
            self.set(timer, Some(at));
        }
    }

    /// Sets the instant of `timer` to `at`, or removes it if `at` is `None`.
    pub fn set(&mut self, timer: Timer, at: Option<Timestamp>) {
        let position = *self.position(timer);
        match (position, at) {
            (ABSENT, None) => {}
            (ABSENT, Some(at)) => {
                self.heap.push((at, timer));
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
                *self.position(timer) = ABSENT;
                self.heap.swap_remove(position);
                if position < self.heap.len() {
                    let position = self.rise(position);
                    self.sink(position);
                }
            }
        }
    }

    /// The position of `timer` in the heap.
    #[inline]
    fn position(&mut self, timer: Timer) -> &mut u32 {
        let (positions, key) = match timer {
            Timer::Tube(key) => (&mut self.tubes, key.index()),
            Timer::Client(key) => (&mut self.clients, key.index()),
            Timer::Rules => (&mut self.rules, 0),
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

    fn place(&mut self, index: usize, entry: (Timestamp, Timer)) {
        self.heap[index] = entry;
        *self.position(entry.1) = index as u32;
    }

    /// The instant of `timer`, for the check of the invariants.
    ///
    /// # Panics
    /// If the heap does not know the timer's position.
    #[must_use]
    pub fn of(&self, timer: Timer) -> Option<Timestamp> {
        let (positions, key) = match timer {
            Timer::Tube(key) => (&self.tubes, key.index()),
            Timer::Client(key) => (&self.clients, key.index()),
            Timer::Rules => (&self.rules, 0),
        };
        let position = *positions.get(key).filter(|&&position| position != ABSENT)?;
        let (at, found) = self.heap[position as usize];
        assert_eq!(found, timer, "the heap knows each timer's position");
        Some(at)
    }
}

/// Makes room for `count` entries in total. Most of the room may never be used, and then takes no memory: unlike a
/// reallocation, this copies only the entries in use.
fn try_reserve_all<T>(entries: &mut Vec<T>, count: usize) -> Result<(), TryReserveError> {
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

    use beanstalkd_types::random::Generator;

    use super::*;

    #[test]
    fn the_first_is_the_earliest_whatever_was_set_moved_or_removed() {
        let mut deadlines = Deadlines::default();
        let mut model = BTreeMap::new();
        let mut random = Generator::new(3);
        for _ in 0..20_000 {
            let seed = random.draw();
            let key = (seed >> 33) as u32 % 50;
            let timer = match seed >> 40 & 1 {
                _ if key == 49 => Timer::Rules,
                0 => Timer::Tube(TubeKey(key)),
                _ => Timer::Client(ClientKey(key)),
            };
            let at = (seed >> 50 & 3 != 0).then_some(Timestamp(seed >> 44 & 0xff));
            deadlines.set(timer, at);
            let kind = |timer| match timer {
                Timer::Tube(key) => (0, key.0),
                Timer::Client(key) => (1, key.0),
                Timer::Rules => (2, 0),
            };
            model.remove(&kind(timer));
            model.extend(at.map(|at| (kind(timer), at)));
            let first = model.iter().map(|(&(kind, key), &at)| (at, kind, key)).min();
            assert_eq!(deadlines.first().map(|(at, timer)| (at, kind(timer).0, kind(timer).1)), first);
            assert_eq!((deadlines.of(timer), deadlines.heap.len()), (at, model.len()));
        }
    }

    #[test]
    fn a_deadline_that_comes_closer_moves_and_one_that_moves_away_stays() {
        let mut deadlines = Deadlines::default();
        deadlines.note(Timer::Client(ClientKey(1)), Timestamp(7));
        deadlines.note(Timer::Client(ClientKey(1)), Timestamp(9));
        assert_eq!(deadlines.first(), Some((Timestamp(7), Timer::Client(ClientKey(1)))));
        deadlines.note(Timer::Client(ClientKey(1)), Timestamp(5));
        deadlines.note(Timer::Tube(TubeKey(0)), Timestamp(6));
        assert_eq!(deadlines.first(), Some((Timestamp(5), Timer::Client(ClientKey(1)))));
    }

    #[test]
    fn with_room_for_all_timers_nothing_grows() {
        let mut deadlines = Deadlines::default();
        for timers in 1..=100 {
            deadlines.try_reserve(timers, timers).unwrap();
        }
        let room = |Deadlines { heap, tubes, clients, rules }: &Deadlines| {
            [heap.capacity(), tubes.capacity(), clients.capacity(), rules.capacity()]
        };
        let before = room(&deadlines);
        for key in 0..100 {
            deadlines.set(Timer::Tube(TubeKey(key)), Some(Timestamp(1)));
            deadlines.set(Timer::Client(ClientKey(key)), Some(Timestamp(1)));
        }
        deadlines.set(Timer::Rules, Some(Timestamp(1)));
        assert_eq!(room(&deadlines), before);
    }
}
