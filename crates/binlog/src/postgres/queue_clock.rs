//! The clock of a queue, which passes from one owner to the next.
//!
//! Owns: the knowledge of a waiting server about the owner's clock, and its own clock once it is the owner. The times
//! in the log of a directory are wall-clock times of one machine. The owners of a queue have different machines, whose
//! wall clocks may differ by minutes: a successor that used its own would end delays too early or too late by that
//! difference. Therefore the row of the queue has the time at which the owner was last seen, by the clock of the queue,
//! and the successor continues from there. Pure.

use crate::clock::Timestamp;

/// Nanoseconds since 1970 for the times in the log: the wall clock of the first owner at its start, plus the time since
/// then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueClock {
    /// How far it is ahead of the boot clock of this machine.
    ahead_ns: i64,
}

impl QueueClock {
    fn reads(clock_ns: i64, now: Timestamp) -> Self {
        Self { ahead_ns: clock_ns.saturating_sub_unsigned(now.0) }
    }

    /// Time of the queue's clock at `now` of the boot clock.
    pub(super) fn at(self, now: Timestamp) -> i64 {
        self.ahead_ns.saturating_add_unsigned(now.0)
    }
}

/// The clock of the queue, as a waiting server knows it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClockWatch {
    /// The value in the row, and the clock that follows from it.
    seen: Option<(i64, QueueClock)>,
    /// When the row was last read.
    read_at: Option<Timestamp>,
}

impl ClockWatch {
    /// Notes that the row has `clock_ns`, which was written `age_ns` ago by the clock of the database. That age counts
    /// only if this server has not watched the row, and never for more than the time since this server last read it.
    pub(super) fn note(&mut self, clock_ns: Option<i64>, age_ns: u64, now: Timestamp) {
        let last_read_at = self.read_at.replace(now);
        if self.seen.map(|(seen_ns, _)| seen_ns) == clock_ns {
            return;
        }
        let age_ns = age_ns.min(last_read_at.map_or(u64::MAX, |before| now.since_ns(before)));
        self.seen = clock_ns
            .map(|seen_ns| (seen_ns, QueueClock::reads(seen_ns.saturating_add_unsigned(age_ns), now)));
    }

    /// The clock of a server that becomes the owner at `now`. `wall_ns` is its wall clock, which is used if the queue
    /// has no clock yet.
    pub(super) fn clock(&self, wall_ns: u64, now: Timestamp) -> QueueClock {
        let own = || QueueClock::reads(i64::try_from(wall_ns).unwrap_or(i64::MAX), now);
        self.seen.map_or_else(own, |(_, clock)| clock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const S_SIGNED: i64 = 1_000_000_000;

    fn at(seconds: u64) -> Timestamp {
        Timestamp(seconds * S)
    }

    #[test]
    fn the_first_owner_begins_with_its_wall_clock() {
        let mut watch = ClockWatch::default();
        watch.note(None, 0, at(5));
        let clock = watch.clock(1000 * S, at(10));
        assert_eq!((clock.at(at(10)), clock.at(at(17))), (1000 * S_SIGNED, 1007 * S_SIGNED));
    }

    #[test]
    fn a_successor_that_has_watched_goes_on_from_the_change_that_it_saw() {
        let mut watch = ClockWatch::default();
        // The clocks of the machines differ, and the clock of the database cannot help.
        watch.note(Some(1000 * S_SIGNED), 77 * S, at(50));
        watch.note(Some(1001 * S_SIGNED), 600 * S, at(50));
        for second in 51..56 {
            watch.note(Some(1001 * S_SIGNED), 0, at(second));
        }
        assert_eq!(watch.clock(9_999_999 * S, at(56)).at(at(56)), 1007 * S_SIGNED);
    }

    #[test]
    fn the_database_says_how_much_time_has_passed_if_nobody_has_watched() {
        let mut watch = ClockWatch::default();
        watch.note(Some(1000 * S_SIGNED), 3600 * S, at(50));
        assert_eq!(watch.clock(0, at(53)).at(at(53)), 4603 * S_SIGNED);
        // After a lost connection, no more than the time of the loss.
        watch.note(Some(2000 * S_SIGNED), 3600 * S, at(60));
        assert_eq!(watch.clock(0, at(60)).at(at(60)), 2010 * S_SIGNED);
        watch.note(Some(3000 * S_SIGNED), 2 * S, at(70));
        assert_eq!(watch.clock(0, at(70)).at(at(70)), 3002 * S_SIGNED);
    }
}
