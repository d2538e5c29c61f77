//! The rules for tubes: which one a tube follows, and what it takes.

use beanstalkd_queue::TubeRule;

use crate::queue::{Model, TubePlace};

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
                self.tube_mut(place).rejected = 0;
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
}
