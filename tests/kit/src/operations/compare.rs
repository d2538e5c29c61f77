//! Compares the whole state of the queue with the state of its model.

use beanstalkd_model::{Job, State, Times, TubeIndex};
use beanstalkd_queue::{Change, Durations, PageOrder, Search, TubeView};
use beanstalkd_types::clock::{NS_PER_S, Timestamp};
use beanstalkd_types::job::{JobId, JobState};
use beanstalkd_types::tube_name::TubeName;

use super::drive::Pair;

fn job_of(change: &Change) -> JobId {
    match change {
        Change::Put(id)
        | Change::Updated(id)
        | Change::Postponable(id)
        | Change::Reserved(id)
        | Change::Moved(id)
        | Change::Died(id)
        | Change::SessionReserved(id)
        | Change::Deleted(id)
        | Change::DeletedWithCooldown(id)
        | Change::CooldownOver(id) => *id,
        Change::DeletedLast(last) => last.id,
    }
}

/// Sorts deaths that follow each other: the order of those that are due at once is open.
fn sort_deaths(changes: &mut [Change]) {
    let is_death = |change: &Change| matches!(change, Change::Died(_));
    for deaths in changes.chunk_by_mut(|a, b| is_death(a) && is_death(b)) {
        deaths.sort_by_key(job_of);
    }
}

impl Pair {
    /// Compares both after an operation. If the queue has done it in slices, these may have changed the order of what
    /// was due at once, so the changes are only compared job by job.
    pub(super) fn compare(&mut self) {
        self.queue.check_invariants();
        let mut deliveries = Vec::new();
        assert_eq!(self.queue.has_deliveries(), !self.model.deliveries.is_empty());
        while let Some(delivery) = self.queue.poll_delivery() {
            deliveries.push((delivery.client.index, delivery.outcome));
        }
        assert_eq!(
            deliveries,
            std::mem::take(&mut self.model.deliveries),
            "the replies to clients that waited"
        );
        assert_eq!(self.queue.has_changes(), !self.model.changes.is_empty());
        let mut changes: Vec<Change> = Vec::new();
        self.queue.swap_changes(&mut changes);
        let mut expected = std::mem::take(&mut self.model.changes);
        let sort = if std::mem::take(&mut self.was_sliced) {
            |changes: &mut [Change]| changes.sort_by_key(job_of)
        } else {
            sort_deaths
        };
        sort(&mut changes);
        sort(&mut expected);
        assert_eq!(changes, expected, "the changes for the binlog");
        let burials: Vec<JobId> = self.queue.drain_burials().collect();
        assert_eq!(burials, std::mem::take(&mut self.model.burials), "the burials for the binlog");
        let (next, expected) = (self.queue.next_deadline(), self.model.next_deadline());
        assert!(
            expected.is_none_or(|at| next.is_some_and(|next| next <= at)),
            "the queue is asked no later than at the next deadline: {next:?}, {expected:?}"
        );
        self.compare_totals();
        self.compare_jobs();
        self.compare_tubes();
        self.compare_clients();
        self.compare_tags();
    }

    fn compare_tags(&self) {
        for name in ["g", "h"] {
            let key = crate::tags::name(name);
            let group = self.queue.group(name).map(|group| (group.pending, group.buried, group.waiting));
            let members = self.model.members(key).count() as u64;
            let is_buried = |job: &&Job| matches!(job.state, State::Buried { .. });
            let buried = self.model.members(key).filter(is_buried).count() as u64;
            let waiting = self.model.waiting_for(key).count() as u64;
            let is_known = members + waiting > 0 || self.model.ended_groups.iter().any(|ended| ended == name);
            assert_eq!(group, is_known.then_some((members, buried, waiting)), "group {name}");
        }
        for cooldown in &self.model.cooldowns {
            let found =
                self.queue.cooldown(JobId(cooldown.id)).map(|(tube, key, until)| (tube.as_str(), key, until));
            let tube = self.model.tube(cooldown.tube).name.as_str();
            assert_eq!(found, Some((tube, cooldown.key.as_str(), cooldown.until)));
        }
    }

