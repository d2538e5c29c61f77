//! A client of the beanstalk protocol, over TCP, TLS and unix sockets: a work queue with tubes, priorities, delays and
//! times to run.
//!
//! ```no_run
//! use beanstalk_client::{Client, PutOptions, TubeName};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut client = Client::connect(&"127.0.0.1:11300".parse()?)?;
//! let mail: TubeName = "mail".parse()?;
//! client.use_tube(&mail)?;
//! let inserted = client.put(b"to: ann", &PutOptions::default())?;
//! client.watch(&mail)?;
//! let job = client.reserve_with_timeout(5)?;
//! assert_eq!(job.id, inserted.id);
//! client.delete(job.id)?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Client`] has a method for each command. It uses a [`Connection`], which sends any [`Request`] and receives any
//! [`Reply`], one at a time or many in a pipeline. A [`Connector`] has time-outs, TLS, log-in, session, and whether a
//! lost connection is opened again; a [`Pool`] lends connections to threads; a [`Worker`] runs a handler for each job.
//! The module `asynchronous` has the same with futures (feature `tokio`).
//!
//! Commands that C beanstalkd does not have are extensions; [`Client::extensions`] asks a server which of them it
//! offers. The client never sends an extension that the server lacks and would misunderstand: the result is
//! [`Error::Unsupported`]. Only a connection that does not ask ([`Connector::check_extensions`] is `false`, or
//! [`Connection::over_unix`]) relies on its caller: it knows the extensions that the caller has asked for or has set.
//!
//! [`Servers`] finds the server of a key, for programs that need several servers.
//!
//! # Versions
//!
//! The crate follows semantic versioning, with one exception: a minor version may add variants to the enums of the
//! protocol, [`Verb`], [`Command`], [`Reply`], [`Refusal`], [`Field`], [`ModeWord`] and [`TagKind`]. So a `match` over
//! them needs a wildcard arm. They are not `#[non_exhaustive]`, because the server and the tool match them without one.
//!
//! # When the connection is lost
//!
//! With [`Connector::reconnect`], the client connects again, and restores the state of the connection: log-in, session,
//! used tube, watched tubes with their weights, mode, fields. Then it continues, even in the middle of a pipeline. A
//! command whose last byte the server has not received was not executed, and is sent. For the others, it is not known
//! whether they were executed:
//!
//! | command | is sent again |
//! |---|---|
//! | `use`, `watch`, `ignore`, `reserve-mode`, `reserve-fields`, `session`, `auth` | yes |
//! | every `reserve` but `reserve-job` | yes; the job of a lost RESERVED is ready again, or the session has it |
//! | every `peek`, `stats` and `list` | yes |
//! | `wait-job` | yes; if the job was deleted in between, the result is the refusal `NotFound`; if it was buried and kicked in between, the client waits again |
//! | `touch`, `touch-all`, `pause-tube`, `reprioritize`, `drain`, `undrain` | yes: twice is the same as once |
//! | `delete`, `complete`, `release`, `bury`, `reserve-job`, `kill-client` | yes; if there is no such job or client, [`Error::Unconfirmed`] |
//! | `put` with `idp:<key>:<seconds>` | yes, until the seconds are over: the server stores it once, if its `--max-cooldown` is not shorter. If the server of the new connection lacks one of its tags, [`Error::Unconfirmed`] |
//! | every other `put`, `kick`, `kick-job`, `move` | no: [`Error::Unconfirmed`] |
//! | `flush-tube`, `flush-buried`, `delete-batch` | no: [`Error::Unconfirmed`] |
//!
//! Without a session, the server gives the jobs of a lost connection to other workers at once. With one
//! ([`Connector::session`]), it keeps them for the grace. A [`Worker`] ends a job only where it is still reserved for
//! it. A `Client` does what its caller says, and a server without a log counts its jobs from 1 again when it is
//! restarted: a `delete` that comes after the restart is for another job with that id. With a log, no id comes a second
//! time.
//!
//! # Inside
//!
//! `core` decides the next step of a connection. Two drivers take it: `blocking`, and `asynchronous` with tokio.
//!
//! | part | what it is | uses |
//! |---|---|---|
//! | `address.rs` | the address of a server | – |
//! | `servers.rs` | the choice of the server for a key | – |
//! | `span.rs` | the span of a job, for `tracing` | – |
//! | `tls.rs` | the settings of TLS, and its handshake | – |
//! | `error.rs` | the errors | `address`, `tls` |
//! | `core/` | the settings, the commands, the meaning of their replies, their order, the repetitions and the next step, without a socket and a clock | `address`, `error`, `tls` |
//! | `worker/` | the slots of a worker: what each reserves, and how its jobs end | `address`, `core`, `error`, `span` |
//! | `drivers/` | the loop of steps and the methods, once for both drivers | `address`, `core`, `error`, `worker` |
//! | `blocking/` | sockets, and threads for the jobs of a worker | `address`, `core`, `drivers`, `error`, `span`, `tls`, `worker` |
//! | `asynchronous/` | the same with tasks of tokio | `address`, `core`, `drivers`, `error`, `span`, `worker` |
//!
//! `tests/architecture/` fails if a part uses a part that its row does not name. One table defines which reply belongs
//! to which command. The crate `beanstalkd-protocol`, which the server uses too, makes and parses the bytes. The client
//! never starts a thread or a task, except those of a worker, and never panics because of the bytes of a server.

// An item that no other crate can reach must not be `pub`.
#![warn(unreachable_pub)]
// With a new command, reply or error, the compiler points at every `match` that must handle it.
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod address;
#[cfg(feature = "tokio")]
pub mod asynchronous;
mod blocking;
mod core;
mod drivers;
mod error;
mod servers;
mod span;
#[cfg(feature = "tls")]
mod tls;
mod worker;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use self::address::{Address, AddressError, DEFAULT_PORT};
pub use self::blocking::client::Client;
pub use self::blocking::connection::Connection;
pub use self::blocking::pool::{Pool, PooledClient};
pub use self::blocking::stream::Closer;
pub use self::core::data::{Cursor, Extensions, Job, JobInfo, Page};
pub use self::core::fields::Fields;
pub use self::core::put::{Inserted, PutOptions};
pub use self::core::request::{Repeat, Request};
pub use self::core::tag::{Tag, TagError, TraceParent, TraceParentError};
pub use self::core::{Connector, Reconnect, Token};
pub use self::error::{Culprit, Error};
pub use self::servers::Servers;
#[cfg(feature = "tls")]
pub use self::tls::{Tls, TlsError};
pub use self::worker::{Event, Handled, Report, Retry, Settled, Stopper, Worker, WorkerJob};
pub use beanstalkd_protocol::{
    Command, Dictionary, Field, FieldList, IdList, ModeWord, Received, Refusal, Reply, ReplyError, Verb,
    YamlError, parse_dictionary, parse_list,
};
pub use beanstalkd_types::job::{Counting, JobId, JobState, Priority};
pub use beanstalkd_types::seconds::Seconds;
pub use beanstalkd_types::tags::{TagFilter, TagKind};
pub use beanstalkd_types::tube_name::{NameError, TubeName, TubeNameRef};

/// Locks the mutex, also after a panic of a thread that had locked it: every change under these locks is complete.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The examples of README.md are compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
