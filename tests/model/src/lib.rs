//! The common model of the server, with which all suites compare.
//!
//! Owns: the required result of each operation of the queue ([`Model`]), what a restart keeps of it ([`Facts`]), and
//! the reply to each command, byte for byte ([`Server`]). It is written from the protocol document and searches whole
//! lists, so that it has no index or count that could be wrong. It shares types with the server under test, and only
//! one function that decides something: `parse_tags`, which says whether the tags of a put are valid. Its own tests and
//! the conformance suite (`tests/conformance/topics/tags.rs`) test that. Never: has a socket or a clock. Driven by the
//! model test, the simulation, the tests of the binlog and of durability, and the fake server of beanstalkctl's tests.
//!
//! ```
//! use beanstalkd_model::{Answer, Server};
//! use beanstalkd_protocol::Command;
//! use beanstalkd_queue::PoisonLimits;
//! use beanstalkd_types::clock::Timestamp;
//!
//! let now = Timestamp(1);
//! let mut server = Server::new(PoisonLimits::default(), 65_535, now);
//! server.model.connect(0);
//! assert_eq!(server.command(0, Command::PeekReady, now), Answer::Reply(b"NOT_FOUND\r\n".to_vec()));
//! ```

mod complete;
mod manage;
mod queue;
mod restart;
mod rotation;
mod rules;
mod server;
mod sessions;
mod stats;
mod tags;

pub use complete::CompletedPut;
pub use manage::Times;
pub use queue::{Client, DEFAULT, Job, Model, NO_JUMPS_FROM, State, Tube, TubeIndex, Wait};
pub use restart::Facts;
pub use server::{ANY_NUMBER, Accepted, Answer, Batch, Completing, PutWords, Server};
pub use sessions::Session;
pub use stats::{BINLOG_FILE_BYTES, PID, VERSION};
pub use tags::{Cooldown, Duplicate, Ending, words_of};
