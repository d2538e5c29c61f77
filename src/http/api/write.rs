//! The JSON of jobs, tasks and figures.
//!
//! Owns: the keys that are not those of the stats.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::problem::sentence;
use crate::clock::Timestamp;
use crate::http::snapshot::Snapshot;
use crate::http::task::{Progress, Task};
use crate::http::{SLICE_BYTES, put};
use crate::job::BodyRef;
use crate::json;
use crate::stats::{Figure, JOB, JobView, Subject, TAGS, TUBE, Value};

/// How much of a body stands in the JSON of its job, in bytes: more than people read, and little enough to be written
/// at once.
pub const SHOWN_BYTES: usize = 32 * 1024;

/// Writes all figures of a table as an object.
pub fn write_object<S: Subject>(table: &[Figure<S>], view: &S::View<'_>, out: &mut String) {
    out.push('{');
    for (row, figure) in table.iter().enumerate() {
        if row > 0 {
            out.push(',');
        }
        write_figure(figure, view, out);
    }
    out.push('}');
}

/// Writes the tubes of the snapshot from number `first` on, until `out` has a slice. Returns the number of the next tube, or
/// `None` after the last one.
pub fn write_tubes(snapshot: &Snapshot, first: usize, out: &mut String) -> Option<usize> {
    for (place, tube) in snapshot.tubes().iter().enumerate().skip(first) {
        out.push_str(if place == 0 { "" } else { "," });
        write_object(TUBE, tube, out);
        if out.len() >= SLICE_BYTES {
            return Some(place + 1);
        }
    }
    None
}

fn write_figure<S: Subject>(figure: &Figure<S>, view: &S::View<'_>, out: &mut String) {
    put(out, format_args!("\"{}\":", figure.key));
    match figure.value(view) {
        Value::Word(text) | Value::Text(text) => put(out, format_args!("{}", json::Text(text))),
        number_or_flag => put(out, format_args!("{number_or_flag}")),
    }
}

/// Writes a job without its body: the figures of `stats-job`, but for the file of its record, those of the tags
/// where it has any, and the length of the body.
pub fn write_job(view: &JobView<'_>, out: &mut String) {
    out.push('{');
    for figure in JOB.iter().filter(|figure| figure.key != "file") {
        write_figure(figure, view, out);
        out.push(',');
    }
    for figure in TAGS.iter().filter(|_| view.job.tags.is_some()) {
        write_figure(figure, view, out);
        out.push(',');
    }
    put(out, format_args!("\"bytes\":{}}}", view.job.body.len()));
}

/// The same with at most `shown_bytes` of the body.
pub fn write_job_with_beginning(view: &JobView<'_>, shown_bytes: usize, out: &mut String) {
    write_job(view, out);
    out.pop();
    out.push_str(",\"body\":");
    write_body(view.job.body, shown_bytes, out);
    out.push('}');
}

/// The JSON of a job with its body, or the beginning of a long one.
pub fn job_with_body(view: &JobView<'_>) -> String {
    let mut out = String::from("{\"job\":");
    write_job(view, &mut out);
    out.push_str(",\"body\":");
    write_body(view.job.body, SHOWN_BYTES, &mut out);
    out.push_str("}\n");
    out
}

fn write_body(body: BodyRef<'_>, shown_bytes: usize, out: &mut String) {
    let all = body.as_slice();
    let shown = &all[..all.len().min(shown_bytes)];
    let is_cut = shown.len() < all.len();
    let text = match std::str::from_utf8(shown) {
        Ok(text) => Some(text),
        // A character that stands across the cut.
        Err(error) if is_cut && error.error_len().is_none() => {
            std::str::from_utf8(&shown[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    };
    match text {
        Some(text) => put(
            out,
            format_args!("{{\"encoding\":\"text\",\"data\":{},\"truncated\":{is_cut}}}", json::Text(text)),
        ),
        None => {
            out.push_str("{\"encoding\":\"base64\",\"data\":\"");
            BASE64_STANDARD.encode_string(shown, out);
            put(out, format_args!("\",\"truncated\":{is_cut}}}"));
        }
    }
}

/// Writes a task.
pub fn write_task(task: &Task, now: Timestamp, out: &mut String) {
    let state = match task.progress {
        Progress::Running if task.is_to_stop => "stopping",
        Progress::Running => "running",
        Progress::Done => "done",
        Progress::Stopped => "stopped",
        Progress::Failed(_) => "failed",
    };
    put(out, format_args!("{{\"id\":{},\"action\":\"{}\",\"tube\":", task.id.0, task.action));
    match &task.tube {
        Some(tube) => put(out, format_args!("{}", json::Text(tube.as_str()))),
        None => out.push_str("null"),
    }
    put(out, format_args!(",\"state\":\"{state}\",\"expected\":"));
    write_number(task.expected, out);
    put(out, format_args!(",\"done\":{},\"skipped\":{},\"job\":", task.done, task.skipped));
    write_number(task.job.map(|id| id.0), out);
    put(out, format_args!(",\"age\":{},\"message\":", now.since_s(task.begun_at)));
    let obstacle = match task.progress {
        Progress::Failed(obstacle) => Some(obstacle),
        _ => task.obstacle,
    };
    match obstacle {
        Some(obstacle) => put(out, format_args!("\"{}\"}}", sentence(obstacle))),
        None => out.push_str("null}"),
    }
}

fn write_number(number: Option<u64>, out: &mut String) {
    match number {
        Some(number) => put(out, format_args!("{number}")),
        None => out.push_str("null"),
    }
}

/// The JSON of a task.
pub fn task(task: &Task, now: Timestamp) -> String {
    let mut out = String::new();
    write_task(task, now, &mut out);
    out.push('\n');
    out
}
