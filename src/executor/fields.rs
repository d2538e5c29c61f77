//! The fields that clients have asked for with `reserve-fields`, and their values.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Executor;
use crate::clock::Timestamp;
use crate::protocol::{Field, FieldList};
use crate::queue::{ClientId, JobView};
use crate::tube_name::TubeName;

/// The lists of the clients that have one, by the index of the client.
#[derive(Debug, Default)]
pub(crate) struct FieldLists(BTreeMap<u32, FieldList>);

impl FieldLists {
    /// Drops the list of a client that disconnects.
    #[inline]
    pub(super) fn forget(&mut self, client: ClientId) {
        if !self.0.is_empty() {
            self.0.remove(&client.index);
        }
    }
}

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
    pub(crate) fn of(job: &JobView<'_>) -> Self {
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
    pub(crate) fn text(&self, fields: FieldList, now: Timestamp) -> String {
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
    /// Keeps the list of a client.
    pub(crate) fn set_fields(&mut self, client: ClientId, fields: FieldList) {
        self.queue.note_fields(client, !fields.is_empty());
        if fields.is_empty() {
            self.fields.0.remove(&client.index);
        } else {
            self.fields.0.insert(client.index, fields);
        }
    }

    /// The list of the client; `None` if it has none, like most clients.
    #[inline]
    pub(crate) fn fields_of(&self, client: ClientId) -> Option<FieldList> {
        if self.queue.has_fields(client) { self.fields.0.get(&client.index).copied() } else { None }
    }
}
