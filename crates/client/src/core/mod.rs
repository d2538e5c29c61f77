//! The code that both drivers share: the blocking and the asynchronous one.
//!
//! Owns: the commands and the meaning of their replies, the order of commands and replies, the requests that come
//! before one of a caller, the greeting of a new connection, and which commands are sent again on it. Never opens,
//! reads, writes or waits; nothing here has a socket or a clock. Driven by: [`Connection`](crate::Connection), and the
//! one with the same name in `asynchronous`. Both are written out: methods that a macro makes have one documentation
//! for two drivers, and errors of the compiler that name no line of theirs; with a feature that chooses between the
//! drivers, no program could use both.

mod backoff;
mod commands;
mod connection_state;
pub(crate) mod data;
pub(crate) mod engine;
pub(crate) mod exchange;
pub(crate) mod fields;
mod input;
pub(crate) mod pipeline;
pub(crate) mod put;
pub(crate) mod request;
pub(crate) mod tag;

pub use backoff::Reconnect;
pub(crate) use backoff::{Backoff, jittered};
pub(crate) use commands::with_commands;
pub(crate) use connection_state::ConnectionState;
pub use connection_state::Token;
