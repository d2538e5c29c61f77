//! Sessions: the holders of reservations when a connection has ended.

use beanstalkd_queue::Change;
use beanstalkd_types::clock::{NS_PER_MS, Timestamp};
use beanstalkd_types::job::JobId;

use crate::queue::{Job, Model, State};

/// A session. Its jobs are reserved by `number`, whichever client it has.
#[derive(Clone, Debug)]
pub struct Session {
    pub name: String,
    pub number: u32,
    pub grace_ms: u32,
    pub client: Option<u32>,
    /// When it ends, once its client is gone.
    pub ends_at: Option<Timestamp>,
}

impl Model {
    /// The command `session`; returns the number of the session's jobs, or `None` if the client has another session.
    pub fn begin_session(&mut self, client: u32, name: &str, grace_ms: u32) -> Option<u64> {
        if let Some(own) = self.sessions.iter().find(|session| session.client == Some(client))
            && own.name != name
        {
            return None;
        }
        let index = self.sessions.iter().position(|session| session.name == name).unwrap_or_else(|| {
            let number = self.take_number();
            let name = name.to_owned();
            self.sessions.push(Session { name, number, grace_ms, client: None, ends_at: None });
            self.sessions.len() - 1
        });
        let session = &mut self.sessions[index];
        let has_new_grace = session.grace_ms != grace_ms;
        (session.grace_ms, session.ends_at) = (grace_ms, None);
        let number = session.number;
        if let Some(before) = session.client.replace(client).filter(|&before| before != client) {
            self.stop_waiting(before);
            self.taken_over.push(before);
        }
        if has_new_grace {
            let reservations = self.reservations(number, usize::MAX);
            reservations.into_iter().for_each(|(_, id)| self.note(Change::SessionReserved(JobId(id))));
        }
        for (_, id) in self.reservations(client, usize::MAX) {
            let State::Reserved { until, .. } = self.job_mut(id).state else {
                unreachable!("it is reserved")
            };
            self.job_mut(id).state = State::Reserved { until, by: number };
            self.note(Change::SessionReserved(JobId(id)));
        }
        Some(self.reservations(number, usize::MAX).len() as u64)
    }

    /// The holder of this client's reservations: its session, if it has one.
    pub fn holder_for(&self, client: u32) -> u32 {
        let session = self.sessions.iter().find(|session| session.client == Some(client));
        session.map_or(client, |session| session.number)
    }

    /// The name of the session that has reserved the job.
    pub fn session_of_job(&self, job: &Job) -> Option<&str> {
        let State::Reserved { by, .. } = job.state else { return None };
        let session = self.sessions.iter().find(|session| session.number == by);
        session.map(|session| session.name.as_str())
    }

    /// Detaches the client, which is gone, from its session.
    pub(crate) fn leave_session(&mut self, client: u32, now: Timestamp) {
        for session in self.sessions.iter_mut().filter(|session| session.client == Some(client)) {
            session.client = None;
            session.ends_at = Some(Timestamp(now.0 + u64::from(session.grace_ms) * NS_PER_MS));
        }
        self.end_idle_sessions();
    }

    /// A session ends when it has neither a client nor jobs.
    pub(crate) fn end_idle_sessions(&mut self) {
        let is_idle = |session: &&Session| {
            session.client.is_none() && self.reservations(session.number, usize::MAX).is_empty()
        };
        let idle: Vec<u32> = self.sessions.iter().filter(is_idle).map(|session| session.number).collect();
        self.sessions.retain(|session| !idle.contains(&session.number));
        idle.into_iter().for_each(|number| self.free_number(number));
    }

    /// The next deadline of the session: the end of a reservation, or of the grace.
    pub(crate) fn session_due_at(&self, session: &Session) -> Option<Timestamp> {
        let first = self.first_reserved(session.number).map(|(until, _)| until);
        [first, session.ends_at].into_iter().flatten().min()
    }

    /// The grace of the session is over: gives back its jobs as if a client left.
    pub(crate) fn end_of_grace(&mut self, number: u32, now: Timestamp) {
        let share = self.share;
        loop {
            let reservations = self.reservations(number, share);
            if reservations.is_empty() {
                break;
            }
            reservations.iter().for_each(|&(_, id)| self.note(Change::Postponable(JobId(id))));
            self.give_back_all(reservations.into_iter().map(|(_, id)| id).collect(), now);
        }
        self.end_idle_sessions();
    }

    /// Another program takes over: it issues the largest free number first.
    pub fn hand_over(&mut self) {
        self.number_tubes_again();
        self.line_up_again();
        let sessions = self.sessions.iter().map(|session| session.number);
        let used: Vec<u32> = self.clients.iter().map(|client| client.index).chain(sessions).collect();
        self.next_number = used.iter().max().map_or(0, |last| last + 1);
        self.free_numbers = (0..self.next_number).filter(|number| !used.contains(number)).collect();
    }

    /// Takes the number for a client or a session: the one that was freed last. Of deadlines at the same instant, that
    /// of the smallest number comes first.
    fn take_number(&mut self) -> u32 {
        let number = self.free_numbers.pop().unwrap_or(self.next_number);
        self.next_number = self.next_number.max(number + 1);
        number
    }

    /// Takes the number of a client that has connected.
    pub(crate) fn number_is_taken(&mut self, number: u32) {
        self.free_numbers.retain(|&free| free != number);
        self.next_number = self.next_number.max(number + 1);
    }

    pub(crate) fn free_number(&mut self, number: u32) {
        self.free_numbers.push(number);
        if self.clients.is_empty() && self.sessions.is_empty() {
            (self.free_numbers, self.next_number) = (Vec::new(), 0);
        }
    }
}
