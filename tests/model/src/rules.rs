//! The rules for tubes: the rule of each tube, and the jobs that it accepts.

use beanstalkd_queue::{Change, Rate, Released, TubeRule};
use beanstalkd_types::clock::{NS_PER_S, Timestamp};
use beanstalkd_types::job::JobId;
use beanstalkd_types::seconds::Seconds;
use beanstalkd_types::tags::{Dead, Failures};

use crate::queue::{GIVEN_BACK, Job, Model, State, TubeIndex, after_s};
use crate::tags::Ending;

/// Whether the name matches the pattern: `*` stands for any bytes, `?` for one.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern, name) {
        ([], []) => true,
        ([b'*', pattern @ ..], _) => (0..=name.len()).any(|skipped| matches(pattern, &name[skipped..])),
        ([b'?', pattern @ ..], [_, name @ ..]) => matches(pattern, name),
        ([first, pattern @ ..], [other, name @ ..]) => first == other && matches(pattern, name),
        _ => false,
    }
}

/// The tokens of a full bucket, in parts of a token.
fn full(rate: Rate) -> u128 {
    u128::from(rate.burst) * u128::from(rate.period_ns)
}

impl Model {
    /// Replaces the rules in force.
    pub fn set_rules(&mut self, rules: Vec<TubeRule>, now: Timestamp) {
        let before: Vec<_> = (0..self.tubes.len()).map(|index| self.rate(index)).collect();
        for index in (0..self.tubes.len()).filter(|&index| before[index].is_some()) {
            self.refill(index, now);
        }
        self.rules = rules;
        self.judge_ages_again();
        self.change_rotations();
        let indexes: Vec<TubeIndex> =
            (0..self.tubes.len()).filter(|&index| self.tubes[index].is_some()).collect();
        for &index in &indexes {
            let after = self.rate(index);
            let (deficit, at) = self.tube(index).deficit;
            let deficit = match (before[index], after) {
                (Some(before), Some(after)) => {
                    (deficit * u128::from(after.period_ns) / u128::from(before.period_ns)).min(full(after))
                }
                _ => 0,
            };
            self.tube_mut(index).deficit = (deficit, at.max(now));
            self.close_if_needed(index);
            // Another rule may open the gate, like the end of a reservation.
            self.tube_mut(index).reserved_when_closed = u64::MAX;
            if self.rule_of(index).is_none() {
                (self.tube_mut(index).rejected, self.tube_mut(index).dead) = (0, 0);
            }
        }
        self.serve_free_slots(now);
        // The jobs that are too old now go to their dead tubes before tubes are removed.
        self.advance(now);
        indexes.into_iter().for_each(|index| self.remove_if_idle(index));
    }

    /// Judges again the jobs that were too old when their dead tubes did not take them.
    pub fn judge_ages_again(&mut self) {
        self.jobs.iter_mut().for_each(|job| job.is_left = false);
    }

    fn rate(&self, index: TubeIndex) -> Option<Rate> {
        self.tubes[index].as_ref().and_then(|tube| self.rule(&tube.name)).and_then(|rule| rule.rate)
    }

    /// Whether jobs of the tube may be reserved.
    pub(crate) fn lets_through(&self, index: TubeIndex) -> bool {
        self.tube(index).pause.is_none() && !self.tube(index).is_closed
    }

    pub(crate) fn refill(&mut self, index: TubeIndex, now: Timestamp) {
        let rate = self.rate(index);
        let (deficit, at) = self.tube(index).deficit;
        let gained = rate.map_or(u128::MAX, |rate| u128::from(now.since_ns(at)) * u128::from(rate.tokens));
        self.tube_mut(index).deficit = (deficit.saturating_sub(gained), at.max(now));
    }

    /// Whether the rule lets no job be reserved.
    pub(crate) fn must_close(&self, index: TubeIndex) -> bool {
        let Some(rule) = self.rule_of(index) else { return false };
        let reserved = self.counts(Some(index)).reserved;
        rule.max_reserved.is_some_and(|most| reserved >= most.into())
            || rule.rate.is_some_and(|rate| {
                full(rate) - self.tube(index).deficit.0.min(full(rate)) < u128::from(rate.period_ns)
            })
    }

