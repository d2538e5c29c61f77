//! The client of the asynchronous driver.

use tokio::time::sleep;

crate::drivers::client::client!(
    asynchronous,
    connect_async,
    /// A client: a [`Connection`], to which it dereferences, with a method for each command. A method is a future.
);
