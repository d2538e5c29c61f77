//! beanstalkd: a work-queue server that replaces the one in C.
//!
//! One process with one event loop, whose thread owns all state. `doc/architecture.md` has the picture, a row for each
//! part, and the reasons. The program around this library, `src/main.rs` and `src/startup/`, has the steps from the
//! command line to the running server.
//!
//! The public face, by purpose:
//!
//! | for | where |
//! |---|---|
//! | the command line | [`options`] |
//! | the server, over any stream | [`server::Server`] and its [`server::Executor`] |
//! | the server, with sockets, signals and the clock | [`server::event_loop`]; another program takes over: [`server::hand_over`] |
//! | files of settings | [`access`], [`token`], [`tls`], [`tube_rules`] |
//! | metrics, health, the pages and the API | [`http`] |
//! | figures | [`stats`] |
//! | the log of the program | [`log_setup`] |
//! | tests and benchmarks | [`simulation`] |

// An item that no other crate can reach must not be `pub`.
#![warn(unreachable_pub)]
// With a new command, state or order, the compiler points at every `match` that must handle it. The lint does not see
// a wildcard inside of a tuple.
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

use beanstalkd_binlog as binlog;
use beanstalkd_os as os;
use beanstalkd_protocol as protocol;
use beanstalkd_queue as queue;
use beanstalkd_types::{
    clock, described, description, job, json, number, pattern, percent, rate_limited_log, seconds, tags,
    tube_name,
};

pub mod access;
mod commands;
mod exchange;
mod executor;
pub mod http;
pub mod log_setup;
pub mod options;
mod orders;
mod peer;
mod poll_token;
mod refusal;
pub mod server;
pub mod simulation;
pub mod stats;
mod stream;
pub mod tls;
pub mod token;
mod toml_text;
pub mod tube_rules;
