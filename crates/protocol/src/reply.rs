//! Replies: from a [`Reply`] to bytes. `reply_reader` does the reverse.

use std::collections::TryReserveError;
use std::fmt;

use super::CRLF;
use super::argument::Argument;
use super::fields::FieldList;
use super::list::List;
use super::workers::IdList;
use crate::job::{Body, BodyRef, JobId, JobState, Priority};

/// The longest reply that has only words and numbers, or the words of all fields.
const MAX_SHORT_BYTES: usize = 64;

/// The word before a reserved job.
const RESERVED: &[u8; 9] = b"RESERVED ";

/// The word before the ids of a `complete`.
pub(super) const COMPLETED: &[u8] = b"COMPLETED";

/// A buffer for replies: bytes, and large bodies between them.
pub trait ReplyBuffer {
    /// Makes sure that `count` bytes can be appended without another allocation.
    ///
    /// # Errors
    /// If the allocator has no memory; then nothing has changed.
    fn reserve(&mut self, count: usize) -> Result<(), TryReserveError>;

    /// The bytes, to append to.
    fn bytes(&mut self) -> &mut Vec<u8>;

    /// Appends a body. A small body is copied: room for it must have been reserved.
    ///
    /// # Errors
    /// If the allocator has no memory for another entry; then nothing has changed.
    fn push_body(&mut self, body: &Body) -> Result<(), TryReserveError>;
}

/// The jobs of a batch: their number, and a whole RESERVED reply for each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservedJobs<'a> {
    count: usize,
    pub(super) replies: &'a [u8],
}

impl<'a> ReservedJobs<'a> {
    /// The jobs of `count` RESERVED replies. A server that has written these replies into another buffer passes none:
    /// then the reply to the batch is only the line before them.
    #[must_use]
    pub fn new(count: usize, replies: &'a [u8]) -> Self {
        Self { count, replies }
    }

