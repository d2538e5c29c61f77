//! beanstalkd: a work-queue server that replaces the one in C.
//!
//! One process with one event loop, whose thread owns all state. `doc/architecture.md` has the picture, a row for each
//! part, and the reasons.

// An item that no other crate can reach must not be `pub`.
#![warn(unreachable_pub)]

pub use beanstalkd_binlog as binlog;
pub use beanstalkd_binlog::database_url;
pub use beanstalkd_os as os;
pub use beanstalkd_protocol as protocol;
pub use beanstalkd_queue as queue;
pub use beanstalkd_types::{
    clock, description, job, json, number, pattern, rate_limited_log, seconds, tags, tube_name,
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
