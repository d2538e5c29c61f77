//! Puts that the server refuses: because of drain mode, because memory or disk space is low, or because they are too
//! long.
//!
//! Owns: their numbers, and when the log has a line. A put that is too long is the fault of its client, and gets none.
//! The executor counts them; the event loop asks once a turn whether a line is due.

use std::fmt;

use log::warn;

use super::Executor;
use crate::binlog::LogState;
use crate::clock::{NS_PER_S, Timestamp};
use crate::description::{Described, Malformed, Reader, Writer};
use crate::log_setup::Count;
use crate::protocol::Reply;

/// The shortest time between two lines, and how long the status shows the last one.
const INTERVAL_NS: u64 = 60 * NS_PER_S;

/// The numbers of puts that were refused.
#[derive(Debug, Default)]
pub(super) struct RefusedPuts {
    /// All refused puts, including those that are too long.
    pub total: u64,
    draining: u64,
    no_room: u64,
    /// How many of `draining` and `no_room` have been logged.
    logged: u64,
    last: Option<(Timestamp, RefusedPutsLine)>,
}

/// The contents of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RefusedPutsLine {
    puts: u64,
    reason: &'static str,
}

impl fmt::Display for RefusedPutsLine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "refused {}: {}", Count(self.puts, "put"), self.reason)
    }
}

impl Described for RefusedPuts {
    fn describe(&self, out: &mut Writer<'_>) {
        // The time and the words of the last line matter only for a minute.
        let Self { total, draining, no_room, logged, last: _ } = self;
        [*total, *draining, *no_room, *logged].describe(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let [total, draining, no_room, logged]: [u64; 4] = from.value()?;
        let is_possible = draining.checked_add(no_room).is_some_and(|both| both >= logged);
        let read = Self { total, draining, no_room, logged, last: None };
        is_possible.then_some(read).ok_or(Malformed("the number of refused puts"))
    }
}

impl RefusedPuts {
    /// Counts a put that gets this reply.
    pub(crate) fn count(&mut self, reply: &Reply<'_>) {
        self.total += 1;
        self.draining += u64::from(matches!(reply, Reply::Draining));
        self.no_room += u64::from(matches!(reply, Reply::OutOfMemory));
    }

    #[inline]
    fn unlogged(&self) -> u64 {
        debug_assert!(self.logged <= self.draining + self.no_room, "only refused puts are logged");
        self.draining + self.no_room - self.logged
    }

    /// When a line is due.
    #[inline]
    fn due_at(&self) -> Option<Timestamp> {
        (self.unlogged() > 0).then(|| self.last.map_or(Timestamp(0), |(at, _)| at + INTERVAL_NS))
    }

    /// The line that is due.
    fn take_due(&mut self, is_draining: bool, is_disk_full: bool, now: Timestamp) -> Option<RefusedPutsLine> {
        if self.due_at().is_none_or(|at| at > now) {
            return None;
        }
        let reason = if is_draining {
            "the server drains"
        } else if is_disk_full {
            "the disk of the binlog is full"
        } else {
            "memory is low, or an identity or the cooldowns have used up their share of it"
        };
        let refused = RefusedPutsLine { puts: self.unlogged(), reason };
        self.logged = self.draining + self.no_room;
        self.last = Some((now, refused));
        Some(refused)
    }

    /// The contents of the last line, if it is recent.
    fn recent(&self, now: Timestamp) -> Option<RefusedPutsLine> {
        self.last.filter(|&(at, _)| now < at + INTERVAL_NS).map(|(_, refused)| refused)
    }
}

impl Executor {
    /// Logs a line about refused puts if one is due.
    #[inline]
    pub fn log_refused_puts(&mut self, now: Timestamp) {
        if self.counters.refused_puts.unlogged() == 0 {
            return;
        }
        let binlog = self.persistence.binlog.as_ref();
        let is_full = binlog.is_some_and(|binlog| binlog.stats().state == LogState::Full);
        if let Some(refused) = self.counters.refused_puts.take_due(self.is_draining, is_full, now) {
            warn!("{refused}");
        }
    }

    /// When [`Executor::log_refused_puts`] has a line to log.
    pub fn next_line_of_refused_puts_at(&self) -> Option<Timestamp> {
        self.counters.refused_puts.due_at()
    }

    /// The puts that were refused in the last minute, in words.
    pub(crate) fn refused_puts(&self, now: Timestamp) -> Option<RefusedPutsLine> {
        self.counters.refused_puts.recent(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_at_once_and_then_one_a_minute_with_the_number_of_puts() {
        let mut puts = RefusedPuts::default();
        let mut lines = Vec::new();
        for second in 0..100 {
            for _ in 0..5 {
                puts.count(&Reply::OutOfMemory);
            }
            let now = Timestamp(second * NS_PER_S);
            lines.extend(puts.take_due(false, true, now).map(|refused| (second, refused.to_string())));
        }
        let line = |puts| format!("refused {puts} puts: the disk of the binlog is full");
        assert_eq!(lines, [(0, line(5)), (60, line(300))]);
        // The last puts get their line even if no other put is refused.
        assert_eq!(puts.due_at(), Some(Timestamp(120 * NS_PER_S)));
        let last = puts.take_due(true, false, Timestamp(120 * NS_PER_S)).unwrap();
        assert_eq!(last.to_string(), "refused 195 puts: the server drains");
        assert_eq!((puts.due_at(), puts.total), (None, 500));
        assert_eq!(puts.recent(Timestamp(179 * NS_PER_S)), Some(last));
        assert_eq!(puts.recent(Timestamp(180 * NS_PER_S)), None);
    }

    #[test]
    fn a_put_that_is_too_long_is_the_fault_of_its_client_and_gets_no_line() {
        let mut puts = RefusedPuts::default();
        puts.count(&Reply::JobTooBig);
        assert_eq!((puts.total, puts.due_at()), (1, None));
    }
}
