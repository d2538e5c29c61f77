//! A method for each command, with a typed result.
//!
//! Owns: which replies belong to which command. A reply that refuses the command is [`Error::Refused`].

use crate::address::Address;
use crate::connection::Connection;
use crate::data::{Extensions, JobInfo, Page};
use crate::error::Error;
use crate::exchange::{PutOptions, Request};
use beanstalkd_protocol::{
    Command, Cursor, Dictionary, Grace, IdList, ModeWord, Refusal, Reply, Verb, parse_dictionary, parse_list,
};
use beanstalkd_types::job::{BodyRef, Counting, JobId, JobState, Priority};
use beanstalkd_types::seconds::Seconds;
use beanstalkd_types::tube_name::TubeName;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// A job with its body, from a reserve or a peek.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The id.
    pub id: u64,
    /// The body.
    pub body: Vec<u8>,
}

impl From<(JobId, BodyRef<'_>)> for Job {
    fn from((id, body): (JobId, BodyRef<'_>)) -> Self {
        Self { id: id.0, body: body.as_slice().to_vec() }
    }
}

/// The result of a put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inserted {
    /// The id of the new job, or of the existing job with the same idempotency key.
    pub id: u64,
    /// Whether a job with the same key exists, or the key still counts. The put has stored nothing then.
    pub is_duplicate: bool,
    /// The state of the existing job; `None` if it was deleted and its key still counts.
    pub state: Option<JobState>,
    /// The new priority of the existing job, if the put was more urgent.
    pub pri: Option<u32>,
}

impl Inserted {
    /// The result that a reply to a put stands for.
    pub fn of_reply(reply: &Reply<'_>) -> Result<Self, Error> {
        let new = |id: JobId| Self { id: id.0, is_duplicate: false, state: None, pri: None };
        match *reply {
            Reply::Inserted(id) => Ok(new(id)),
            Reply::Duplicate(id, state, pri) => {
                Ok(Self { is_duplicate: true, state, pri: pri.map(|pri| pri.0), ..new(id) })
            }
            Reply::Draining => Err(Error::Refused(Refusal::Draining)),
            // C buries the job if it has no memory for its ready queue.
            Reply::BuriedPut(_) => Err(Error::Refused(Refusal::OutOfMemory)),
            ref other => Err(Error::of_reply(Verb::Put, other)),
        }
    }
}

/// A client: a [`Connection`], to which it dereferences, with a method for each command.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
}

impl Deref for Client {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for Client {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

impl From<Connection> for Client {
    fn from(connection: Connection) -> Self {
        Self { connection }
    }
}

/// Sends a command and returns the result of the reply that belongs to it.
macro_rules! call {
    ($client:expr, $command:expr, $pattern:pat => $result:expr) => {{
        let command = $command;
        match $client.connection.call(command)? {
            $pattern => Ok($result),
            other => Err(Error::of_reply(command.verb(), &other)),
        }
    }};
}

impl Client {
    /// Connects. The connect and each reply time out after 60 seconds; see [`Connection::set_timeout`].
    pub fn connect(address: &Address) -> Result<Self, Error> {
        Connection::open(address).map(Self::from)
    }

    // Producers.

    /// Puts a job into the used tube.
    pub fn put(&mut self, body: &[u8], options: &PutOptions) -> Result<Inserted, Error> {
        Inserted::of_reply(&self.connection.call(Request::Put(options, body))?)
    }

    /// Changes the used tube.
    pub fn use_tube(&mut self, tube: &TubeName) -> Result<(), Error> {
        call!(self, Command::Use(tube.as_str()), Reply::Using(_) => ())
    }

    // Workers.

    /// Reserves a job of the watched tubes, and waits for one without a limit.
    pub fn reserve(&mut self) -> Result<Job, Error> {
        call!(self, Command::Reserve, Reply::Reserved(id, body) => (id, body).into())
    }

    /// Reserves a job, and waits at most `seconds` for one; [`Refusal::TimedOut`] if none came.
    pub fn reserve_with_timeout(&mut self, seconds: impl Into<Seconds>) -> Result<Job, Error> {
        let command = Command::ReserveWithTimeout { timeout_s: seconds.into() };
        call!(self, command, Reply::Reserved(id, body) => (id, body).into())
    }

