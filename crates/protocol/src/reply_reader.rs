//! Replies: from bytes to a [`Reply`]. The bytes may be the beginning of a reply, or may not follow the protocol at
//! all.

use std::fmt;

use super::CRLF;
use super::fields::FieldList;
use super::reply::{COMPLETED, Reply, ReservedJobs};
use super::workers::{IdList, MAX_BATCH};
use crate::job::{BodyRef, JobId, JobState, Priority};
use crate::number::plain_u64;

/// The longest reply line that is accepted, in bytes. It is longer than the longest line of the protocol, which is
/// COMPLETED with the ids of [`MAX_COMPLETED_PUTS`](super::MAX_COMPLETED_PUTS) jobs.
const MAX_REPLY_LINE_BYTES: usize = 4096;

/// The longest body or data that is accepted, in bytes: the maximum that a server's limit for a job can have.
const MAX_DATA_BYTES: u64 = 1 << 30;

/// Why bytes are not a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyError {
    /// No line end within 4096 bytes.
    LineTooLong,
    /// The line is not a reply of the protocol.
    UnknownLine(String),
    /// The line announces more than 1 GiB.
    DataTooLong(u64),
    /// CRLF does not follow the data.
    MissingCrlf,
}

impl fmt::Display for ReplyError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LineTooLong => write!(out, "a line of more than {MAX_REPLY_LINE_BYTES} bytes"),
            Self::UnknownLine(line) => write!(out, "the line \"{line}\""),
            Self::DataTooLong(bytes) => write!(out, "{bytes} bytes of data are announced"),
            Self::MissingCrlf => out.write_str("the data does not end where its size says"),
        }
    }
}

impl std::error::Error for ReplyError {}

/// The result of reading the bytes received so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<T> {
    /// A whole reply, and its length in bytes.
    Whole(T, usize),
    /// The beginning of a reply of at least this many bytes.
    Needs(usize),
}

impl<'a> Reply<'a> {
    /// Reads the reply at the beginning of `bytes`.
    ///
    /// # Errors
    /// If the bytes are not the beginning of any reply of the protocol.
    pub fn read(bytes: &'a [u8]) -> Result<Received<Self>, ReplyError> {
        let Some((line, taken)) = line(bytes)? else { return Ok(Received::Needs(bytes.len() + 1)) };
        let unknown = || unknown(line);
        let text = std::str::from_utf8(line).map_err(|_| unknown())?;
        let mut rest = text.split(' ');
        let words = [rest.next(), rest.next(), rest.next(), rest.next(), rest.next()];
        let data = |size: &str| data(bytes, taken, plain_u64(size).ok_or_else(unknown)?);
        let read = match words {
            [Some("OK"), Some(size), None, ..] => data(size)?.map(Reply::Data),
            [Some("RESERVED"), Some(id), Some(size), None, _] => {
                let id = JobId(plain_u64(id).ok_or_else(unknown)?);
                data(size)?.map(|body| Reply::Reserved(id, BodyRef::Part(body)))
            }
            [Some("RESERVED"), Some(id), Some(size), Some(_), _] => {
                let first = "RESERVED ".len() + id.len() + 1 + size.len() + 1;
                let (id, values) = (JobId(plain_u64(id).ok_or_else(unknown)?), &text[first..]);
                if values.split(' ').any(str::is_empty) {
                    return Err(unknown());
                }
                data(size)?.map(|body| Reply::ReservedWith(id, BodyRef::Part(body), values))
            }
            [Some("USING"), Some(_), Some(_), ..] | [Some("USING"), None, ..] => {
                let fields = FieldList::parse(&line["USING".len()..]).ok_or_else(unknown)?;
                Received::Whole(Reply::UsingFields(fields), taken)
            }
            [Some("FOUND"), Some(id), Some(size), None, _] => {
                let id = JobId(plain_u64(id).ok_or_else(unknown)?);
                data(size)?.map(|body| Reply::Found(id, BodyRef::Part(body)))
            }
            [Some("RESERVED_BATCH"), Some(count), None, ..] => {
                let count =
                    plain_u64(count).filter(|count| *count <= MAX_BATCH.into()).ok_or_else(unknown)?;
                batch(count as usize, bytes, taken)?.map(Reply::ReservedBatch)
            }
            [Some("COMPLETED"), ..] => {
                let ids = IdList::parse_reply(&line[COMPLETED.len()..]).ok_or_else(unknown)?;
                Received::Whole(Reply::Completed(ids), taken)
            }
            words => Received::Whole(short(words).ok_or_else(unknown)?, taken),
        };
        Ok(read)
    }

