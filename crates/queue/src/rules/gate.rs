//! The rules `max-reserved` and `rate`: when jobs of a tube may be reserved at all.
//!
//! Owns: the gate of each tube that has a rule, and its token bucket. While the gate is closed, the tube is as one that
//! is paused: reserves pass over all of it, so that no blocked job is looked at. A reservation closes the gate if it
//! was the last that may be; a job that is given back, or the deadline of the next token, opens it, and clients that
//! wait get the jobs that may be reserved then.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use beanstalkd_structures::Timer;

use super::tube_rule::{Rate, TubeRule};
use crate::Queue;
use crate::clock::Timestamp;
use crate::described;
use crate::state::keys::{ReadyKey, TubeKey};
use crate::state::tubes::Tube;

/// The gate of a tube.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gate {
    pub(crate) is_closed: bool,
    /// What the bucket lacks, in parts of a token: of each there are as many as the period has nanoseconds.
    lack: u128,
    /// When that was so.
    at: Timestamp,
}

described!(Gate { is_closed, lack, at });

impl Rate {
    fn period(self) -> u128 {
        self.period_ns.into()
    }

    /// What a full bucket has.
    fn most(self) -> u128 {
        u128::from(self.burst) * self.period()
    }

    /// How long the bucket takes to get `parts`, in nanoseconds.
    fn time_for(self, parts: u128) -> u64 {
        u64::try_from(parts.div_ceil(u128::from(self.tokens))).unwrap_or(u64::MAX)
    }
}

impl Gate {
    /// Notes what the bucket has got until now.
    fn refill(&mut self, rate: Rate, now: Timestamp) {
        let gained = u128::from(now.since_ns(self.at)) * u128::from(rate.tokens);
        self.lack = self.lack.saturating_sub(gained);
        self.at = self.at.max(now);
    }

    fn take(&mut self, rate: Rate, now: Timestamp) {
        self.refill(rate, now);
        self.lack = (self.lack + rate.period()).min(rate.most());
    }

    /// Whether the rule lets no further job be reserved, of a tube with `reserved` ones.
    pub(crate) fn must_close(&self, rule: Option<&TubeRule>, reserved: u32) -> bool {
        let Some(rule) = rule else { return false };
        rule.max_reserved.is_some_and(|most| reserved >= most)
            || rule.rate.is_some_and(|rate| self.lacks_token(rate))
    }

    fn lacks_token(&self, rate: Rate) -> bool {
        self.lack + rate.period() > rate.most()
    }

    /// When a closed gate opens, unless a reservation has to end before.
    fn opens_at(&self, rule: Option<&TubeRule>, reserved: u32) -> Option<Timestamp> {
        if !self.is_closed {
            return None;
        }
        let Some(rule) = rule else { return Some(self.at) };
        if rule.max_reserved.is_some_and(|most| reserved >= most) {
            return None;
        }
        let needed = rule
            .rate
            .map_or(0, |rate| rate.time_for((self.lack + rate.period()).saturating_sub(rate.most())));
        Some(self.at + needed)
    }

    /// Another rule is in force: the bucket lacks as many tokens as before, at most all.
    pub(crate) fn change(&mut self, before: Option<&TubeRule>, after: Option<&TubeRule>, now: Timestamp) {
        let rate = |rule: Option<&TubeRule>| rule.and_then(|rule| rule.rate);
        self.lack = match (rate(before), rate(after)) {
            (Some(before), Some(after)) => {
                self.refill(before, now);
                (self.lack * after.period() / before.period()).min(after.most())
            }
            _ => 0,
        };
        self.at = self.at.max(now);
    }

    /// It was read from a description, of a tube that follows this rule now.
    pub(crate) fn bound(&mut self, rule: Option<&TubeRule>) {
        let most = rule.and_then(|rule| rule.rate).map_or(0, Rate::most);
        self.lack = self.lack.min(most);
    }

    /// Whether the bucket is not full, so that a tube that came again would let more through than the rule says.
    pub(crate) fn has_debt(&self) -> bool {
        self.lack > 0
    }
}

impl Tube {
    /// When its gate opens by itself.
    pub(crate) fn gate_at(&self) -> Option<Timestamp> {
        let ruled = self.ruled.as_ref()?;
        ruled.gate.opens_at(ruled.rule.as_deref(), self.reserved)
    }

    /// When the bucket is full of a tube that nothing else keeps.
    pub(crate) fn debt_ends_at(&self) -> Option<Timestamp> {
        let ruled = self.ruled.as_ref().filter(|ruled| ruled.gate.has_debt())?;
        let rate = ruled.rule.as_ref().and_then(|rule| rule.rate);
        let left = rate.map_or(0, |rate| rate.time_for(ruled.gate.lack));
        self.is_idle_but_for_gate().then_some(ruled.gate.at + left)
    }

    /// Whether a rule lets no job be reserved now.
    pub(crate) fn is_throttled(&self) -> bool {
        self.ruled.as_ref().is_some_and(|ruled| ruled.gate.is_closed)
    }

