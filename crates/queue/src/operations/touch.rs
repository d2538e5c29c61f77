//! `touch`, and `touch-all`, which touches all reservations of a client, a few jobs at a time.
//!
//! Owns: the walk through the client's reservations. It follows the order of their ends, so that the reservations that
//! would end first come first. All are touched as of one instant. So no reservation moves to a position behind the
//! walk. A reservation that moves ahead of the walk is met again, and then stays unchanged. Driven by the server.

use beanstalkd_structures::Timer;

use crate::clock::Timestamp;
use crate::job::{JobId, JobState};
use crate::seconds::Seconds;
use crate::state::jobs::Collection;
use crate::state::keys::Reservation;
use crate::{Change, ClientId, Queue};

impl Queue {
    /// The command `touch`: starts the time to run again, or lets the reservation end `for_s` seconds from now, at
    /// least 1; the time to run stays the same. Returns whether the client has reserved the job.
    pub fn touch(&mut self, client: ClientId, id: JobId, for_s: Option<Seconds>, now: Timestamp) -> bool {
        if !self.has_reserved(client, id) {
            return false;
        }
        debug_assert!(self.is_linked_as(id, JobState::Reserved));
        let job = self.jobs.expect_mut(id);
        let (tube, deadline) = (job.tube, job.collection().deadline());
        let before = deadline.expect("a reserved job has a deadline");
        let until = now.plus_seconds(for_s.map_or(job.ttr(), |seconds| seconds.at_least_one()));
        job.set_collection(Collection::Reserved(until.0.into()));
        let holder = self.holder_for(client.key());
        let reserved = &mut self.clients[holder].reserved;
        let reservation = reserved.remove(Reservation::key(before, id));
        let reservation = reservation.expect("a reserved job is among its holder's reservations");
        reserved.insert(Reservation { until, ..reservation });
        if until < before {
            // The walk of a flush may be there already.
            self.flushes.note_moved(id, tube);
        }
        self.schedule(Timer::Client(holder));
        if holder != client.key() && until != before {
            self.note(Change::SessionReserved(id));
        }
        debug_assert!(self.is_linked_as(id, JobState::Reserved) && self.has_reserved(client, id));
        debug_assert!(until >= now, "no reservation ends before it begins");
        true
    }

    /// Restarts the times to run of the client's reservations as of `at`. It walks through the reservations in the
    /// order of their ends, beginning after the position `after`. It examines at most `left` of them, and subtracts
    /// their number from `left`. Returns the position at which it has stopped; `None` when no reservation is left.
    /// Skips the jobs of tubes that the client may not touch. Counts the others in `touched`; a job that moves to after
    /// the walk counts when it is met again.
    pub fn touch_after(
        &mut self,
        client: ClientId,
        after: Option<(Timestamp, JobId)>,
        left: &mut usize,
        touched: &mut u64,
        may_touch: impl Fn(&str) -> bool,
        at: Timestamp,
    ) -> Option<(Timestamp, JobId)> {
        let (mut last, holder) = (after, self.holder_for(client.key()));
        loop {
            let last_key = last.map(|(until, id)| Reservation::key(until, id));
            let Reservation { until, id, .. } = self.clients[holder].reserved.next_after(last_key)?;
            if *left == 0 {
                return last;
            }
            *left -= 1;
            last = Some((until, id));
            if self.job(id).is_some_and(|job| may_touch(job.tube.as_str())) {
                self.touch(client, id, None, at);
                let new_end = self.jobs.expect(id).collection().deadline();
                *touched += u64::from(new_end.is_some_and(|new_end| new_end <= until));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::NS_PER_S;
    use crate::testing::TestJob;

    #[test]
    fn all_are_touched_in_slices_whatever_their_times_to_run() {
        const JOBS: u64 = 500;
        let mut queue = Queue::default();
        let (worker, other) = (queue.connect(), queue.connect());
        let start = Timestamp(1_700_000_000 * NS_PER_S);
        for number in 0..JOBS {
            let ttr_s = 1 + (number * 7919 % 300) as u32;
            let id = TestJob { ttr_s, ..TestJob::default() }.put(&mut queue, worker, start);
            let holder = if number % 5 == 0 { other } else { worker };
            assert!(queue.reserve_job(holder, id, start));
        }
        let (at, mut after, mut calls, mut touched) = (start + NS_PER_S / 2, None, 0, 0);
        loop {
            let mut left = 3;
            after = queue.touch_after(worker, after, &mut left, &mut touched, |_| true, at);
            queue.check_invariants();
            calls += 1;
            if after.is_none() {
                break;
            }
            assert_eq!(left, 0);
        }
        assert!((JOBS / 5 * 4 / 3..=JOBS).contains(&calls), "{calls} calls");
        assert_eq!(touched, JOBS / 5 * 4);
        for id in (1..=JOBS).map(JobId) {
            let record = queue.job(id).unwrap().record;
            let since = if queue.has_reserved(worker, id) { at } else { start };
            assert_eq!(record.deadline_at, since.plus_seconds(record.ttr_s), "{id:?}");
        }
    }
}
