//! Clients that watch many tubes: their reserves do not probe every tube.
//!
//! Owns: the list of such a client, and its search for the most urgent job. `state/many_tubes.rs` has what the client
//! knows about its tubes, `state/subscriptions.rs` how it learns that a tube has a more urgent first job. It corrects
//! its knowledge about a tube when that tube comes first.

use beanstalkd_structures::OrderedQueue;

use crate::Queue;
use crate::clock::Timestamp;
use crate::state::keys::{ClientKey, TubeKey};
use crate::state::subscriptions::PROBES_PER_COST;

/// The result of the search of a reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReserveSearch {
    /// The tube with the most urgent job.
    Found(TubeKey),
    /// No tube has a job to reserve.
    Nothing,
    /// There are more tubes than one call probes.
    Unfinished,
}

impl Queue {
    /// Notes that the client has `tube` at `position` of its list from now on. If the list is long now, the client
    /// becomes a client that watches many tubes.
    pub(super) fn index_watched(&mut self, client: ClientKey, tube: TubeKey, position: usize) {
        let record = &mut self.clients[client];
        if let Some(many) = &mut record.many {
            many.set_position(tube, position);
            self.probe(client, tube);
        } else if position >= self.slices.few_tubes {
            let many = record.many.get_or_insert_default();
            for (position, &tube) in record.watching.iter().enumerate() {
                many.set_position(tube, position);
            }
            record.update_is_plain();
            for position in 0..=position {
                self.probe(client, self.clients[client].watching[position]);
            }
        }
    }

    /// Removes the tube at `position` from the client's list; the last tube takes its place, as in C.
    pub(super) fn unwatch(&mut self, client: ClientKey, position: usize) {
        let record = &mut self.clients.records[client.index()];
        let watched = record.watching.len();
        let tube = record.watching.swap_remove(position);
        self.clients.counts.watched -= 1;
        if let Some(many) = &mut record.many {
            if let Some(&moved) = record.watching.get(position) {
                many.set_position(moved, position);
            }
            if many.forget(tube) {
                let subscribers = &mut self.clients.subscribers[tube.index()];
                let found = subscribers.remove(client);
                assert!(found.is_some(), "a client subscribes to each tube that it need not probe");
                if subscribers.is_empty() {
                    // Its memory is freed now: freeing the memory of 300,000 tubes at once would take long.
                    *subscribers = OrderedQueue::default();
                }
            }
        }
        self.forget_weight(client, position, watched);
        debug_assert!(
            self.clients[client].position_of(tube).is_none(),
            "the client does not watch the tube any more"
        );
        self.tubes.get_mut(tube).watching -= 1;
        self.remove_tube_if_idle(tube);
    }

    /// The tube with the most urgent job.
    pub(super) fn search_many(&mut self, client: ClientKey, now: Timestamp) -> ReserveSearch {
        let (mut probes, mut left) = (0, self.slices.probed_tubes);
        let found = loop {
            let many =
                self.clients[client].many.as_mut().expect("only a client that watches many tubes searches");
            if probes == self.slices.probed_tubes {
                break ReserveSearch::Unfinished;
            }
            probes += 1;
            if let Some(tube) = many.next_to_probe() {
                self.probe(client, tube);
                continue;
            }
            let Some((head, tube)) = many.first_head() else { break ReserveSearch::Nothing };
            if self.rules.must_refresh_heads() && !self.refresh_head(tube, &mut left, now) {
                break ReserveSearch::Unfinished;
            }
            let present = self.tubes.get(tube).open_head();
            if present == Some(head) {
                break ReserveSearch::Found(tube);
            }
            if let Some(many) = &mut self.clients[client].many {
                many.set_head(tube, present);
            }
        };
        self.cost += probes as u64 / PROBES_PER_COST;
        found
    }

    /// How many clients that watch many tubes wait for a job of this tube.
    pub(super) fn many_waiting_count(&self, tube: TubeKey) -> usize {
        let Some(subscribers) =
            self.clients.subscribers.get(tube.index()).filter(|_| !self.clients.many_waiting.is_empty())
        else {
            return 0;
        };
        subscribers.iter().filter(|&client| self.clients[client].wait().is_some()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reserve;
    use crate::job::JobId;
    use crate::state::COST_PER_DELIVERY;
    use crate::testing::{NOW, TestJob};

    const TUBES: u64 = 20_000;

    #[test]
    fn a_reserve_over_many_tubes_probes_those_that_have_got_a_job_since_the_last() {
        let mut queue = Queue::default();
        let (worker, other, producer) = (queue.connect(), queue.connect(), queue.connect());
        for tube in 0..TUBES {
            for client in [worker, other] {
                queue.watch(client, &format!("t{tube}"));
            }
        }
        let start = queue.cost();
        for round in 0..1_000u64 {
            assert_eq!(queue.reserve(worker, Some(0.into()), NOW), Reserve::TimedOut);
            queue.use_tube(producer, &format!("t{}", round * 17 % TUBES));
            let id = TestJob::default().put(&mut queue, producer, NOW);
            assert_eq!(queue.reserve(worker, None, NOW), Reserve::Job(id));
            assert!(queue.delete(worker, id, NOW).is_some());
            assert_eq!(queue.reserve(worker, None, NOW), Reserve::Waiting);
            assert!(queue.stop_waiting(worker));
        }
        let cost = queue.cost() - start;
        // Each put reaches both clients, and each probes the tube again: less cost would mean that probes are not
        // counted.
        assert!((1_000..10_000).contains(&cost), "1,000 rounds have cost {cost}");
        queue.check_invariants();
    }

    #[test]
    fn a_job_finds_the_first_of_many_workers_that_wait_without_a_probe_of_all_of_them() {
        const WORKERS: u64 = 500;
        let mut queue = Queue::default();
        let producer = queue.connect();
        let workers: Vec<_> = (0..WORKERS).map(|_| queue.connect()).collect();
        for &worker in &workers {
            for tube in 0..40 {
                queue.watch(worker, &format!("t{tube}"));
            }
            assert_eq!(queue.reserve(worker, None, NOW), Reserve::Waiting);
        }
        queue.use_tube(producer, "t7");
        let start = queue.cost();
        for &worker in &workers {
            TestJob::default().put(&mut queue, producer, NOW);
            assert_eq!(
                queue.poll_delivery().unwrap().client,
                worker,
                "the first to wait is the first to be served"
            );
        }
        let cost = queue.cost() - start - WORKERS * COST_PER_DELIVERY;
        assert!(cost <= WORKERS, "{WORKERS} jobs have cost {cost} beside their deliveries");
        queue.check_invariants();
    }

    #[test]
    fn many_tubes_that_have_got_jobs_are_probed_in_slices() {
        let mut queue = Queue::default();
        let (worker, producer) = (queue.connect(), queue.connect());
        for tube in 0..TUBES {
            queue.watch(worker, &format!("t{tube}"));
            queue.use_tube(producer, &format!("t{tube}"));
            let priority = (TUBES - tube) as u32;
            TestJob { priority, ..TestJob::default() }.put(&mut queue, producer, NOW);
        }
        let mut calls = 0;
        let found = loop {
            calls += 1;
            let before = queue.cost();
            let found = queue.reserve(worker, None, NOW);
            assert!(queue.cost() - before <= 512);
            if found != Reserve::Unfinished {
                break found;
            }
        };
        assert_eq!((found, calls > 10), (Reserve::Job(JobId(TUBES)), true));
        queue.check_invariants();
    }
}