    /// The reply in a message: its first 200 characters.
    #[must_use]
    pub fn shortened(&self) -> String {
        format!("{self:?}").chars().take(200).collect()
    }
}

impl<'a> ReservedJobs<'a> {
    /// The jobs, in order.
    pub fn iter(&self) -> impl Iterator<Item = (JobId, BodyRef<'a>)> {
        self.iter_with_values().map(|(id, body, _)| (id, body))
    }

    /// The jobs, in order, with the values of their fields; the values are empty if the client has not asked for
    /// fields.
    pub fn iter_with_values(&self) -> impl Iterator<Item = (JobId, BodyRef<'a>, &'a str)> {
        let mut rest = self.replies;
        std::iter::from_fn(move || match Reply::read(rest) {
            Ok(Received::Whole(Reply::Reserved(id, body), taken)) => {
                rest = &rest[taken..];
                Some((id, body, ""))
            }
            Ok(Received::Whole(Reply::ReservedWith(id, body, values), taken)) => {
                rest = &rest[taken..];
                Some((id, body, values))
            }
            _ => None,
        })
    }
}

impl<T> Received<T> {
    fn map<U>(self, make: impl FnOnce(T) -> U) -> Received<U> {
        match self {
            Self::Whole(read, taken) => Received::Whole(make(read), taken),
            Self::Needs(bytes) => Received::Needs(bytes),
        }
    }
}

/// The first line without its line end, and its length with the line end.
fn line(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, ReplyError> {
    let window = &bytes[..bytes.len().min(MAX_REPLY_LINE_BYTES)];
    let mut ends = memchr::memchr_iter(b'\n', window).map(|at| at + 1);
    match ends.find(|end| window[..*end].ends_with(CRLF)) {
        Some(end) => Ok(Some((&bytes[..end - CRLF.len()], end))),
        None if bytes.len() >= MAX_REPLY_LINE_BYTES => Err(ReplyError::LineTooLong),
        None => Ok(None),
    }
}

fn unknown(line: &[u8]) -> ReplyError {
    ReplyError::UnknownLine(line.escape_ascii().to_string())
}

/// The data of `size` bytes from `start`, and the position after its CRLF.
fn data(bytes: &[u8], start: usize, size: u64) -> Result<Received<&[u8]>, ReplyError> {
    if size > MAX_DATA_BYTES {
        return Err(ReplyError::DataTooLong(size));
    }
    let end = start + size as usize;
    match bytes.get(end..end + CRLF.len()) {
        None => Ok(Received::Needs(end + CRLF.len())),
        Some(CRLF) => Ok(Received::Whole(&bytes[start..end], end + CRLF.len())),
        Some(_) => Err(ReplyError::MissingCrlf),
    }
}

/// The size of the body after the line `RESERVED <id> <size>`, which may also have values of fields.
fn size_of_reserved(line: &[u8]) -> Option<u64> {
    let mut words = str::from_utf8(line).ok()?.strip_prefix("RESERVED ")?.split(' ');
    let (id, size) = (plain_u64(words.next()?), plain_u64(words.next()?));
    if words.any(str::is_empty) { None } else { id.and(size) }
}

/// The `count` RESERVED replies from `start` on.
fn batch(count: usize, bytes: &[u8], start: usize) -> Result<Received<ReservedJobs<'_>>, ReplyError> {
    let mut at = start;
    for _ in 0..count {
        let rest = &bytes[at..];
        let Some((line, head)) = line(rest)? else { return Ok(Received::Needs(bytes.len() + 1)) };
        let size = size_of_reserved(line).ok_or_else(|| unknown(line))?;
        match data(rest, head, size)? {
            Received::Whole(_, taken) => at += taken,
            Received::Needs(more) => return Ok(Received::Needs(at + more)),
        }
    }
    Ok(Received::Whole(ReservedJobs::new(count, &bytes[start..at]), at))
}

