//! The command `reserve-fields`: the values after id and size in the RESERVED lines of a connection.
//!
//! For a client without a list, a reserve costs one more branch.

use crate::clock::Timestamp;
use crate::executor::{Caller, Executor, Outcome, Values, answer};
use crate::job::JobId;
use crate::protocol::{FieldList, Reply};

impl Executor {
    /// From now on, each RESERVED line to the client has these fields.
    pub(super) fn reserve_fields(&mut self, caller: &mut Caller<'_>, fields: FieldList) -> Outcome {
        self.set_fields(caller.client, fields);
        answer(caller.output, &Reply::UsingFields(fields))
    }

    /// The values of a job that the client has reserved, or that was flushed since.
    pub(super) fn values(&self, id: JobId, fields: FieldList, now: Timestamp) -> Option<String> {
        let job = self.queue.job(id).map(|job| Values::of(&job));
        let values = job.or_else(|| self.flushed.find(id).map(|flushed| flushed.values.clone()));
        values.map(|values| values.text(fields, now))
    }

    /// Answers a reserve of a client that has a list.
    #[cold]
    pub(super) fn answer_with_fields(
        &mut self,
        caller: &mut Caller<'_>,
        id: JobId,
        fields: FieldList,
    ) -> Outcome {
        match (self.reserved_body(id), self.values(id, fields, caller.now)) {
            (Some(body), Some(values)) => answer(caller.output, &Reply::ReservedWith(id, body, &values)),
            _ => answer(caller.output, &Reply::InternalError),
        }
    }
}
