//! The rules `max-reserved` and `rate`: limits on the reservations of a tube.
//!
//! Owns: when the gate of a tube (`state/gate.rs`) closes and opens. While it is closed, reserves skip the whole tube,
//! as if it were paused, so that no blocked job is examined. A reservation closes the gate if it was the last permitted
//! one; a released job, or the deadline of the next token, opens it (`moves/gates.rs`), and waiting clients get the
//! jobs that may then be reserved.

use beanstalkd_structures::Timer;

use crate::Queue;
use crate::clock::Timestamp;
use crate::state::keys::TubeKey;

impl Queue {
    /// Counts the reservation of a job in a tube with a gate; a restored one takes no token.
    #[inline(never)]
    pub(crate) fn pass_gate(&mut self, tube: TubeKey, taken_at: Option<Timestamp>) {
        if let Some(now) = taken_at
            && let Some(ruled) = &mut self.tubes.get_mut(tube).ruled
            && let Some(rate) = ruled.rate()
        {
            ruled.gate.take(rate, now);
        }
        self.close_gate(tube);
    }

    /// Puts the token of a reservation that was undone back into the bucket. The gate may open at the end of the
    /// command.
    pub(crate) fn return_token(&mut self, tube: TubeKey) {
        if let Some(ruled) = &mut self.tubes.get_mut(tube).ruled
            && let Some(rate) = ruled.rate()
        {
            ruled.gate.give_back(rate);
        }
        self.note_gate(tube);
    }

    /// Closes the gate of the tube if its rule requires that.
    pub(crate) fn close_gate(&mut self, tube: TubeKey) {
        let record = self.tubes.get_mut(tube);
        if record.must_be_closed()
            && let Some(ruled) = &mut record.ruled
        {
            ruled.gate.is_closed = true;
            self.schedule(Timer::Tube(tube));
        }
        debug_assert!(self.is_gate_consistent(tube), "a gate that must be closed is closed");
    }

    /// Whether the gate of the tube is closed if it must be.
    #[inline]
    pub(crate) fn is_gate_consistent(&self, tube: TubeKey) -> bool {
        let record = self.tubes.get(tube);
        record.is_throttled() || !record.must_be_closed()
    }

