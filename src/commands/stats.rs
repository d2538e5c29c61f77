//! The command `stats`, and the views from which stats are read.
//!
//! Owns: the source of each part of a view. Never decides which figures are shown: the tables in `crate::stats` do.
//! Driven by the table of commands, and by `http` for the metrics.

use crate::binlog::{self, Binlog};
use crate::clock::Timestamp;
use crate::exchange::Output;
use crate::executor::{Caller, Executor, Outcome, answer};
use crate::job::JobId;
use crate::protocol::{DictionaryWriter, Reply};
use crate::queue::{ClientId, GroupView};
use crate::stats::{self, IdentityView, JOB, StatsJob};
use crate::stats::{ServerView, TAGS, TUBE, TubeSums, WAITS_FOR};

/// How many bytes of stats and lists can be rendered and copied for the cost of a simple request.
const DATA_BYTES_PER_COST: u64 = 64;

impl Executor {
    /// The server at `now`, as an administrator sees it.
    #[must_use]
    pub fn server_view(&self, now: Timestamp) -> ServerView<'_> {
        ServerView {
            info: &self.info,
            queue: &self.queue,
            sums: TubeSums::of(&self.queue),
            identities: self.guard.as_deref().map(|guard| guard as _),
            extensions: stats::extensions(self.guard.is_some()),
            binlog: self.persistence.binlog().map_or_else(binlog::Stats::default, Binlog::stats),
            commands: &self.counters.commands,
            timings: &self.counters.timings,
            is_draining: self.is_draining,
            max_job_bytes: self.memory.max_job_bytes,
            binlog_file_bytes: self.persistence.file_bytes,
            buffer_bytes: self.all_buffer_bytes(),
            connections: self.counters.connections,
            refused_connections: self.counters.refused_connections,
            malformed: self.counters.malformed,
            refused_puts: self.counters.refused_puts.total,
            tls: self.tls.as_ref().map(|acceptor| acceptor.figures()),
            now,
        }
    }

    /// The command `stats`.
    pub(super) fn stats(&mut self, caller: &mut Caller<'_>) -> Outcome {
        if !self.sees_every_tube(caller.client) {
            return self.stats_of_visible_tubes(caller);
        }
        let stats = self.stats_for(caller.client, &self.server_view(caller.now));
        self.answer_data(Some(stats), caller.output)
    }

    /// Answers with stats or a short list, or with NOT_FOUND if there is no data.
    pub(super) fn answer_data(&mut self, data: Option<Vec<u8>>, output: &mut Output) -> Outcome {
        let Some(data) = data else { return answer(output, &Reply::NotFound) };
        self.count_cost(data.len() as u64 / DATA_BYTES_PER_COST);
        answer(output, &Reply::Data(&data))
    }

    /// The stats for a client, with its view of the server.
    pub(super) fn stats_for(&self, client: ClientId, server: &ServerView<'_>) -> Vec<u8> {
        let figures = self.guard.as_ref().and_then(|guard| guard.figures_of(client));
        let identity = figures.map(|figures| IdentityView { figures, queue: &self.queue });
        stats::server_yaml(server, identity.as_ref(), self.queue.client_number(client))
    }

    /// The answer to `stats-tube`, if there is such a tube.
    pub(super) fn stats_tube(&self, name: &str, now: Timestamp) -> Option<Vec<u8>> {
        self.queue.tube(name, now).map(|tube| stats::yaml(&[TUBE], &tube))
    }

    /// The answer to `stats-group`, if there is such a group.
    pub(super) fn stats_group(&self, name: &str) -> Option<Vec<u8>> {
        let GroupView { pending, buried, waiting } = self.queue.group(name)?;
        let mut group = DictionaryWriter::default();
        group.quoted("name", name);
        group.plain("pending", pending);
        group.plain("buried", buried);
        group.plain("complete", pending == 0);
        group.plain("waiting-jobs", waiting);
        Some(group.into_bytes())
    }

    /// The answer to `stats-job`, if there is such a job.
    pub(super) fn stats_job(&self, client: ClientId, id: JobId, now: Timestamp) -> Option<Vec<u8>> {
        let (job, session) = (self.queue.job(id)?, self.session_shown_to(client, id));
        let waits_for = &*self.queue.waits_for(id, now);
        let file = self.persistence.binlog().map_or(0, |binlog| binlog.file_of(id));
        let dead_from = self.source_shown_to(client, &job);
        let view = StatsJob { job, session, dead_from, waits_for, file, now };
        Some(stats::yaml(&[JOB, TAGS, WAITS_FOR], &view))
    }
}
