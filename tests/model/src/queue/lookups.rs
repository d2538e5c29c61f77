//! Lookups: searches through the lists of the model, from end to end.

use beanstalkd_queue::JobCounts;
use beanstalkd_types::clock::{NS_PER_S, Timestamp};
use beanstalkd_types::job::JobState;

use super::{Client, Job, Model, State, Tube, TubeIndex};

impl Model {
    pub fn find(&self, name: &str) -> Option<TubeIndex> {
        self.listed.iter().copied().find(|&index| self.tube(index).name == name)
    }

    pub fn tube(&self, index: TubeIndex) -> &Tube {
        self.tubes[index].as_ref().expect("the tube exists")
    }

    pub(crate) fn tube_mut(&mut self, index: TubeIndex) -> &mut Tube {
        self.tubes[index].as_mut().expect("the tube exists")
    }

    pub fn client(&self, index: u32) -> &Client {
        self.clients.iter().find(|client| client.index == index).expect("the client is connected")
    }

    pub(crate) fn client_mut(&mut self, index: u32) -> &mut Client {
        self.clients.iter_mut().find(|client| client.index == index).expect("the client is connected")
    }

    pub fn job(&self, id: u64) -> Option<&Job> {
        self.jobs.iter().find(|job| job.id == id)
    }

    pub(crate) fn job_mut(&mut self, id: u64) -> &mut Job {
        self.jobs.iter_mut().find(|job| job.id == id).expect("the job exists")
    }

    pub fn has_reserved(&self, client: u32, id: u64) -> bool {
        self.job(id).is_some_and(
            |job| matches!(job.state, State::Reserved { by, .. } if by == self.holder_for(client)),
        )
    }

    /// The jobs of one tube, or of all, by state.
    pub fn counts(&self, tube: Option<TubeIndex>) -> JobCounts {
        let mut counts = JobCounts::default();
        for job in self.jobs.iter().filter(|job| tube.is_none_or(|tube| job.tube == tube)) {
            match job.state {
                State::Ready => {
                    counts.ready += 1;
                    counts.urgent += u64::from(job.priority < 1024);
                }
                State::Delayed { .. } => counts.delayed += 1,
                State::Reserved { .. } => counts.reserved += 1,
                State::Buried { .. } => counts.buried += 1,
            }
        }
        counts
    }

    pub fn clients_that(&self, holds: impl Fn(&Client) -> bool) -> u64 {
        self.clients.iter().filter(|client| holds(client)).count() as u64
    }

    /// The ready job of the tube that is reserved first: the smallest priority, then the smallest id.
    pub fn first_ready(&self, tube: TubeIndex) -> Option<u64> {
        let ready = self.jobs.iter().filter(|job| job.tube == tube && job.state == State::Ready);
        ready.min_by_key(|job| (job.priority, job.id)).map(|job| job.id)
    }

    /// The delayed job that `peek-delayed` shows: held ones come after the others.
    pub fn first_shown_as_delayed(&self, tube: TubeIndex) -> Option<u64> {
        self.in_order(tube, JobState::Delayed).first().map(|&(_, id)| id)
    }

    pub fn first_delayed(&self, tube: TubeIndex) -> Option<(Timestamp, u64)> {
        let delayed =
            self.jobs.iter().filter(|job| job.tube == tube && !job.held).filter_map(|job| match job.state {
                State::Delayed { until } => Some((until, job.id)),
                _ => None,
            });
        delayed.min()
    }

    pub fn first_buried(&self, tube: TubeIndex) -> Option<u64> {
        let buried = self.jobs.iter().filter(|job| job.tube == tube).filter_map(|job| match job.state {
            State::Buried { number } => Some((number, job.id)),
            _ => None,
        });
        buried.min().map(|(_, id)| id)
    }

    /// The reservation of the client that ends first.
    pub(crate) fn first_reserved(&self, client: u32) -> Option<(Timestamp, u64)> {
        let reserved = self.jobs.iter().filter_map(|job| match job.state {
            State::Reserved { until, by } if by == client => Some((until, job.id)),
            _ => None,
        });
        reserved.min()
    }

    /// The client's reservations that end first, at most `max` of them.
    pub(crate) fn reservations(&self, client: u32, max: usize) -> Vec<(Timestamp, u64)> {
        let reserved = self.jobs.iter().filter_map(|job| match job.state {
            State::Reserved { until, by } if by == client => Some((until, job.id)),
            _ => None,
        });
        let mut reservations: Vec<(Timestamp, u64)> = reserved.collect();
        reservations.sort_unstable();
        reservations.truncate(max);
        reservations
    }

    /// When the last second of the client's reservation that ends first begins.
    pub(crate) fn margin_at(&self, client: u32) -> Option<Timestamp> {
        self.first_reserved(client).map(|(until, _)| Timestamp(until.0 - NS_PER_S))
    }
}
