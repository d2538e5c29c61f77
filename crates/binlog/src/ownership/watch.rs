//! The decision of a standby to take over from the owner of a queue.
//!
//! Owns: the row of the queue as the standby last saw it, and how long it has not changed. Pure. Driven by the claim of
//! `postgres/`, and by the simulation.
//!
//! An owner or a database that hangs for less than `takeover_after` loses nothing. Therefore a standby waits for one
//! more heartbeat, which may have been due when the owner hung. And it does not count most of the time in which it
//! could not read the row, because the owner could not send a heartbeat then either.

use super::OwnershipTimes;
use crate::clock::Timestamp;

/// The row of a queue, as seen by a server that does not serve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the other fields say everything")]
pub struct SeenRow {
    pub epoch: u64,
    /// A value that each heartbeat changes, and that has no other meaning here; `None` if no server owns the queue.
    pub heartbeat: Option<i64>,
    /// Whether the row names this server: it has taken over, but the answer was lost.
    pub is_own: bool,
    /// The [`OwnershipTimes::takeover_after_ns`] of the owner, which decides how long its lease lasts; 0 if the row
    /// lacks it.
    pub takeover_after_ns: u64,
}

/// A standby counts at most one part in this many of `takeover_after` between two answers of the database.
const MAX_BLIND_SHARE: u64 = 2;

/// A server that waits until it may take over.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    times: OwnershipTimes,
    unchanged: Option<Unchanged>,
}

/// A row that has not changed.
#[derive(Clone, Copy, Debug)]
struct Unchanged {
    seen: SeenRow,
    /// When it was first received in this state.
    since: Timestamp,
    /// When it was last received.
    received_at: Timestamp,
    /// How much of the time between the two counts: a heartbeat would have been seen then.
    watched_ns: u64,
}

impl Watch {
    /// A server that has not read the row yet.
    #[must_use]
    pub fn new(times: OwnershipTimes) -> Self {
        Self { times, unchanged: None }
    }

    /// Handles the loss of the connection. The time starts again, because the owner may not have reached the database
    /// either.
    pub fn lost(&mut self) {
        self.unchanged = None;
    }

    /// For how long the row has not changed.
    #[must_use]
    pub fn unchanged_ns(&self, now: Timestamp) -> u64 {
        self.unchanged.map_or(0, |row| now.since_ns(row.since))
    }

    /// Handles the row, which was received before `now`. Returns whether to take over: in one update, which changes
    /// nothing if the row has changed.
    #[must_use]
    pub fn observe(&mut self, seen: SeenRow, now: Timestamp) -> bool {
        // The operator may have changed the time of this server or the time of the owner first.
        let takeover_after_ns = self.times.takeover_after_ns.max(seen.takeover_after_ns);
        let beat_ns = OwnershipTimes { takeover_after_ns, ..self.times }.beat_ns();
        let row = match &mut self.unchanged {
            Some(row) if row.seen == seen => row,
            row => row.insert(Unchanged { seen, since: now, received_at: now, watched_ns: 0 }),
        };
        row.watched_ns += now.since_ns(row.received_at).min(takeover_after_ns / MAX_BLIND_SHARE);
        row.received_at = now;
        seen.heartbeat.is_none() || seen.is_own || row.watched_ns > takeover_after_ns + beat_ns
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MS, TIMES, at};
    use super::*;

    /// Reads the row repeatedly, and returns when the standby takes over.
    fn takes_over_at(watch: &mut Watch, seen: SeenRow, from_ms: u64) -> u64 {
        (from_ms..).step_by(250).find(|&ms| watch.observe(seen, at(ms))).expect("the row does not change")
    }

    const SEEN: SeenRow = SeenRow { epoch: 3, heartbeat: Some(5), is_own: false, takeover_after_ns: 0 };

    #[test]
    fn a_standby_takes_over_if_there_is_no_owner_or_its_heartbeat_has_stopped() {
        let mut watch = Watch::new(TIMES);
        assert!(watch.observe(SeenRow { heartbeat: None, ..SEEN }, at(0)));
        assert!(watch.observe(SeenRow { is_own: true, ..SEEN }, at(0)));
        // The value may come from any clock: only a change counts, forwards or backwards.
        let mut ms = 10_000;
        for heartbeat in [5, 4, i64::MAX] {
            let seen = SeenRow { heartbeat: Some(heartbeat), ..SEEN };
            assert!((ms..=ms + 5500).step_by(250).all(|ms| !watch.observe(seen, at(ms))), "a beat more");
            ms += 5750;
        }
        let seen = SeenRow { epoch: 4, heartbeat: Some(i64::MAX), ..SEEN };
        assert_eq!(takes_over_at(&mut watch, seen, ms), ms + 5750, "another epoch");
        watch.lost();
        assert_eq!(takes_over_at(&mut watch, seen, 40_000), 45_750, "the owner could not reach it either");
    }

    /// An operator changes the time, one server after the other.
    #[test]
    fn a_standby_waits_for_as_long_as_its_owner_counts_on() {
        let seen = SeenRow { takeover_after_ns: 9000 * MS, ..SEEN };
        assert_eq!(takes_over_at(&mut Watch::new(TIMES), seen, 0), 10_000);
    }

    /// The owner is at most one heartbeat late: its next one was due when it, or the database, hung.
    #[test]
    fn a_pause_of_less_than_the_takeover_takes_nothing_over() {
        let (beat_ms, pause_ms) = (TIMES.beat_ns() / MS, 4999);
        let mut owner_pauses = Watch::new(TIMES);
        assert!((0..=beat_ms + pause_ms).step_by(250).all(|ms| !owner_pauses.observe(SEEN, at(ms))));
        // While the database hangs, no server gets an answer, and the standby may get the first one after that.
        for pause_ms in [pause_ms, 60_000] {
            let mut watch = Watch::new(TIMES);
            assert!(!watch.observe(SEEN, at(0)) && !watch.observe(SEEN, at(beat_ms)));
            assert!(!watch.observe(SEEN, at(beat_ms + pause_ms)));
            assert!(!watch.observe(SEEN, at(beat_ms + pause_ms + 4000)), "the owner's next is on its way");
        }
    }
}
