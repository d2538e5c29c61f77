//! What the stats are read from.
//!
//! Owns: where each part of a view comes from. Never decides what is told of it: that is the tables' (`crate::stats`).
//! Driven by `execute` for the stats commands and by `http` for the metrics.

use super::Executor;
use crate::binlog;
use crate::clock::Timestamp;
use crate::job::JobId;
use crate::protocol::Dictionary;
use crate::queue::GroupView;
use crate::stats::{self, JOB, JobView, SERVER, ServerView, StatsSource, TAGS, TUBE};

impl StatsSource for Executor {
    fn server_view(&self, now: Timestamp) -> ServerView<'_> {
        let binlog = self.persistence.stats();
        let state = if self.persistence.is_kept() { binlog.state } else { "off" };
        ServerView {
            identity: &self.identity,
            queue: &self.queue,
            binlog: binlog::Stats { state, ..binlog },
            commands: &self.commands,
            timings: &self.timings,
            is_draining: self.draining,
            max_job_bytes: self.config.max_job_bytes,
            binlog_file_bytes: self.config.binlog_file_bytes,
            buffer_bytes: self.buffer_bytes,
            connections: self.connections,
            refused_connections: self.refused_connections,
            malformed: self.malformed,
            rejected_puts: self.rejected_puts,
            now,
        }
    }
}

impl Executor {
    /// The answer to `stats`.
    pub(super) fn stats(&self, now: Timestamp) -> Vec<u8> {
        stats::yaml(&[SERVER], &self.server_view(now))
    }

    /// The answer to `stats-tube`, if there is such a tube.
    pub(super) fn stats_tube(&self, name: &str, now: Timestamp) -> Option<Vec<u8>> {
        self.queue.tube(name, now).map(|tube| stats::yaml(&[TUBE], &tube))
    }

    /// The answer to `stats-group`, if there is such a group.
    pub(super) fn stats_group(&self, name: &str) -> Option<Vec<u8>> {
        let GroupView { pending, buried, waiting } = self.queue.group(name)?;
        let mut group = Dictionary::default();
        group.quoted("name", name);
        group.plain("pending", pending);
        group.plain("buried", buried);
        group.plain("complete", pending == 0);
        group.plain("waiting-jobs", waiting);
        Some(group.into_bytes())
    }

    /// The answer to `stats-job`, if there is such a job.
    pub(super) fn stats_job(&self, id: JobId, now: Timestamp) -> Option<Vec<u8>> {
        let job = self.queue.job(id)?;
        Some(stats::yaml(&[JOB, TAGS], &JobView { job, file: self.persistence.file_of(id), now }))
    }
}