    fn compare_totals(&self) {
        let (queue, model) = (&self.queue, &self.model);
        assert_eq!(queue.figures().jobs, model.counts(None));
        assert_eq!(queue.figures().events, model.counters);
        assert_eq!(queue.figures().clients, model.clients.len());
        assert_eq!(queue.figures().sessions, model.sessions.len());
        assert_eq!(queue.figures().producers, model.clients_that(|client| client.producer));
        assert_eq!(queue.figures().workers, model.clients_that(|client| client.worker));
        assert_eq!(queue.figures().waiting, model.clients_that(|client| client.wait.is_some()));
    }

    fn compare_jobs(&self) {
        assert_eq!(self.queue.figures().jobs.total(), self.model.jobs.len());
        for expected in &self.model.jobs {
            let found = self.queue.job(JobId(expected.id)).expect("the queue has the job, as the model has");
            let record = found.record;
            let (state, deadline_at) = match expected.state {
                State::Ready => (JobState::Ready, Timestamp::default()),
                State::Buried { .. } => (JobState::Buried, Timestamp::default()),
                State::Delayed { until } => (JobState::Delayed, until),
                State::Reserved { until, .. } => (JobState::Reserved, until),
            };
            assert_eq!((record.id.0, record.state, record.deadline_at), (expected.id, state, deadline_at));
            assert_eq!(
                (record.priority.0, record.delay_s.whole()),
                (expected.priority, expected.delay_s.whole())
            );
            assert_eq!((record.ttr_s, record.created_at), (expected.ttr_s, expected.created_at));
            assert_eq!(record.counters, expected.counters);
            assert_eq!(found.failures(), self.model.failures(expected));
            assert_eq!(found.tube.as_str(), self.model.tube(expected.tube).name);
            assert_eq!(found.body.as_slice(), &*expected.body);
            assert_eq!((found.tags.unwrap_or_default(), found.is_held), (expected.tags, expected.held));
            assert_eq!(found.expires_at, self.model.expires_at(expected));
            let waits_for = self.model.waits_for(expected, self.now).join(" ");
            assert_eq!(self.queue.waits_for(record.id, self.now), waits_for);
            let session = self.model.session_of_job(expected);
            assert_eq!(self.queue.session_of_job(record.id).map(|key| &*key.name), session);
            for &id in &self.clients {
                assert_eq!(
                    self.queue.has_reserved(id, record.id),
                    self.model.has_reserved(id.index, expected.id)
                );
            }
        }
    }

    fn compare_tubes(&self) {
        assert_eq!(self.queue.figures().tubes, self.model.listed.len());
        for (found, &tube) in self.queue.tubes_from(0, self.now).zip(&self.model.listed) {
            let expected = self.model.tube(tube);
            let (pause_until, pause_s) = expected.pause.unwrap_or_default();
            assert_eq!(found.name.as_str(), expected.name, "the order of the tubes");
            assert_eq!(found.jobs, self.model.counts(Some(tube)));
            assert_eq!(
                (found.counters, found.pauses, found.pause_s),
                (expected.counters, expected.pauses, pause_s)
            );
            let rule = self.model.rule_of(tube).map(|rule| &*rule.pattern);
            assert_eq!(found.rule.as_ref().map(|rule| &*rule.pattern), rule);
            assert_eq!((found.rejected, found.dead), (expected.rejected, expected.dead));
            assert_eq!(found.is_throttled, expected.is_closed, "{}", expected.name);
            assert_eq!(found.pause_left_s, pause_until.since_s(self.now));
            let using = self.model.clients_that(|client| client.using == tube);
            let watching = self.model.clients_that(|client| client.watching.contains(&tube));
            let waiting =
                self.model.clients_that(|client| client.watching.contains(&tube) && client.wait.is_some());
            assert_eq!((u64::from(found.using), u64::from(found.watching)), (using, watching));
            assert_eq!(found.waiting as u64, waiting);
            self.compare_ages(&found, tube);
            compare_times(&found.wait(), self.model.waits(tube, self.now));
            compare_times(&found.run(), self.model.runs(tube, self.now));
        }
    }