    /// Whether its rule is gone and its gate not yet open.
    pub(crate) fn opens_for_ever(&self) -> bool {
        self.ruled.as_ref().is_some_and(|ruled| ruled.rule.is_none() && ruled.gate.is_closed)
    }

    /// Which of `max-reserved` and `rate` let no job be reserved now.
    pub(crate) fn throttled_by(&self, now: Timestamp) -> [bool; 2] {
        let ruled = self.ruled.as_ref().filter(|ruled| ruled.gate.is_closed);
        let Some((rule, mut gate)) = ruled.and_then(|ruled| Some((ruled.rule.as_ref()?, ruled.gate))) else {
            return [false; 2];
        };
        let has_no_token = rule.rate.is_some_and(|rate| {
            gate.refill(rate, now);
            gate.lacks_token(rate)
        });
        [rule.max_reserved.is_some_and(|most| self.reserved >= most), has_no_token]
    }

    fn must_be_closed(&self) -> bool {
        let ruled = self.ruled.as_ref();
        ruled.is_some_and(|ruled| ruled.gate.must_close(ruled.rule.as_deref(), self.reserved))
    }

    fn refill(&mut self, now: Timestamp) {
        if let Some(ruled) = &mut self.ruled {
            match ruled.rule.as_ref().and_then(|rule| rule.rate) {
                Some(rate) => ruled.gate.refill(rate, now),
                None => ruled.gate.lack = 0,
            }
        }
    }
}

impl Queue {
    /// A job of a tube with a gate was reserved.
    #[inline(never)]
    pub(crate) fn pass_gate(&mut self, tube: TubeKey, now: Timestamp) {
        let record = self.tubes.get_mut(tube);
        if let Some(ruled) = &mut record.ruled
            && let Some(rate) = ruled.rule.as_ref().and_then(|rule| rule.rate)
        {
            ruled.gate.take(rate, now);
        }
        self.close_gate(tube);
    }

    /// Closes the gate of the tube if its rule says so.
    pub(crate) fn close_gate(&mut self, tube: TubeKey) {
        let record = self.tubes.get_mut(tube);
        if record.must_be_closed()
            && let Some(ruled) = &mut record.ruled
        {
            ruled.gate.is_closed = true;
            self.schedule(Timer::Tube(tube));
        }
    }

    /// One reservation fewer is in the tube, or its rule has changed: its gate may open, when the command is done.
    #[inline]
    pub(crate) fn note_gate(&mut self, tube: TubeKey) {
        if self.tubes.get(tube).is_throttled() {
            self.rules.tubes.to_open.push(tube);
        }
    }

    /// Opens the gates that may be open now: clients that wait get jobs, the most urgent first, a limited number at a
    /// time.
    pub(crate) fn open_gates(&mut self, now: Timestamp) {
        let mut tubes = std::mem::take(&mut self.rules.tubes.to_open);
        tubes.sort_unstable();
        tubes.dedup();
        tubes.retain(|&tube| self.tubes.contains(tube) && self.tubes.get(tube).is_throttled());
        tubes.iter().for_each(|&tube| self.tubes.get_mut(tube).refill(now));
        let mut looks = self.slices.probed_tubes;
        let heads =
            tubes.iter().filter_map(|&tube| Some(Reverse((self.head_behind_gate(tube, &mut looks)?, tube))));
        let mut heads: BinaryHeap<_> = heads.collect();
        let mut deliveries = self.slices.delivered;
        while deliveries > 0
            && let Some(Reverse((key, tube))) = heads.pop()
        {
            // The client that waited for it may have got the job of another tube. No head becomes more urgent here.
            let Some(head) = self.head_behind_gate(tube, &mut looks) else { continue };
            if head == key {
                let (client, id) = (self.first_waiting(tube), self.take_first_ready(tube));
                let (Some((_, client)), Some(id)) = (client, id) else { break };
                self.deliver_job(id, client, now);
                deliveries -= 1;
            }
            heads.extend(self.head_behind_gate(tube, &mut looks).map(|head| Reverse((head, tube))));
        }
        tubes.into_iter().for_each(|tube| self.end_opening(tube));
    }

    /// The most urgent job behind a gate that may be open, if a client waits for it.
    fn head_behind_gate(&mut self, tube: TubeKey, looks: &mut usize) -> Option<ReadyKey> {
        let record = self.tubes.get(tube);
        if record.must_be_closed() || record.pause.is_some() || record.ready.is_empty() {
            return None;
        }
        self.first_waiting(tube)?;
        if self.rules.slots.is_unsettled && !self.park_kept_back(tube, looks) {
            return None;
        }
        self.tubes.get(tube).ready.first()
    }

    /// Opens a closed gate whose time has come. If its bucket is full then, nothing may keep the tube any more.
    pub(crate) fn open_gate(&mut self, tube: TubeKey, now: Timestamp) {
        self.rules.tubes.to_open.push(tube);
        self.open_gates(now);
        self.remove_tube_if_idle(tube);
    }

