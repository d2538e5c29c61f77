//! Pages: the jobs of a tube in one state, some at a time, in the order of that state.
//!
//! Owns: the contents of a page, and its end. The position of a job in the order is a number and its id: the priority
//! of a ready job, parked or not, the deadline of a delayed or reserved one, the number of a burial. Held jobs come
//! after the delayed ones, ordered by the end of their delay. A job that keeps its position while a client goes from
//! page to page is on exactly one page, whatever other clients do.
//!
//! A tube has no index of its reserved jobs: every reserve and delete would pay for it. Instead, a search goes through
//! the reservations of all clients, which are in order for each client, a few in each call. The reservations of
//! sessions come last: so a reservation that joins a session, at any time, is found in one of the two places. Driven by
//! the server.

use std::collections::BTreeSet;

use beanstalkd_structures::merged;

use crate::Queue;
use crate::clock::Timestamp;
use crate::job::{JobId, JobState, Position, Priority};
use crate::state::jobs::Marks;
use crate::state::keys::{ClientKey, DueKey, ReadyKey, Reservation, TubeKey};
use crate::tube_name::TubeName;

/// The memory of a position that a search has found, in bytes. The nodes of the set may be half empty.
const FOUND_BYTES: usize = 64;

/// The jobs of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The positions of the jobs, in order.
    pub jobs: Vec<Position>,
    /// The position of the last job, if more follow.
    pub next: Option<Position>,
}

/// The order of reserved jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageOrder {
    /// By the end of the reservation.
    Deadline,
    /// By its beginning.
    Since,
}

/// A search for a page of reserved jobs.
#[derive(Debug)]
pub struct Search {
    tube: TubeName,
    order: PageOrder,
    after: Option<Position>,
    limit: usize,
    /// The client whose reservations are probed, and the last reservation that was probed.
    client: Probed,
    last: Option<Reservation>,
    /// The first positions so far.
    first: BTreeSet<Position>,
    /// Whether there are more after these.
    has_more: bool,
    /// How many clients and reservations it has probed.
    probes: u64,
}

/// A client that is probed. A reservation goes from one client to another only if it joins a session, which keeps it.
#[derive(Clone, Copy, Debug)]
enum Probed {
    /// The client at this index, unless it is a session.
    Client(usize),
    /// Then the session at this index, or the next one.
    Session(ClientKey),
}

impl Search {
    /// A page of at most `limit` of the tube's jobs, all after the position `after`.
    #[must_use]
    pub fn new(tube: TubeName, order: PageOrder, after: Option<Position>, limit: usize) -> Self {
        let (first, has_more) = (BTreeSet::new(), false);
        Self { tube, order, after, limit, client: Probed::Client(0), last: None, first, has_more, probes: 0 }
    }

    /// How many clients and reservations it has probed.
    #[must_use]
    pub fn probes(&self) -> u64 {
        self.probes
    }

    /// The memory of the positions that it has found, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.first.len() * FOUND_BYTES
    }

    /// The tube whose jobs are searched for.
    #[must_use]
    pub fn tube(&self) -> &TubeName {
        &self.tube
    }

    /// The page, when the search is complete. Some of its jobs may have left the tube or the state in the meantime.
    #[must_use]
    pub fn into_page(self) -> Page {
        let next = self.first.last().copied().filter(|_| self.has_more);
        Page { jobs: self.first.into_iter().collect(), next }
    }

    /// Takes a job of the tube into account; returns whether later jobs of the same client matter.
    fn consider(&mut self, position: Position) -> bool {
        // A job that has joined a session since it was found is found again.
        if self.after.is_some_and(|after| position <= after) || self.first.contains(&position) {
            return true;
        }
        if self.first.len() == self.limit {
            self.has_more = true;
            if self.first.last().is_none_or(|&last| last < position) {
                return self.order != PageOrder::Deadline;
            }
            self.first.pop_last();
        }
        self.first.insert(position);
        true
    }

    /// Whether no reservation that ends at `until` or later can be on the page.
    fn is_beyond(&self, until: Timestamp, id: JobId) -> bool {
        self.order == PageOrder::Deadline
            && self.has_more
            && self.first.last().is_some_and(|&last| last < Position { is_held: false, number: until.0, id })
    }
}

impl Queue {
    /// The tube's jobs in this state (not reserved) after the position `after`; `None` if there is no such tube.
    #[must_use]
    pub fn page(&self, tube: &str, state: JobState, after: Option<Position>, limit: usize) -> Option<Page> {
        let tube = self.tubes.get(self.tubes.find(tube)?);
        let after = after.unwrap_or_default();
        Some(match state {
            JobState::Ready => {
                let priority = Priority(u32::try_from(after.number).unwrap_or(u32::MAX));
                let after = ReadyKey::new(priority, after.id);
                let position = |key: ReadyKey| Position {
                    is_held: false,
                    number: key.priority().0.into(),
                    id: key.job(),
                };
                let parked = tube.tag_state().map(|tagged| tagged.parked.iter_after(after));
                let ready = merged(tube.ready.iter_after(after), parked.into_iter().flatten(), |&key| key);
                collect(ready.map(position), limit)
            }
            JobState::Delayed => {
                let Position { is_held, number, id } = after;
                let after = (Timestamp(number), id);
                let delayed = (!is_held).then(|| tube.delayed.iter_after(after));
                let from = if is_held { after } else { (Timestamp::default(), JobId(0)) };
                let held = tube.tag_state().map(|tagged| tagged.held.iter_after(from));
                let position = |is_held| move |(until, id): DueKey| Position { is_held, number: until.0, id };
                let delayed = delayed.into_iter().flatten().map(position(false));
                let held = held.into_iter().flatten().map(position(true));
                collect(delayed.chain(held), limit)
            }
            JobState::Buried => {
                let position = |(number, id)| Position { is_held: false, number, id };
                collect(tube.buried.iter_after((after.number, after.id)).map(position), limit)
            }
            JobState::Reserved => Page::default(),
        })
    }

