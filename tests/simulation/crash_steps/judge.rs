//! Compares the jobs of the server with those of the model, after a step and after a crash.

use super::*;

/// The jobs that at least one of the models has.
pub(super) fn ids_of<'a>(models: impl Iterator<Item = &'a Model>) -> BTreeSet<u64> {
    models.flat_map(|model| model.jobs.iter().map(|job| job.id)).collect()
}

/// Whether the log has lost the move of a job, or its death, and kept the later record of its reservation by a session:
/// see "What is not promised" in doc/binlog.md.
fn is_moved_back(before: Option<Facts>, after: &Option<Facts>, found: &Option<Facts>) -> bool {
    let (Some(before), Some(after)) = (before, after) else { return false };
    let is_moved = before.tube != after.tube && after.session.is_some();
    is_moved && found.as_ref() == Some(&before.reserved_as(after))
}

impl Steps {
    pub(super) fn stages_after_restart(&self) -> Vec<Model> {
        let mut stages = self.doubt.stages.clone();
        stages.iter_mut().for_each(|stage| stage.restart_with_log(self.now));
        stages
    }

    /// Compares each job of the server with the possible stages: returns the matching stage by id. After a loss of
    /// power (`moves_back`), a job that a session reserves may be back in its previous tube.
    pub(super) fn judge(
        &self,
        server: &Server<FakeStream>,
        stages: &[Model],
        moves_back: bool,
    ) -> Vec<(u64, usize)> {
        let stage_of = |id| {
            let found = facts_of(server.executor().queue(), id);
            let first = self.doubt.answered.get(&id).copied().unwrap_or(0);
            let is_it = |&at: &usize| {
                let after = stages[at].facts(id);
                let was_moved = |before: &Model| is_moved_back(before.facts(id), &after, &found);
                let lacks_part = |before: &Model| full_disk::lacks_part(&before.facts(id), &after, &found);
                after == found
                    || moves_back && stages[first..at].iter().any(was_moved)
                    || self.is_disk_full && stages[..at].iter().any(lacks_part)
            };
            (first..stages.len()).rev().find(is_it).unwrap_or_else(|| {
                let allowed: Vec<_> = stages[first..].iter().map(|stage| stage.facts(id)).collect();
                panic!("job {id} comes back as {found:#?}, not as one of {allowed:#?}");
            })
        };
        let ids = ids_of(stages.iter());
        let queue = server.executor().queue();
        let found = ids.iter().filter(|&&id| queue.job(JobId(id)).is_some()).count();
        let total = queue.figures().jobs.total();
        assert_eq!(total, found, "only jobs come back that were there");
        ids.into_iter().map(|id| (id, stage_of(id))).collect()
    }

    pub(super) fn note_outcome(&mut self, stages: &[Model], chosen: &[(u64, usize)]) {
        let last = stages.len() - 1;
        for &(id, stage) in chosen {
            let found = stages[stage].facts(id);
            self.outcome.kept_by_session +=
                u64::from(found.as_ref().is_some_and(|facts| facts.session.is_some()));
            self.outcome.dead += u64::from(found.is_some_and(|facts| !facts.dead_from.is_empty()));
            let first = self.doubt.answered.get(&id).copied().unwrap_or(0);
            if stages[first].facts(id) != stages[last].facts(id) {
                self.outcome.kept += u64::from(stage == last);
                self.outcome.lost += u64::from(stage != last);
            }
        }
    }

    /// Requires that the server has the state of the model.
    pub(super) fn compare(&mut self) {
        for client in &self.clients {
            assert_eq!(client.is_closed, client.is_ending, "client {}", client.connection.id.index);
        }
        self.clients.retain(|client| !client.is_closed);
        let model = &self.oracle.model;
        let queue = self.server.executor().queue();
        for job in &model.jobs {
            assert_eq!(facts_of(queue, job.id), model.facts(job.id), "job {}", job.id);
            let waits_for = queue.waits_for(JobId(job.id), self.now);
            assert_eq!(waits_for, model.waits_for(job, self.now).join(" "), "job {}", job.id);
        }
        let figures = queue.figures();
        assert_eq!((figures.jobs.total(), figures.sessions), (model.jobs.len(), model.sessions.len()));
        queue.check_invariants();
        self.compare_order_of_burial();
    }

    /// Requires that the buried jobs of each tube stand in the order of burial, which the facts do not have.
    fn compare_order_of_burial(&self) {
        let (model, queue) = (&self.oracle.model, self.server.executor().queue());
        let mut buried: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
        for job in &model.jobs {
            if let State::Buried { number } = job.state {
                buried.entry(&model.tube(job.tube).name).or_default().push((number, job.id));
            }
        }
        for (tube, mut jobs) in buried {
            jobs.sort_unstable();
            let page = queue.page(tube, JobState::Buried, None, jobs.len() + 1).expect("the tube has jobs");
            assert!(
                page.jobs.iter().map(|position| position.id.0).eq(jobs.iter().map(|&(_, id)| id)),
                "{tube}"
            );
        }
    }
}
