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
//! | the server, over any stream | [`server::Server`] and its [`server::Executor`]; their streams: [`stream`], [`poll_token`] |
//! | the server, with sockets, signals and the clock | [`server::event_loop`]; another program takes over: [`server::hand_over`] |
//! | files of settings | [`access`], [`token`], [`tls`], [`tube_rules`] |
//! | metrics, health, the pages and the API | [`http`]; what the API orders: [`orders`], and why it is refused: [`refusal`] |
//! | figures | [`stats`] |
//! | the log of the program | [`log_setup`] |
//! | a connection without its socket | [`exchange`] |
//!
//! A server whose client is in memory:
//!
//! ```
//! # use std::cell::RefCell;
//! # use std::collections::VecDeque;
//! # use std::convert::Infallible;
//! # use std::io::{self, ErrorKind, IoSlice, Read};
//! # use std::rc::Rc;
//! use beanstalkd::server::{Executor, ExecutorConfig, Readiness, Server};
//! use beanstalkd::stats::ServerInfo;
//! use beanstalkd::stream::Stream;
//! use beanstalkd_types::clock::Timestamp;
//! # use beanstalkd::poll_token::PollToken;
//!
//! #[derive(Clone, Default)]
//! struct Wire {
//!     sent: Rc<RefCell<VecDeque<u8>>>,
//!     received: Rc<RefCell<Vec<u8>>>,
//! }
//!
//! impl Stream for Wire {
//!     // ...
//! #     fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
//! #         match self.sent.borrow_mut().read(buffer)? {
//! #             0 => Err(ErrorKind::WouldBlock.into()),
//! #             count => Ok(count),
//! #         }
//! #     }
//! #     fn read_into(&mut self, body: &mut Vec<u8>, max_bytes: usize) -> io::Result<usize> {
//! #         let mut buffer = vec![0; max_bytes];
//! #         let count = self.read(&mut buffer)?;
//! #         body.extend_from_slice(&buffer[..count]);
//! #         Ok(count)
//! #     }
//! #     fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
//! #         self.received.borrow_mut().extend_from_slice(bytes);
//! #         Ok(bytes.len())
//! #     }
//! #     fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
//! #         slices.iter().map(|slice| self.write(slice)).sum()
//! #     }
//! #     fn await_writable(&mut self, _: PollToken, _: bool) {}
//! }
//!
//! # let config = ExecutorConfig { max_job_bytes: 1 << 16, ..ExecutorConfig::default() };
//! let (wire, now) = (Wire::default(), Timestamp(1));
//! let mut server = Server::new(Executor::new(config, ServerInfo::default()));
//! let client = server.accept(|_| Ok::<_, Infallible>(wire.clone()), now)?;
//! wire.sent.borrow_mut().extend(b"put 0 0 60 5\r\nhello\r\nreserve\r\n");
//! let event = (client, Readiness { readable: true, ..Readiness::default() });
//! server.turn([event].into_iter(), now);
//! assert_eq!(*wire.received.borrow(), b"INSERTED 1\r\nRESERVED 1 5\r\nhello\r\n");
//! # Ok::<(), Infallible>(())
//! ```

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
pub mod exchange;
mod executor;
pub mod http;
pub mod log_setup;
pub mod options;
pub mod orders;
pub mod poll_token;
pub mod refusal;
pub mod server;
pub mod stats;
pub mod stream;
pub mod tls;
pub mod token;
mod toml_text;
pub mod tube_rules;
