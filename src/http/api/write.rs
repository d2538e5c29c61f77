//! The JSON of jobs, tasks and figures.
//!
//! Owns: the keys that the stats do not have.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_core::ser::{Serialize, SerializeMap, Serializer};

use crate::clock::Timestamp;
use crate::http::SLICE_BYTES;
use crate::http::snapshot::Snapshot;
use crate::job::BodyRef;
use crate::json::{self, Object};
use crate::orders::{Progress, Task};
use crate::stats::{Figure, JOB, StatsJob, StatsSubject, TAGS, TUBE, Value, WAITS_FOR};

/// How many bytes of a body the JSON of its job shows: more than people read, and few enough to write at once.
pub(crate) const MAX_SHOWN_BYTES: usize = 32 * 1024;

impl Serialize for Value<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::Number(number) => serializer.serialize_u64(number),
            Self::Seconds(time) => serializer.serialize_f64(time.as_micros() as f64 / 1e6),
            Self::Flag(flag) => serializer.serialize_bool(flag),
            Self::Word(text) | Self::Text(text) => serializer.serialize_str(text),
        }
    }
}

/// All figures of a table.
pub(crate) fn figures<'v, S: StatsSubject>(
    table: &'static [Figure<S>],
    view: &'v S::View<'_>,
) -> impl Serialize + 'v {
    Object(table.iter().map(move |figure| (figure.key, figure.value(view))))
}

/// Writes the tubes of the snapshot, starting with number `first`, until `out` has a slice. Returns the number of the
/// next tube, or `None` after the last one.
pub(crate) fn write_tubes(snapshot: &Snapshot, first: usize, out: &mut String) -> Option<usize> {
    for (index, tube) in snapshot.tubes().iter().enumerate().skip(first) {
        out.push_str(if index == 0 { "" } else { "," });
        json::push(out, &figures(TUBE, tube));
        if out.len() >= SLICE_BYTES {
            return Some(index + 1);
        }
    }
    None
}

/// Ends a page of a list, with the cursor of the next page if there is one.
pub(crate) fn close_page(next: &Option<String>, out: &mut String) {
    out.push_str("],\"next\":");
    json::push(out, next);
    out.push_str("}\n");
}

/// A job: the figures of `stats-job` except the file of its record, and except the tags if it has none, the length of
/// the body, and at most as many bytes of the body as the request allows.
pub(crate) struct JobObject<'v> {
    /// The job.
    pub view: &'v StatsJob<'v>,
    /// Whether its session keeps it for a grace, because the connection is closed.
    pub is_kept: bool,
    /// How many bytes of its body are shown; `None` for none.
    pub shown_bytes: Option<usize>,
}

impl Serialize for JobObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let StatsJob { job, session, .. } = self.view;
        let mut members = serializer.serialize_map(None)?;
        let tags = TAGS.iter().filter(|_| job.tags.is_some() || !session.is_empty());
        for figure in JOB.iter().filter(|figure| figure.key != "file").chain(tags).chain(WAITS_FOR) {
            members.serialize_entry(figure.key, &figure.value(self.view))?;
        }
        members.serialize_entry("bytes", &job.body.len())?;
        if self.is_kept {
            members.serialize_entry("kept_for_grace", &true)?;
        }
        if let Some(shown_bytes) = self.shown_bytes {
            members.serialize_entry("body", &BodyPrefix { body: job.body, shown_bytes })?;
        }
        members.end()
    }
}

/// A job with its body, or with the beginning of a long one.
pub(crate) struct JobAndBody<'v> {
    /// The job.
    pub view: &'v StatsJob<'v>,
    /// Whether its session keeps it for a grace, because the connection is closed.
    pub is_kept: bool,
}

impl Serialize for JobAndBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { view, is_kept } = *self;
        let mut members = serializer.serialize_map(None)?;
        members.serialize_entry("job", &JobObject { view, is_kept, shown_bytes: None })?;
        members.serialize_entry("body", &BodyPrefix { body: view.job.body, shown_bytes: MAX_SHOWN_BYTES })?;
        members.end()
    }
}

/// The first bytes of a body, at most `shown_bytes`.
struct BodyPrefix<'v> {
    body: BodyRef<'v>,
    shown_bytes: usize,
}

impl Serialize for BodyPrefix<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let all = self.body.as_slice();
        let shown = &all[..all.len().min(self.shown_bytes)];
        let is_cut = shown.len() < all.len();
        let text = match std::str::from_utf8(shown) {
            Ok(text) => Some(text),
            // The cut is in the middle of a character.
            Err(error) if is_cut && error.error_len().is_none() => {
                std::str::from_utf8(&shown[..error.valid_up_to()]).ok()
            }
            Err(_) => None,
        };
        let mut members = serializer.serialize_map(None)?;
        members.serialize_entry("encoding", if text.is_some() { "text" } else { "base64" })?;
        match text {
            Some(text) => members.serialize_entry("data", text)?,
            None => members.serialize_entry("data", &BASE64_STANDARD.encode(shown))?,
        }
        members.serialize_entry("truncated", &is_cut)?;
        members.end()
    }
}

/// A task at this instant.
pub(crate) struct TaskNow<'t>(pub &'t Task, pub Timestamp);

impl Serialize for TaskNow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(task, now) = *self;
        let state = match task.progress {
            Progress::Running if task.is_to_stop => "stopping",
            Progress::Running => "running",
            Progress::Done => "done",
            Progress::Stopped => "stopped",
            Progress::Failed(_) => "failed",
        };
        let mut members = serializer.serialize_map(None)?;
        members.serialize_entry("id", &task.id.0)?;
        members.serialize_entry("action", task.action)?;
        members.serialize_entry("tube", &task.tube.as_ref().map(|tube| tube.as_str()))?;
        members.serialize_entry("state", state)?;
        members.serialize_entry("expected", &task.expected)?;
        members.serialize_entry("done", &task.done)?;
        members.serialize_entry("skipped", &task.skipped)?;
        members.serialize_entry("job", &task.job.map(|id| id.0))?;
        members.serialize_entry("age", &now.since_s(task.begun_at))?;
        members.serialize_entry("message", &task.reason().map(|reason| reason.to_string()))?;
        members.end()
    }
}
