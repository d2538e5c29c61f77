//! Views of the state: the data for peeks, stats and the binlog.
//!
//! Owns: the facts that other crates get, and the estimates of memory. A view shows one instant. None of these methods
//! changes anything.

use std::ops::Range;
use std::rc::Rc;

use crate::clock::Timestamp;
use crate::job::{BodyRef, JobId, JobRecord, JobState};
use crate::rules::retries::failures_of;
use crate::state::clients::ClientCounts;
use crate::state::jobs::{Job, Marks};
use crate::state::keys::{ReadyKey, TubeKey};
use crate::state::times::Durations;
use crate::state::tubes::{Tube, TubeTagState};
use crate::tags::JobTags;
use crate::tube_name::TubeName;
use crate::{ClientId, CooldownSums, JobCounts, Queue, TubeCounters, TubeRule};

/// A job at the time of the call.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names of the other fields say everything")]
pub struct JobView<'a> {
    pub record: JobRecord,
    pub tube: &'a TubeName,
    pub body: BodyRef<'a>,
    /// The tags of the job; `None` if it has none.
    pub tags: Option<JobTags<'a>>,
    /// Whether it waits for a group.
    pub is_held: bool,
    /// When it expires unless a client reserves it before.
    pub expires_at: Option<Timestamp>,
}

/// The figures of the queue at the time of the call.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the names of the other fields say everything")]
pub struct Figures {
    pub jobs: JobCounts,
    /// The memory of the jobs, in bytes: records, bodies, tags, groups, and the indexes in which they are found.
    pub job_bytes: usize,
    /// How often each event has happened to jobs since the start, over all tubes, including removed ones.
    pub events: TubeCounters,
    pub tubes: usize,
    /// The number of clients with a connection.
    pub clients: usize,
    /// Clients that wait in a reserve.
    pub waiting: u64,
    /// Clients that have sent an accepted line of a put.
    pub producers: u64,
    /// Clients that have sent a reserve, or got a job with `reserve-job`.
    pub workers: u64,
    /// The sessions, including those without an attached client.
    pub sessions: usize,
    pub cooldowns: CooldownSums,
    /// The memory of the cooldowns that existing jobs will begin when they are deleted, in bytes.
    pub reserved_cooldown_bytes: u64,
    /// The jobs that rules have sent to dead tubes, including jobs from removed tubes.
    pub dead: u64,
}

/// A tube at the time of the call, with the figures of `stats-tube`.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names of the other fields say everything")]
pub struct TubeView {
    pub name: TubeName,
    pub jobs: JobCounts,
    /// Clients that use it.
    pub using: u32,
    /// Clients that watch it.
    pub watching: u32,
    /// Clients that watch it and wait in a reserve.
    pub waiting: usize,
    /// `pause-tube` commands so far.
    pub pauses: u64,
    /// The length of the current pause in seconds; 0 if there is none.
    pub pause_s: u32,
    /// Whole seconds until the current pause ends; 0 if there is none.
    pub pause_left_s: u64,
    /// How often each event has happened to its jobs.
    pub counters: TubeCounters,
    /// The ready job with the smallest id; `None` if there is none.
    pub oldest_ready: Option<JobId>,
    /// Whole seconds since the put of that job; 0 if there is none.
    pub oldest_ready_age_s: u64,
    /// Whole seconds since the put of the delayed job with the smallest id; 0 if there is none.
    pub oldest_delayed_age_s: u64,
    /// Whole seconds since the put of the buried job with the smallest id; 0 if there is none.
    pub oldest_buried_age_s: u64,
    /// The cooldowns of its deleted jobs.
    pub cooldowns: CooldownSums,
    pub rule: Option<Rc<TubeRule>>,
    /// Jobs that were sent from here to the dead tube.
    pub dead: u64,
    /// Whether a rule permits no reservation of its jobs now.
    pub is_throttled: bool,
    /// Jobs that were refused because it was full.
    pub rejected: u64,
    /// The waiting and running times of its jobs; `None` if none was reserved, or if too many other tubes have a
    /// record.
    pub times: Option<Box<(Durations, Durations)>>,
}

