//! beanstalkd: a work-queue server that takes the place of the one in C.
//!
//! One process with one event loop, whose thread owns all state. The parts marked "Pure" do no I/O and read no clock:
//!
//! ```text
//!             bytes            requests            state changes          records
//!  socket ──▶ session ─────▶ protocol ──▶ server/execute ──▶ queue          │
//!    ▲                                        │      └────────────────▶ binlog ──▶ disk
//!    └───────────── replies ◀────── deliveries┘                     (one write per turn)
//! ```
//!
//! From the top down. Each part uses only parts below it, and `queue`, `protocol` and `binlog` never use each
//! other:
//!
//! - [`server`]: the turn, the connections, and one short function for each command. No other part uses both the queue
//!   and the binlog.
//! - [`access`]: who a client is, and what it may do. Pure.
//! - [`http`]: metrics, health checks and the page, over HTTP.
//! - [`tls`]: certificates from files, and the encrypted half of a connection.
//! - [`stats`]: one table of figures each for the server, a tube and a job. Pure.
//! - [`session`]: the state of one connection without its socket: the decoder of its input, and its output. Pure.
//! - [`binlog`]: records, files and replay. It reaches the disk through one small trait.
//! - [`protocol`]: parses command lines into commands, and writes replies as bytes. Pure.
//! - [`queue`]: tubes, jobs, watch lists, reservations, every deadline. Pure.
//! - [`poll_token`], [`id_map`], [`job`], [`tags`], [`tube_name`], [`token`], [`database_url`], [`clock`]: types that
//!   parts share.
//! - [`os`]: signals, privileges, the service manager, locks, limits. Only this part has `unsafe` code.
//! - [`options`], [`log_setup`], [`rate_limited_log`], [`json`]: the command line and the log.
//!
//! `doc/architecture.md` gives the reasons.

pub mod access;
pub mod binlog;
pub mod clock;
pub mod database_url;
pub mod http;
pub mod id_map;
pub mod job;
pub mod json;
pub mod log_setup;
mod number;
pub mod options;
pub mod os;
pub mod poll_token;
pub mod protocol;
pub mod queue;
pub mod rate_limited_log;
pub mod server;
pub mod session;
pub mod stats;
pub mod tags;
pub mod tls;
pub mod token;
pub mod tube_name;
