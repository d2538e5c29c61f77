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
        match *self {
            Self::Inserted(id) => line(output, b"INSERTED ", id.0),
            Self::Using(tube) => {
                let bytes = output.bytes();
                bytes.extend_from_slice(b"USING ");
                bytes.extend_from_slice(tube.as_bytes());
                bytes.extend_from_slice(CRLF);
            }
            Self::Watching(count) => line(output, b"WATCHING ", count as u64),
            Self::Kicked(count) => line(output, b"KICKED ", count),
            Self::Reserved(id, body) => job(output, b"RESERVED ", id, body),
            Self::Found(id, body) => job(output, b"FOUND ", id, body),
            Self::Data(data) => {
                line(output, b"OK ", data.len() as u64);
                let bytes = output.bytes();
                bytes.extend_from_slice(data);
                bytes.extend_from_slice(CRLF);
            }
            _ => output.bytes().extend_from_slice(self.fixed_line()),
        }
    }

    /// The whole of a reply without arguments.
    fn fixed_line(&self) -> &'static [u8] {
        match self {
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
            Self::Draining => b"DRAINING\r\n",
            Self::BadFormat => b"BAD_FORMAT\r\n",
            Self::UnknownCommand => b"UNKNOWN_COMMAND\r\n",
            Self::ExpectedCrlf => b"EXPECTED_CRLF\r\n",
            Self::JobTooBig => b"JOB_TOO_BIG\r\n",
            Self::InternalError
            | Self::Inserted(_)
            | Self::Using(_)
            | Self::Reserved(..)
            | Self::Watching(_)
            | Self::Found(..)
            | Self::Kicked(_)
            | Self::Data(_) => b"INTERNAL_ERROR\r\n",
        }
    }
}

fn line(output: &mut Output, word: &[u8], number: u64) {
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
