//! Deadlines: which is the first, and what happens then.

use beanstalkd_queue::{Change, WaitOutcome};
use beanstalkd_types::clock::Timestamp;
use beanstalkd_types::job::JobId;

use super::{DeadlineOf, Model, TubeIndex};

impl Model {
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.earliest().map(|(at, _)| at)
    }

    /// Handles all deadlines that have passed, the earliest first.
    pub fn advance(&mut self, now: Timestamp) {
        while let Some((at, of)) = self.earliest()
            && at <= now
        {
            match of {
                DeadlineOf::Tube(index) => self.tube_is_due(index, now),
                DeadlineOf::Client(index) => self.client_is_due(index, now),
                DeadlineOf::Tags => self.tag_is_due(now),
            }
        }
    }

    pub(crate) fn earliest(&self) -> Option<(Timestamp, DeadlineOf)> {
        let mut due = Vec::new();
        for index in 0..self.tubes.len() {
            if let Some(tube) = &self.tubes[index] {
                due.extend(tube.pause.map(|(until, _)| (until, DeadlineOf::Tube(index))));
                let gate = self.gate_at(index).into_iter().chain(self.deficit_ends_at(index));
                due.extend(gate.map(|at| (at, DeadlineOf::Tube(index))));
                due.extend(self.first_aged(index).map(|(at, _)| (at, DeadlineOf::Tube(index))));
                due.extend(self.first_delayed(index).map(|(until, _)| (until, DeadlineOf::Tube(index))));
            }
        }
        let clients = self.clients.iter().map(|client| {
            let at = match client.wait {
                Some(wait) => {
                    [self.margin_at(self.holder_for(client.index)), wait.until].into_iter().flatten().min()
                }
                None => self.first_reserved(client.index).map(|(until, _)| until),
            };
            (client.index, at)
        });
        let sessions = self.sessions.iter().map(|session| (session.number, self.session_due_at(session)));
        let mut clients: Vec<_> = clients.chain(sessions).collect();
        clients.sort_unstable();
        due.extend(clients.into_iter().filter_map(|(index, at)| Some((at?, DeadlineOf::Client(index)))));
        due.extend(self.first_due_tag().map(|(at, _)| (at, DeadlineOf::Tags)));
        due.extend(self.first_end_of_job_wait().map(|(at, ..)| (at, DeadlineOf::Tags)));
        // `min_by_key` returns the first of several equal deadlines.
        due.into_iter().min_by_key(|&(at, _)| at)
    }

    /// Handles the tube's first deadline. A delay that ends at the same instant as a pause ends before it.
    pub(crate) fn tube_is_due(&mut self, index: TubeIndex, now: Timestamp) {
        let never = Timestamp::NEVER;
        let pause = self.tube(index).pause.map_or(never, |(until, _)| until);
        let gate = self.gate_at(index).unwrap_or(never);
        let delay = self.first_delayed(index);
        let until = delay.map_or(never, |(until, _)| until);
        let age = self.first_aged(index).filter(|&(at, _)| at <= now && at < until.min(pause).min(gate));
        if let Some((_, id)) = age {
            self.end_age(id, now);
        } else if gate <= now && gate < until && gate <= pause {
            self.refill(index, now);
            self.serve_behind_gates(&[index], now);
            self.remove_if_idle(index);
        } else if pause <= now && pause < until {
            self.end_pause(index, now);
        } else if let Some((until, id)) = delay.filter(|&(until, _)| until <= now) {
            self.make_ready_since(id, until, now);
            self.serve_free_slots(now);
        } else {
            self.refill(index, now);
            self.remove_if_idle(index);
        }
    }

    pub(crate) fn end_pause(&mut self, index: TubeIndex, now: Timestamp) {
        while !self.tube(index).is_closed && self.deliver_next(index, now) {}
        self.tube_mut(index).pause = None;
        self.serve_free_slots(now);
    }

    pub(crate) fn client_is_due(&mut self, index: u32, now: Timestamp) {
        let session = self.sessions.iter().find(|session| session.number == index);
        let ends_at = session.and_then(|session| session.ends_at);
        if let Some(ends_at) = ends_at
            && self.first_reserved(index).is_none_or(|(until, _)| until > ends_at)
        {
            return self.end_of_grace(index, now);
        }
        if session.is_none()
            && let Some(wait) = self.client_mut(index).wait.take()
        {
            let margin = self.margin_at(self.holder_for(index));
            let soon = margin.is_some_and(|margin| wait.until.is_none_or(|until| margin <= until));
            let outcome = if soon { WaitOutcome::DeadlineSoon } else { WaitOutcome::TimedOut };
            self.deliveries.push((index, outcome));
            return;
        }
        let (_, id) = self.first_reserved(index).expect("only a reservation can be due");
        let job = self.job_mut(id);
        job.counters.timeouts += 1;
        let (tube, timeouts) = (job.tube, job.counters.timeouts);
        self.count(tube, |counters| &mut counters.timeouts);
        self.note(Change::Postponable(JobId(id)));
        if self.check_age(id, now).is_none() {
            self.fail(id, self.limits.timeouts.is_some_and(|limit| timeouts >= limit), 0.into(), now);
        }
        self.serve_free_slots(now);
        self.end_idle_sessions();
        self.remove_if_idle(tube);
    }
}
