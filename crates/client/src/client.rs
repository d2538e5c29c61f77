//! A method for each command, with a typed result.
//!
//! Owns: which replies belong to which command. A reply that refuses the command is [`Error::Refused`].

use crate::address::Address;
use crate::command::{Command, ReserveMode};
use crate::connection::Connection;
use crate::data::{Extensions, JobInfo, Page, State};
use crate::error::{Error, Refusal};
use crate::name::Name;
use crate::reply::{Inserted, Job, Reply};
use crate::tag::Tag;
use crate::yaml::{Dictionary, parse_dictionary, parse_list};
use std::ops::{Deref, DerefMut};

/// How to put a job. The default is priority 1024, which does not count as urgent, no delay, a TTR of 60 seconds, no tags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutOptions {
    /// The priority; 0 is the most urgent.
    pub pri: u32,
    /// Seconds until the job is ready.
    pub delay: u32,
    /// The time to run in seconds; servers treat 0 as 1.
    pub ttr: u32,
    /// The tags: an extension, which the server must offer.
    pub tags: Vec<Tag>,
}

impl Default for PutOptions {
    fn default() -> Self {
        Self { pri: 1024, delay: 0, ttr: 60, tags: Vec::new() }
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
        match $client.connection.call(&command)? {
            $pattern => Ok($result),
            Reply::Refused(refusal) => Err(Error::Refused(refusal)),
            other => Err(Error::unexpected(&command, &other)),
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
        let PutOptions { pri, delay, ttr, tags } = options;
        let command = Command::Put { pri: *pri, delay: *delay, ttr: *ttr, body, tags };
        match self.connection.call(&command)? {
            Reply::Inserted(inserted) => Ok(inserted),
            Reply::Draining => Err(Error::Refused(Refusal::Draining)),
            // C buries the job if it has no memory for its ready queue.
            Reply::Buried(Some(_)) => Err(Error::Refused(Refusal::OutOfMemory)),
            Reply::Refused(refusal) => Err(Error::Refused(refusal)),
            other => Err(Error::unexpected(&command, &other)),
        }
    }

    /// Changes the used tube.
    pub fn use_tube(&mut self, tube: &Name) -> Result<(), Error> {
        call!(self, Command::Use(tube), Reply::Using(_) => ())
    }

    // Workers.

    /// Reserves a job of the watched tubes, and waits for one without a limit.
    pub fn reserve(&mut self) -> Result<Job, Error> {
        call!(self, Command::Reserve, Reply::Reserved(job) => job)
    }

    /// Reserves a job, and waits at most `seconds` for one; [`Refusal::TimedOut`] if none came.
    pub fn reserve_with_timeout(&mut self, seconds: u32) -> Result<Job, Error> {
        call!(self, Command::ReserveWithTimeout(seconds), Reply::Reserved(job) => job)
    }

    /// Reserves this ready, delayed or buried job.
    pub fn reserve_job(&mut self, id: u64) -> Result<Job, Error> {
        call!(self, Command::ReserveJob(id), Reply::Reserved(job) => job)
    }

    /// Deletes a job that is not reserved by another client.
    pub fn delete(&mut self, id: u64) -> Result<(), Error> {
        call!(self, Command::Delete(id), Reply::Deleted => ())
    }

    /// Releases a job that this connection has reserved. Returns `false` if the server has buried it instead.
    pub fn release(&mut self, id: u64, pri: u32, delay: u32) -> Result<bool, Error> {
        let command = Command::Release { id, pri, delay };
        match self.connection.call(&command)? {
            Reply::Released => Ok(true),
            Reply::Buried(None) => Ok(false),
            Reply::Refused(refusal) => Err(Error::Refused(refusal)),
            other => Err(Error::unexpected(&command, &other)),
        }
    }

    /// Buries a job that this connection has reserved.
    pub fn bury(&mut self, id: u64, pri: u32) -> Result<(), Error> {
        call!(self, Command::Bury { id, pri }, Reply::Buried(None) => ())
    }

    /// Starts the TTR of a reserved job again.
    pub fn touch(&mut self, id: u64) -> Result<(), Error> {
        call!(self, Command::Touch(id), Reply::Touched => ())
    }

    /// Watches a tube. Returns the number of watched tubes.
    pub fn watch(&mut self, tube: &Name) -> Result<u64, Error> {
        call!(self, Command::Watch(tube), Reply::Watching(count) => count)
    }

    /// Stops watching a tube. Returns the number of watched tubes; [`Refusal::NotIgnored`] if it is the last one.
    pub fn ignore(&mut self, tube: &Name) -> Result<u64, Error> {
        call!(self, Command::Ignore(tube), Reply::Watching(count) => count)
    }

    // Operators.

    /// Returns a job in any state, without reserving it.
    pub fn peek(&mut self, id: u64) -> Result<Job, Error> {
        call!(self, Command::Peek(id), Reply::Found(job) => job)
    }

    /// Returns the next job of a state in the used tube. [`State::Reserved`] is an extension.
    pub fn peek_next(&mut self, state: State) -> Result<Job, Error> {
        let command = match state {
            State::Ready => Command::PeekReady,
            State::Reserved => Command::PeekReserved,
            State::Delayed => Command::PeekDelayed,
            State::Buried => Command::PeekBuried,
        };
        call!(self, command, Reply::Found(job) => job)
    }

    /// Makes up to `bound` buried jobs of the used tube ready, or delayed jobs if none is buried. Returns their number.
    pub fn kick(&mut self, bound: u64) -> Result<u64, Error> {
        call!(self, Command::Kick(bound), Reply::Kicked(Some(count)) => count)
    }

    /// Makes this buried or delayed job ready.
    pub fn kick_job(&mut self, id: u64) -> Result<(), Error> {
        call!(self, Command::KickJob(id), Reply::Kicked(None) => ())
    }

    /// Pauses the tube for `seconds`: no client can reserve its jobs. 0 ends a pause.
    pub fn pause_tube(&mut self, tube: &Name, seconds: u32) -> Result<(), Error> {
        call!(self, Command::PauseTube { tube, seconds }, Reply::Paused => ())
    }

    /// Returns the counters of the server.
    pub fn stats(&mut self) -> Result<Dictionary, Error> {
        self.dictionary(&Command::Stats)
    }

    /// Returns the counters of a tube.
    pub fn stats_tube(&mut self, tube: &Name) -> Result<Dictionary, Error> {
        self.dictionary(&Command::StatsTube(tube))
    }

    /// Returns the counters of a job.
    pub fn stats_job(&mut self, id: u64) -> Result<JobInfo, Error> {
        Ok(JobInfo::from_stats(&self.dictionary(&Command::StatsJob(id))?)?)
    }

    /// Sends a command whose reply is a dictionary, and returns it.
    pub fn dictionary(&mut self, command: &Command<'_>) -> Result<Dictionary, Error> {
        Ok(parse_dictionary(&self.data(command)?)?)
    }

    /// Returns the names of all tubes, in the server's order.
    pub fn list_tubes(&mut self) -> Result<Vec<String>, Error> {
        Ok(parse_list(&self.data(&Command::ListTubes)?)?)
    }

    /// Returns the names of the watched tubes.
    pub fn list_tubes_watched(&mut self) -> Result<Vec<String>, Error> {
        Ok(parse_list(&self.data(&Command::ListTubesWatched)?)?)
    }

    /// Returns the name of the used tube.
    pub fn list_tube_used(&mut self) -> Result<String, Error> {
        call!(self, Command::ListTubeUsed, Reply::Using(tube) => tube)
    }

    fn data(&mut self, command: &Command<'_>) -> Result<Vec<u8>, Error> {
        match self.connection.call(command)? {
            Reply::Ok(data) => Ok(data),
            Reply::Refused(refusal) => Err(Error::Refused(refusal)),
            other => Err(Error::unexpected(command, &other)),
        }
    }

    /// Closes the connection, and waits until the server has closed it. The jobs that it has reserved are ready again then,
    /// and their counters have not changed.
    pub fn quit(mut self) -> Result<(), Error> {
        match self.connection.call(&Command::Quit) {
            Err(Error::Closed) => Ok(()),
            Err(error) => Err(error),
            Ok(reply) => Err(Error::unexpected(&Command::Quit, &reply)),
        }
    }

    // Extensions.

    /// Returns the extensions that the server offers. C beanstalkd offers none.
    pub fn extensions(&mut self) -> Result<Extensions, Error> {
        Ok(Extensions::from_stats(&self.stats()?))
    }

    /// Deletes every job of the tube, including reserved ones. Returns their number.
    pub fn flush_tube(&mut self, tube: &Name) -> Result<u64, Error> {
        call!(self, Command::FlushTube(tube), Reply::Flushed(count) => count)
    }

    /// Deletes the buried jobs of the tube. Returns their number.
    pub fn flush_buried(&mut self, tube: &Name) -> Result<u64, Error> {
        call!(self, Command::FlushBuried(tube), Reply::Flushed(count) => count)
    }

    /// Returns a page of at most `limit` (1 to 1000) jobs of the tube in this state. `cursor` is [`Page::next`] of the
    /// previous page.
    pub fn list_jobs(
        &mut self,
        tube: &Name,
        state: State,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<Page, Error> {
        let data = self.data(&Command::ListJobs { tube, state, limit, cursor })?;
        Ok(Page::parse(&data, tube, state)?)
    }

    /// Moves a job to another tube, where it keeps its state.
    pub fn move_job(&mut self, id: u64, tube: &Name) -> Result<(), Error> {
        call!(self, Command::Move { id, tube }, Reply::Moved => ())
    }

    /// Changes the priority of a ready, delayed or buried job.
    pub fn reprioritize(&mut self, id: u64, pri: u32) -> Result<(), Error> {
        call!(self, Command::Reprioritize { id, pri }, Reply::Reprioritized => ())
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
    pub fn stats_group(&mut self, name: &Name) -> Result<Dictionary, Error> {
        self.dictionary(&Command::StatsGroup(name))
    }

    /// Reserves up to `count` (1 to 1000) jobs. With a time-out in seconds, waits at most that long for the first one.
    pub fn reserve_batch(&mut self, count: u32, timeout: Option<u32>) -> Result<Vec<Job>, Error> {
        call!(self, Command::ReserveBatch { count, timeout }, Reply::ReservedBatch(jobs) => jobs)
    }

    /// Deletes up to 1000 jobs. Returns how many were deleted, and for how many ids there was no job to delete.
    pub fn delete_batch(&mut self, ids: &[u64]) -> Result<(u64, u64), Error> {
        call!(
            self,
            Command::DeleteBatch(ids),
            Reply::DeletedBatch { deleted, not_found } => (deleted, not_found)
        )
    }

    /// Touches every job that this connection has reserved. Returns their number.
    pub fn touch_all(&mut self) -> Result<u64, Error> {
        call!(self, Command::TouchAll, Reply::TouchedAll(count) => count)
    }

    /// Logs in with a token. If it is nobody's, the server closes the connection.
    pub fn auth(&mut self, token: &str) -> Result<(), Error> {
        call!(self, Command::Auth(token), Reply::Authenticated => ())
    }

    /// Watches a tube with a weight (1 to 9999), or changes its weight. Returns the number of watched tubes.
    pub fn watch_weighted(&mut self, tube: &Name, weight: u32) -> Result<u64, Error> {
        call!(self, Command::WatchWeighted { tube, weight }, Reply::Watching(count) => count)
    }

    /// Sets how the reserves of this connection choose among the watched tubes.
    pub fn reserve_mode(&mut self, mode: ReserveMode) -> Result<(), Error> {
        call!(self, Command::ReserveMode(mode), Reply::Using(_) => ())
    }

    /// Reserves a job. The next byte on the connection ends the wait with [`Refusal::Aborted`].
    pub fn reserve_with_abort(&mut self, seconds: Option<u32>) -> Result<Job, Error> {
        call!(self, Command::ReserveWithAbort(seconds), Reply::Reserved(job) => job)
    }
}