    /// Continues a search for at most `left` probes of clients and reservations; returns whether it is complete.
    pub fn search_reserved(&self, search: &mut Search, mut left: usize) -> bool {
        let Some(tube) = self.tubes.find(search.tube.as_str()) else { return true };
        if self.tubes.get(tube).reserved == 0 {
            return true;
        }
        while let Some(index) = self.next_to_search(search) {
            if left == 0 {
                return false;
            }
            left -= 1;
            search.probes += 1;
            if self.search_client(index, search, tube, &mut left) {
                search.client = match search.client {
                    Probed::Client(index) => Probed::Client(index + 1),
                    Probed::Session(ClientKey(index)) => Probed::Session(ClientKey(index + 1)),
                };
                search.last = None;
            }
        }
        true
    }

    /// The index that is probed next; `None` if the search is complete.
    fn next_to_search(&self, search: &mut Search) -> Option<usize> {
        if let Probed::Client(index) = search.client {
            if index < self.clients.records.capacity() {
                return Some(index);
            }
            search.client = Probed::Session(ClientKey(0));
        }
        let Probed::Session(from) = search.client else { return None };
        let (&session, _) = self.sessions.records.range(from..).next()?;
        if session != from {
            (search.client, search.last) = (Probed::Session(session), None);
        }
        Some(session.index())
    }

    /// Probes reservations of one client; returns whether none of its other reservations can be on the page.
    fn search_client(&self, index: usize, search: &mut Search, tube: TubeKey, left: &mut usize) -> bool {
        let is_session = matches!(search.client, Probed::Session(_));
        let client = self.clients.records.get(index).filter(|client| client.is_session() == is_session);
        let Some(client) = client else { return true };
        let start = search.last.or(match (search.order, search.after) {
            (PageOrder::Deadline, Some(after)) => Some(Reservation::key(Timestamp(after.number), after.id)),
            _ => None,
        });
        let start = start.unwrap_or(Reservation::key(Timestamp::default(), JobId(0)));
        for reservation in client.reserved.iter_after(start) {
            if search.is_beyond(reservation.until, reservation.id) {
                return true;
            }
            if *left == 0 {
                return false;
            }
            *left -= 1;
            search.probes += 1;
            search.last = Some(reservation);
            let Reservation { until, id, since } = reservation;
            let is_here = self.jobs.get(id).is_some_and(|job| job.tube == tube);
            let at = if search.order == PageOrder::Deadline { until } else { since };
            if is_here && !search.consider(Position { is_held: false, number: at.0, id }) {
                return true;
            }
        }
        true
    }

    /// The position of the job in the order of its state.
    #[must_use]
    pub fn position(&self, id: JobId) -> Option<Position> {
        let job = self.jobs.get(id)?;
        let is_ready = job.state() == JobState::Ready;
        let number = if is_ready { job.priority.0.into() } else { job.collection().number().into() };
        Some(Position { is_held: job.has(Marks::HELD), number, id })
    }
}

/// The jobs at the first positions, and whether there are more.
fn collect(mut positions: impl Iterator<Item = Position>, limit: usize) -> Page {
    let mut jobs = Vec::with_capacity(limit);
    jobs.extend(positions.by_ref().take(limit));
    let next = jobs.last().copied().filter(|_| positions.next().is_some());
    Page { jobs, next }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reserve;
    use crate::testing::{NOW, TestJob};

    #[test]
    fn a_page_of_reserved_jobs_searches_no_further_than_it_has_to() {
        let mut queue = Queue::default();
        let (producer, worker) = (queue.connect(), queue.connect());
        for _ in 0..20_000 {
            let id = TestJob::default().put(&mut queue, producer, NOW);
            assert_eq!(queue.reserve(worker, None, NOW), Reserve::Job(id));
        }
        let tube = queue.tube_name("default").unwrap().clone();
        let mut after = None;
        for page in 0..200 {
            let mut search = Search::new(tube.clone(), PageOrder::Deadline, after, 100);
            assert!(queue.search_reserved(&mut search, 1_000_000));
            assert!(search.probes() < 120, "{} probes", search.probes());
            let found = search.into_page();
            assert_eq!((found.jobs[0].id, found.jobs.len()), (JobId(page * 100 + 1), 100));
            after = found.next;
        }
        assert_eq!(after, None);
    }
}