    /// The number of jobs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no jobs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

macro_rules! replies {
    (
        words { $($(#[$doc:meta])* $word:literal $name:ident;)+ }
        refusals { $($(#[$refusal_doc:meta])* $refusal_word:literal $refusal:ident;)+ }
        refusals_by_job { $($(#[$job_doc:meta])* $job_word:literal $by_job:ident;)+ }
        numbers { $($(#[$number_doc:meta])* $number_word:literal $numbered:ident($of:ty);)+ }
        others($output:ident) { $(
            $(#[$other_doc:meta])* $other:ident($($field:ident: $field_of:ty),+) => $write:expr;
        )+ }
    ) => {
        /// An answer to a command.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the protocol's own words; doc/protocol.md explains them")]
        pub enum Reply<'a> {
            $($(#[$doc])* $name,)+
            $($(#[$refusal_doc])* $refusal,)+
            $($(#[$job_doc])* $by_job(JobId),)+
            $($(#[$number_doc])* $numbered($of),)+
            $($(#[$other_doc])* $other($($field_of),+),)+
        }

        /// The reason why a server refuses a command: a reply that says that nothing was done.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Refusal {
            $($(#[$refusal_doc])* $refusal,)+
            $($(#[$job_doc])* $by_job(JobId),)+
            /// The server is in drain mode and accepts no new jobs.
            Draining,
        }

        impl fmt::Display for Refusal {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$refusal => out.write_str($refusal_word),)+
                    $(Self::$by_job(id) => write!(out, concat!($job_word, " {}"), id.0),)+
                    Self::Draining => out.write_str("DRAINING"),
                }
            }
        }

        impl Reply<'_> {
            /// The number of replies.
            #[cfg(test)]
            pub(super) const COUNT: usize =
                [$($word,)+ $($refusal_word,)+ $($job_word,)+ $($number_word,)+ $(stringify!($other),)+].len();

            /// The replies that consist of a word, or of a word and this number.
            #[cfg(test)]
            pub(super) fn of_words(number: u64) -> Vec<Self> {
                vec![
                    $(Self::$name,)+
                    $(Self::$refusal,)+
                    $(Self::$by_job(JobId(number)),)+
                    $(Self::$numbered(number.into()),)+
                ]
            }

            /// Appends the reply to `output`.
            ///
            /// # Errors
            /// If the allocator has no memory. The buffer may then end with a part of the reply, so nothing more may be
            /// sent.
            pub fn write(&self, $output: &mut impl ReplyBuffer) -> Result<(), TryReserveError> {
                $output.reserve(MAX_SHORT_BYTES)?;
                let last: &[u8] = match *self {
                    $(Self::$name => concat!($word, "\r\n").as_bytes(),)+
                    $(Self::$refusal => concat!($refusal_word, "\r\n").as_bytes(),)+
                    $(Self::$by_job(id) => {
                        return numbered($output, concat!($job_word, " ").as_bytes(), id.0);
                    })+
                    $(Self::$numbered(number) => {
                        return numbered($output, concat!($number_word, " ").as_bytes(), number.into());
                    })+
                    $(Self::$other($($field),+) => return $write,)+
                };
                $output.bytes().extend_from_slice(last);
                Ok(())
            }

            /// The reply that consists of this word.
            pub(super) fn of_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$name),)+
                    $($refusal_word => Some(Self::$refusal),)+
                    _ => None,
                }
            }

            /// The reply that consists of this word and a number.
            pub(super) fn of_number(word: &str, number: u64) -> Option<Self> {
                match word {
                    $($job_word => Some(Self::$by_job(JobId(number))),)+
                    $($number_word => Some(Self::$numbered(number.into())),)+
                    _ => None,
                }
            }

            /// The reason why the command was refused, if it was. `DRAINING` is a refusal only as the answer to a
            /// `put`.
            #[must_use]
            pub fn refusal(&self) -> Option<Refusal> {
                match *self {
                    $(Self::$refusal => Some(Refusal::$refusal),)+
                    $(Self::$by_job(id) => Some(Refusal::$by_job(id)),)+
                    $(Self::$name => None,)+
                    $(Self::$numbered(..) => None,)+
                    $(Self::$other(..) => None,)+
                }
            }
        }
    };
}

// The table of replies: the word and the arguments after it. Replies are written and read from this table. A reply that
// is more than a word and a number names the function that writes it, and `reply_reader` reads it.
replies! {
    words {
        "DELETED" Deleted;
        "RELEASED" Released;
        "BURIED" Buried;
        "TOUCHED" Touched;
        /// The answer to `kick-job`.
        "KICKED" KickedJob;
        "PAUSED" Paused;
        /// The answer to `drain`, and to a `put` in drain mode.
        "DRAINING" Draining;
        "NOT_DRAINING" NotDraining;
        "MOVED" Moved;
        "REPRIORITIZED" Reprioritized;
        /// The answer to `kill-client`.
        "KILLED" Killed;
        /// The answer to an `auth` with a valid token.
        "AUTHENTICATED" Authenticated;
    }
    refusals {
        /// There is no such job or tube, or the job's state does not allow the command for this client.
        "NOT_FOUND" NotFound;
        /// No job came in time.
        "TIMED_OUT" TimedOut;
        /// A reservation of the client ends within a second.
        "DEADLINE_SOON" DeadlineSoon;
        /// It is the last watched tube.
        "NOT_IGNORED" NotIgnored;
        /// A byte from the client ended the wait of the reserve.
        "ABORTED" Aborted;
        /// There is no room in memory or on the disk.
        "OUT_OF_MEMORY" OutOfMemory;
        /// The server failed.
        "INTERNAL_ERROR" InternalError;
        /// No identity has the token of the `auth`.
        "UNAUTHORIZED" Unauthorized;
        /// The client's identity has its maximum number of connections; the server closes this one.
        "TOO_MANY_CONNECTIONS" TooManyConnections;
        /// The client's identity may not do this.
        "FORBIDDEN" Forbidden;
        /// The arguments are wrong, or the line is too long.
        "BAD_FORMAT" BadFormat;
        /// The server does not have this command.
        "UNKNOWN_COMMAND" UnknownCommand;
        /// CRLF did not follow the body.
        "EXPECTED_CRLF" ExpectedCrlf;
        /// The body is above the server's limit.
        "JOB_TOO_BIG" JobTooBig;
        /// A rule limits the jobs of the tube, or their bytes, and there is no room for this one.
        "TUBE_FULL" TubeFull;
    }
    refusals_by_job {
        /// The answer to `move` if the other tube has a job with the same key.
        "EXISTS" Exists;
    }
    numbers {
        "INSERTED" Inserted(JobId);
        /// C's answer to a `put` if it has no memory to make the job ready. This server sends it only as an answer to
        /// `wait-job`.
        "BURIED" BuriedJob(JobId);
        "WATCHING" Watching(u64);
        /// The answer to `kick`: how many jobs it moved.
        "KICKED" Kicked(u64);
        /// How many jobs a flush has deleted.
        "FLUSHED" Flushed(u64);
        /// How many jobs the client has reserved.
        "TOUCHED_ALL" TouchedAll(u64);
        /// How many jobs the client's session has reserved.
        "SESSION" Session(u64);
        /// The answer to `wait-job`: the job is deleted.
        "DELETED" DeletedJob(JobId);
    }
    others(output) {
        /// The answer to a `put` that is a duplicate of this job: the job's state, unless it has been deleted, and the
        /// job's new priority, if the put has made it more urgent.
        Duplicate(id: JobId, state: Option<JobState>, priority: Option<Priority>) => {
            duplicate(output.bytes(), id, state, priority);
            Ok(())
        };
        Using(tube: &'a str) => using(output, tube);
        /// The answer to `reserve-fields`. With one field, the client reads it as [`Reply::Using`].
        UsingFields(fields: FieldList) => {
            let bytes = output.bytes();
            bytes.extend_from_slice(b"USING");
            fields.write(bytes);
            bytes.extend_from_slice(CRLF);
            Ok(())
        };
        Reserved(id: JobId, body: BodyRef<'a>) => job(output, RESERVED, id, body, "");
        /// A reserved job for a client that has asked for fields: at least one value, with spaces between them.
        ReservedWith(id: JobId, body: BodyRef<'a>, values: &'a str) => job(output, RESERVED, id, body, values);
        Found(id: JobId, body: BodyRef<'a>) => job(output, b"FOUND ", id, body, "");
        /// Stats or a short list, in YAML.
        Data(data: &'a [u8]) => write_data(output, data);
        /// A long list, in YAML. The client reads it as [`Reply::Data`].
        List(list: &'a List) => write_list(output, list);
        /// The number of jobs, then each job as in [`Reply::Reserved`].
        ReservedBatch(jobs: ReservedJobs<'a>) => batch(output, jobs);
        /// For each put of a `complete`, the id of the new job, or of the first job if the put is a duplicate.
        Completed(ids: IdList<'a>) => completed(output, ids);
        /// How many jobs were deleted, and how many ids had no job.
        DeletedBatch(deleted: u64, missing: u64) => {
            let bytes = output.bytes();
            bytes.extend_from_slice(b"DELETED_BATCH ");
            bytes.extend_from_slice(itoa::Buffer::new().format(deleted).as_bytes());
            numbered(output, b" ", missing)
        };
    }
}

fn completed(output: &mut impl ReplyBuffer, ids: IdList<'_>) -> Result<(), TryReserveError> {
    const ID_BYTES: usize = " 18446744073709551615".len();
    output.reserve(MAX_SHORT_BYTES + ids.count() * ID_BYTES)?;
    let bytes = output.bytes();
    bytes.extend_from_slice(COMPLETED);
    ids.write(bytes);
    bytes.extend_from_slice(CRLF);
    Ok(())
}

fn using(output: &mut impl ReplyBuffer, tube: &str) -> Result<(), TryReserveError> {
    output.reserve(MAX_SHORT_BYTES + tube.len())?;
    let bytes = output.bytes();
    [b"USING ", tube.as_bytes(), CRLF].iter().for_each(|part| bytes.extend_from_slice(part));
    Ok(())
}

fn write_data(output: &mut impl ReplyBuffer, data: &[u8]) -> Result<(), TryReserveError> {
    output.reserve(MAX_SHORT_BYTES + data.len())?;
    numbered(output, b"OK ", data.len() as u64)?;
    [data, CRLF].iter().for_each(|part| output.bytes().extend_from_slice(part));
    Ok(())
}

fn duplicate(bytes: &mut Vec<u8>, id: JobId, state: Option<JobState>, priority: Option<Priority>) {
    bytes.extend_from_slice(b"INSERTED ");
    bytes.extend_from_slice(itoa::Buffer::new().format(id.0).as_bytes());
    bytes.push(b' ');
    bytes.extend(state.map_or("deleted", JobState::as_str).bytes().map(|byte| byte.to_ascii_uppercase()));
    if let Some(Priority(priority)) = priority {
        bytes.push(b' ');
        bytes.extend_from_slice(itoa::Buffer::new().format(priority).as_bytes());
    }
    bytes.extend_from_slice(CRLF);
}

/// A reply whose last word is a number.
fn numbered(output: &mut impl ReplyBuffer, word: &[u8], number: u64) -> Result<(), TryReserveError> {
    let bytes = output.bytes();
    bytes.extend_from_slice(word);
    bytes.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    bytes.extend_from_slice(CRLF);
    Ok(())
}

/// Appends a reply to a job of a batch: [`Reply::Reserved`], or [`Reply::ReservedWith`] if there are values.
///
/// # Errors
/// As [`Reply::write`].
pub fn write_reserved(
    output: &mut impl ReplyBuffer,
    id: JobId,
    body: BodyRef<'_>,
    values: &str,
) -> Result<(), TryReserveError> {
    job(output, RESERVED, id, body, values)
}

fn job<const LEN: usize>(
    output: &mut impl ReplyBuffer,
    word: &[u8; LEN],
    id: JobId,
    body: BodyRef<'_>,
    values: &str,
) -> Result<(), TryReserveError> {
    output.reserve(MAX_SHORT_BYTES + values.len() + body.copied_len())?;
    let bytes = output.bytes();
    bytes.extend_from_slice(word);
    bytes.extend_from_slice(itoa::Buffer::new().format(id.0).as_bytes());
    bytes.push(b' ');
    bytes.extend_from_slice(itoa::Buffer::new().format(body.len()).as_bytes());
    if !values.is_empty() {
        values.write(bytes);
    }
    bytes.extend_from_slice(CRLF);
    match body {
        BodyRef::Whole(body) => output.push_body(body)?,
        BodyRef::Part(part) => output.bytes().extend_from_slice(part),
    }
    output.bytes().extend_from_slice(CRLF);
    Ok(())
}

fn batch(output: &mut impl ReplyBuffer, jobs: ReservedJobs<'_>) -> Result<(), TryReserveError> {
    output.reserve(MAX_SHORT_BYTES + jobs.replies.len())?;
    numbered(output, b"RESERVED_BATCH ", jobs.len() as u64)?;
    output.bytes().extend_from_slice(jobs.replies);
    Ok(())
}

fn write_list(output: &mut impl ReplyBuffer, list: &List) -> Result<(), TryReserveError> {
    let copied: usize = list.pieces().iter().map(Body::copied_len).sum();
    output.reserve(MAX_SHORT_BYTES + copied)?;
    numbered(output, b"OK ", list.byte_len() as u64)?;
    for piece in list.pieces() {
        output.push_body(piece)?;
    }
    output.bytes().extend_from_slice(CRLF);
    Ok(())
}
