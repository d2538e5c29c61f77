//! The data structures of the hot path: each grows in small steps, and never copies its keys, records or entries as a
//! whole. Only the lists of their parts double: the blocks of an [`OrderedQueue`] (an entry for at most 256 keys), the
//! chunks of an [`Arena`] (an entry for 146 records) and the segments of a [`HashIndex`] (an entry for
//! 256 buckets). [`Deadlines`] doubles its vectors; it has an entry for each client and tube, and none for a job.
//!
//! Owns: how keys, records and deadlines are stored and found. Knows jobs, tubes and clients only by their ids, does no
//! I/O and reads no clock. Used by the queue; the log uses the map. `make micro` compares each with a structure of a
//! library.
//!
//! | type | what it is |
//! |---|---|
//! | [`OrderedQueue`] | unique keys in ascending order, in blocks: jobs by priority, by deadline, by age |
//! | [`Arena`] | records that never move, found by their [`RecordAddress`] |
//! | [`IdMap`] | from ids of jobs to small values, in pages |
//! | [`HashIndex`] | small values by their hashes, in buckets that are split and joined one by one |
//! | [`Deadlines`] | the next instant of each [`Timer`], the earliest first |
//!
//! ```
//! use beanstalkd_structures::OrderedQueue;
//! use beanstalkd_types::clock::Timestamp;
//! use beanstalkd_types::job::JobId;
//!
//! let mut delayed = OrderedQueue::default();
//! delayed.insert((Timestamp(7), JobId(1)));
//! delayed.insert((Timestamp(5), JobId(2)));
//! assert_eq!(delayed.first(), Some((Timestamp(5), JobId(2))));
//! assert_eq!(delayed.oldest(), Some(1));
//! ```

// An item that no other crate can reach must not be `pub`.
#![warn(unreachable_pub)]

mod arena;
mod deadlines;
mod hash_index;
mod id_map;
mod ordered;

pub use self::arena::{Arena, RecordAddress};
pub use self::deadlines::{ClientKey, Deadlines, Timer, TubeKey};
pub use self::hash_index::HashIndex;
pub use self::id_map::IdMap;
pub use self::ordered::{Key, OrderedQueue};

use beanstalkd_types::{clock, job};

/// The items of two iterators in the order of their keys, which are ascending in each.
pub fn merged<T, K: Ord>(
    a: impl Iterator<Item = T>,
    b: impl Iterator<Item = T>,
    key: impl Fn(&T) -> K,
) -> impl Iterator<Item = T> {
    let (mut a, mut b) = (a.peekable(), b.peekable());
    std::iter::from_fn(move || match (a.peek(), b.peek()) {
        (Some(first), Some(second)) if key(second) < key(first) => b.next(),
        (Some(_), _) => a.next(),
        (None, _) => b.next(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_two_orders_are_merged_into_one() {
        let lists: [&[u32]; 5] = [&[], &[3], &[1, 4, 6], &[2, 3, 7, 8], &[9]];
        for (a, b) in lists.iter().flat_map(|a| lists.iter().map(move |b| (a, b))) {
            let found: Vec<u32> = merged(a.iter().copied(), b.iter().copied(), |&key| key).collect();
            let mut all = [*a, *b].concat();
            all.sort_unstable();
            assert_eq!(found, all);
        }
    }
}