impl<'a> JobView<'a> {
    /// How often the job has failed since it was put, or since it was sent back from a dead tube.
    #[must_use]
    pub fn failures(&self) -> u32 {
        failures_of(self.record.counters, self.tags.as_ref())
    }

    /// The original tube of a dead job; empty for any other job.
    #[must_use]
    pub fn dead_from(&self) -> &'a str {
        self.tags.and_then(|tags| tags.dead()).map_or("", |dead| dead.from.as_str())
    }

    /// Whether the job is in the tube of this name, in this state.
    #[must_use]
    pub fn is_in(&self, tube: &str, state: JobState) -> bool {
        self.record.state == state && self.tube.as_str() == tube
    }
}

impl TubeView {
    /// How long jobs were ready before they were reserved.
    #[must_use]
    pub fn wait(&self) -> Durations {
        self.times.as_deref().map_or_else(Durations::default, |times| times.0)
    }

    /// How long clients had jobs before they deleted them.
    #[must_use]
    pub fn run(&self) -> Durations {
        self.times.as_deref().map_or_else(Durations::default, |times| times.1)
    }
}

impl Queue {
    /// The ids of all jobs, ascending.
    pub fn job_ids(&self) -> impl Iterator<Item = JobId> {
        self.jobs.ids()
    }

