//! The client with tokio: each method is a future. The feature `tokio` has it, `tokio-tls` has it with TLS.
//!
//! A future may be dropped at any moment. A command of which nothing was sent then is not sent; the next command skips
//! the reply to another one. No job is lost: one that was assigned to a reserve that nobody waits for is the
//! result of the next reserve. The next command waits for the reply to the abandoned one, so give a reserve that may be
//! dropped a time-out, or use [`Client::reserve_with_abort`], which the next command ends.
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
//! Owns: sockets, time-outs and pauses. What the bytes mean is in `core`. Driven by: the tasks of the caller; it starts
//! none, except for the jobs of a worker.

mod client;
mod connection;
mod pool;
mod worker;

pub use client::Client;
pub use connection::Connection;
pub use pool::{Pool, PooledClient};