    /// The reasons why a job waits, in the words of `stats-job`.
    pub fn waits_for(&self, job: &Job, now: Timestamp) -> Vec<&'static str> {
        let mut words = Vec::new();
        let mut add = |word, is_so: bool| words.extend(is_so.then_some(word));
        match job.state {
            State::Reserved { .. } => add("client", true),
            State::Buried { .. } => add("kick", true),
            State::Delayed { until } => {
                add("group", job.held);
                add("delay", !job.held || until > now);
            }
            State::Ready => {
                let tube = self.tube(job.tube);
                let rule = self.rule_of(job.tube).filter(|_| tube.is_closed);
                let most = rule.and_then(|rule| rule.max_reserved).map(u64::from);
                add("pause", tube.pause.is_some());
                add("key", !self.may_be_reserved(job));
                add("max-reserved", most.is_some_and(|most| self.counts(Some(job.tube)).reserved >= most));
                add(
                    "rate",
                    rule.and_then(|rule| rule.rate).is_some_and(|rate| {
                        let (deficit, at) = tube.deficit;
                        let gained = u128::from(now.since_ns(at)) * u128::from(rate.tokens);
                        full(rate) - deficit.saturating_sub(gained).min(full(rate))
                            < u128::from(rate.period_ns)
                    }),
                );
                add("turn", self.may_be_reserved(job) && self.is_passed_over(job));
            }
        }
        if words.is_empty() { vec!["worker"] } else { words }
    }

    pub(crate) fn close_if_needed(&mut self, index: TubeIndex) {
        if self.must_close(index) {
            let reserved = self.counts(Some(index)).reserved;
            let tube = self.tube_mut(index);
            (tube.is_closed, tube.reserved_when_closed) = (true, reserved);
        }
    }

    /// Notes that a job of the tube was reserved.
    pub(crate) fn pass_gate(&mut self, index: TubeIndex, now: Timestamp) {
        if let Some(rate) = self.rate(index) {
            self.refill(index, now);
            let deficit = &mut self.tube_mut(index).deficit.0;
            *deficit = (*deficit + u128::from(rate.period_ns)).min(full(rate));
        }
        self.close_if_needed(index);
    }

    /// A reservation that was undone gives its token back.
    pub(crate) fn return_token(&mut self, index: TubeIndex) {
        let period_ns = self.rate(index).map_or(0, |rate| u128::from(rate.period_ns));
        let deficit = &mut self.tube_mut(index).deficit.0;
        *deficit = deficit.saturating_sub(period_ns);
    }

    /// When the closed gate of a tube opens.
    pub(crate) fn gate_at(&self, index: TubeIndex) -> Option<Timestamp> {
        let tube = self.tube(index);
        let rule = self.rule_of(index)?;
        let is_full = rule.max_reserved.is_some_and(|most| self.counts(Some(index)).reserved >= most.into());
        if !tube.is_closed || is_full {
            return None;
        }
        let (deficit, at) = tube.deficit;
        let needed = rule.rate.map_or(0, |rate| {
            let missing = (deficit + u128::from(rate.period_ns)).saturating_sub(full(rate));
            missing.div_ceil(u128::from(rate.tokens)) as u64
        });
        Some(at + needed)
    }

    /// When the bucket of a tube that exists only for its bucket is full.
    pub(crate) fn deficit_ends_at(&self, index: TubeIndex) -> Option<Timestamp> {
        let (deficit, at) = self.tube(index).deficit;
        let rate = self.rate(index).filter(|_| deficit > 0)?;
        let is_kept = self.jobs.iter().any(|job| job.tube == index)
            || self.cooldowns.iter().any(|cooldown| cooldown.tube == index)
            || self.clients.iter().any(|client| client.using == index || client.watching.contains(&index));
        (!is_kept).then(|| at + deficit.div_ceil(u128::from(rate.tokens)) as u64)
    }

    /// The rule for a tube of this name: the first that matches.
    pub fn rule(&self, name: &str) -> Option<&TubeRule> {
        self.rules.iter().find(|rule| matches(rule.pattern.as_bytes(), name.as_bytes()))
    }

    pub fn rule_of(&self, index: TubeIndex) -> Option<&TubeRule> {
        self.rule(&self.tube(index).name)
    }

    /// Whether the tube of this name, which need not exist, accepts no job with a body of `body_bytes`.
    pub fn is_full(&self, name: &str, body_bytes: usize) -> bool {
        let Some(rule) = self.rule(name) else { return false };
        let index = self.find(name);
        let jobs = || self.jobs.iter().filter(|job| Some(job.tube) == index);
        let bytes: usize = jobs().map(|job| job.body.len()).sum();
        rule.max_jobs.is_some_and(|most| jobs().count() as u64 + 1 > most)
            || rule.max_bytes.is_some_and(|most| (bytes + body_bytes) as u64 > most)
    }

    /// Whether a move that the client may make is refused because the tube of this name is full.
    pub fn is_refused_by(&self, client: u32, id: u64, name: &str) -> bool {
        let job = self.job(id).filter(|_| self.is_movable(client, id));
        job.is_some_and(|job| self.tube(job.tube).name != name && self.is_full(name, job.body.len()))
    }

    /// Counts a put or a move that was refused because the tube of this name is full.
    pub fn refuse_for(&mut self, name: &str) {
        if let Some(index) = self.find(name) {
            self.tube_mut(index).rejected += 1;
        }
    }

    /// How often the job has failed.
    pub fn failures(&self, job: &Job) -> u32 {
        let counted = job.counters.timeouts + job.counters.releases;
        match job.tags.failures {
            Some(Failures::Dead(dead)) => dead.failures,
            Some(Failures::Forgiven(count)) => counted - count,
            None => counted,
        }
    }

    /// A reserved job has failed: its counters already include the failure. It was released with this delay.
    pub(crate) fn fail(&mut self, id: u64, is_poisoned: bool, delay_s: Seconds, now: Timestamp) -> Released {
        let job = self.job(id).expect("it is there").clone();
        let rule = self.rule_of(job.tube).filter(|_| job.tags.dead().is_none()).cloned();
        let failures = self.failures(&job);
        let most = rule.as_ref().and_then(|rule| rule.max_attempts);
        if most.is_some_and(|most| failures >= most) {
            return self.kill(id, rule.and_then(|rule| rule.dead_tube), now);
        }
        if is_poisoned && most.is_none() {
            self.bury_poisoned(id);
            return Released::Buried;
        }
        let backoff = rule.and_then(|rule| {
            let mut delay_s = u64::from(rule.backoff_s?);
            for _ in 1..failures.min(40) {
                delay_s *= 2;
            }
            Some(delay_s.min(rule.max_backoff_s.unwrap_or(u32::MAX).into()) as u32)
        });
        let delay_s = backoff.filter(|_| delay_s == 0).map_or(delay_s, Seconds::from);
        if delay_s > 0 {
            self.job_mut(id).delay_s = delay_s;
        }
        self.give_back_after(id, delay_s, now);
        Released::Queued
    }

    /// A reserved job becomes ready or delayed.
    pub(crate) fn give_back_after(&mut self, id: u64, delay_s: Seconds, now: Timestamp) {
        if delay_s == 0 {
            self.give_back(id, now);
        } else {
            let until = self.end_of_delay(delay_s, now);
            self.job_mut(id).state = State::Delayed { until };
        }
    }

    /// Moves the job to the dead tube of this name, or buries it.
    fn kill(&mut self, id: u64, dead_tube: Option<Box<str>>, now: Timestamp) -> Released {
        if dead_tube.is_some_and(|name| self.send_to(id, &name, now)) {
            return Released::Queued;
        }
        self.bury_poisoned(id);
        Released::Buried
    }

    /// Moves the job to the dead tube of this name; returns whether the tube has accepted it.
    fn send_to(&mut self, id: u64, target: &str, now: Timestamp) -> bool {
        let job = self.job(id).expect("it is there").clone();
        let from = self.tube(job.tube).name.clone();
        if target == from {
            return false;
        }
        if self.is_full(target, job.body.len()) {
            self.refuse_for(target);
            return false;
        }
        let failures = self.failures(&job);
        let target = self.find_or_make(target);
        self.dead += 1;
        self.tube_mut(job.tube).dead += 1;
        let tags = &mut self.job_mut(id).tags;
        (tags.asked.idempotency, tags.asked.concurrency, tags.arrived_after_s) = (None, None, None);
        if let Some(after) = &mut tags.asked.after {
            after.is_free = true;
        }
        // Leaked: a test is over soon.
        let from: &'static str = from.leak();
        let since_s = u32::try_from(now.0 / NS_PER_S).unwrap_or(u32::MAX);
        tags.failures =
            Some(Failures::Dead(Dead { from: from.try_into().expect("a name"), since_s, failures }));
        let dead = self.job_mut(id);
        (dead.tube, dead.held, dead.is_left) = (target, false, false);
        self.leave_front(&job);
        // One record holds both changes.
        let failures = [Change::Updated(JobId(id)), Change::Postponable(JobId(id))];
        self.changes.pop_if(|last| failures.contains(last));
        self.changes.push(Change::Died(JobId(id)));
        self.give_back(id, now);
        true
    }

    /// When the job becomes too old for its tube, unless it is reserved before.
    fn age_ends_at(&self, job: &Job) -> Option<Timestamp> {
        let seconds = self.rule_of(job.tube)?.max_age_s.filter(|_| job.tags.dead().is_none())?;
        let arrived = after_s(job.created_at, job.tags.arrived_after_s.unwrap_or_default());
        Some(after_s(arrived, seconds.into()))
    }

    /// The job of the tube that becomes too old first; of equals, the one that was put first.
    pub(crate) fn first_aged(&self, index: TubeIndex) -> Option<(Timestamp, u64)> {
        let ages =
            |job: &&Job| job.tube == index && !job.is_left && !matches!(job.state, State::Reserved { .. });
        let ages = self.jobs.iter().filter(ages);
        ages.filter_map(|job| Some((self.age_ends_at(job)?, job.id))).min()
    }

    pub(crate) fn is_too_old(&self, id: u64, now: Timestamp) -> bool {
        let job = self.job(id).expect("it is there");
        self.age_ends_at(job).is_some_and(|at| at <= now)
    }

    /// A job that is too old goes to the dead tube or is deleted; returns whether it has left its tube.
    pub(crate) fn leave_by_age(&mut self, id: u64, now: Timestamp) -> bool {
        let job = self.job(id).expect("it is there");
        match self.rule_of(job.tube).and_then(|rule| rule.dead_tube.clone()) {
            Some(target) => self.send_to(id, &target, now),
            None => {
                let freed = self.end_quietly(id, Ending::Expired, now);
                self.to_free.push(freed);
                true
            }
        }
    }

    /// A reserved job is given back: its fate if it is too old.
    pub(crate) fn check_age(&mut self, id: u64, now: Timestamp) -> Option<Released> {
        if !self.is_too_old(id, now) {
            return None;
        }
        if self.leave_by_age(id, now) {
            return Some(Released::Queued);
        }
        self.bury_poisoned(id);
        self.job_mut(id).is_left = true;
        Some(Released::Buried)
    }

    /// A job that is not reserved is too old.
    pub(crate) fn end_age(&mut self, id: u64, now: Timestamp) {
        let tube = self.job(id).expect("it is there").tube;
        self.ends_instead(id, now);
        self.serve_free_slots(now);
        self.remove_if_idle(tube);
    }

    /// Ends the job if its time is over, instead of giving it to a client that waits; returns whether it has left its
    /// place. The tag comes first. `serve_free_slots` follows.
    pub(crate) fn ends_instead(&mut self, id: u64, now: Timestamp) -> bool {
        let job = self.job(id).expect("it is there");
        if self.expires_at(job).is_some_and(|at| at <= now) {
            let freed = self.end_quietly(id, Ending::Expired, now);
            self.to_free.push(freed);
            return true;
        }
        if job.is_left || !self.is_too_old(id, now) {
            return false;
        }
        let stays = job.held || matches!(job.state, State::Buried { .. });
        let has_left = self.leave_by_age(id, now);
        if !has_left {
            if !stays {
                self.note(Change::Postponable(JobId(id)));
                self.bury_poisoned(id);
            }
            self.job_mut(id).is_left = true;
        }
        has_left || !stays
    }

    /// Gives back the jobs of a client that is gone.
    pub(crate) fn give_back_all(&mut self, ids: Vec<u64>, now: Timestamp) {
        let mut ids: Vec<_> =
            ids.into_iter().map(|id| (self.job(id).expect("it is there").priority, id)).collect();
        ids.sort_unstable();
        let mut may_be_idle = Vec::new();
        // First, all of them lose their slots.
        for &(_, id) in &ids {
            self.job_mut(id).state = State::Reserved { until: now, by: GIVEN_BACK };
        }
        for (_, id) in ids {
            let tube = self.job(id).expect("it is there").tube;
            match self.check_age(id, now) {
                None => self.give_back(id, now),
                // The log has no record of a reservation, but has one of a burial.
                Some(Released::Buried) => self.note(Change::Postponable(JobId(id))),
                Some(Released::Queued) => may_be_idle.push(tube),
            }
        }
        self.serve_free_slots(now);
        may_be_idle.into_iter().for_each(|tube| self.remove_if_idle(tube));
    }

    /// Notes that the job has moved into its tube.
    pub(crate) fn note_arrival(&mut self, id: u64, now: Timestamp) {
        let job = self.job(id).expect("it is there");
        if job.tags.dead().is_some() {
            return;
        }
        let asks = self.rule_of(job.tube).is_some_and(|rule| rule.max_age_s.is_some());
        let ns = now.since_ns(job.created_at).div_ceil(1_000_000).saturating_mul(1_000_000);
        let job = self.job_mut(id);
        job.is_left = false;
        job.tags.arrived_after_s = asks.then(|| Seconds::of_ns(i64::try_from(ns).unwrap_or(i64::MAX)));
    }

    /// Revives a job that is moved back to the tube of this name, from which it was sent to its dead tube.
    pub(crate) fn revive_in(&mut self, id: u64, name: &str) {
        let job = self.job_mut(id);
        if job.tags.dead().is_some_and(|dead| dead.from == name) {
            let forgiven = job.counters.timeouts + job.counters.releases;
            job.tags.failures = Some(forgiven).filter(|&count| count > 0).map(Failures::Forgiven);
        }
    }
}
