//! The figures of a job.

use std::fmt::{self, Write};

use super::Read::{Counter, Flag, Gauge, Text, Word};
use super::{Figure, JobStats, Value};
use crate::clock::{NS_PER_S, Timestamp};
use crate::job::JobState;
use crate::queue;
use crate::tags::{JobTags, Name, Trace};

/// A job as its stats see it.
#[derive(Clone, Debug)]
pub struct StatsJob<'a> {
    /// The job in the queue.
    pub job: queue::JobView<'a>,
    /// The name of the session that has reserved it, if the client that asks may know it; empty if there is none.
    pub session: &'a str,
    /// The tube from which a dead job comes, if the client that asks may know that tube; otherwise empty.
    pub dead_from: &'a str,
    /// The reason why it waits, if the reply shows it.
    pub waits_for: &'a str,
    /// The index of the binlog file that holds its record; 0 without a binlog.
    pub file: u32,
    /// The instant of the request.
    pub now: Timestamp,
}

impl StatsJob<'_> {
    /// Whole seconds until the job expires, rounded up, because 0 means that it never expires.
    fn expires_in_s(&self) -> u64 {
        self.job.expires_at.map_or(0, |at| at.since_ns(self.now).div_ceil(NS_PER_S).max(1))
    }

    fn tags(&self) -> Option<&JobTags<'_>> {
        self.job.tags.as_ref()
    }

    /// Whole seconds until the job's reservation or delay ends.
    fn time_left_s(&self) -> u64 {
        match self.job.record.state {
            JobState::Reserved | JobState::Delayed => self.job.record.deadline_at.since_s(self.now),
            JobState::Ready | JobState::Buried => 0,
        }
    }
}

/// The keys that a line of `list-jobs` does not have: the command itself gives the value, or it costs more than the
/// rest, or it follows from the other figures.
const NOT_IN_LINES: [&str; 4] = ["tube", "state", "file", "failures"];

/// Appends the job as a line of `list-jobs`: the figures of `stats-job` in their order, with the length of the body
/// before the counters.
pub fn write_line(view: &StatsJob<'_>, out: &mut String) {
    let mut put = |text: fmt::Arguments<'_>| out.write_fmt(text).expect("a write to a string does not fail");
    let mut before = "- {";
    for figure in JOB.iter().filter(|figure| !NOT_IN_LINES.contains(&figure.key)) {
        if figure.key == "reserves" {
            put(format_args!("{before}bytes: {}", view.job.body.len()));
        }
        put(format_args!("{before}{}: {}", figure.key, figure.value(view)));
        before = ", ";
    }
    let has_more = view.job.tags.is_some() || !view.session.is_empty();
    for figure in TAGS.iter().filter(|figure| has_more && !NOT_IN_LINES.contains(&figure.key)) {
        let value = figure.value(view);
        if !matches!(value, Value::Text("") | Value::Number(0) | Value::Flag(false)) {
            put(format_args!(", {}: {value:#}", figure.key));
        }
    }
    put(format_args!("}}\n"));
}

type Row = Figure<JobStats>;

/// The figures of `stats-job`; a server has too many jobs for series of their own.
pub const JOB: &[Figure<JobStats>] = &[
    Row::plain("id", Gauge(|view| view.job.record.id.0)),
    Row::plain("tube", Text(|view| view.job.tube.as_str())),
    Row::plain("state", Word(|view| view.job.record.state.as_str())),
    Row::plain("pri", Gauge(|view| view.job.record.priority.0.into())),
    Row::plain("age", Gauge(|view| view.now.since_s(view.job.record.created_at))),
    Row::plain("delay", Gauge(|view| view.job.record.delay_s.whole().into())),
    Row::plain("ttr", Gauge(|view| view.job.record.ttr_s.whole().into())),
    Row::plain("time-left", Gauge(|view| view.time_left_s())),
    Row::plain("file", Gauge(|view| view.file.into())),
    Row::plain("reserves", Counter(|view| view.job.record.counters.reserves.into())),
    Row::plain("timeouts", Counter(|view| view.job.record.counters.timeouts.into())),
    Row::plain("releases", Counter(|view| view.job.record.counters.releases.into())),
    Row::plain("buries", Counter(|view| view.job.record.counters.buries.into())),
    Row::plain("kicks", Counter(|view| view.job.record.counters.kicks.into())),
];

/// The reason why a job waits, at the end of `stats-job`.
pub const WAITS_FOR: &[Figure<JobStats>] = &[Row::plain("waits-for", Text(|view| view.waits_for))];

/// The tags of a job, in `stats-job` after the other figures; empty, 0 or false if the job does not have the tag.
#[rustfmt::skip]
pub const TAGS: &[Figure<JobStats>] = &[
    Row::plain("idempotency-key",
        Text(|view| view.tags().and_then(|tags| tags.idempotency).map_or("", |tag| tag.key.as_str()))),
    Row::plain("idempotency-ttl",
        Gauge(|view| view.tags().and_then(|tags| tags.idempotency).map_or(0, |tag| tag.cooldown_s.rounded_up()))),
    Row::plain("group", Text(|view| view.tags().and_then(|tags| tags.group).map_or("", Name::as_str))),
    Row::plain("after-group",
        Text(|view| view.tags().and_then(|tags| tags.after).map_or("", |tag| tag.group.as_str()))),
    Row::plain("concurrency-key",
        Text(|view| view.tags().and_then(|tags| tags.concurrency).map_or("", |tag| tag.key.as_str()))),
    Row::plain("concurrency-limit",
        Gauge(|view| view.tags().and_then(|tags| tags.concurrency).map_or(0, |tag| tag.limit.into()))),
    Row::plain("held", Flag(|view| view.job.is_held)),
    Row::plain("expires-in", Gauge(|view| view.expires_in_s())),
    Row::plain("session", Text(|view| view.session)),
    Row::plain("failures", Gauge(|view| view.job.failures().into())),
    Row::plain("dead-from", Text(|view| view.dead_from)),
    Row::plain("dead-since",
        Gauge(|view| view.tags().and_then(|tags| tags.dead()).map_or(0, |dead| dead.since_s.into()))),
    Row::plain("trace", Text(|view| view.tags().and_then(|tags| tags.trace).map_or("", Trace::as_str))),
];
