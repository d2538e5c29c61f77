//! The blocking driver: a method returns when its reply has arrived.
//!
//! Owns: sockets, time-outs and pauses. `core` interprets the bytes, and the macros of `drivers` make the methods.
//! Driven by: the caller's thread.

pub(crate) mod client;
pub(crate) mod connection;
pub(crate) mod pool;
pub(crate) mod stream;
mod worker;
