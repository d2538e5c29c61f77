//! Makes the list of all tubes, a few tubes at a time.
//!
//! Owns: the next tubes of the list, whose position is in `state/tube_listing.rs`. A tube that exists from the request
//! to the end is in the list exactly once. The tubes have the order of `list-tubes`, except for a tube that replaced a
//! removed tube: it is at the position that the list had reached at that moment. A tube that was created after the
//! request is not in the list. Driven by [`Queue`].

use std::mem;

use crate::Queue;
use crate::tube_name::TubeName;

impl Queue {
    /// How often a tube was created or removed. While this number is the same, the list has the same tubes.
    #[must_use]
    pub fn tubes_version(&self) -> u64 {
        self.tubes.version()
    }

    /// The total length of all tubes' names, in bytes.
    #[must_use]
    pub fn tube_name_bytes(&self) -> usize {
        self.tubes.name_bytes()
    }

    /// Begins a list of all tubes. A list in progress is abandoned.
    pub fn begin_listing(&mut self) {
        let listing = &mut self.tubes.listing;
        listing.number = listing.number.wrapping_add(1);
        listing.position = Some(0);
        listing.moved = Vec::new();
    }

    /// Ends the list before it has all tubes.
    pub fn give_up_listing(&mut self) {
        self.tubes.listing.position = None;
        self.tubes.listing.moved = Vec::new();
    }

    /// Examines the next `count` tubes of the current list and calls `each` with the tubes that belong to it; returns
    /// whether these were the last tubes.
    ///
    /// # Errors
    /// The error of `each`. The list is then abandoned.
    pub fn list_next<E>(
        &mut self,
        count: usize,
        mut each: impl FnMut(&TubeName) -> Result<(), E>,
    ) -> Result<bool, E> {
        let number = self.tubes.listing.number;
        let start = self.tubes.listing.position.unwrap_or(usize::MAX);
        let result = mem::take(&mut self.tubes.listing.moved).iter().try_for_each(&mut each).and_then(|()| {
            self.tubes.each_in_order(start, count, |tube| {
                let is_listed = mem::replace(&mut tube.listed, number) == number;
                if is_listed { Ok(()) } else { each(&tube.name) }
            })
        });
        let end = start.saturating_add(count);
        let is_over = result.is_err() || end >= self.tubes.len();
        self.tubes.listing.position = (!is_over).then_some(end);
        result.map(|()| is_over)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::convert::Infallible;

    use beanstalkd_types::random::Generator;

    use crate::clock::Timestamp;
    use crate::{ClientId, Queue};

    fn slice(queue: &mut Queue, count: usize, listed: &mut Vec<String>) -> bool {
        let Ok(is_over) = queue.list_next(count, |name| {
            listed.push(name.as_str().to_owned());
            Ok::<_, Infallible>(())
        });
        is_over
    }

    fn names(queue: &Queue) -> Vec<String> {
        queue.tube_names().map(|name| name.as_str().to_owned()).collect()
    }

    #[test]
    fn a_list_without_changes_is_the_order_of_list_tubes() {
        let mut queue = Queue::default();
        let client = queue.connect();
        for number in 0..100 {
            queue.watch(client, &format!("t{number}"));
        }
        for number in 0..30 {
            queue.ignore(client, &format!("t{}", 3 * number));
        }
        for count in [1, 7, 1_000] {
            let mut listed = Vec::new();
            queue.begin_listing();
            while !slice(&mut queue, count, &mut listed) {}
            assert_eq!(listed, names(&queue));
        }
    }

    #[test]
    fn a_list_of_another_version_may_have_other_tubes() {
        let mut queue = Queue::default();
        let client = queue.connect();
        let mut seen = BTreeSet::from([queue.tubes_version()]);
        for (watch, name) in [(true, "a"), (true, "b"), (false, "a"), (true, "c"), (false, "b"), (true, "b")]
        {
            if watch {
                queue.watch(client, name);
            } else {
                queue.ignore(client, name);
            }
            assert!(seen.insert(queue.tubes_version()), "{name} has come or gone");
        }
        queue.watch(client, "b");
        assert!(!seen.insert(queue.tubes_version()), "it was watched before");
    }

    #[test]
    fn lasting_tubes_are_listed_once_and_tubes_that_come_and_go_at_most_once() {
        let mut generator = Generator::new(11);
        let mut random = move |below: u64| generator.draw() % below;
        for _ in 0..300 {
            let mut queue = Queue::default();
            let clients: Vec<ClientId> = (0..4).map(|_| queue.connect()).collect();
            let tubes = 1 + random(60);
            for _ in 0..tubes {
                queue.watch(clients[random(3) as usize], &format!("t{}", random(80)));
            }
            let start: BTreeSet<String> = names(&queue).into_iter().collect();
            let mut steady = start.clone();
            let mut listed = Vec::new();
            queue.begin_listing();
            while !slice(&mut queue, 1 + random(5) as usize, &mut listed) {
                for _ in 0..random(8) {
                    let (client, name) = (clients[random(3) as usize], format!("t{}", random(80)));
                    match random(3) {
                        0 => {
                            queue.watch(client, &name);
                        }
                        _ => {
                            queue.ignore(client, &name);
                        }
                    }
                    let now: BTreeSet<String> = names(&queue).into_iter().collect();
                    steady.retain(|name| now.contains(name));
                }
            }
            let once: BTreeSet<String> = listed.iter().cloned().collect();
            assert_eq!(once.len(), listed.len(), "no name stands there twice: {listed:?}");
            assert!(once.is_superset(&steady), "{steady:?} in {once:?}");
            assert!(once.is_subset(&start), "nothing is listed that came later");
            clients.into_iter().for_each(|client| queue.disconnect(client, Timestamp(1)));
        }
    }
}
