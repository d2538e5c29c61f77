//! Overdue jobs: jobs past their `max-age` or `exp` that have not been removed yet. No client gets one.
//!
//! Owns: the end of such a job, and the way of a job to its dead tube. `advance` removes a limited number of them in
//! each call, so while there are very many, some are still ready. As long as there may be any (`Rules::has_overdue`), a
//! job that comes first in its tube, or that becomes ready, is checked here before a client gets it. Otherwise nothing
//! is checked.

use crate::clock::Timestamp;
use crate::job::{JobId, JobState};
use crate::rules::Ending;
use crate::state::jobs::Marks;
use crate::state::keys::TubeKey;
use crate::{Change, Queue};

impl Queue {
    /// Ends the job if its time is over, with all side effects; returns whether it has left its collection. Commands
    /// that make a job ready call this first.
    #[inline]
    pub(crate) fn end_overdue_and_serve(&mut self, id: JobId, now: Timestamp) -> bool {
        self.rules.has_overdue() && self.end_in_time(id, now)
    }

    /// Ends an overdue job that becomes ready in this tube if a client waits for it; otherwise its own timer ends it.
    /// The caller serves waiting clients.
    #[inline]
    pub(crate) fn end_overdue_if_awaited(&mut self, id: JobId, tube: TubeKey, now: Timestamp) -> bool {
        self.rules.has_overdue()
            && self.tubes.get(tube).is_open()
            && self.first_waiting(tube).is_some()
            && self.end_overdue(id, now)
    }

    /// Ends the job if its time is over, serves waiting clients, and removes the tube if it is idle, when a timer is
    /// due. Returns whether the job has left its collection.
    #[cold]
    pub(super) fn end_in_time(&mut self, id: JobId, now: Timestamp) -> bool {
        let Some(tube) = self.jobs.get(id).map(|job| job.tube) else { return false };
        let has_left = self.end_overdue(id, now);
        self.serve_waiting(None, now);
        if self.tubes.contains(tube) {
            self.remove_tube_if_idle(tube);
        }
        has_left
    }

    /// Ends the job if its time is over; returns whether it has left its collection. The caller serves waiting clients,
    /// and removes the tube of the job if it is idle. The tag comes first: in its dead tube, the job would expire at
    /// once, or go to a waiting client.
    #[cold]
    pub(crate) fn end_overdue(&mut self, id: JobId, now: Timestamp) -> bool {
        if self.has_expired(id, now) {
            self.expire(id, now);
            return true;
        }
        self.is_too_old(id, now) && self.end_age(id, now)
    }

    /// Deletes a job that has expired.
    fn expire(&mut self, id: JobId, now: Timestamp) {
        debug_assert!(!self.is_linked_as(id, JobState::Reserved), "a job that was reserved does not expire");
        let link = self.jobs.expect_mut(id).link();
        let (_, body) = self.end_marked(id, link, Ending::Expired, now);
        self.rules.expiry.keep_body(body);
    }

    /// Handles a job that is too old; returns whether it has left its collection.
    fn end_age(&mut self, id: JobId, now: Timestamp) -> bool {
        debug_assert!(
            self.is_linked(id) && !self.is_linked_as(id, JobState::Reserved),
            "no client has reserved the job"
        );
        self.stop_aging(id);
        if self.has_dead_tube(id) && self.stays_where_it_is(id) && !self.admit_to_dead_tube(id) {
            return false;
        }
        let was_held = self.jobs.expect(id).has(Marks::HELD);
        self.unlink(id);
        if !self.remove_too_old(id, now) {
            if was_held {
                self.note_free(id);
            }
            self.note(Change::Postponable(id));
            self.bury_poisoned(id);
        }
        true
    }

    /// Removes a job that is in no collection from its tube, because it is too old: it goes to the dead tube, or is
    /// deleted if there is none. Returns false if the dead tube cannot take it; then the caller must bury it.
    pub(crate) fn remove_too_old(&mut self, id: JobId, now: Timestamp) -> bool {
        if self.has_dead_tube(id) {
            return self.send_to_dead_tube(id, now);
        }
        self.remove_expired(id, now);
        true
    }

    /// Handles the oldest job of the tube, which is too old.
    pub(crate) fn end_first_age(&mut self, tube: TubeKey, now: Timestamp) {
        let ruled = self.tubes.get(tube).ruled.as_ref();
        let Some((_, id)) = ruled.and_then(|ruled| ruled.ages.first()) else { return };
        debug_assert!(
            self.tubes.get(tube).age_ends_at().is_some_and(|at| at <= now),
            "no job is removed before it is too old"
        );
        self.end_in_time(id, now);
    }

