//! The options of a put, and its result.

use beanstalkd_protocol::{Command, PutHeader, Reply, Verb};
use beanstalkd_types::job::{JobId, JobState, Priority};
use beanstalkd_types::seconds::Seconds;

use super::tag::Tag;
use crate::error::Error;

/// The options of a put. The default is priority 1024, which does not count as urgent, no delay, a TTR of 60 seconds,
/// no tags.
///
/// ```
/// use beanstalk_client::PutOptions;
///
/// let options = PutOptions::new().pri(10).delay(5).ttr(120).tag("idp:order-7:600".parse()?);
/// assert_eq!((options.pri, options.tags.len()), (10, 1));
/// # Ok::<(), beanstalk_client::TagError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutOptions {
    /// The priority; 0 is the most urgent.
    pub pri: u32,
    /// Time until the job is ready. A fraction of a second is an extension, which the server must offer.
    pub delay: Seconds,
    /// The time to run; servers treat less than a second as 1.
    pub ttr: Seconds,
    /// The tags: an extension, which the server must offer.
    pub tags: Vec<Tag>,
}

impl Default for PutOptions {
    fn default() -> Self {
        Self { pri: 1024, delay: Seconds::ZERO, ttr: Seconds::new(60, 0), tags: Vec::new() }
    }
}

impl PutOptions {
    /// The default.
    pub fn new() -> Self {
        Self::default()
    }

    /// The priority; 0 is the most urgent.
    #[must_use]
    pub fn pri(self, pri: u32) -> Self {
        Self { pri, ..self }
    }

    /// Time until the job is ready.
    #[must_use]
    pub fn delay(self, delay: impl Into<Seconds>) -> Self {
        Self { delay: delay.into(), ..self }
    }

    /// The time to run.
    #[must_use]
    pub fn ttr(self, ttr: impl Into<Seconds>) -> Self {
        Self { ttr: ttr.into(), ..self }
    }

    /// One more tag.
    #[must_use]
    pub fn tag(mut self, tag: Tag) -> Self {
        self.tags.push(tag);
        self
    }

    /// Appends the line of the put of a body with `size` bytes, without its CRLF.
    pub(crate) fn write(&self, size: u32, line: &mut Vec<u8>) {
        let Self { pri, delay, ttr, tags } = self;
        let header = PutHeader { priority: Priority(*pri), delay_s: *delay, ttr_s: *ttr, size };
        Command::Put(header).write(line);
        for tag in tags {
            line.push(b' ');
            line.extend_from_slice(tag.as_str().as_bytes());
        }
    }

    /// The extensions that a server without them would misunderstand: it would read the body as commands.
    pub(crate) fn extensions(&self) -> impl Iterator<Item = &str> {
        let has_fraction = self.delay.thousandths() > 0 || self.ttr.thousandths() > 0;
        self.tags.iter().map(Tag::word).chain(has_fraction.then_some("fractions"))
    }

    /// For how long a second put of the same job stores nothing, even if the job has been deleted: the seconds of
    /// `idp`. Without them, a put that may have been executed must not be sent again.
    pub(crate) fn duplicate_window(&self) -> Option<Seconds> {
        self.tags.iter().find_map(Tag::cooldown)
    }
}

/// The result of a put.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inserted {
    /// The id of the new job, or of the existing job with the same idempotency key.
    pub id: u64,
    /// Whether a job with the same key exists, or the key still counts. Then the put has stored nothing. If the put was
    /// sent again after a lost connection, that job may come from its first attempt.
    pub is_duplicate: bool,
    /// The state of the existing job; `None` if it was deleted and its key still counts.
    pub state: Option<JobState>,
    /// The new priority of the existing job, if the put was more urgent.
    pub pri: Option<u32>,
}

impl Inserted {
    /// The result for a reply to a put.
    pub fn of_reply(reply: &Reply<'_>) -> Result<Self, Error> {
        let new = |id: JobId| Self { id: id.0, is_duplicate: false, state: None, pri: None };
        if let Reply::Inserted(id) = *reply {
            return Ok(new(id));
        }
        let Reply::Duplicate(id, state, pri) = *reply else { return Err(Error::of_reply(Verb::Put, reply)) };
        Ok(Self { is_duplicate: true, state, pri: pri.map(|pri| pri.0), ..new(id) })
    }
}
