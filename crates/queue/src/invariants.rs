//! The invariants of the whole queue between two commands, checked by tests and debug builds.
//!
//! Each function with checks is `#[inline]`, because such a function is compiled only where it is called. A release
//! build of the server calls none, so it compiles none; tests in release builds have them.

use std::collections::HashMap;

use beanstalkd_structures::Timer;

use crate::clock::Timestamp;
use crate::seconds::Seconds;
use crate::state::jobs::{Collection, Marks};
use crate::state::keys::{ClientKey, ReadyKey, Reservation};
use crate::state::tubes::{DEFAULT, Tube};
use crate::{JobCounts, Queue};

impl Queue {
    /// Asserts every invariant; the cost grows with the whole state.
    ///
    /// # Panics
    /// If an invariant does not hold.
    #[inline]
    pub fn check_invariants(&self) {
        let counts = self.check_tubes();
        assert_eq!(counts, self.sums.jobs, "the counts are the sums over all tubes");
        let total = counts.ready + counts.reserved + counts.delayed + counts.buried;
        assert_eq!(total, self.jobs.len() as u64, "each job is in exactly one state");
        self.check_jobs();
        self.check_clients();
        self.check_many_tubes();
        self.check_reserve_settings();
        self.check_flushes();
        self.check_rules();
        self.check_sessions();
    }

    #[inline]
    fn check_tubes(&self) -> JobCounts {
        let mut counts = JobCounts::default();
        let mut names = HashMap::new();
        let name_bytes: usize = self.tubes.iter().map(|tube| tube.name.as_bytes().len()).sum();
        assert_eq!(name_bytes, self.tubes.name_bytes());
        self.tubes.check_ruled_bytes();
        for tube in self.tubes.iter() {
            let key = self.tubes.find(tube.name.as_str()).expect("a listed tube is found by its name");
            assert!(names.insert(tube.name.as_str(), key).is_none(), "a name is listed once");
            // A reload removes at its end the tubes that it has made idle.
            let may_be_idle = key == DEFAULT || self.is_reloading_rules();
            assert!(may_be_idle || !tube.is_idle(), "{}: an idle tube is removed", tube.name);
            assert!(
                !tube.is_open() || tube.ready.is_empty() || tube.waiting.is_empty(),
                "{}: an open tube has ready jobs that may be reserved or waiting clients, never both",
                tube.name
            );
            // A gate that may be open is handled at once, without its timer.
            if !self.rules.tubes.to_open.contains(&key) {
                self.check_deadline(Timer::Tube(key));
            }
            let urgent = tube.ready.iter().filter(|key| {
                let job = self.jobs.get(key.job()).expect("a ready job exists");
                assert_eq!(*key, ReadyKey::new(job.priority, key.job()));
                assert!(matches!(job.collection(), Collection::Ready(_)) && !job.has(Marks::PARKED));
                job.priority.is_urgent()
            });
            let (parked, held) = self.check_tagged_in(tube);
            assert_eq!(
                urgent.count() as u32 + parked.urgent as u32,
                tube.urgent,
                "the urgent count is that of the ready jobs"
            );
            for (until, id) in tube.delayed.iter() {
                let job = self.jobs.get(id).expect("a delayed job exists");
                assert_eq!(job.collection(), Collection::Delayed(until.0.into()));
                assert!(!job.has(Marks::HELD));
            }
            for (number, id) in tube.buried.iter() {
                let job = self.jobs.get(id).expect("a buried job exists");
                assert_eq!(job.collection(), Collection::Buried(number.into()));
            }
            for (number, client) in tube.waiting.iter() {
                let client = &self.clients[client];
                assert_eq!(client.wait().map(|wait| wait.number.get()), Some(number));
                assert!(client.watching.contains(&key));
            }
            counts.urgent += u64::from(tube.urgent);
            counts.ready += tube.ready.len() as u64 + parked.ready;
            counts.reserved += u64::from(tube.reserved);
            counts.delayed += tube.delayed.len() as u64 + held;
            counts.buried += tube.buried.len() as u64;
        }
        counts
    }

