//! beanstalkd: a work-queue server that takes the place of the one in C.
//!
//! One process with one event loop, whose thread owns all state. The parts marked "Pure" do no I/O and read no clock:
//!
//! ```text
//!             bytes            requests            state changes          records
//!  socket ──▶ session ─────▶ protocol ──▶ commands ────────▶ queue          │
//!    ▲                                        │      └────────────────▶ binlog ──▶ disk
//!    └───────────── replies ◀────── deliveries┘                     (one write per turn)
//! ```
//!
//! From the top down. Each part uses only parts below it:
//!
//! - [`server`]: the turn and the connections.
//! - [`commands`]: the table of commands, and a file for each command or family. No other part uses both the queue and
//!   the binlog.
//! - [`access`]: who a client is, and what it may do. Pure.
//! - [`http`]: metrics, health checks, the page and the API, over HTTP.
//! - [`orders`]: what the API asks the server to do, which jobs it means, and how far it has come. Pure.
//! - [`stream`]: the sockets of both kinds of connections, plain or with TLS.
//! - [`tls`]: certificates from files, and the encrypted half of a connection.
//! - [`stats`]: one table of figures each for the server, a tube and a job. Pure.
//! - [`session`]: the state of one connection without its socket: the decoder of its input, and its output. Pure.
//! - [`tube_rules`]: the file of rules for tubes. Pure.
//! - [`poll_token`], [`token`], [`options`], [`log_setup`]: types, the command line and the log.
//! - The crates below: [`binlog`], [`protocol`] and [`queue`], which do not know each other, [`os`], and the types that
//!   all of them share.
//!
//! `doc/architecture.md` gives the reasons.

pub use beanstalkd_binlog as binlog;
pub use beanstalkd_binlog::database_url;
pub use beanstalkd_os as os;
pub use beanstalkd_protocol as protocol;
pub use beanstalkd_queue as queue;
pub use beanstalkd_types::{
    clock, description, job, json, number, rate_limited_log, seconds, tags, tube_name,
};

use beanstalkd_types::{described, percent};

pub mod access;
pub mod commands;
pub mod http;
pub mod log_setup;
pub mod options;
pub mod orders;
pub mod poll_token;
pub mod server;
pub mod session;
pub mod stats;
pub mod stream;
pub mod tls;
pub mod token;
mod toml_text;
pub mod tube_rules;