    /// Reserves this ready, delayed or buried job.
    pub fn reserve_job(&mut self, id: u64) -> Result<Job, Error> {
        call!(self, Command::ReserveJob(JobId(id)), Reply::Reserved(id, body) => (id, body).into())
    }

    /// Deletes a job that is not reserved by another client.
    pub fn delete(&mut self, id: u64) -> Result<(), Error> {
        call!(self, Command::Delete(JobId(id)), Reply::Deleted => ())
    }

    /// Releases a job that this connection has reserved. Returns `false` if the server has buried it instead.
    pub fn release(&mut self, id: u64, pri: u32, delay: impl Into<Seconds>) -> Result<bool, Error> {
        self.release_as(id, pri, delay.into(), Counting::Counted)
    }

    fn release_as(&mut self, id: u64, pri: u32, delay: Seconds, counting: Counting) -> Result<bool, Error> {
        let command = Command::Release { id: JobId(id), priority: Priority(pri), delay_s: delay, counting };
        match self.connection.call(command)? {
            Reply::Released => Ok(true),
            Reply::Buried => Ok(false),
            other => Err(Error::of_reply(Verb::Release, &other)),
        }
    }

    /// Buries a job that this connection has reserved.
    pub fn bury(&mut self, id: u64, pri: u32) -> Result<(), Error> {
        call!(self, Command::Bury { id: JobId(id), priority: Priority(pri) }, Reply::Buried => ())
    }

    /// Starts the TTR of a reserved job again.
    pub fn touch(&mut self, id: u64) -> Result<(), Error> {
        call!(self, Command::Touch { id: JobId(id), for_s: None }, Reply::Touched => ())
    }

    /// Watches a tube. Returns the number of watched tubes.
    pub fn watch(&mut self, tube: &TubeName) -> Result<u64, Error> {
        call!(self, Command::Watch { tube: tube.as_str(), weight: 1 }, Reply::Watching(count) => count as u64)
    }

    /// Stops watching a tube. Returns the number of watched tubes; [`Refusal::NotIgnored`] if it is the last one.
    pub fn ignore(&mut self, tube: &TubeName) -> Result<u64, Error> {
        call!(self, Command::Ignore(tube.as_str()), Reply::Watching(count) => count as u64)
    }

    // Operators.

    /// Returns a job in any state, without reserving it.
    pub fn peek(&mut self, id: u64) -> Result<Job, Error> {
        call!(self, Command::Peek(JobId(id)), Reply::Found(id, body) => (id, body).into())
    }

    /// Returns the next job of a state in the used tube. [`JobState::Reserved`] is an extension.
    pub fn peek_next(&mut self, state: JobState) -> Result<Job, Error> {
        let command = match state {
            JobState::Ready => Command::PeekReady,
            JobState::Reserved => Command::PeekReserved,
            JobState::Delayed => Command::PeekDelayed,
            JobState::Buried => Command::PeekBuried,
        };
        call!(self, command, Reply::Found(id, body) => (id, body).into())
    }

    /// Makes up to `bound` buried jobs of the used tube ready, or delayed jobs if none is buried. Returns their number.
    pub fn kick(&mut self, bound: u64) -> Result<u64, Error> {
        call!(self, Command::Kick { bound }, Reply::Kicked(count) => count)
    }

    /// Makes this buried or delayed job ready.
    pub fn kick_job(&mut self, id: u64) -> Result<(), Error> {
        call!(self, Command::KickJob(JobId(id)), Reply::KickedJob => ())
    }

    /// Pauses the tube for `seconds`: no client can reserve its jobs. 0 ends a pause.
    pub fn pause_tube(&mut self, tube: &TubeName, seconds: impl Into<Seconds>) -> Result<(), Error> {
        call!(self, Command::PauseTube { tube: tube.as_str(), delay_s: seconds.into() }, Reply::Paused => ())
    }

    /// Returns the counters of the server.
    pub fn stats(&mut self) -> Result<Dictionary, Error> {
        self.dictionary(Command::Stats)
    }

