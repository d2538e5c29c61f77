//! The queue: tubes, jobs, clients' watch lists, reservations and every deadline.
//!
//! Owns: the whole state that the protocol describes. Pure: it does no I/O and reads no clock; `now` is always the last
//! argument. Never knows connections, bytes or the binlog. Driven by the server, which calls one method per command,
//! then takes the [`Delivery`]s for clients that waited and the [`Change`]s for the log.
//!
//! Where to read on:
//!
//! | part | what it is | uses |
//! |---|---|---|
//! | `state/` | the records of which the state consists, and its invariants: `state/mod.rs` | – |
//! | `rules/` | a file for each rule for tags and tubes, with most of its state; most of them have the same hooks | `state` |
//! | `moves/` | the moves of a job from one state to another, which call the hooks of the rules, and the clients that wait for it | `state`, `rules` |
//! | `operations/` | a file for each command or family of commands, and `advance.rs` for the effects of time | `state`, `rules`, `moves` |
//! | `conditions.rs`, `invariants.rs` | what debug builds assert around each move, and about the whole state | `state`, `rules` |
//!
//! All parts add methods to [`Queue`]. A part calls only its own and those of the parts above it, except that each part
//! asserts the conditions. So a rule that frees jobs moves none of them: it notes them, and the moves do the rest.
//! `tests/architecture/` fails if a part imports from one that its row does not name, or calls a method of it. The data
//! structures are the crate `beanstalkd-structures`.
//!
//! The main methods, by purpose:
//!
//! | for | methods of [`Queue`] |
//! |---|---|
//! | clients come and go | `connect`, `connect_internal`, `disconnect`, `mark_producer`, `use_tube`, `watch`, `watch_with_weight`, `ignore`, `note_fields`; how clients choose tubes (`operations/modes.rs`): `seed` |
//! | reservations that outlive a connection | `begin_session`, `join_session`, `begin_graces`; `session_of`, `session_of_job` |
//! | jobs come | `allocate_id`, `put`, `put_tagged`; before it `duplicate`, `would_upgrade`, `upgrade`, `owned_bytes_of_put` |
//! | jobs go to clients | `reserve`, `reserve_job`, `undo_reserve`, `is_waiting`, `stop_waiting`, `poll_delivery` |
//! | clients wait for the end of a job | `wait_job`, `awaited_by` |
//! | a job ends and others come | `plan_complete`, `encode_body`, `complete` |
//! | clients give them back | `delete`, `release`, `bury`, `touch`, `touch_after` |
//! | operators | `kick`, `pause_tube`, `move_job`, `set_priority`, `set_delay`, `begin_flush`, `next_to_flush`, `flush_job`, `end_flush`, `end_cooldown`; each after its check (`is_kickable`, `is_movable` …) |
//! | rules for tags and tubes | `limit_cooldowns`, `cooldown_s`, `set_tube_rules`, `is_full_for`, `count_refused`, `take_kept_from_dead_tube`, `next_expired_body` |
//! | time | `next_deadline`, `advance` |
//! | memory that a command needs | `make_room_for_put`, `make_room_for_client`, `make_room_for_tube`, `make_room_for_weight`, `make_room_for_mode`: each fails before anything has changed |
//! | the log | `keep_changes`, `swap_changes`, `drain_burials`, `tags_for_log`, `cooldown`; at the start `restore`, `restore_cooldown`, `restore_session_reservation`, `finish_restore` |
//! | hand-over to a new program | `is_quiet`, `describe`, `read_description` in `operations/description/` |
//! | what there is | `job`, `body`, `peek`, `tube`, `tubes_from`, `page`, `search_reserved`, `group`, `figures`, `bytes`, `cost`, and further queries; a list of all tubes: `begin_listing`, `list_next`, `give_up_listing` |
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
//! use beanstalkd_queue::{NewJob, Queue, Reserve};
//! use beanstalkd_types::clock::Timestamp;
//! use beanstalkd_types::job::{Body, Priority};
//!
//! let now = Timestamp(0);
//! let mut queue = Queue::default();
//! let client = queue.connect();
//! let id = queue.allocate_id();
//! queue.make_room_for_put()?; // all that the put will allocate
//! let new = NewJob { id, priority: Priority(5), delay_s: 0.into(), ttr_s: 60.into() };
//! queue.put(client, new, Body::copy_of(b"hello")?, now);
//! assert!(matches!(queue.reserve(client, None, now), Reserve::Job(job) if job == id));
//! assert_eq!(queue.delete(client, id, now).unwrap().as_slice(), b"hello");
//! # Ok::<(), std::collections::TryReserveError>(())
//! ```

// An item that no other crate can reach must not be `pub`.
#![warn(unreachable_pub)]
// With a new state or collection, the compiler points at every `match` that must handle it.
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod conditions;
mod invariants;
mod moves;
mod operations;
mod rules;
mod state;
#[cfg(test)]
mod testing;

pub use self::operations::complete::{CompletedPut, EncodedBody, Planned, TubeFull};
pub use self::operations::flush::{BeginFlush, FlushStep};
pub use self::operations::pages::{Page, PageOrder, Search};
pub use self::operations::put::NewJob;
pub use self::operations::release::{Release, Released};
pub use self::operations::session::{BeginSession, SessionJoin};
pub use self::operations::views::{Figures, JobView, TubeView};
pub use self::operations::{advance::Advanced, reserve::Reserve};
pub use self::rules::awaited::WaitJob;
pub use self::rules::groups::GroupView;
pub use self::rules::ruled_tubes::KeptFromDeadTube;
pub use self::rules::unique::{CooldownSums, Duplicate};
pub use self::state::clients::ClientId;
pub use self::state::flushes::FlushScope;
pub use self::state::reserve_settings::ReserveMode;
pub use self::state::sessions::{SessionKey, SessionReservation};
pub use self::state::times::{Durations, TOTAL_BOUNDS, Totals};
pub use self::state::tube_rule::{Rate, TubeRule};
pub use self::state::tubes::TubeCounters;
pub use self::state::{
    AwaitedEnd, Change, Delivery, JobCounts, LastMember, PoisonLimits, Slices, WaitOutcome,
};

use beanstalkd_structures::Deadlines;
use beanstalkd_types::{
    assertions, clock, described, description, job, pattern, random, seconds, tags, tube_name,
};

use self::rules::Rules;
use self::state::clients::Clients;
use self::state::flushes::Flushes;
use self::state::jobs::Jobs;
use self::state::registry::Tubes;
use self::state::sessions::Sessions;
use self::state::{Numbers, Outbox, Sums};

/// The whole state of the work queue. `state/mod.rs` has the table of its parts, and the invariants.
#[derive(Debug, Default)]
pub struct Queue {
    jobs: Jobs,
    tubes: Tubes,
    clients: Clients,
    sessions: Sessions,
    rules: Rules,
    deadlines: Deadlines,
    flushes: Flushes,
    sums: Sums,
    numbers: Numbers,
    outbox: Outbox,
    limits: PoisonLimits,
    slices: Slices,
    /// The cost of all calls beyond their few usual steps, in simple commands.
    cost: u64,
}