    /// Deletes a job that is in no collection, because its time is over.
    pub(crate) fn remove_expired(&mut self, id: JobId, now: Timestamp) {
        debug_assert!(!self.is_linked(id), "a job that ends was taken out of its collection");
        let body = self.remove_marked(id, None, Ending::Expired, now);
        self.rules.expiry.keep_body(body);
    }

    /// Sends a job, which is in no collection, to the dead tube of its tube; returns whether that was possible.
    pub(crate) fn send_to_dead_tube(&mut self, id: JobId, now: Timestamp) -> bool {
        if !self.admit_to_dead_tube(id) || self.make_room_for_one_tube().is_err() {
            return false;
        }
        self.stop_aging(id);
        let from = self.jobs.expect(id).tube;
        let name = self.tubes.get(from).name.clone();
        if self.mark_dead(id, (&name).into(), now).is_err() {
            return false;
        }
        let rule = self.rule_of(id).cloned();
        let target = rule.as_ref().and_then(|rule| rule.dead_tube.as_deref());
        let target = self.tubes.find_or_make(target.expect("the rule of a dead job names a dead tube"));
        self.jobs.expect_mut(id).tube = target;
        self.moved_marked(id, from);
        self.flushes.note_arrival(id, target);
        self.note(Change::Died(id));
        self.sums.dead += 1;
        if let Some(ruled) = &mut self.tubes.get_mut(from).ruled {
            ruled.dead += 1;
        }
        self.make_ready(id, now);
        debug_assert!(
            self.tags(id).is_some_and(|tags| tags.dead().is_some()),
            "a job in a dead tube is dead"
        );
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::NS_PER_S;
    use crate::job::Priority;
    use crate::tags::{After, Idempotency, TagSet};
    use crate::testing::{NOW, TestJob, con};
    use crate::{ClientId, Duplicate, Reserve, ReserveMode, TubeRule, WaitOutcome};

    const END: Timestamp = Timestamp(NOW.0 + 10 * NS_PER_S);
    /// More than one call of `advance` or of `reserve` ends.
    const CROWD: usize = 500;

    /// What ends the time of a job.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum By {
        Tag,
        Age,
        AgeWithDeadTube,
        AgeWithFullDeadTube,
        AgeOfFairTube,
    }

    const ALL: [By; 5] = [By::Tag, By::Age, By::AgeWithDeadTube, By::AgeWithFullDeadTube, By::AgeOfFairTube];

    struct OverdueTube {
        queue: Queue,
        producer: ClientId,
        worker: ClientId,
        by: By,
    }

    impl OverdueTube {
        /// A worker and a producer for the tube `work`, in which the time of a job ends after 10 seconds.
        fn new(by: By) -> Self {
            let mut queue = Queue::default();
            let has_dead_tube = matches!(by, By::AgeWithDeadTube | By::AgeWithFullDeadTube);
            let rule = TubeRule {
                max_age_s: (by != By::Tag).then_some(10),
                dead_tube: has_dead_tube.then(|| "dead".into()),
                is_fair: by == By::AgeOfFairTube,
                ..TubeRule::new("work")
            };
            let max_jobs = (by == By::AgeWithFullDeadTube).then_some(1);
            queue.apply_rules(vec![rule, TubeRule { max_jobs, ..TubeRule::new("dead") }], NOW);
            let (producer, worker) = (queue.connect(), queue.connect());
            queue.use_tube(producer, "work");
            queue.watch(worker, "work");
            Self { queue, producer, worker, by }
        }

        fn put(&mut self, priority: u32, delay_s: u32, tags: TagSet<'_>, now: Timestamp) -> JobId {
            let expires_after_s = (self.by == By::Tag).then(|| 10.into());
            let tags = TagSet { expires_after_s, ..tags };
            let job = TestJob { priority, delay_s, tags, ..TestJob::default() };
            job.put(&mut self.queue, self.producer, now)
        }

        /// Puts jobs that are ready, and handles a share of those whose time is over.
        fn with_crowd(by: By, delay_s: u32) -> Self {
            let mut crowd = Self::new(by);
            (0..CROWD).for_each(|_| _ = crowd.put(5, delay_s, TagSet::default(), NOW));
            crowd
        }

        fn advance(&mut self) {
            assert!(self.queue.advance(END).has_more, "there are more than one call handles");
            self.queue.check_invariants();
        }

        fn reserve(&mut self) -> Reserve {
            loop {
                let reserve = self.queue.reserve(self.worker, Some(0.into()), END);
                self.queue.check_invariants();
                if reserve != Reserve::Unfinished {
                    return reserve;
                }
            }
        }

        /// Handles everything that is due; returns the deliveries to waiting clients.
        fn finish(&mut self) -> Vec<WaitOutcome> {
            let mut outcomes = Vec::new();
            while self.queue.next_deadline().is_some_and(|at| at <= END) {
                self.queue.advance(END);
                outcomes.extend(std::iter::from_fn(|| self.queue.poll_delivery()).map(|given| given.outcome));
            }
            self.queue.check_invariants();
            outcomes
        }
    }

