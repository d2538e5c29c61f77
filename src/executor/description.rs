//! The description of the executor: the queue, the log, the counters, and the continuations of commands that wait.
//!
//! Owns: which parts are described. The access rules and the certificates are not: the next program reads them itself,
//! with the same command line. Driven by `server/description.rs`.

use super::outcome::Continuation;
use super::{Executor, ServerCounters};
use crate::clock::Timestamp;
use crate::described;
use crate::description::{Described, Malformed, Reader, Writer};
use crate::protocol::FieldList;
use crate::rate_limited_log::RateLimitedLog;
use crate::stats::{CommandCounts, ServerInfo};

// A function is not described: a quiet server has none.
described!(enum Continuation, "the continuation of a command" {
    0 => Put(put),
    1 => Complete(complete);
    Function as 255
});

impl Continuation {
    /// Whether another program can continue it.
    pub(crate) fn is_described(&self) -> bool {
        !matches!(self, Self::Function(_))
    }
}

impl Executor {
    /// Whether no command is in progress that cannot be described.
    pub(crate) fn is_quiet(&self) -> bool {
        let has_orders = self.orders.as_ref().is_some_and(|orders| orders.are_running());
        self.queue.is_quiet()
            && self.flushed.is_empty()
            && self.to_close.is_empty()
            && !has_orders
            && !self.has_failed()
    }

    /// Writes the state of the executor.
    pub(crate) fn describe(&self, out: &mut Writer<'_>) {
        let Self {
            queue,
            persistence,
            info:
                ServerInfo {
                    instance,
                    started_at,
                    version: _,
                    pid: _,
                    hostname: _,
                    os: _,
                    platform: _,
                    cpu_time: _,
                },
            counters:
                ServerCounters {
                    commands,
                    connections,
                    refused_connections,
                    malformed,
                    refused_puts,
                    // When the log had a line matters for some seconds.
                    full_dead_tubes: _,
                    timings,
                    timed_commands,
                },
            is_draining,
            // Written for each client below.
            fields: _,
            // Described separately, or made by the next program from its command line and its files.
            guard: _,
            orders: _,
            // Figures of the present memory and of the cost of turns.
            memory: _,
            spares: _,
            meter: _,
            tls: _,
            // Empty on a quiet server.
            flushed: _,
            client_pages: _,
            to_close: _,
            tube_lists: _,
        } = self;
        instance.describe(out);
        started_at.describe(out);
        commands.describe(out);
        is_draining.describe(out);
        [*connections, *malformed, *timed_commands, *refused_connections].describe(out);
        refused_puts.describe(out);
        timings.describe(out);
        queue.describe(out);
        for client in queue.described_clients() {
            self.fields_of(client).map_or(0, |list| list.packed()).describe(out);
        }
        persistence.describe(out);
    }

    /// Reads the state that another executor had at `now` into this new one.
    ///
    /// # Errors
    /// If the bytes are not such a description. The executor must not be used then.
    pub(crate) fn read_description(
        &mut self,
        from: &mut Reader<'_>,
        now: Timestamp,
    ) -> Result<(), Malformed> {
        self.info.instance = from.value()?;
        self.info.started_at = from.value()?;
        let commands: CommandCounts = from.value()?;
        self.is_draining = from.value()?;
        let [connections, malformed, timed_commands, refused_connections] = from.value()?;
        self.counters = ServerCounters {
            connections,
            refused_connections,
            malformed,
            refused_puts: from.value()?,
            full_dead_tubes: RateLimitedLog::default(),
            timings: from.value()?,
            timed_commands: timed_commands.min(commands.total()),
            commands,
        };
        self.queue.read_description(from, now)?;
        for client in self.queue.described_clients().collect::<Vec<_>>() {
            let list = FieldList::unpack(from.value()?).ok_or(Malformed("the fields of a client"))?;
            self.set_fields(client, list);
        }
        self.persistence.read_description(from, &self.queue)
    }
}