    /// Notes that the tube has one reservation fewer, or another rule: its gate may open at the end of the command.
    #[inline]
    pub(crate) fn note_gate(&mut self, tube: TubeKey) {
        if self.tubes.get(tube).is_throttled() {
            self.rules.tubes.to_open.push(tube);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::NS_PER_S;
    use crate::description::{Reader, Writer};
    use crate::job::JobId;
    use crate::seconds::Seconds;
    use crate::testing::{NOW, TestJob};
    use crate::{ClientId, Delivery, Rate, Reserve, TubeRule, WaitOutcome};

    fn limited(tokens: u32, period_s: u64, burst: u32) -> (Queue, ClientId) {
        let mut queue = ruled(tokens, period_s, burst);
        let client = queue.connect();
        (queue, client)
    }

    fn ruled(tokens: u32, period_s: u64, burst: u32) -> Queue {
        let mut queue = Queue::default();
        let rate = Rate { tokens, period_ns: period_s * NS_PER_S, burst };
        queue.apply_rules(vec![TubeRule { rate: Some(rate), ..TubeRule::new("*") }], NOW);
        queue
    }

    fn put(queue: &mut Queue, client: ClientId, now: Timestamp) -> JobId {
        TestJob { ttr_s: 1_000_000, ..TestJob::default() }.put(queue, client, now)
    }

    /// The reservations of a client that always waits, during a minute: their instants, and how often the loop wakes
    /// up.
    fn reservations(tokens: u32, period_s: u64, burst: u32) -> (Vec<Timestamp>, usize) {
        reservations_of_late_server(tokens, period_s, burst, 0)
    }

    /// The reservations of `reservations` if each wake-up of the loop is late by `late_ns` nanoseconds.
    fn reservations_of_late_server(
        tokens: u32,
        period_s: u64,
        burst: u32,
        late_ns: u64,
    ) -> (Vec<Timestamp>, usize) {
        let (mut queue, client) = limited(tokens, period_s, burst);
        let (mut now, mut at, mut wakes) = (NOW, Vec::new(), 0);
        let end = NOW + 60 * NS_PER_S;
        while now < end {
            put(&mut queue, client, now);
            match queue.reserve(client, None, now) {
                Reserve::Job(_) => at.push(now),
                Reserve::Waiting => {
                    while queue.is_waiting(client) {
                        now = queue.next_deadline().expect("something ends the wait").max(now) + late_ns;
                        wakes += 1;
                        queue.advance(now);
                    }
                    let is_got = |delivery: Delivery| matches!(delivery.outcome, WaitOutcome::Reserved(_));
                    assert!(queue.poll_delivery().is_some_and(is_got));
                    at.push(now);
                }
                other => panic!("{other:?}"),
            }
        }
        at.retain(|&at| at < end);
        (at, wakes)
    }

    fn hand_over(queue: &Queue, next: &mut Queue) {
        let mut description = Vec::new();
        queue.describe(&mut Writer::new(&mut |piece: Vec<u8>| description.extend(piece)));
        next.read_description(&mut Reader::new(&description), NOW).expect("it is one");
    }

    #[test]
    fn a_rate_is_exact_over_a_minute_never_above_its_burst_and_wakes_once_a_token() {
        for (tokens, period_s, burst) in
            [(100, 1, 100), (1, 1, 1), (7, 1, 3), (5, 60, 1), (1_000, 60, 2), (3_000, 1, 1), (100, 3600, 1)]
        {
            let (at, wakes) = reservations(tokens, period_s, burst);
            let expected = u64::from(burst) + u64::from(tokens) * 60 / period_s;
            let (min, max) = (expected * 99 / 100 - 1, expected);
            assert!((min..=max).contains(&(at.len() as u64)), "{tokens}/{period_s}: {}", at.len());
            assert!(wakes <= at.len() + 1, "{tokens}/{period_s}: {wakes} wake-ups for {}", at.len());
            // In any period, there are at most the burst and the tokens of that period.
            for (place, &from) in at.iter().enumerate() {
                let last = at.len().min(place + 2 * burst as usize + 2);
                for (count, &until) in at[place..last].iter().enumerate() {
                    let given = u128::from(until.since_ns(from)) * u128::from(tokens);
                    let given = given / (u128::from(period_s) * u128::from(NS_PER_S));
                    assert!((count as u128) < u128::from(burst) + given, "{tokens}/{period_s} at {place}");
                }
            }
        }
    }

    #[test]
    fn a_late_wake_up_loses_only_the_tokens_for_which_the_bucket_has_no_room() {
        const MS: u64 = 1_000_000;
        for (tokens, burst, late_ns) in [
            (100, 3, 20 * MS),
            (500, 11, 20 * MS),
            (2_000, 41, 20 * MS),
            (2_000, 5, 2 * MS),
            (500, 2, 2 * MS),
            (2_000, 5, 4 * MS),
            (500, 2, 4 * MS),
            (5, 1, 20 * MS),
        ] {
            let (at, _) = reservations_of_late_server(tokens, 1, burst, late_ns);
            let token_ns = NS_PER_S / u64::from(tokens);
            // What comes between two wake-ups, or as much of it as the bucket holds.
            let kept =
                (u64::from(burst) * token_ns).min(token_ns + late_ns) as f64 / (token_ns + late_ns) as f64;
            let expected = f64::from(burst) + 60.0 * f64::from(tokens) * kept;
            let found = at.len() as f64;
            assert!(
                found >= expected * 0.99 - 1.0,
                "{tokens}/s, {burst}, {late_ns} ns: {found} of {expected}"
            );
            assert!(found <= f64::from(burst) + 60.0 * f64::from(tokens), "{tokens}/s");
            if late_ns > u64::from(burst) * token_ns {
                assert!(found < 0.95 * 60.0 * f64::from(tokens), "{tokens}/s, {burst}: the bound is reached");
            }
        }
    }

    #[test]
    fn no_rate_and_no_time_is_too_large() {
        for (tokens, burst) in [(u32::MAX, u32::MAX), (u32::MAX, 1), (1, u32::MAX), (1, 1)] {
            for period_s in [1, 3600] {
                let (mut queue, client) = limited(tokens, period_s, burst);
                for _ in 0..4 {
                    put(&mut queue, client, NOW);
                }
                let mut now = NOW;
                while let Reserve::Job(_) = queue.reserve(client, Some(0.into()), now) {
                    now = now + 1;
                }
                queue.advance(Timestamp::NEVER.minus_ns(NS_PER_S * 1_000_000_000));
                queue.check_invariants();
            }
        }
    }

    #[test]
    fn a_wait_that_ends_before_the_next_token_does_so_after_a_hand_over_too() {
        let (mut queue, client) = limited(1, 1, 1);
        let jobs = [(); 2].map(|()| put(&mut queue, client, NOW));
        assert_eq!(queue.reserve(client, None, NOW), Reserve::Job(jobs[0]));
        assert_eq!(queue.reserve(client, Some(Seconds::new(0, 500)), NOW), Reserve::Waiting);
        let mut next = ruled(1, 1, 1);
        hand_over(&queue, &mut next);
        next.advance(NOW + 2 * NS_PER_S);
        assert_eq!(next.poll_delivery().map(|delivery| delivery.outcome), Some(WaitOutcome::TimedOut));
    }

    #[test]
    fn a_hand_over_without_its_rule_ends_a_tube_that_only_its_bucket_has_kept() {
        for has_rule in [true, false] {
            let (mut queue, client) = limited(1, 3600, 2);
            queue.use_tube(client, "work");
            let job = put(&mut queue, client, NOW);
            assert!(queue.reserve_job(client, job, NOW));
            queue.delete(client, job, NOW);
            queue.use_tube(client, "default");
            let mut next = if has_rule { ruled(1, 3600, 2) } else { Queue::default() };
            hand_over(&queue, &mut next);
            next.check_invariants();
            assert_eq!(next.tubes.find("work").is_some(), has_rule);
        }
    }

    #[test]
    fn a_reload_in_the_middle_of_a_wait_ends_the_wait_when_the_new_rule_lets_it() {
        let (mut queue, client) = limited(1, 3600, 1);
        let jobs = [(); 2].map(|()| put(&mut queue, client, NOW));
        assert_eq!(queue.reserve(client, None, NOW), Reserve::Job(jobs[0]));
        assert_eq!(queue.reserve(client, None, NOW), Reserve::Waiting);
        let rate = Rate { tokens: 1, period_ns: NS_PER_S, burst: 1 };
        queue.apply_rules(vec![TubeRule { rate: Some(rate), ..TubeRule::new("*") }], NOW);
        assert_eq!(queue.next_deadline(), Some(NOW + NS_PER_S));
        queue.advance(NOW + NS_PER_S);
        assert_eq!(
            queue.poll_delivery().map(|delivery| delivery.outcome),
            Some(WaitOutcome::Reserved(jobs[1]))
        );
    }
}