    #[test]
    fn a_reserve_takes_the_first_unexpired_job_while_a_crowd_is_being_removed() {
        for by in ALL {
            for mode in [ReserveMode::Fifo, ReserveMode::Weighted] {
                for tubes in [0, 20] {
                    let mut crowd = OverdueTube::with_crowd(by, 0);
                    crowd.queue.set_reserve_mode(crowd.worker, mode);
                    (0..tubes).for_each(|at| _ = crowd.queue.watch(crowd.worker, &format!("t{at}")));
                    let young = crowd.put(9, 0, TagSet::default(), END);
                    crowd.advance();
                    assert_eq!(crowd.reserve(), Reserve::Job(young), "{by:?} {mode:?} {tubes}");
                    assert_eq!(crowd.reserve(), Reserve::TimedOut, "{by:?} {mode:?} {tubes}");
                    crowd.finish();
                    assert_eq!(crowd.reserve(), Reserve::TimedOut);
                }
            }
        }
    }

    #[test]
    fn a_reserve_that_finds_only_jobs_whose_time_is_over_ends_few_of_them_at_once() {
        let mut crowd = OverdueTube::with_crowd(By::Age, 0);
        crowd.advance();
        let before = crowd.queue.figures().jobs.ready;
        assert_eq!(crowd.queue.reserve(crowd.worker, Some(0.into()), END), Reserve::Unfinished);
        let ended = before - crowd.queue.figures().jobs.ready;
        assert!((1..=100).contains(&ended), "{ended} jobs");
    }

    #[test]
    fn the_end_of_a_pause_or_a_delay_or_a_new_token_delivers_no_expired_job() {
        for by in ALL {
            // The end of the delay is noticed too late.
            let mut delayed = OverdueTube::with_crowd(by, 9);
            assert_eq!(delayed.queue.reserve(delayed.worker, None, NOW), Reserve::Waiting);
            assert_eq!(delayed.finish(), [], "{by:?}: delayed");

            let mut paused = OverdueTube::with_crowd(by, 0);
            paused.queue.pause_tube("work", 9.into(), NOW);
            assert_eq!(paused.queue.reserve(paused.worker, None, NOW), Reserve::Waiting);
            assert_eq!(paused.finish(), [], "{by:?}: paused");
        }
        let mut kept = OverdueTube::new(By::Age);
        let rate = Some(crate::Rate { tokens: 1, period_ns: 9 * NS_PER_S, burst: 1 });
        kept.queue.set_tube_rules(vec![TubeRule { rate, max_age_s: Some(10), ..TubeRule::new("work") }], NOW);
        kept.queue.advance(NOW);
        let ids = [(); 50].map(|()| kept.put(0, 0, TagSet::default(), NOW));
        assert_eq!(kept.queue.reserve(kept.worker, None, NOW), Reserve::Job(ids[0]));
        assert_eq!(kept.queue.reserve(kept.worker, None, NOW), Reserve::Waiting);
        assert_eq!(kept.finish(), []);
    }

    #[test]
    fn a_slot_or_a_group_that_becomes_free_delivers_no_expired_job() {
        for by in [By::Tag, By::Age, By::AgeWithDeadTube] {
            let mut crowd = OverdueTube::new(by);
            let tags = TagSet { group: Some("g".try_into().unwrap()), ..con("k", 1) };
            let first = crowd.put(0, 0, tags, NOW);
            assert!(crowd.queue.reserve_job(crowd.worker, first, NOW));
            let waiting = crowd.queue.connect();
            crowd.queue.watch(waiting, "work");
            assert_eq!(crowd.queue.reserve(waiting, None, NOW), Reserve::Waiting);
            (0..50).for_each(|_| _ = crowd.put(0, 0, tags, NOW));
            let after = Some(After { group: "h".try_into().unwrap(), is_free: false });
            let member =
                crowd.put(0, 1000, TagSet { group: Some("h".try_into().unwrap()), ..TagSet::default() }, END);
            (0..50).for_each(|_| _ = crowd.put(0, 0, TagSet { after, ..TagSet::default() }, NOW));
            crowd.advance();
            crowd.queue.delete(crowd.producer, member, END).expect("it is delayed");
            crowd.queue.delete(crowd.worker, first, END).expect("it is reserved");
            crowd.queue.check_invariants();
            assert_eq!(crowd.finish(), [], "{by:?}");
        }
    }

