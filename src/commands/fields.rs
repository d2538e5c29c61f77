//! The command `reserve-fields`: the values after id and size in the RESERVED lines of a connection.
//!
//! Owns: the lists of the clients that have one, and the values. For a client without a list, a reserve costs one more
//! branch.

use std::fmt::Write;

use super::{Caller, Executor, Outcome, answer};
use crate::clock::Timestamp;
use crate::job::JobId;
use crate::protocol::{Field, FieldList, Reply};
use crate::queue::{ClientId, JobView};
use crate::tube_name::TubeName;

/// The sources of the values of a job.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    tube: TubeName,
    attempts: u32,
    timeouts: u32,
    releases: u32,
    created_at: Timestamp,
    priority: u32,
    ttr_s: u32,
    trace: Option<Box<str>>,
}

impl Values {
    /// The sources for this job.
    pub(super) fn of(job: &JobView<'_>) -> Self {
        let record = &job.record;
        Self {
            tube: job.tube.clone(),
            attempts: record.counters.reserves,
            timeouts: record.counters.timeouts,
            releases: record.counters.releases,
            created_at: record.created_at,
            priority: record.priority.0,
            ttr_s: record.ttr_s.whole(),
            trace: job.tags.and_then(|tags| tags.trace).map(|trace| trace.as_str().into()),
        }
    }

    /// The values of these fields, with a space between them.
    fn text(&self, fields: FieldList, now: Timestamp) -> String {
        let mut text = String::new();
        for field in fields.iter() {
            if !text.is_empty() {
                text.push(' ');
            }
            // Writing to a string does not fail.
            let _ = match field {
                Field::Tube => write!(text, "{}", self.tube),
                Field::Attempts => write!(text, "{}", self.attempts),
                Field::Timeouts => write!(text, "{}", self.timeouts),
                Field::Releases => write!(text, "{}", self.releases),
                Field::Age => write!(text, "{}", now.since_s(self.created_at)),
                Field::Pri => write!(text, "{}", self.priority),
                Field::Ttr => write!(text, "{}", self.ttr_s),
                Field::Trace => text.write_str(self.trace.as_deref().unwrap_or("-")),
            };
        }
        text
    }
}

impl Executor {
    /// From now on, each RESERVED line to the client has these fields.
    pub(super) fn reserve_fields(&mut self, caller: &mut Caller<'_>, fields: FieldList) -> Outcome {
        self.set_fields(caller.client, fields);
        answer(caller.output, &Reply::UsingFields(fields))
    }

    /// Keeps the list of a client.
    pub(super) fn set_fields(&mut self, client: ClientId, fields: FieldList) {
        self.queue.note_fields(client, !fields.is_empty());
        if fields.is_empty() {
            self.clients.fields.remove(&client.index);
        } else {
            self.clients.fields.insert(client.index, fields);
        }
    }

    /// The list of the client; `None` if it has none, like most clients.
    #[inline]
    pub(super) fn fields_of(&self, client: ClientId) -> Option<FieldList> {
        if self.queue.has_fields(client) { self.clients.fields.get(&client.index).copied() } else { None }
    }

    /// The values of a job that the client has reserved, or that was flushed since.
    pub(super) fn values(&self, id: JobId, fields: FieldList, now: Timestamp) -> Option<String> {
        let job = self.queue.job(id).map(|job| Values::of(&job));
        let values = job.or_else(|| self.flushed_job(id).map(|flushed| flushed.values.clone()));
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
