//! The protocol: commands and replies, in both directions.
//!
//! Owns: the grammar of commands, the exact bytes of replies, the YAML of stats and lists. Pure; it does not know what
//! a command does. Used by the server's connections and by the client library.
//!
//! ```
//! use beanstalkd_protocol::{Command, ParseError, parse};
//! use beanstalkd_types::job::JobId;
//!
//! assert_eq!(parse(b"delete 7"), Ok(Command::Delete(JobId(7))));
//! assert_eq!(parse(b"delete seven"), Err(ParseError::BadFormat));
//! ```

// An item that no other crate can reach must not be `pub`.
#![warn(unreachable_pub)]
// With a new command or reply, the compiler points at every `match` that must handle it.
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod argument;
mod command;
mod fields;
mod list;
mod manage;
mod put_line;
mod reply;
mod reply_reader;
#[cfg(test)]
mod round_trip_tests;
#[cfg(any(test, feature = "samples"))]
mod samples;
mod session;
mod workers;
mod yaml;

use beanstalkd_types::{described, job, number, seconds, tags, tube_name};

pub use self::command::{Command, Origin, ParseError, Verb, longest_line, parse};
pub use self::fields::{Field, FieldList};
pub use self::list::{List, ListWriter, SHORT_LIST_BYTES, list_bytes};
pub use self::manage::{ClientCursor, JobCursor, MAX_LIMIT};
pub use self::put_line::{
    MAX_PUT_LINE_BYTES, PutHeader, parse_tags, plain_put_line, put_line, tagged_put, target_of,
};
pub use self::reply::{Refusal, Reply, ReplyBuffer, ReservedJobs, write_reserved};
pub use self::reply_reader::{Received, ReplyError};
#[cfg(any(test, feature = "samples"))]
pub use self::samples::Arguments;
pub use self::session::Grace;
pub use self::workers::{IdList, MAX_BATCH, MAX_COMPLETED_PUTS, MAX_DELETE_BATCH_LINE_BYTES, ModeWord};
pub use self::yaml::{
    Dictionary, DictionaryWriter, YamlError, parse_dictionary, parse_list, parse_page, write_list,
};

/// The longest command line, in bytes with its CRLF (protocol, "BAD_FORMAT").
pub const MAX_LINE_BYTES: usize = 224;

/// The bytes that end a line and a body.
pub const CRLF: &[u8] = b"\r\n";