/// Reads a reply that consists of one line.
fn short(words: [Option<&str>; 5]) -> Option<Reply<'_>> {
    match words {
        [Some("INSERTED"), Some(id), Some(state), priority, None] => {
            let state = match state {
                "DELETED" => None,
                word => Some(JobState::parse(word.to_ascii_lowercase().as_bytes())?),
            };
            let priority = match priority {
                Some(digits) => Some(Priority(plain_u64(digits)?.try_into().ok()?)),
                None => None,
            };
            Some(Reply::Duplicate(JobId(plain_u64(id)?), state, priority))
        }
        [Some("USING"), Some(tube), None, ..] => Some(Reply::Using(tube)),
        [Some("DELETED_BATCH"), Some(deleted), Some(missing), None, _] => {
            Some(Reply::DeletedBatch(plain_u64(deleted)?, plain_u64(missing)?))
        }
        [Some(word), None, ..] => Reply::of_word(word),
        [Some(word), Some(digits), None, ..] => Reply::of_number(word, plain_u64(digits)?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLIES: &[&str] = &[
        "INSERTED 1\r\n",
        "INSERTED 7 READY 50\r\n",
        "INSERTED 7 DELETED\r\n",
        "USING mail\r\n",
        "RESERVED 5 5\r\nhello\r\n",
        "RESERVED 5 5 mail 1\r\nhello\r\n",
        "USING tube age\r\n",
        "USING\r\n",
        "RESERVED_BATCH 2\r\nRESERVED 1 1 t\r\na\r\nRESERVED 2 0 u\r\n\r\n",
        "FOUND 5 2\r\n\r\n\r\n",
        "OK 4\r\n---\n\r\n",
        "WATCHING 2\r\n",
        "KICKED\r\n",
        "KICKED 3\r\n",
        "BURIED\r\n",
        "BURIED 9\r\n",
        "FLUSHED 600000\r\n",
        "RESERVED_BATCH 0\r\n",
        "RESERVED_BATCH 2\r\nRESERVED 1 1\r\na\r\nRESERVED 2 0\r\n\r\n",
        "DELETED_BATCH 2 1\r\n",
        "TOUCHED_ALL 4\r\n",
        "EXISTS 12\r\n",
        "NOT_DRAINING\r\n",
        "DEADLINE_SOON\r\n",
    ];

    #[test]
    fn a_partial_reply_needs_more_bytes_and_a_whole_one_is_parsed_exactly() {
        for text in REPLIES {
            for cut in 0..text.len() {
                match Reply::read(&text.as_bytes()[..cut]) {
                    Ok(Received::Needs(needs)) => {
                        assert!(needs > cut && needs <= text.len(), "{text:?} at {cut}")
                    }
                    other => panic!("{text:?} at {cut}: {other:?}"),
                }
            }
            let followed = format!("{text}DELETED\r\n");
            match Reply::read(followed.as_bytes()) {
                Ok(Received::Whole(_, taken)) => assert_eq!(taken, text.len(), "{text:?}"),
                other => panic!("{text:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn malformed_replies_are_errors() {
        for text in [
            "\r\n",
            "HTTP/1.1 400 Bad Request\r\n",
            "INSERTED\r\n",
            "INSERTED x\r\n",
            "INSERTED +1\r\n",
            "INSERTED 1 SLEEPING\r\n",
            "INSERTED 99999999999999999999\r\n",
            "RESERVED 1\r\n",
            "USING tube tube\r\n",
            "USING a b\r\n",
            "RESERVED 1 -1\r\n",
            "RESERVED 1 1 \r\nx\r\n",
            "RESERVED 1 1 a  b\r\nx\r\n",
            "OK 99999999999\r\n",
            "OK 1\r\nabc",
            "RESERVED_BATCH 1001\r\n",
            "RESERVED_BATCH 1\r\nFOUND 1 1\r\na\r\n",
            "RESERVED_BATCH 1\r\nRESERVED 1 1 \r\nx\r\n",
            "TOUCHED 1\r\n",
            "\u{e4}\r\n",
        ] {
            assert!(Reply::read(text.as_bytes()).is_err(), "{text:?}");
        }
        assert_eq!(Reply::read(&[b'x'; MAX_REPLY_LINE_BYTES]), Err(ReplyError::LineTooLong));
        assert_eq!(Reply::read(&[b'x'; MAX_REPLY_LINE_BYTES - 1]), Ok(Received::Needs(MAX_REPLY_LINE_BYTES)));
        assert!(Reply::read(b"\xff\xfe\r\n").is_err());
        let nested = "RESERVED_BATCH 1\r\n".repeat(100_000);
        assert!(Reply::read(nested.as_bytes()).is_err(), "a batch has no batches");
    }

    #[test]
    fn corrupted_replies_never_panic() {
        // Replaces each byte of each reply with bytes that are special to a parser.
        for text in REPLIES {
            for at in 0..text.len() {
                for byte in [0, b' ', b'\r', b'\n', b'-', b'9', b'R', 0xff] {
                    let mut bytes = text.as_bytes().to_vec();
                    bytes[at] = byte;
                    let _ = Reply::read(&bytes);
                }
            }
        }
    }
}
