//! A synchronous client of the beanstalk protocol, over TCP and unix sockets.
//!
//! ```no_run
//! use beanstalk_client::{Client, Name, PutOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut client = Client::connect(&"127.0.0.1:11300".parse()?)?;
//! let mail: Name = "mail".parse()?;
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
//! [`Client`] has a method for each command. It uses a [`Connection`], which sends any [`Command`] and
//! receives any [`Reply`], one at a time or many in a pipeline. Commands that C beanstalkd does not have are
//! extensions; [`Client::extensions`] asks a server which of them it offers.
//!
//! Owns: the encoding of commands, the parsing of replies, sockets.
//! Never: retries, reconnects, starts threads, or panics because of the bytes of a server.
//! Driven by: the caller's thread, which waits for each reply.

mod address;
mod client;
mod command;
mod connection;
mod data;
mod error;
mod name;
mod reply;
mod tag;
#[cfg(feature = "tls")]
mod tls;
mod yaml;

pub use address::{Address, AddressError, DEFAULT_PORT};
pub use client::{Client, PutOptions};
pub use command::{Command, ReserveMode};
pub use connection::{Closer, Connection, Connector, Token};
pub use data::{Extensions, JobInfo, Page, State};
pub use error::{Culprit, Error, Refusal};
pub use name::{Name, NameError};
pub use reply::{Inserted, Job, ParseError, Parsed, Reply};
pub use tag::{Tag, TagError};
#[cfg(feature = "tls")]
pub use tls::{Tls, TlsError};
pub use yaml::{Dictionary, YamlError, parse_dictionary, parse_list};
