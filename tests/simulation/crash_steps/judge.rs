//! Compares the jobs of the server with those of the model, after a step and after a crash.

use super::*;

/// The facts of a job that a crash must not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) state: &'static str,
    tube: String,
    priority: u32,
    /// Time-outs, releases, buries and kicks.
    counters: [u32; 4],
    failures: u32,
    dead_from: String,
    /// When the delay or the reservation ends.
    until: Timestamp,
    /// The session that has reserved it, and its grace.
    pub(super) session: Option<(String, u32)>,
}

/// The jobs that at least one of the models has.
pub(super) fn ids_of<'a>(models: impl Iterator<Item = &'a Model>) -> BTreeSet<u64> {
    models.flat_map(|model| model.jobs.iter().map(|job| job.id)).collect()
}

pub(super) fn facts_of_model(model: &Model, id: u64) -> Option<Facts> {
    let job = model.job(id)?;
    let session = model.sessions.iter().find(|session| {
        let name = model.session_of_job(job);
        name == Some(session.name.as_str())
    });
    Some(Facts {
        state: job.state.as_str(),
        tube: model.tube(job.tube).name.clone(),
        priority: job.priority,
        counters: [job.counters.timeouts, job.counters.releases, job.counters.buries, job.counters.kicks],
        failures: model.failures(job),
        dead_from: job.tags.dead.map_or(String::new(), |dead| dead.from.as_str().to_owned()),
        until: match job.state {
            State::Reserved { until, .. } | State::Delayed { until } => until,
            State::Ready | State::Buried { .. } => Timestamp::default(),
        },
        session: session.map(|session| (session.name.clone(), session.grace_ms)),
    })
}

fn facts_of_server(server: &Server<FakeStream>, id: u64) -> Option<Facts> {
    let queue = server.executor().queue();
    let job = queue.job(JobId(id))?;
    let counters = job.record.counters;
    let reservation = queue.session_reservation(JobId(id));
    Some(Facts {
        state: job.record.state.as_str(),
        tube: job.tube.as_str().to_owned(),
        priority: job.record.priority.0,
        counters: [counters.timeouts, counters.releases, counters.buries, counters.kicks],
        failures: job.failures(),
        dead_from: job.dead_from().to_owned(),
        until: job.record.deadline_at,
        session: reservation.map(|reservation| (reservation.key.name.to_string(), reservation.grace_ms)),
    })
}

impl Steps {
    pub(super) fn stages_after_restart(&self) -> Vec<Model> {
        let mut stages = self.doubt.stages.clone();
        stages.iter_mut().for_each(|stage| stage.restart_with_log(self.now));
        stages
    }

    /// Compares each job of the server with the possible stages: returns the matching stage by id.
    pub(super) fn judge(&self, server: &Server<FakeStream>, stages: &[Model]) -> Vec<(u64, usize)> {
        let stage_of = |id| {
            let found = facts_of_server(server, id);
            let first = self.doubt.answered.get(&id).copied().unwrap_or(0);
            let is_it = |&at: &usize| facts_of_model(&stages[at], id) == found;
            (first..stages.len()).rev().find(is_it).unwrap_or_else(|| {
                let allowed: Vec<_> = stages[first..].iter().map(|stage| facts_of_model(stage, id)).collect();
                panic!("job {id} comes back as {found:#?}, not as one of {allowed:#?}");
            })
        };
        let ids = ids_of(stages.iter());
        let found = ids.iter().filter(|&&id| facts_of_server(server, id).is_some()).count();
        let total = server.executor().queue().figures().jobs.total();
        assert_eq!(total, found, "only jobs come back that were there");
        ids.into_iter().map(|id| (id, stage_of(id))).collect()
    }

    pub(super) fn note_outcome(&mut self, stages: &[Model], chosen: &[(u64, usize)]) {
        let last = stages.len() - 1;
        for &(id, stage) in chosen {
            let found = facts_of_model(&stages[stage], id);
            self.outcome.held += u64::from(found.as_ref().is_some_and(|facts| facts.session.is_some()));
            self.outcome.dead += u64::from(found.is_some_and(|facts| !facts.dead_from.is_empty()));
            let first = self.doubt.answered.get(&id).copied().unwrap_or(0);
            if facts_of_model(&stages[first], id) != facts_of_model(&stages[last], id) {
                self.outcome.kept += u64::from(stage == last);
                self.outcome.lost += u64::from(stage != last);
            }
        }
    }

    /// Requires that the server has the state of the model.
    pub(super) fn compare(&mut self) {
        for client in &self.clients {
            assert_eq!(client.is_closed, client.is_ending, "client {}", client.id.index);
        }
        self.clients.retain(|client| !client.is_closed);
        let model = &self.oracle.model;
        for job in &model.jobs {
            assert_eq!(
                facts_of_server(&self.server, job.id),
                facts_of_model(model, job.id),
                "job {}",
                job.id
            );
            let waits_for = self.server.executor().queue().waits_for(JobId(job.id), self.now);
            assert_eq!(waits_for, model.waits_for(job, self.now).join(" "), "job {}", job.id);
        }
        let figures = self.server.executor().queue().figures();
        assert_eq!((figures.jobs.total(), figures.sessions), (model.jobs.len(), model.sessions.len()));
        self.server.executor().queue().check_invariants();
    }
}
