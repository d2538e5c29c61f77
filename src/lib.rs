//! beanstalkd: a work-queue server that takes the place of the one in C.
//!
//! One process, one thread that owns everything, one poll loop. Pure parts, with a thin shell around them:
//!
//! ```text
//!             bytes            requests            state changes          records
//!  socket ──▶ connection ──▶ protocol ──▶ server/execute ──▶ queue          │
//!    ▲                                        │      └────────────────▶ binlog ──▶ disk
//!    └───────────── replies ◀────── deliveries┘                     (one write per turn)
//! ```
//!
//! From the top down, each part using only what stands below it; `queue`, `protocol` and `binlog` never
//! use each other:
//!
//! - [`server`]: the turn, the connections, one short function a command. Here alone queue meets binlog.
//! - [`http`]: what is seen from outside over HTTP: metrics, health, a page.
//! - [`stats`]: one table for each thing that figures are told of: the server, a tube, a job. Pure.
//! - [`session`]: the pure half of a connection: one client's stream of bytes, both ways. Pure.
//! - [`binlog`]: records, files, replay; reaches the disk through one small trait.
//! - [`protocol`]: command lines to commands, replies to bytes. Pure.
//! - [`queue`]: tubes, jobs, watch lists, reservations, every deadline. Pure.
//! - [`poll_token`], [`id_map`], [`job`], [`tags`], [`tube_name`], [`clock`]: the words that all of them share.
//! - [`os`]: signals, privileges, the service manager, locks, limits. `unsafe` stands here alone.
//! - [`options`], [`log_setup`], [`rate_limited_log`], [`json`]: the command line and the log.
//!
//! `doc/architecture.md` says why.

pub mod binlog;
pub mod clock;
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
pub mod tube_name;