    /// Leaves the gate open, unless it must be closed. If ready jobs and waiting clients are left, it stays closed and
    /// due.
    fn end_opening(&mut self, tube: TubeKey) {
        let is_paused = self.tubes.get(tube).pause.is_some();
        let has_ready = !self.tubes.get(tube).ready.is_empty();
        let is_closed = self.tubes.get(tube).must_be_closed()
            || has_ready && !is_paused && self.first_waiting(tube).is_some();
        if let Some(ruled) = &mut self.tubes.get_mut(tube).ruled {
            ruled.gate.is_closed = is_closed;
        }
        if has_ready && !is_closed && !is_paused {
            self.announce(tube);
        }
        self.schedule(Timer::Tube(tube));
    }

    /// The bucket of a tube is full that nothing else keeps.
    pub(crate) fn end_debt(&mut self, tube: TubeKey, now: Timestamp) {
        self.tubes.get_mut(tube).refill(now);
        self.remove_tube_if_idle(tube);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::NS_PER_S;
    use crate::job::{Body, JobId, Priority};
    use crate::{ClientId, Delivery, NewJob, Reserve, WaitOutcome};

    const START: Timestamp = Timestamp(1_700_000_000 * NS_PER_S);

    fn limited(tokens: u32, period_s: u64, burst: u32) -> (Queue, ClientId) {
        let mut queue = Queue::default();
        let rate = Rate { tokens, period_ns: period_s * NS_PER_S, burst };
        queue.set_tube_rules(vec![TubeRule { rate: Some(rate), ..TubeRule::new("*") }], START);
        while queue.next_deadline() == Some(Timestamp::default()) {
            queue.advance(START);
        }
        let client = queue.connect();
        (queue, client)
    }

    fn put(queue: &mut Queue, client: ClientId, now: Timestamp) -> JobId {
        let id = queue.take_id();
        let new = NewJob { id, priority: Priority(0), delay_s: 0.into(), ttr_s: 1_000_000.into() };
        queue.put(client, new, Body::copy_of(b"x").unwrap(), now);
        id
    }

    /// A client that always waits, for a minute: when it gets its jobs, and how often the loop wakes up.
    fn reservations(tokens: u32, period_s: u64, burst: u32) -> (Vec<Timestamp>, usize) {
        let (mut queue, client) = limited(tokens, period_s, burst);
        let (mut now, mut at, mut wakes) = (START, Vec::new(), 0);
        let end = START + 60 * NS_PER_S;
        while now < end {
            put(&mut queue, client, now);
            match queue.reserve(client, None, now) {
                Reserve::Job(_) => at.push(now),
                Reserve::Waiting => {
                    while queue.is_waiting(client) {
                        now = queue.next_deadline().expect("something ends the wait").max(now);
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

    #[test]
    fn a_rate_is_exact_over_a_minute_and_never_above_its_burst_and_wakes_once_for_each_token() {
        for (tokens, period_s, burst) in
            [(100, 1, 100), (1, 1, 1), (7, 1, 3), (5, 60, 1), (1_000, 60, 2), (3_000, 1, 1), (100, 3600, 1)]
        {
            let (at, wakes) = reservations(tokens, period_s, burst);
            let expected = u64::from(burst) + u64::from(tokens) * 60 / period_s;
            let (least, most) = (expected * 99 / 100 - 1, expected);
            assert!((least..=most).contains(&(at.len() as u64)), "{tokens}/{period_s}: {}", at.len());
            assert!(wakes <= at.len() + 1, "{tokens}/{period_s}: {wakes} wake-ups for {}", at.len());
            // In any time, there are no more than the burst and what the rate gives in it.
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
    fn no_rate_and_no_time_is_too_large() {
        for (tokens, burst) in [(u32::MAX, u32::MAX), (u32::MAX, 1), (1, u32::MAX), (1, 1)] {
            for period_s in [1, 3600] {
                let (mut queue, client) = limited(tokens, period_s, burst);
                for _ in 0..4 {
                    put(&mut queue, client, START);
                }
                let mut now = START;
                while let Reserve::Job(_) = queue.reserve(client, Some(0.into()), now) {
                    now = now + 1;
                }
                queue.advance(Timestamp::NEVER.minus_ns(NS_PER_S * 1_000_000_000));
                queue.check_invariants();
            }
        }
    }

    #[test]
    fn a_reload_in_the_middle_of_a_wait_ends_the_wait_when_the_new_rule_lets_it() {
        let (mut queue, client) = limited(1, 3600, 1);
        let jobs = [(); 2].map(|()| put(&mut queue, client, START));
        assert_eq!(queue.reserve(client, None, START), Reserve::Job(jobs[0]));
        assert_eq!(queue.reserve(client, None, START), Reserve::Waiting);
        let rate = Rate { tokens: 1, period_ns: NS_PER_S, burst: 1 };
        queue.set_tube_rules(vec![TubeRule { rate: Some(rate), ..TubeRule::new("*") }], START);
        while queue.next_deadline() == Some(Timestamp::default()) {
            queue.advance(START);
        }
        assert_eq!(queue.next_deadline(), Some(START + NS_PER_S));
        queue.advance(START + NS_PER_S);
        assert_eq!(
            queue.poll_delivery().map(|delivery| delivery.outcome),
            Some(WaitOutcome::Reserved(jobs[1]))
        );
    }
}
