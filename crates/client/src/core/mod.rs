//! The decisions of a connection, without sockets and waits.
//!
//! Owns: the commands and the meaning of their replies, the order of commands and replies, the requests that come
//! before a caller's request, the greeting of a new connection, which commands are sent again on it, and the next step.
//! Never opens, reads, writes or waits; nothing here has a socket or reads the clock: an instant is an argument. Driven
//! by: the macros of [`drivers`](crate::drivers), which both drivers expand.

mod backoff;
mod commands;
mod connection_state;
mod connector;
pub(crate) mod data;
mod earlier_wait;
pub(crate) mod engine;
pub(crate) mod exchange;
pub(crate) mod fields;
mod input;
pub(crate) mod pipeline;
pub(crate) mod put;
pub(crate) mod request;
pub(crate) mod tag;
mod token;

pub use backoff::Reconnect;
pub(crate) use backoff::{Backoff, jittered};
pub(crate) use commands::with_commands;
pub use connector::Connector;
pub(crate) use connector::grace_of;
pub use token::Token;
