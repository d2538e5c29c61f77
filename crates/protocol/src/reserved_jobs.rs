//! The jobs of a `RESERVED_BATCH`.

use super::reply::Reply;
use super::reply_reader::Received;
use crate::job::{BodyRef, JobId};

/// The jobs of a batch: their number, and a whole RESERVED reply for each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservedJobs<'a> {
    count: usize,
    replies: &'a [u8],
}

impl<'a> ReservedJobs<'a> {
    /// The jobs of `count` RESERVED replies. A server that has written these replies into another buffer passes none:
    /// then the reply to the batch is only the line before them.
    #[must_use]
    pub fn new(count: usize, replies: &'a [u8]) -> Self {
        Self { count, replies }
    }

    /// The replies.
    pub(super) fn replies(&self) -> &'a [u8] {
        self.replies
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