    /// Returns the counters of a tube.
    pub fn stats_tube(&mut self, tube: &TubeName) -> Result<Dictionary, Error> {
        self.dictionary(Command::StatsTube(tube.as_str()))
    }

    /// Returns the counters of a job.
    pub fn stats_job(&mut self, id: u64) -> Result<JobInfo, Error> {
        Ok(JobInfo::from_stats(&self.dictionary(Command::StatsJob(JobId(id)))?)?)
    }

    /// Sends a command whose reply is a dictionary, and returns it.
    pub fn dictionary(&mut self, command: Command<'_>) -> Result<Dictionary, Error> {
        Ok(parse_dictionary(self.data(command)?)?)
    }

    /// Returns the names of all tubes, in the server's order.
    pub fn list_tubes(&mut self) -> Result<Vec<String>, Error> {
        Ok(parse_list(self.data(Command::ListTubes)?)?)
    }

    /// Returns the names of the watched tubes.
    pub fn list_tubes_watched(&mut self) -> Result<Vec<String>, Error> {
        Ok(parse_list(self.data(Command::ListTubesWatched)?)?)
    }

    /// Returns the name of the used tube.
    pub fn list_tube_used(&mut self) -> Result<String, Error> {
        call!(self, Command::ListTubeUsed, Reply::Using(tube) => tube.to_owned())
    }

    fn data(&mut self, command: Command<'_>) -> Result<&[u8], Error> {
        match self.connection.call(command)? {
            Reply::Data(data) => Ok(data),
            other => Err(Error::of_reply(command.verb(), &other)),
        }
    }

    /// Closes the connection, and waits until the server has closed it. The jobs that it has reserved are ready again
    /// then, and their counters have not changed.
    pub fn quit(mut self) -> Result<(), Error> {
        match self.connection.call(Command::Quit) {
            Err(Error::Closed) => Ok(()),
            Err(error) => Err(error),
            Ok(reply) => Err(Error::of_reply(Verb::Quit, &reply)),
        }
    }

    // Extensions.

    /// Returns the extensions that the server offers. C beanstalkd offers none.
    pub fn extensions(&mut self) -> Result<Extensions, Error> {
        Ok(Extensions::from_stats(&self.stats()?))
    }

    /// Deletes every job of the tube, including reserved ones. Returns their number.
    pub fn flush_tube(&mut self, tube: &TubeName) -> Result<u64, Error> {
        call!(self, Command::FlushTube(tube.as_str()), Reply::Flushed(count) => count)
    }

    /// Deletes the buried jobs of the tube. Returns their number.
    pub fn flush_buried(&mut self, tube: &TubeName) -> Result<u64, Error> {
        call!(self, Command::FlushBuried(tube.as_str()), Reply::Flushed(count) => count)
    }

    /// Returns a page of at most `limit` (1 to 1000) jobs of the tube in this state. `cursor` is [`Page::next`] of the
    /// previous page.
    pub fn list_jobs(
        &mut self,
        tube: &TubeName,
        state: JobState,
        limit: u32,
        cursor: Option<Cursor>,
    ) -> Result<Page, Error> {
        let data = self.data(Command::ListJobs { tube: tube.as_str(), state, limit, after: cursor })?;
        Ok(Page::parse(data, tube.as_str(), state)?)
    }

    /// Moves a job to another tube, where it keeps its state.
    pub fn move_job(&mut self, id: u64, tube: &TubeName) -> Result<(), Error> {
        call!(self, Command::Move { id: JobId(id), tube: tube.as_str() }, Reply::Moved => ())
    }

    /// Changes the priority of a ready, delayed or buried job.
    pub fn reprioritize(&mut self, id: u64, pri: u32) -> Result<(), Error> {
        call!(self, Command::Reprioritize { id: JobId(id), priority: Priority(pri) }, Reply::Reprioritized => ())
    }

    /// Starts drain mode: the server accepts no new jobs.
    pub fn drain(&mut self) -> Result<(), Error> {
        call!(self, Command::Drain, Reply::Draining => ())
    }

