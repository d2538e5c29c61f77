//! The client with tokio: each method is a future. The feature `tokio` adds it, `tokio-tls` adds it with TLS.
//!
//! A future may be dropped at any moment. If nothing of its command was sent, the command is not sent; otherwise the
//! next command skips its reply. The server replies in the order of the commands, so the next command waits for the
//! reply to the dropped one: give a reserve that may be dropped a time-out, or use [`Client::reserve_with_abort`]: its
//! wait ends at the next command that is not a reserve.
//!
//! No job is lost: a job that the server has assigned to a dropped reserve is the result of the next reserve, which
//! touches it first. If its TTR has ended meanwhile, the server has given it to another client. A reserve that follows
//! a dropped one is not sent while that one has no reply; this holds for all but [`Client::reserve_job`], and a batch
//! that does not wait:
//!
//! - If a job comes, it is the result. Drops in a row, such as in `loop { select! { … } }`, leave one reserve on the
//!   connection.
//! - If the dropped reserve ends without a job, the next one is sent then, with its whole time-out. Together they can
//!   take up to twice as long; a time-out below a second counts as a second.
//! - If the dropped reserve has no limit, a server that hangs looks like one without jobs.
//! - If the time-out of the next one is over first, its result is [`Refusal::TimedOut`](crate::Refusal::TimedOut), but
//!   not before a second has passed: a job may be on its way. The dropped reserve goes on, and its job is the result of
//!   a later one.
//! - If the connection is lost, the dropped reserve is not repeated.
//!
//! Several reserves of a dropped pipeline all count: the next reserve waits until each of them has a reply.
//!
//! ```no_run
//! use beanstalk_client::{Connector, PutOptions, asynchronous::Client};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let mut client = Client::connect(&"127.0.0.1:11300".parse()?).await?;
//! let id = client.put(b"hello", &PutOptions::new()).await?.id;
//! let job = client.reserve_with_timeout(5).await?;
//! assert_eq!(job.id, id);
//! client.delete(job.id).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Owns: sockets, time-outs and pauses. `core` interprets the bytes, and the macros of `drivers` make the methods.
//! Driven by: the tasks of the caller; it starts none, except for the jobs of a worker.

mod client;
pub(crate) mod connection;
mod pool;
mod worker;

pub use client::Client;
pub use connection::Connection;
pub use pool::{Pool, PooledClient};
