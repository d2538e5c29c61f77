//! The queue: tubes, jobs, clients' watch lists, reservations and every deadline.
//!
//! Owns: the whole state that the protocol describes. Pure: it does no I/O and reads no clock; `now` is
//! always the last argument. Never knows of connections, bytes or the binlog. Driven by the server, which
//! calls one method per command, then takes the [`Delivery`]s for clients that waited and the
//! [`Change`]s to be logged.
//!
//! A job moves along these arrows; each is one method:
//!
//! ```text
//!            put ──▶ ready ──reserve──▶ reserved ──delete──▶ gone
//!             │       ▲ ▲ ▲                │ │ │
//!             │  delay│ │ └─release, TTR───┘ │ └─bury──▶ buried
//!             └──▶ delayed ◀──release────────┘             │
//!                       │ kick                        kick │
//!                       └────────▶ ready ◀─────────────────┘
//! ```
//!
//! ```
//! use beanstalkd_queue::{NewJob, PoisonLimits, Queue, Reserve};
//! use beanstalkd_types::clock::Timestamp;
//! use beanstalkd_types::job::{Body, Priority};
//!
//! let now = Timestamp(0);
//! let mut queue = Queue::default();
//! let client = queue.connect();
//! let id = queue.take_id();
//! queue.reserve_put()?; // all that the put will allocate
//! queue.put(client, NewJob { id, priority: Priority(5), delay_s: 0, ttr_s: 60 }, Body::copy_of(b"hello")?, now);
//! assert!(matches!(queue.reserve(client, None, now), Reserve::Job(job) if job == id));
//! assert_eq!(queue.delete(client, id, now).unwrap().as_slice(), b"hello");
//! # Ok::<(), std::collections::TryReserveError>(())
//! ```

#![warn(unreachable_pub)]

mod operations;
mod rules;
mod state;

pub use self::operations::flush::{BeginFlush, FlushStep, Flushed};
pub use self::operations::modes::ReserveMode;
pub use self::operations::pages::{Page, PageOrder, Position, Search};
pub use self::operations::put::NewJob;
pub use self::operations::release::Released;
pub use self::operations::{advance::Advanced, reserve::Reserve};
pub use self::rules::groups::GroupView;
pub use self::rules::unique::{CooldownSums, Duplicate};
pub use self::state::clients::{ClientId, SAFETY_MARGIN_NS};
pub use self::state::times::{Durations, TOTAL_BOUNDS, Totals};
pub use self::state::tubes::TubeCounters;
pub use self::state::views::{Figures, JobView, TubeView};
pub use self::state::{Change, Delivery, JobCounts, PoisonLimits, Queue, Slices, WaitOutcome};

use beanstalkd_types::{clock, job, tags, tube_name};