    /// Checks the jobs of the tube that may not be reserved; returns the counts of the parked ones, and the number of
    /// held ones.
    #[inline]
    fn check_tagged_in(&self, tube: &Tube) -> (JobCounts, u64) {
        let mut parked = JobCounts::default();
        let Some(tagged) = tube.tag_state() else { return (parked, 0) };
        for key in tagged.parked.iter() {
            let job = self.jobs.get(key.job()).expect("a parked job exists");
            assert_eq!(key, ReadyKey::new(job.priority, key.job()));
            assert!(matches!(job.collection(), Collection::Ready(_)) && job.has(Marks::PARKED));
            parked.ready += 1;
            parked.urgent += u64::from(job.priority.is_urgent());
        }
        for (until, id) in tagged.held.iter() {
            let job = self.jobs.get(id).expect("a held job exists");
            assert_eq!(job.collection(), Collection::Delayed(until.0.into()));
            assert!(job.has(Marks::HELD));
        }
        (parked, tagged.held.len() as u64)
    }

    #[inline]
    fn check_jobs(&self) {
        for id in self.jobs.ids() {
            let job = self.jobs.get(id).expect("an indexed job exists");
            let tube = self.tubes.get(job.tube);
            let history = self.jobs.history(job);
            assert_eq!(history.holder.is_some(), matches!(job.collection(), Collection::Reserved(_)));
            assert!(job.marks.are_possible_in(job.state()), "{id:?} has {:?}", job.marks);
            assert!(job.ttr() >= Seconds::ONE, "a time to run is at least a second");
            assert!(id.0 < self.numbers.next_id, "ids are given in ascending order");
            assert!(tube.counters().deletes <= self.sums.events.deletes);
        }
    }

    #[inline]
    fn check_clients(&self) {
        let (mut reserved, mut waiting, mut using, mut watching) = (0, 0, HashMap::new(), HashMap::new());
        let mut unconnected = 0;
        for (index, client) in &self.clients.records {
            let key = ClientKey(index as u32);
            let is_leaving = self.clients.leaving.contains(&key);
            assert_eq!(client.is_leaving, is_leaving, "a client that leaves is among the leaving ones");
            if client.has_connection() {
                assert!(is_leaving || !client.watching.is_empty(), "a client watches at least one tube");
                *using.entry(client.using).or_insert(0) += 1;
            } else {
                assert!(client.watching.is_empty() && (client.is_session() || client.reserved.is_empty()));
                assert_eq!(client.using, DEFAULT, "nothing keeps the tube of a client without a connection");
                unconnected += usize::from(!is_leaving);
            }
            assert!(!is_leaving || client.wait().is_none(), "a client that leaves does not wait");
            for &tube in &client.watching {
                *watching.entry(tube).or_insert(0) += 1;
            }
            waiting += u64::from(client.wait().is_some());
            for Reservation { until, id, .. } in client.reserved.iter() {
                let job = self.jobs.get(id).expect("a reserved job exists");
                assert_eq!(job.collection(), Collection::Reserved(until.0.into()));
                assert_eq!(self.jobs.history(job).holder, Some(key));
                reserved += 1;
            }
            if let Some(wait) = client.wait() {
                assert!(wait.until > Timestamp::default());
            }
            let timer = Timer::Client(key);
            if is_leaving {
                assert_eq!(self.deadlines.of(timer), None, "a client that leaves has no deadline");
            } else {
                self.check_deadline(timer);
            }
        }
        assert_eq!(unconnected, self.clients.counts.unconnected, "clients without connections are counted");
        let watched: u32 = watching.values().sum();
        assert_eq!(watched as usize, self.clients.counts.watched, "the watch lists are counted");
        assert_eq!(reserved, self.sums.jobs.reserved, "each reserved job has one holder");
        assert_eq!(waiting, self.clients.counts.waiting);
        for tube in self.tubes.iter() {
            let key = self.tubes.find(tube.name.as_str()).expect("a listed tube is found by its name");
            assert_eq!(tube.using, using.get(&key).copied().unwrap_or(0), "{}: using", tube.name);
            assert_eq!(tube.watching, watching.get(&key).copied().unwrap_or(0), "{}: watching", tube.name);
        }
    }
}
