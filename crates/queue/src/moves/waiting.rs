//! Clients that wait in a reserve, and how their waits end.
//!
//! An open tube has either ready jobs that may be reserved or waiting clients, never both: a job that becomes free to
//! be reserved goes directly to the first waiting client, and a client waits only if there is no such job. A tube is
//! open if it is not paused and no rule has closed its gate. Its ready queue has only these jobs; the others are
//! parked ([`crate::rules`]).

use beanstalkd_structures::Timer;

use crate::clock::Timestamp;
use crate::job::JobId;
use crate::state::clients::Wait;
use crate::state::keys::ClientKey;
use crate::{ClientId, Queue, WaitOutcome};

impl Queue {
    /// Whether the client waits, in a reserve or for the end of a job.
    #[must_use]
    pub fn is_waiting(&self, client: ClientId) -> bool {
        self.client(client).wait().is_some() || self.awaited_by(client).is_some()
    }

    /// When the client's last wait for a job would have ended without one; `NEVER` if it had no limit.
    #[must_use]
    pub fn waited_until(&self, client: ClientId) -> Timestamp {
        self.client(client).wait_until
    }

    /// Ends the client's wait without a delivery; returns whether it waited. If the job for whose end it waits has
    /// already ended, it gets that answer now instead.
    pub fn stop_waiting(&mut self, client: ClientId) -> bool {
        if self.answer_early(client.key()) {
            return false;
        }
        let waited = self.client(client).wait().is_some();
        self.end_wait(client.key());
        let has_waited = self.end_job_wait(client.key()) || waited;
        debug_assert!(self.can_wait(client.key()), "a client whose wait has ended can wait again");
        has_waited
    }

    /// Serves waiting clients after a command, of the client `cause` if there is one, has changed whether other jobs
    /// may be reserved.
    #[inline]
    pub(crate) fn serve_waiting(&mut self, cause: Option<ClientId>, now: Timestamp) {
        self.offer_free_slots(cause, now);
        if !self.rules.tubes.to_open.is_empty() {
            self.open_gates(now);
        }
        if self.frees_jobs() {
            self.continue_freeing(now);
        }
    }

    /// Whether `advance` has work at any time.
    #[inline]
    pub(crate) fn has_more_to_do(&self) -> bool {
        !self.rules.offered.is_empty()
            || self.frees_jobs()
            || self.is_reloading_rules()
            || !self.rules.tubes.to_open.is_empty()
    }

    /// Handles the deadlines of rules that have come.
    pub(crate) fn rules_are_due(&mut self, now: Timestamp) {
        if let Some(((at, id), tick)) = self.rules.due() {
            debug_assert!(at <= now, "no rule is due early");
            if tick(self, id) {
                let has_ended = self.end_in_time(id, now);
                debug_assert!(has_ended, "no job expires early");
            }
        }
    }

    pub(crate) fn deliver_job(&mut self, id: JobId, client: ClientKey, now: Timestamp) {
        self.end_wait(client);
        self.assign(client, id, now);
        self.deliver(client, WaitOutcome::Reserved(id));
    }

    pub(crate) fn begin_wait(&mut self, index: ClientKey, until: Timestamp) {
        let number = self.clients.next_wait();
        self.begin_wait_as(index, Wait { number, until });
    }

    /// Begins the client's wait, with a number that the wait already has.
    pub(crate) fn begin_wait_as(&mut self, index: ClientKey, wait: Wait) {
        debug_assert!(self.can_wait(index), "a client waits for one thing");
        debug_assert!(self.has_nothing_to_reserve(index), "no client waits while the tube has a ready job");
        debug_assert!(
            wait.number.get() <= self.clients.waits,
            "the number of a wait is at most the last one"
        );
        let client = &mut self.clients[index];
        (client.wait_number, client.wait_until) = (Some(wait.number), wait.until);
        let number = wait.number.get();
        if client.many.is_some() {
            self.clients.many_waiting.insert((number, index));
        } else {
            for &tube in &client.watching {
                self.tubes.get_mut(tube).waiting.insert((number, index));
            }
        }
        self.clients.counts.waiting += 1;
        self.schedule(Timer::Client(index));
    }

    /// Does nothing if the client does not wait.
    pub(crate) fn end_wait(&mut self, index: ClientKey) {
        let client = &mut self.clients[index];
        let Some(number) = client.wait_number.take() else { return };
        let number = number.get();
        if client.many.is_some() {
            let found = self.clients.many_waiting.remove((number, index));
            assert!(found.is_some(), "a client that waits is among the waiting ones");
        } else {
            for &tube in &client.watching {
                let found = self.tubes.get_mut(tube).waiting.remove((number, index));
                assert!(found.is_some(), "a client that waits is in the list of each tube that it watches");
            }
        }
        self.clients.counts.waiting -= 1;
        debug_assert!(
            self.clients.many_waiting.len() as u64 <= self.clients.counts.waiting,
            "each wait counts"
        );
    }
}
