//! The jobs that the server has assigned to reserves whose callers no longer waited.
//!
//! Owns: these jobs, until a later reserve gets them. Their deadlines are the server's: before a job is given out, the
//! driver touches it.

use std::collections::VecDeque;
use std::mem;

use beanstalkd_protocol::{FieldList, Reply};
use beanstalkd_types::job::{BodyRef, JobId};

use super::Answer;
use crate::core::request::{Request, is_reserve};
use crate::error::Error;

#[derive(Debug)]
struct Stray {
    id: JobId,
    body: Vec<u8>,
    values: String,
    /// The fields of the values: the connection may have requested others since.
    fields: FieldList,
}

/// The jobs of reserves whose callers no longer waited, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Strays {
    jobs: VecDeque<Stray>,
    /// The job from which the last reply borrows.
    given: Option<Stray>,
    /// Whether the next answer is that no job came in time.
    pub has_timed_out: bool,
}

impl Strays {
    /// Keeps the jobs of this reply, whose RESERVED lines have these fields.
    #[allow(clippy::wildcard_enum_match_arm, reason = "no other reply gives the client a job")]
    pub(super) fn keep(&mut self, reply: &Reply<'_>, fields: FieldList) {
        let stray = |(id, body, values): (JobId, BodyRef<'_>, &str)| Stray {
            id,
            body: body.as_slice().to_vec(),
            values: values.to_owned(),
            fields,
        };
        match *reply {
            Reply::Reserved(id, body) => self.jobs.push_back(stray((id, body, ""))),
            Reply::ReservedWith(id, body, values) => self.jobs.push_back(stray((id, body, values))),
            Reply::ReservedBatch(ref jobs) => self.jobs.extend(jobs.iter_with_values().map(stray)),
            _ => {}
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.jobs.clear();
    }

    /// The job that answers the request, if that is a reserve.
    pub(crate) fn first_for(&self, request: &Request<'_>) -> Option<JobId> {
        self.jobs.front().filter(|_| is_reserve(request.verb())).map(|stray| stray.id)
    }

    /// Removes the job with this id, which the server no longer has reserved.
    pub(crate) fn remove(&mut self, id: JobId) {
        self.jobs.retain(|stray| stray.id != id);
    }

    /// Takes the first job, or that none came in time, as the reply to a reserve.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn take(&mut self) -> Result<Answer<'_>, Error> {
        if mem::take(&mut self.has_timed_out) {
            return Ok((Reply::TimedOut, FieldList::default()));
        }
        self.given = self.jobs.pop_front();
        let Stray { id, body, values, fields } = self.given.as_ref().ok_or(Error::Closed)?;
        let body = BodyRef::Part(body);
        let reply = match values.as_str() {
            "" => Reply::Reserved(*id, body),
            values => Reply::ReservedWith(*id, body, values),
        };
        Ok((reply, *fields))
    }
}
