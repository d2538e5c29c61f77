//! A synchronous client of the beanstalk protocol, over TCP and unix sockets.
//!
//! ```no_run
//! use beanstalk_client::{Client, PutOptions, TubeName};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut client = Client::connect(&"127.0.0.1:11300".parse()?)?;
//! let mail: TubeName = "mail".parse()?;
//! client.use_tube(&mail)?;
//! let inserted = client.put(b"to: ann", &PutOptions::default())?;
//! client.watch(&mail)?;
//! let job = client.reserve_with_timeout(5)?;
//! assert_eq!(job.id, inserted.id);
//! client.delete(job.id)?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Client`] has a method for each command. It uses a [`Connection`], which sends any [`Request`] and
//! receives any [`Reply`], one at a time or many in a pipeline. Commands that C beanstalkd does not have are
//! extensions; [`Client::extensions`] asks a server which of them it offers.
//!
//! Owns: what a client knows of its connection. In three floors: [`Exchange`] has the order of commands and replies and
//! uses no socket, [`Connection`] moves its bytes and blocks, and [`Client`] knows which reply belongs to which
//! command. The commands, the replies and their data are those of the crate `beanstalkd-protocol`. Never: retries,
//! reconnects, starts threads, or panics because of the bytes of a server. Driven by: the caller's thread, which waits
//! for each reply.

mod address;
mod client;
mod connection;
mod data;
mod error;
mod exchange;
mod tag;
#[cfg(feature = "tls")]
mod tls;

pub use address::{Address, AddressError, DEFAULT_PORT};
pub use beanstalkd_protocol::{
    Command, Cursor, Dictionary, IdList, ModeWord, Received, Refusal, Reply, ReplyError, Verb, YamlError,
    parse_dictionary, parse_list,
};
pub use beanstalkd_types::job::{Counting, JobId, JobState, Priority};
pub use beanstalkd_types::seconds::Seconds;
pub use beanstalkd_types::tube_name::{NameError, TubeName};
pub use client::{Client, Inserted, Job};
pub use connection::{Closer, Connection, Connector, Token};
pub use data::{Extensions, JobInfo, Page};
pub use error::{Culprit, Error};
pub use exchange::{Exchange, PutOptions, Request};
pub use tag::{Tag, TagError};
#[cfg(feature = "tls")]
pub use tls::{Tls, TlsError};
