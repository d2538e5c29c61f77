//! The client with tokio: each method is a future. The feature `tokio` adds it, `tokio-tls` adds it with TLS.
//!
//! A future may be dropped at any moment. If nothing of its command was sent, the command is not sent; otherwise the
//! next command skips its reply. No job is lost: a job that was assigned to an abandoned reserve is the result of the
//! next reserve, which touches it first: if its TTR has ended meanwhile, the server has given it to another client. The
//! next command waits for the reply to the abandoned one, so give a reserve that may be dropped a time-out, or use
//! [`Client::reserve_with_abort`], which the next command ends.
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
//! Owns: sockets, time-outs and pauses. `core` interprets the bytes. Driven by: the tasks of the caller; it starts
//! none, except for the jobs of a worker.

mod client;
mod connection;
mod pool;
mod worker;

pub use client::Client;
pub use connection::Connection;
pub use pool::{Pool, PooledClient};
