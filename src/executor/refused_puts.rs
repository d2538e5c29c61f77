//! Puts that the server refuses: because of drain mode, because memory or disk space is low, because they are too long,
//! or because they cannot wait for the pace of their identity.
//!
//! Owns: their numbers, and when the log has a line. The last two are the fault of the client, and get none.
//! The executor counts them; the event loop asks once a turn whether a line is due.

use std::fmt;
use std::iter::{once, repeat};

use log::warn;

use super::Executor;
use crate::clock::{NS_PER_S, Timestamp};
use crate::description::{Described, Malformed, Reader, Writer};
use crate::log_setup::Count;
use crate::refusal::CommandRefusal;

/// The shortest time between two lines, and how long the status shows the last one.
const INTERVAL_NS: u64 = 60 * NS_PER_S;

/// The numbers of puts that were refused.
#[derive(Debug, Default)]
pub(crate) struct RefusedPuts {
    /// All refused puts, including those that get no line.
    pub total: u64,
    /// The contents of the next line.
    unlogged: RefusedPutsLine,
    last: Option<(Timestamp, RefusedPutsLine)>,
}

/// The contents of a line: the number of refused puts for each reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RefusedPutsLine {
    draining: u64,
    disk_full: u64,
    memory_low: u64,
}

impl RefusedPutsLine {
    const fn puts(self) -> u64 {
        self.draining + self.disk_full + self.memory_low
    }
}

impl fmt::Display for RefusedPutsLine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "refused {}", Count(self.puts(), "put"))?;
        let reasons = [
            (self.draining, "the server drains"),
            (self.disk_full, "the disk of the binlog is full"),
            (
                self.memory_low,
                "memory is low, or an identity or the cooldowns have used up their share of it",
            ),
        ];
        let reasons = reasons.into_iter().filter(|&(puts, _)| puts > 0);
        reasons
            .zip(once(": ").chain(repeat("; ")))
            .try_for_each(|((_, reason), sep)| write!(out, "{sep}{reason}"))
    }
}

impl Described for RefusedPuts {
    fn describe(&self, out: &mut Writer<'_>) {
        // The time and the words of the last line matter only for a minute.
        let Self { total, unlogged: RefusedPutsLine { draining, disk_full, memory_low }, last: _ } = self;
        [*total, *draining, *disk_full, *memory_low].describe(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let [total, draining, disk_full, memory_low]: [u64; 4] = from.value()?;
        let puts = draining.checked_add(disk_full).and_then(|puts| puts.checked_add(memory_low));
        let unlogged = RefusedPutsLine { draining, disk_full, memory_low };
        puts.map(|_| Self { total, unlogged, last: None }).ok_or(Malformed("the number of refused puts"))
    }
}

impl RefusedPuts {
    /// Counts a put that is refused for this reason.
    pub(crate) fn count(&mut self, refusal: CommandRefusal, is_disk_full: bool) {
        self.total += 1;
        let is_for_room = refusal == CommandRefusal::OutOfMemory;
        self.unlogged.draining += u64::from(refusal == CommandRefusal::Draining);
        self.unlogged.disk_full += u64::from(is_for_room && is_disk_full);
        self.unlogged.memory_low += u64::from(is_for_room && !is_disk_full);
    }

    /// Counts a put, or a `complete`, that cannot wait for its pace. It gets no line.
    pub(crate) fn count_late(&mut self) {
        self.total += 1;
    }

    /// When a line is due.
    #[inline]
    fn due_at(&self) -> Option<Timestamp> {
        (self.unlogged.puts() > 0).then(|| self.last.map_or(Timestamp::AT_ONCE, |(at, _)| at + INTERVAL_NS))
    }

    /// The line that is due.
    #[inline]
    fn take_due(&mut self, now: Timestamp) -> Option<RefusedPutsLine> {
        self.due_at().filter(|&at| at <= now)?;
        let refused = std::mem::take(&mut self.unlogged);
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
        if let Some(refused) = self.counters.refused_puts.take_due(now) {
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
                puts.count(CommandRefusal::OutOfMemory, true);
            }
            let now = Timestamp(second * NS_PER_S);
            lines.extend(puts.take_due(now).map(|refused| (second, refused.to_string())));
        }
        let line = |puts| format!("refused {puts} puts: the disk of the binlog is full");
        assert_eq!(lines, [(0, line(5)), (60, line(300))]);
        // The last puts get their line even if no other put is refused.
        assert_eq!(puts.due_at(), Some(Timestamp(120 * NS_PER_S)));
        let last = puts.take_due(Timestamp(120 * NS_PER_S)).unwrap();
        assert_eq!(last.to_string(), line(195));
        assert_eq!((puts.due_at(), puts.total), (None, 500));
        assert_eq!(puts.recent(Timestamp(179 * NS_PER_S)), Some(last));
        assert_eq!(puts.recent(Timestamp(180 * NS_PER_S)), None);
    }

    #[test]
    fn a_line_has_the_reasons_for_which_its_puts_were_refused() {
        let mut puts = RefusedPuts::default();
        let mut line_at = |minute, refusals: &[(CommandRefusal, bool)]| {
            refusals.iter().for_each(|&(refusal, is_disk_full)| puts.count(refusal, is_disk_full));
            puts.take_due(Timestamp(minute * INTERVAL_NS)).map(|refused| refused.to_string())
        };
        let memory = "memory is low, or an identity or the cooldowns have used up their share of it";
        let line = line_at(1, &[(CommandRefusal::OutOfMemory, false), (CommandRefusal::Draining, true)]);
        assert_eq!(line, Some(format!("refused 2 puts: the server drains; {memory}")));
        let line = line_at(2, &[(CommandRefusal::OutOfMemory, true), (CommandRefusal::JobTooBig, false)]);
        assert_eq!(line.unwrap(), "refused 1 put: the disk of the binlog is full");
        assert_eq!(line_at(3, &[]), None);
    }

    fn read(described: &impl Described) -> Result<RefusedPutsLine, Malformed> {
        let mut bytes = Vec::new();
        described.describe(&mut Writer::new(&mut |part| bytes.extend(part)));
        RefusedPuts::read(&mut Reader::new(&bytes)).map(|puts| puts.unlogged)
    }

    #[test]
    fn the_next_program_logs_the_puts_that_this_one_has_not_logged_with_their_reasons() {
        let mut puts = RefusedPuts::default();
        puts.count(CommandRefusal::OutOfMemory, true);
        assert_eq!(read(&puts).unwrap().to_string(), "refused 1 put: the disk of the binlog is full");
        puts.count(CommandRefusal::OutOfMemory, false);
        puts.count(CommandRefusal::Draining, false);
        assert_eq!(read(&puts), Ok(puts.unlogged));
        assert!(read(&[9, u64::MAX, 1, 0]).is_err());
        assert!(read(&[9, 1, 0, u64::MAX]).is_err());
    }

    #[test]
    fn a_put_that_is_too_long_is_the_fault_of_its_client_and_gets_no_line() {
        let mut puts = RefusedPuts::default();
        puts.count(CommandRefusal::JobTooBig, true);
        assert_eq!((puts.total, puts.due_at()), (1, None));
    }
}
