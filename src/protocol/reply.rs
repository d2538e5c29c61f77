//! Replies: from a [`Reply`] to bytes.

use super::{CRLF, Output};
use crate::job::{Body, JobId};

/// An answer to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the protocol's own words; doc/protocol.md explains them")]
pub enum Reply<'a> {
    Inserted(JobId),
    Using(&'a str),
    Reserved(JobId, &'a Body),
    DeadlineSoon,
    TimedOut,
    Deleted,
    Released,
    Buried,
    Touched,
    Watching(usize),
    NotIgnored,
    Found(JobId, &'a Body),
    /// The answer to `kick`: how many jobs it moved.
    Kicked(u64),
    /// The answer to `kick-job`.
    KickedJob,
    Paused,
    NotFound,
    /// Stats or a list, in YAML.
    Data(&'a [u8]),
    OutOfMemory,
    InternalError,
    Draining,
    BadFormat,
    UnknownCommand,
    ExpectedCrlf,
    JobTooBig,
}

impl Reply<'_> {
    /// Appends the reply to what a connection sends.
    pub fn write(&self, output: &mut Output) {
        output.count_reply();
        let last: &[u8] = match *self {
            Self::Inserted(id) => return numbered(output, b"INSERTED ", id.0),
            Self::Using(tube) => {
                let bytes = output.bytes();
                bytes.extend_from_slice(b"USING ");
                bytes.extend_from_slice(tube.as_bytes());
                CRLF
            }
            Self::Watching(count) => return numbered(output, b"WATCHING ", count as u64),
            Self::Kicked(count) => return numbered(output, b"KICKED ", count),
            Self::Reserved(id, body) => return job(output, b"RESERVED ", id, body),
            Self::Found(id, body) => return job(output, b"FOUND ", id, body),
            Self::Data(data) => {
                numbered(output, b"OK ", data.len() as u64);
                output.bytes().extend_from_slice(data);
                CRLF
            }
            Self::DeadlineSoon => b"DEADLINE_SOON\r\n",
            Self::TimedOut => b"TIMED_OUT\r\n",
            Self::Deleted => b"DELETED\r\n",
            Self::Released => b"RELEASED\r\n",
            Self::Buried => b"BURIED\r\n",
            Self::Touched => b"TOUCHED\r\n",
            Self::NotIgnored => b"NOT_IGNORED\r\n",
            Self::KickedJob => b"KICKED\r\n",
            Self::Paused => b"PAUSED\r\n",
            Self::NotFound => b"NOT_FOUND\r\n",
            Self::OutOfMemory => b"OUT_OF_MEMORY\r\n",
            Self::InternalError => b"INTERNAL_ERROR\r\n",
            Self::Draining => b"DRAINING\r\n",
            Self::BadFormat => b"BAD_FORMAT\r\n",
            Self::UnknownCommand => b"UNKNOWN_COMMAND\r\n",
            Self::ExpectedCrlf => b"EXPECTED_CRLF\r\n",
            Self::JobTooBig => b"JOB_TOO_BIG\r\n",
        };
        output.bytes().extend_from_slice(last);
    }
}

/// A reply whose last word is a number.
fn numbered(output: &mut Output, word: &[u8], number: u64) {
    let bytes = output.bytes();
    bytes.extend_from_slice(word);
    bytes.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    bytes.extend_from_slice(CRLF);
}

fn job(output: &mut Output, word: &[u8], id: JobId, body: &Body) {
    let bytes = output.bytes();
    bytes.extend_from_slice(word);
    bytes.extend_from_slice(itoa::Buffer::new().format(id.0).as_bytes());
    bytes.push(b' ');
    bytes.extend_from_slice(itoa::Buffer::new().format(body.len()).as_bytes());
    bytes.extend_from_slice(CRLF);
    output.push_body(body);
    output.bytes().extend_from_slice(CRLF);
}