    #[test]
    fn a_command_finds_a_job_whose_time_is_over_where_it_would_be_in_time() {
        for by in [By::Tag, By::Age, By::AgeWithDeadTube] {
            let mut crowd = OverdueTube::with_crowd(by, 0);
            let [kicked, delayed, moved, urged, reserved] =
                [600, 600, 0, 0, 0].map(|delay_s| crowd.put(9, delay_s, TagSet::default(), NOW));
            crowd.advance();
            let waiting = crowd.queue.connect();
            crowd.queue.watch(waiting, "other");
            crowd.queue.ignore(waiting, "default");
            assert_eq!(crowd.queue.reserve(waiting, None, END), Reserve::Waiting);
            assert!(!crowd.queue.kick(kicked, END), "{by:?}");
            assert!(!crowd.queue.set_delay(delayed, 0.into(), END, END), "{by:?}");
            assert!(!crowd.queue.move_job(moved, "other", END), "{by:?}");
            assert!(!crowd.queue.set_priority(urged, Priority(0), END), "{by:?}");
            let is_reserved = crowd.queue.reserve_job(crowd.worker, reserved, END);
            assert_eq!(is_reserved, by == By::AgeWithDeadTube, "{by:?}");
            crowd.queue.check_invariants();
            for id in [kicked, delayed, moved, urged, reserved] {
                let tube = crowd.queue.job(id).map(|job| job.tube.as_str().to_owned());
                assert_eq!(tube.as_deref(), is_reserved.then_some("dead"), "{by:?}");
            }
            assert_eq!(crowd.finish(), [], "{by:?}");
        }
    }

    #[test]
    fn the_key_of_a_job_whose_time_is_over_is_free() {
        let key = Some(Idempotency { key: "k".try_into().unwrap(), cooldown_s: 0.into() });
        let tags = TagSet { idempotency: key, ..TagSet::default() };
        for by in [By::Tag, By::Age, By::AgeWithDeadTube, By::AgeWithFullDeadTube] {
            let mut crowd = OverdueTube::with_crowd(by, 0);
            let first = crowd.put(9, 0, tags, NOW);
            crowd.queue.use_tube(crowd.producer, "other");
            let other = crowd.put(9, 0, tags, END);
            crowd.advance();
            let is_buried = by == By::AgeWithFullDeadTube;
            assert_eq!(crowd.queue.duplicate_in(other, "work", END), is_buried.then_some(first), "{by:?}");
            crowd.queue.use_tube(crowd.producer, "work");
            let duplicate = is_buried.then_some(Duplicate::Of(first, JobState::Buried));
            assert_eq!(crowd.queue.duplicate(crowd.producer, None, &tags, END), duplicate, "{by:?}");
            crowd.queue.check_invariants();
            crowd.finish();
        }
        let mut crowd = OverdueTube::with_crowd(By::Age, 0);
        crowd.put(9, 0, tags, NOW);
        crowd.advance();
        assert_eq!(crowd.queue.duplicate(crowd.producer, None, &tags, END), None);
        crowd.put(9, 0, tags, END);
        crowd.queue.check_invariants();
    }

    #[test]
    fn a_reload_that_makes_a_crowd_too_old_is_in_force_for_the_next_reserve() {
        let mut crowd = OverdueTube::new(By::Age);
        crowd.queue.set_tube_rules(vec![TubeRule { max_age_s: Some(60), ..TubeRule::new("work") }], NOW);
        let ids = [(); 50].map(|()| crowd.put(0, 0, TagSet::default(), NOW));
        crowd.finish();
        assert_eq!(crowd.reserve(), Reserve::Job(ids[0]));
        crowd.queue.set_tube_rules(vec![TubeRule { max_age_s: Some(10), ..TubeRule::new("work") }], END);
        assert_eq!(crowd.reserve(), Reserve::TimedOut);
    }

    #[test]
    fn nothing_is_checked_in_fair_tubes_whose_jobs_do_not_age() {
        let mut queue = Queue::default();
        queue.apply_rules(vec![TubeRule { is_fair: true, ..TubeRule::new("*") }], NOW);
        let client = queue.connect();
        for delay_s in [0, 1] {
            TestJob { delay_s, ..TestJob::default() }.put(&mut queue, client, NOW);
        }
        queue.note_overdue(END);
        assert!(!queue.rules.must_refresh_heads(), "only a delay is over");
    }

    #[test]
    fn nothing_is_checked_while_no_time_is_over() {
        for by in ALL {
            let mut crowd = OverdueTube::with_crowd(by, 0);
            crowd.queue.advance(END.minus_ns(1));
            assert!(!crowd.queue.rules.must_refresh_heads(), "{by:?}");
            crowd.advance();
            assert!(crowd.queue.rules.must_refresh_heads(), "{by:?}");
            crowd.finish();
            assert!(!crowd.queue.rules.must_refresh_heads(), "{by:?}");
        }
    }
}