    /// Ends drain mode: the server accepts new jobs again.
    pub fn undrain(&mut self) -> Result<(), Error> {
        call!(self, Command::Undrain, Reply::NotDraining => ())
    }

    /// Returns the counters of a group.
    pub fn stats_group(&mut self, name: &TubeName) -> Result<Dictionary, Error> {
        self.dictionary(Command::StatsGroup(name.as_str()))
    }

    /// Reserves up to `count` (1 to 1000) jobs. With a time-out in seconds, waits at most that long for the first one.
    pub fn reserve_batch(&mut self, count: u32, timeout: Option<Seconds>) -> Result<Vec<Job>, Error> {
        let command = Command::ReserveBatch { most: count, timeout_s: timeout };
        call!(self, command, Reply::ReservedBatch(jobs) => jobs.iter().map(Job::from).collect())
    }

    /// Deletes 1 to 1000 jobs. Returns how many were deleted, and for how many ids there was no job to delete.
    pub fn delete_batch(&mut self, ids: &[u64]) -> Result<(u64, u64), Error> {
        let ids: Vec<JobId> = ids.iter().copied().map(JobId).collect();
        let ids = IdList::new(&ids).ok_or(Error::Refused(Refusal::BadFormat))?;
        call!(
            self,
            Command::DeleteBatch(ids),
            Reply::DeletedBatch(deleted, not_found) => (deleted, not_found)
        )
    }

    /// Touches every job that this connection has reserved. Returns their number.
    pub fn touch_all(&mut self) -> Result<u64, Error> {
        call!(self, Command::TouchAll, Reply::TouchedAll(count) => count)
    }

    /// Makes this connection the holder of the session of this name: what it reserves stays reserved for `grace`, at
    /// most an hour and counted in whole milliseconds, when the connection ends. Returns how many jobs the session has,
    /// those of an earlier connection included. Another connection that has the session is closed.
    pub fn session(&mut self, name: &TubeName, grace: Duration) -> Result<u64, Error> {
        let grace = u64::try_from(grace.as_millis()).ok().and_then(Grace::from_ms);
        let grace = grace.ok_or(Error::Refused(Refusal::BadFormat))?;
        call!(self, Command::Session { name: name.as_str(), grace }, Reply::Session(held) => held)
    }

    /// Gives this reservation `seconds` from now on, at least 1. The TTR of the job stays.
    pub fn touch_for(&mut self, id: u64, seconds: impl Into<Seconds>) -> Result<(), Error> {
        call!(self, Command::Touch { id: JobId(id), for_s: Some(seconds.into()) }, Reply::Touched => ())
    }

    /// Releases a job that this connection has reserved. It counts neither as a release nor as a failure.
    pub fn release_uncounted(&mut self, id: u64, pri: u32, delay: impl Into<Seconds>) -> Result<(), Error> {
        self.release_as(id, pri, delay.into(), Counting::Uncounted).map(drop)
    }

    /// Logs in with a token. If no identity has it, the server closes the connection.
    pub fn auth(&mut self, token: &str) -> Result<(), Error> {
        call!(self, Command::Auth(token.as_bytes()), Reply::Authenticated => ())
    }

    /// Watches a tube with a weight (1 to 9999), or changes its weight. Returns the number of watched tubes.
    pub fn watch_weighted(&mut self, tube: &TubeName, weight: u16) -> Result<u64, Error> {
        call!(self, Command::Watch { tube: tube.as_str(), weight }, Reply::Watching(count) => count as u64)
    }

    /// Sets how the reserves of this connection choose among the watched tubes.
    pub fn reserve_mode(&mut self, mode: ModeWord) -> Result<(), Error> {
        call!(self, Command::ReserveMode(mode), Reply::Using(_) => ())
    }

    /// Reserves a job. The next byte on the connection ends the wait with [`Refusal::Aborted`].
    pub fn reserve_with_abort(&mut self, seconds: Option<Seconds>) -> Result<Job, Error> {
        call!(self, Command::ReserveWithAbort { timeout_s: seconds }, Reply::Reserved(id, body) => (id, body).into())
    }
}