    fn compare_ages(&self, found: &TubeView, tube: TubeIndex) {
        let oldest = |state| self.model.oldest(tube, state);
        let age_s = |state| oldest(state).map_or(0, |job| self.now.since_s(job.created_at));
        assert_eq!(found.oldest_ready.map(|id| id.0), oldest(JobState::Ready).map(|job| job.id));
        assert_eq!(found.oldest_ready_age_s, age_s(JobState::Ready));
        assert_eq!(found.oldest_delayed_age_s, age_s(JobState::Delayed));
        assert_eq!(found.oldest_buried_age_s, age_s(JobState::Buried));
    }

    fn compare_clients(&self) {
        for &id in &self.clients {
            let expected = self.model.client(id.index);
            let using = expected.using;
            assert_eq!(self.queue.awaited_by(id), expected.job_wait.map(|(job, _)| JobId(job)));
            assert_eq!(self.queue.used_tube(id).as_str(), self.model.tube(using).name);
            let watched = self.queue.watched_tubes_from(id, 0).map(|name| name.as_str());
            let expected = expected.watching.iter().map(|&tube| self.model.tube(tube).name.as_str());
            assert!(watched.eq(expected), "the order of the watched tubes");
            assert_eq!(self.queue.peek(id, JobState::Ready).map(|id| id.0), self.model.first_ready(using));
            assert_eq!(self.queue.peek(id, JobState::Buried).map(|id| id.0), self.model.first_buried(using));
            let delayed = self.model.first_shown_as_delayed(using);
            assert_eq!(self.queue.peek(id, JobState::Delayed).map(|id| id.0), delayed);
        }
    }

    /// Lists the tube's jobs page by page, and compares them with the model's.
    pub(super) fn list(&self, tube: &str, limit: usize) {
        let name = TubeName::parse(tube.as_bytes()).expect("the name is valid");
        for state in [JobState::Ready, JobState::Reserved, JobState::Delayed, JobState::Buried] {
            let (mut found, mut after) = (Vec::new(), None);
            loop {
                let page = if state == JobState::Reserved {
                    let mut search = Search::new(name.clone(), PageOrder::Deadline, after, limit);
                    while !self.queue.search_reserved(&mut search, 2) {}
                    Some(search.into_page()).filter(|_| self.queue.tube_name(tube).is_some())
                } else {
                    self.queue.page(tube, state, after, limit)
                };
                let Some(page) = page else {
                    assert_eq!(self.model.find(tube), None);
                    return;
                };
                assert!(page.jobs.len() <= limit && (page.jobs.len() == limit || page.next.is_none()));
                found.extend(page.jobs.into_iter().map(|position| position.id));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            let tube = self.model.find(tube).expect("the tube exists in the model, as it does in the queue");
            let expected = self.model.in_order(tube, state).into_iter().map(|(_, id)| JobId(id));
            assert!(found.iter().copied().eq(expected), "{state:?} by {limit}: {found:?}");
        }
    }
}

fn compare_times(found: &Durations, expected: Times) {
    assert_eq!((found.count, found.mean_ns), (expected.count, expected.mean_ns));
    assert_eq!((found.max_ns, found.totals.iter().sum::<u64>()), (expected.max_ns, expected.total));
    let percentiles = [found.p50_ns, found.p95_ns, found.p99_ns];
    for (found, least) in percentiles.into_iter().zip(expected.percentiles_ns) {
        // The bounds of buckets are exact to a millionth. Durations below the first bound share one bucket; those above
        // the last bound, 4,096 seconds, share another one, which stands for its longest duration.
        let most = if least > 4_096 * NS_PER_S {
            expected.max_ns
        } else {
            least.saturating_add(least / 4 + 1).max(244_141)
        };
        assert!(found >= least - least / 1_000_000 && found <= most, "{found} for {least}");
    }
}
