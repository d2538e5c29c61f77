//! Clients that come and go, and the tubes that they use and watch.

use beanstalkd_queue::TubeCounters;
use beanstalkd_types::clock::Timestamp;

use super::{Client, DEFAULT, Model, Tube, TubeIndex};

impl Model {
    pub fn connect(&mut self, index: u32) {
        self.number_is_taken(index);
        self.clients.push(Client {
            index,
            using: DEFAULT,
            watching: vec![DEFAULT],
            wait: None,
            job_wait: None,
            producer: false,
            worker: false,
            is_weighted: false,
        });
    }

    /// Releases the client's jobs in slices of `share` jobs. The reservations that end first are in the first slice;
    /// within a slice, the jobs are ordered by priority.
    pub fn disconnect(&mut self, index: u32, share: usize, now: Timestamp) {
        self.stop_waiting(index);
        self.leave_session(index, now);
        loop {
            let reservations = self.reservations(index, share);
            if reservations.is_empty() {
                break;
            }
            self.give_back_all(reservations.into_iter().map(|(_, id)| id).collect(), now);
        }
        // C's order, which shows in `list-tubes`.
        while !self.client(index).watching.is_empty() {
            let tube = self.client_mut(index).watching.swap_remove(0);
            self.remove_if_idle(tube);
        }
        let using = self.client(index).using;
        self.clients.retain(|client| client.index != index);
        self.remove_if_idle(using);
        self.free_number(index);
    }

    /// Clears the records for tests that compare more than jobs and replies.
    pub fn forget_the_past(&mut self) {
        (self.deliveries, self.changes, self.burials) = Default::default();
        for tube in self.tubes.iter_mut().flatten() {
            (tube.waits, tube.runs) = Default::default();
        }
    }

    pub(crate) fn find_or_make(&mut self, name: &str) -> TubeIndex {
        if let Some(index) = self.find(name) {
            return index;
        }
        let (waits, runs) = (Vec::new(), Vec::new());
        let counters = TubeCounters::default();
        let tube = Tube {
            name: name.to_owned(),
            pause: None,
            pauses: 0,
            counters,
            rejected: 0,
            dead: 0,
            is_closed: false,
            reserved_when_closed: 0,
            deficit: (0, Timestamp(0)),
            rotation: Vec::new(),
            waits,
            runs,
        };
        let index = self.free.pop().unwrap_or_else(|| {
            self.tubes.push(None);
            self.tubes.len() - 1
        });
        self.tubes[index] = Some(tube);
        self.listed.push(index);
        index
    }

    /// Removes the tube if it has no jobs and no client uses or watches it.
    pub(crate) fn remove_if_idle(&mut self, index: TubeIndex) {
        let is_needed = index == DEFAULT
            || self.tubes[index].is_none()
            || self.tube(index).deficit.0 > 0
            || self.jobs.iter().any(|job| job.tube == index)
            || self.cooldowns.iter().any(|cooldown| cooldown.tube == index)
            || self.clients.iter().any(|client| client.using == index || client.watching.contains(&index));
        if !is_needed {
            self.tubes[index] = None;
            self.free.push(index);
            let position = self.listed.iter().position(|&listed| listed == index);
            self.listed.swap_remove(position.expect("each tube is listed"));
        }
    }

    /// Another program numbers the tubes as they are listed. Of deadlines at the same instant, that of the smallest
    /// number comes first.
    pub(crate) fn number_tubes_again(&mut self) {
        let listed = std::mem::take(&mut self.listed);
        let number = |tube: &mut TubeIndex| {
            *tube = listed.iter().position(|listed| listed == tube).expect("each tube is listed");
        };
        self.jobs.iter_mut().for_each(|job| number(&mut job.tube));
        self.cooldowns.iter_mut().for_each(|cooldown| number(&mut cooldown.tube));
        for client in &mut self.clients {
            number(&mut client.using);
            client.watching.iter_mut().for_each(number);
        }
        self.tubes = listed.iter().map(|&tube| self.tubes[tube].take()).collect();
        (self.listed, self.free) = ((0..listed.len()).collect(), Vec::new());
    }

    pub fn use_tube(&mut self, client: u32, name: &str) {
        let tube = self.find_or_make(name);
        let before = std::mem::replace(&mut self.client_mut(client).using, tube);
        self.remove_if_idle(before);
    }

    /// The client uses another tube for one put. Returns its used tube.
    pub fn use_temporarily(&mut self, client: u32, name: &str) -> TubeIndex {
        let tube = self.find_or_make(name);
        std::mem::replace(&mut self.client_mut(client).using, tube)
    }

    pub fn restore_used(&mut self, client: u32, tube: TubeIndex) {
        let other = std::mem::replace(&mut self.client_mut(client).using, tube);
        self.remove_if_idle(other);
    }

    pub fn watch(&mut self, client: u32, name: &str) -> usize {
        let tube = self.find_or_make(name);
        let watching = &mut self.client_mut(client).watching;
        if !watching.contains(&tube) {
            watching.push(tube);
        }
        watching.len()
    }

    pub fn ignore(&mut self, client: u32, name: &str) -> Option<usize> {
        let tube = self.find(name);
        let watching = &mut self.client_mut(client).watching;
        if let Some(position) = watching.iter().position(|&watched| Some(watched) == tube) {
            if watching.len() == 1 {
                return None;
            }
            let tube = watching.swap_remove(position);
            self.remove_if_idle(tube);
        }
        Some(self.client(client).watching.len())
    }
}
