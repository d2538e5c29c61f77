//! The client of the blocking driver.

use std::thread::sleep;

crate::drivers::client::client!(
    blocking,
    connect,
    /// A client: a [`Connection`], to which it dereferences, with a method for each command. A method waits for its
    /// reply.
);