    /// The job with this id.
    #[must_use]
    pub fn job(&self, id: JobId) -> Option<JobView<'_>> {
        let job = self.jobs.get(id)?;
        let record = JobRecord {
            id,
            priority: job.priority,
            delay_s: job.delay_s.into(),
            ttr_s: job.ttr(),
            created_at: job.created_at,
            deadline_at: job.collection().deadline().unwrap_or_default(),
            counters: self.jobs.history(job).counters,
            state: job.state(),
        };
        let (tags, is_held, expires_at) = if !job.has(Marks::TAGGED) {
            (None, false, None)
        } else {
            (self.tags(id), self.is_held(id), self.expires_at(id))
        };
        let tube = &self.tubes.get(job.tube).name;
        Some(JobView { record, tube, body: job.body(), tags, is_held, expires_at })
    }

    /// The body of the job with this id.
    #[inline(always)]
    #[must_use]
    pub fn body(&self, id: JobId) -> Option<BodyRef<'_>> {
        self.jobs.get(id).map(Job::body)
    }

    /// Whether the job with this id has tags.
    #[must_use]
    pub fn has_tags(&self, id: JobId) -> bool {
        self.jobs.get(id).is_some_and(|job| job.has(Marks::TAGGED))
    }

    /// The job that a peek shows: the first of the used tube in this state. Parked jobs are ready; held jobs come after
    /// the other delayed ones. `None` for reserved jobs: `peek-reserved` uses [`Queue::search_reserved`].
    #[must_use]
    pub fn peek(&self, client: ClientId, state: JobState) -> Option<JobId> {
        let tube = self.used(client);
        match state {
            JobState::Ready => {
                let parked = tube.tag_state().and_then(|tagged| tagged.parked.first());
                tube.ready.first().into_iter().chain(parked).min().map(ReadyKey::job)
            }
            JobState::Delayed => {
                let held = || tube.tag_state()?.held.first();
                tube.delayed.first().or_else(held).map(|key| key.1)
            }
            JobState::Buried => tube.buried.first().map(|key| key.1),
            JobState::Reserved => None,
        }
    }

    /// The delayed job of the used tube that a kick takes next: a held one stays.
    pub(super) fn first_to_kick(&self, client: ClientId) -> Option<JobId> {
        self.used(client).delayed.first().map(|key| key.1)
    }

    /// The name of the tube that the client uses.
    #[must_use]
    pub fn used_tube(&self, client: ClientId) -> &TubeName {
        &self.used(client).name
    }

    /// The name of the tube of a put: this tube, which need not exist, or the tube that the client uses.
    #[must_use]
    pub fn target_tube_name<'a>(&'a self, client: ClientId, tube: Option<&'a str>) -> &'a str {
        tube.unwrap_or_else(|| self.used_tube(client).as_str())
    }

    /// The names of the tubes that the client watches, in the order of `list-tubes-watched`, from this index on.
    pub fn watched_tubes_from(&self, client: ClientId, position: usize) -> impl Iterator<Item = &TubeName> {
        let watching = self.client(client).watching.get(position..).unwrap_or_default();
        watching.iter().map(|&key| &self.tubes.get(key).name)
    }

    /// How many tubes the client watches.
    #[must_use]
    pub fn watched_count(&self, client: ClientId) -> usize {
        self.client(client).watching.len()
    }

    /// Whether the client watches the tube of this name.
    #[must_use]
    pub fn watches(&self, client: ClientId, name: &str) -> bool {
        self.tubes.find(name).is_some_and(|tube| self.client(client).position_of(tube).is_some())
    }

    /// The name of this tube, sharing its bytes, if the tube exists.
    #[must_use]
    pub fn tube_name(&self, name: &str) -> Option<&TubeName> {
        self.tubes.find(name).map(|key| &self.tubes.get(key).name)
    }

    /// The tube of this name.
    #[must_use]
    pub fn tube(&self, name: &str, now: Timestamp) -> Option<TubeView> {
        self.tubes.find(name).map(|key| self.tube_view(key, now))
    }

    /// The tubes from `position` on in the order of `list-tubes`.
    pub fn tubes_from(&self, position: usize, now: Timestamp) -> impl ExactSizeIterator<Item = TubeView> {
        self.tubes.keys_from(position).map(move |key| self.tube_view(key, now))
    }

    /// The names of all tubes, in the order of `list-tubes`.
    pub fn tube_names(&self) -> impl ExactSizeIterator<Item = &TubeName> {
        self.tubes.iter().map(|tube| &tube.name)
    }

    /// The name, the jobs, the counters and the number of dead jobs of the tubes at these indexes of the registry that
    /// have existed since [`Queue::tubes_version`] was `since`; `None` after the last index. A tube keeps its index, so
    /// a walk through all indexes comes to each tube that stays, and to no tube and no name twice.
    pub fn tubes_since(
        &self,
        since: u64,
        indexes: Range<usize>,
    ) -> Option<impl Iterator<Item = (&TubeName, JobCounts, TubeCounters, u64)>> {
        let tubes = self.tubes.since(since, indexes)?;
        let dead = |tube: &Tube| tube.ruled.as_ref().map_or(0, |ruled| ruled.dead);
        Some(tubes.map(move |tube| (&tube.name, tube.job_counts(), tube.counters(), dead(tube))))
    }

    /// The queue as it is now.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let ClientCounts { waiting, producers, workers, unconnected, .. } = self.clients.counts;
        Figures {
            jobs: self.sums.jobs,
            job_bytes: self.jobs.job_bytes() + self.rules.job_bytes(),
            events: self.sums.events,
            tubes: self.tubes.len(),
            clients: self.clients.records.len() - self.clients.leaving.len() - unconnected,
            waiting,
            producers,
            workers,
            sessions: self.sessions.records.len(),
            cooldowns: self.rules.cooldowns(),
            reserved_cooldown_bytes: self.rules.reserved_cooldown_bytes(),
            dead: self.sums.dead,
        }
    }

    /// The memory of the whole queue, in bytes: jobs, tubes, clients and what these watch, reserve and wait for. Memory
    /// that is allocated when a command can no longer be refused is counted from the start: the counters of a tube, the
    /// entries of a wait.
    #[must_use]
    pub fn bytes(&self) -> usize {
        const BYTES_PER_CLIENT: usize = 512;
        const BYTES_PER_WATCHED_TUBE: usize = 128;
        const BYTES_PER_WEIGHED_TUBE: usize = 24;
        const BYTES_PER_RESERVATION: usize = 36;
        self.jobs.bytes()
            + self.rules.bytes()
            + self.sums.jobs.reserved as usize * BYTES_PER_RESERVATION
            + self.tubes.bytes()
            + (self.clients.records.len() - self.clients.counts.unconnected) * BYTES_PER_CLIENT
            + self.sessions.bytes()
            + self.clients.counts.watched * BYTES_PER_WATCHED_TUBE
            + self.clients.counts.weighed * BYTES_PER_WEIGHED_TUBE
    }

    /// The number of jobs that the client has reserved.
    #[must_use]
    pub fn reservation_count(&self, client: ClientId) -> usize {
        self.clients[self.holder_for(client.key())].reserved.len()
    }

    fn used(&self, client: ClientId) -> &Tube {
        self.tubes.get(self.client(client).using)
    }

    fn tube_view(&self, key: TubeKey, now: Timestamp) -> TubeView {
        let tube = self.tubes.get(key);
        let age_s = |id: Option<JobId>| {
            id.and_then(|id| self.jobs.get(id)).map_or(0, |job| now.since_s(job.created_at))
        };
        let tagged = tube.tag_state();
        let parked = tagged.and_then(|tagged| tagged.parked.oldest());
        let held = tagged.and_then(|tagged| tagged.held.oldest());
        let oldest_ready = tube.ready.oldest().into_iter().chain(parked).min().map(JobId);
        let oldest_delayed = tube.delayed.oldest().into_iter().chain(held).min().map(JobId);
        TubeView {
            name: tube.name.clone(),
            jobs: tube.job_counts(),
            using: tube.using,
            watching: tube.watching,
            waiting: tube.waiting.len() + self.many_waiting_count(key),
            pauses: tube.pauses(),
            pause_s: tube.pause.map_or(0, |pause| pause.length_s),
            pause_left_s: tube.pause.map_or(0, |pause| pause.until().since_s(now)),
            counters: tube.counters(),
            oldest_ready,
            oldest_ready_age_s: age_s(oldest_ready),
            oldest_delayed_age_s: age_s(oldest_delayed),
            oldest_buried_age_s: age_s(tube.buried.oldest().map(JobId)),
            cooldowns: tube.tag_state().map_or_else(CooldownSums::default, TubeTagState::cooldown_sums),
            rule: tube.rule().cloned(),
            is_throttled: tube.is_throttled(),
            dead: tube.ruled.as_ref().map_or(0, |ruled| ruled.dead),
            rejected: tube.ruled.as_ref().map_or(0, |ruled| ruled.rejected),
            times: tube.times().map(|times| Box::new(times.durations(now))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;

    use super::*;
    use crate::Reserve;
    use crate::state::times::{MAX_TIMED_TUBES, TubeTimes};
    use crate::tags::{Idempotency, Name, TagSet};
    use crate::testing::{NOW, TestJob, con};

    const COUNT: usize = 2048;

    /// The memory of each of many things, in bytes.
    fn each_takes(queue: &mut Queue, mut make: impl FnMut(&mut Queue, usize)) -> usize {
        let before = queue.bytes();
        (0..COUNT).for_each(|number| make(queue, number));
        queue.bytes().saturating_sub(before) / COUNT
    }

    fn assert_in(range: RangeInclusive<usize>, bytes: usize, what: &str) {
        assert!(range.contains(&bytes), "{what}: {bytes} bytes, and not {range:?}");
    }

    fn put(queue: &mut Queue, client: ClientId, tags: TagSet<'_>) -> JobId {
        TestJob { body: &[b'x'; 100], tags, ..TestJob::default() }.put(queue, client, NOW)
    }

    fn reserve(queue: &mut Queue, worker: ClientId) {
        assert!(matches!(queue.reserve(worker, None, NOW), Reserve::Job(_)));
    }

    fn name(number: usize) -> String {
        format!("a-name-of-thirty-bytes-{number:07}")
    }

    #[test]
    fn clients_and_what_they_watch_and_reserve_count_as_memory() {
        let queue = &mut Queue::default();
        let (first, second, third) = (queue.connect(), queue.connect(), queue.connect());
        let client = each_takes(queue, |queue, _| {
            queue.connect();
        });
        assert_in(500..=1000, client, "a client");
        let tube = each_takes(queue, |queue, number| {
            queue.watch(first, &name(number));
        });
        assert_in(400..=900, tube, "a tube that is watched");
        let watched = each_takes(queue, |queue, number| {
            queue.watch(second, &name(number));
        });
        assert_in(100..=200, watched, "a tube that another client watches");
        let weighed = each_takes(queue, |queue, number| {
            queue.watch_with_weight(third, &name(number), 9);
        });
        assert_in(16..=50, weighed - watched, "a weight");
        let worker = queue.connect();
        for _ in 0..COUNT {
            put(queue, worker, TagSet::default());
            reserve(queue, worker);
        }
        let held = queue.bytes();
        queue.disconnect(worker, NOW);
        while queue.figures().jobs.reserved > 0 {
            queue.advance(NOW);
        }
        assert_in(24..=100, (held - queue.bytes()) / COUNT, "a reservation");
    }

    #[test]
    fn tags_and_what_they_lead_to_count_as_memory() {
        let queue = &mut Queue::default();
        let (client, worker) = (queue.connect(), queue.connect());
        let plain = each_takes(queue, |queue, _| {
            put(queue, client, TagSet::default());
        });
        let keyed = each_takes(queue, |queue, number| {
            let name = name(number);
            put(queue, client, con(&name, 1));
        });
        assert_in(60..=300, keyed - plain, "the tag of a job");
        let grouped = each_takes(queue, |queue, number| {
            let name = name(number);
            put(queue, client, TagSet { group: Name::check(name.as_bytes()), ..TagSet::default() });
        });
        assert_in(100..=300, grouped - keyed, "a group");
        let owned = each_takes(queue, |queue, number| {
            let name = name(number);
            let owner = Name::check(name.as_bytes());
            TestJob { body: &[b'x'; 100], owner, ..TestJob::default() }.put(queue, client, NOW);
        });
        assert_in(50..=200, owned - keyed, "an owner");
        let before = queue.bytes();
        for number in 0..COUNT {
            let name = name(number);
            let tag = Idempotency { key: Name::try_from(name.as_str()).unwrap(), cooldown_s: 60.into() };
            let id = put(queue, client, TagSet { idempotency: Some(tag), ..TagSet::default() });
            assert!(queue.delete(client, id, NOW).is_some());
        }
        assert_in(150..=400, (queue.bytes() - before) / COUNT, "a cooldown");
        (0..COUNT).for_each(|_| reserve(queue, worker));
        let reserved = each_takes(queue, |queue, _| reserve(queue, worker));
        queue.check_invariants();
        assert_in(60..=400, reserved, "a reservation that takes a slot of a key");
    }

    #[test]
    fn the_times_of_a_tube_count_as_memory() {
        let queue = &mut Queue::default();
        let worker = queue.connect();
        let each = each_takes(queue, |queue, number| {
            queue.use_tube(worker, &name(number));
            let id = put(queue, worker, TagSet::default());
            assert!(queue.reserve_job(worker, id, NOW));
        });
        assert_in(
            size_of::<TubeTimes>()..=size_of::<TubeTimes>() + 1500,
            each,
            "a tube whose job was reserved",
        );
    }

    #[test]
    fn times_of_a_tube_beyond_the_maximum_are_counted_once_another_tube_has_gone() {
        let queue = &mut Queue::default();
        let worker = queue.connect();
        // Reserves a job of the tube, and returns it and the number of waiting times that are counted.
        let reserve_in = |queue: &mut Queue, number: usize| {
            queue.use_tube(worker, &name(number));
            let id = put(queue, worker, TagSet::default());
            assert!(queue.reserve_job(worker, id, NOW));
            (id, queue.tube(&name(number), NOW).unwrap().wait().count)
        };
        let (first, _) = reserve_in(queue, 0);
        for number in 1..MAX_TIMED_TUBES {
            assert_eq!(reserve_in(queue, number).1, 1);
        }
        assert_eq!(reserve_in(queue, MAX_TIMED_TUBES).1, 0, "the others have all histograms");
        assert_eq!(reserve_in(queue, 1).1, 2, "a tube keeps its histogram");
        assert!(queue.delete(worker, first, NOW).is_some());
        assert!(queue.tube(&name(0), NOW).is_none(), "nobody uses it");
        assert_eq!(reserve_in(queue, MAX_TIMED_TUBES).1, 1);
        assert_eq!(reserve_in(queue, MAX_TIMED_TUBES + 1).1, 0, "only one was free");
        queue.check_invariants();
    }
}
