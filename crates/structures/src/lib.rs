//! The data structures of the hot path: each grows in small steps, so no operation takes longer because there is more.
//!
//! Owns: how keys, records and deadlines are stored and found. Knows nothing of what they stand for, does no I/O and reads
//! no clock. Used by the queue, and for the map by the log. `make micro` measures each beside the one that a library offers.
//!
//! | type | what it is |
//! |---|---|
//! | [`OrderedQueue`] | unique keys in ascending order, in blocks: jobs by priority, by deadline, by age |
//! | [`Arena`] | records that never move, found by their [`Slot`] |
//! | [`IdMap`] | from ids of jobs to small values, in pages |
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

mod arena;
mod deadlines;
mod id_map;
mod ordered;

pub use self::arena::{Arena, Slot};
pub use self::deadlines::{Deadlines, Timer};
pub use self::id_map::IdMap;
pub use self::ordered::{Key, OrderedQueue};

use beanstalkd_types::{clock, job};
