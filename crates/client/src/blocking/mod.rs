//! The driver that blocks: a method returns when its reply is there.
//!
//! Owns: sockets, time-outs and pauses. What the bytes mean is in `core`. Driven by: the caller's thread.

pub(crate) mod client;
pub(crate) mod connection;
pub(crate) mod pool;
mod worker;
