//! The rules for tubes: which one a tube follows, and what it takes.

use beanstalkd_queue::{Change, Released, TubeRule};
use beanstalkd_types::clock::{NS_PER_S, Timestamp};
use beanstalkd_types::job::JobId;
use beanstalkd_types::seconds::Seconds;
use beanstalkd_types::tags::Dead;

use crate::queue::{Job, Model, State, TubePlace};

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

impl Model {
    /// Puts other rules in force.
    pub fn set_rules(&mut self, rules: Vec<TubeRule>) {
        self.rules = rules;
        for place in self.listed.clone() {
            if self.rule_of(place).is_none() {
                (self.tube_mut(place).rejected, self.tube_mut(place).dead) = (0, 0);
            }
        }
    }

    /// The rule for a tube of this name: the first that matches.
    pub fn rule(&self, name: &str) -> Option<&TubeRule> {
        self.rules.iter().find(|rule| matches(rule.pattern.as_bytes(), name.as_bytes()))
    }

    pub fn rule_of(&self, place: TubePlace) -> Option<&TubeRule> {
        self.rule(&self.tube(place).name)
    }

    /// Whether the tube of this name, which may not be there, takes no job with a body of so many bytes.
    pub fn is_full(&self, name: &str, body_bytes: usize) -> bool {
        let Some(rule) = self.rule(name) else { return false };
        let place = self.find(name);
        let jobs = || self.jobs.iter().filter(|job| Some(job.tube) == place);
        let bytes: usize = jobs().map(|job| job.body.len()).sum();
        rule.max_jobs.is_some_and(|most| jobs().count() as u64 + 1 > most)
            || rule.max_bytes.is_some_and(|most| (bytes + body_bytes) as u64 > most)
    }

    /// Whether a move that the client may make is refused because the tube of this name is full.
    pub fn is_refused_by(&self, client: u32, id: u64, name: &str) -> bool {
        let job = self.job(id).filter(|_| self.is_movable(client, id));
        job.is_some_and(|job| self.tube(job.tube).name != name && self.is_full(name, job.body.len()))
    }

    /// A put or a move was refused because the tube of this name is full.
    pub fn refuse_for(&mut self, name: &str) {
        if let Some(place) = self.find(name) {
            self.tube_mut(place).rejected += 1;
        }
    }

    /// How often the job has failed.
    pub fn failures(&self, job: &Job) -> u32 {
        match (job.tags.dead, job.tags.failures) {
            (Some(_), failures) => failures.unwrap_or(0),
            (None, forgiven) => job.counters.timeouts + job.counters.releases - forgiven.unwrap_or(0),
        }
    }

    /// A reserved job has failed: its counters say so already. It was released with this delay.
    pub(crate) fn fail(&mut self, id: u64, is_poisoned: bool, delay_s: Seconds, now: Timestamp) -> Released {
        let job = self.job(id).expect("it is there").clone();
        let rule = self.rule_of(job.tube).filter(|_| job.tags.dead.is_none()).cloned();
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

    /// A reserved job is ready or delayed.
    pub(crate) fn give_back_after(&mut self, id: u64, delay_s: Seconds, now: Timestamp) {
        if delay_s == 0 {
            self.give_back(id, now);
        } else {
            let until = self.end_of_delay(delay_s, now);
            self.job_mut(id).state = State::Delayed { until };
        }
    }

    /// The job goes to the dead tube of this name, or is buried.
    fn kill(&mut self, id: u64, dead_tube: Option<Box<str>>, now: Timestamp) -> Released {
        let job = self.job(id).expect("it is there").clone();
        let from = self.tube(job.tube).name.clone();
        let target = dead_tube.filter(|name| **name != *from);
        let full = target.as_ref().is_some_and(|name| self.is_full(name, job.body.len()));
        if full {
            self.refuse_for(target.as_deref().expect("it is full"));
        }
        let Some(target) = target.filter(|_| !full) else {
            self.bury_poisoned(id);
            return Released::Buried;
        };
        let failures = Some(self.failures(&job));
        let target = self.find_or_make(&target);
        self.tube_mut(job.tube).dead += 1;
        let tags = &mut self.job_mut(id).tags;
        (tags.idempotency, tags.concurrency, tags.failures) = (None, None, failures);
        // Some bytes that stay: a test is over soon.
        let from: &'static str = from.leak();
        tags.dead =
            Some(Dead { from: from.into(), since_s: u32::try_from(now.0 / NS_PER_S).unwrap_or(u32::MAX) });
        self.job_mut(id).tube = target;
        self.changes.push(Change::Died(JobId(id)));
        self.give_back(id, now);
        Released::Queued
    }

    /// A job that is moved to the tube of this name lives again if it comes from there.
    pub(crate) fn revive_in(&mut self, id: u64, name: &str) {
        let job = self.job_mut(id);
        if job.tags.dead.is_some_and(|dead| dead.from == name) {
            let forgiven = job.counters.timeouts + job.counters.releases;
            (job.tags.dead, job.tags.failures) = (None, Some(forgiven).filter(|&count| count > 0));
        }
    }
}
