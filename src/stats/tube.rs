//! What is told of a tube.

use super::{Figure, Read, Subject, Tube};
use crate::queue::TubeView;

impl Subject for Tube {
    type View<'a> = TubeView;
}

type Row = Figure<Tube>;

/// The figures of `stats-tube`.
pub const TUBE: &[Figure<Tube>] = &[
    // In the metrics it is the label of every other figure.
    Row::plain("name", Read::Text(|tube| tube.name.as_str())),
    Row::gauge("current-jobs-urgent", "Ready jobs with a priority below 1024.", |tube| tube.jobs.urgent),
    Row::gauge("current-jobs-ready", "Jobs that can be reserved.", |tube| tube.jobs.ready),
    Row::gauge("current-jobs-reserved", "Jobs that clients hold.", |tube| tube.jobs.reserved),
    Row::gauge("current-jobs-delayed", "Jobs whose delay is not over.", |tube| tube.jobs.delayed),
    Row::gauge("current-jobs-buried", "Jobs that wait for a kick.", |tube| tube.jobs.buried),
    Row::counter("total-jobs", "Jobs put.", |tube| tube.counters.puts).named("jobs"),
    Row::gauge("current-using", "Clients that use the tube.", |tube| tube.using.into()),
    Row::gauge("current-watching", "Clients that watch the tube.", |tube| tube.watching.into()),
    Row::gauge("current-waiting", "Clients that wait in a reserve.", |tube| tube.waiting as u64),
    Row::counter("cmd-delete", "Jobs deleted.", |tube| tube.counters.deletes).named("job_deletes"),
    Row::counter("cmd-pause-tube", "Commands pause-tube.", |tube| tube.pauses).named("pauses"),
    Row::gauge("pause", "The length of the present pause.", |tube| tube.pause_s.into())
        .named("pause_seconds"),
    Row::gauge("pause-time-left", "Time until the pause ends.", |tube| tube.pause_left_s)
        .named("pause_time_left_seconds"),
    // C's keys end here.
    Row::counter("job-reserves", "Reservations, by whatever command.", |tube| tube.counters.reserves),
    Row::counter("job-timeouts", "Reservations that ran out.", |tube| tube.counters.timeouts),
    Row::counter("job-releases", "Releases by clients.", |tube| tube.counters.releases),
    Row::counter("job-buries", "Burials by clients.", |tube| tube.counters.buries),
    Row::counter("job-kicks", "Jobs kicked.", |tube| tube.counters.kicks),
    Row::counter("job-poisoned", "Jobs buried by --max-timeouts or --max-releases.", |tube| {
        tube.counters.poisoned
    }),
];
