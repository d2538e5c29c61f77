//! A method for each command, with what it gives as a type.
//!
//! Owns: which replies belong to which command. What the server refuses is [`Error::Refused`].

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

/// How to put a job. The default: priority 1024, which is not urgent, no delay, 60 seconds to run, no tags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutOptions {
    /// 0 is the most urgent.
    pub pri: u32,
    /// In seconds.
    pub delay: u32,
    /// In seconds.
    pub ttr: u32,
    /// An extension.
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

/// Sends a command and takes the reply that belongs to it.
macro_rules! call {
    ($client:expr, $command:expr, $pattern:pat => $result:expr) => {{
        let command = $command;
        match $client.connection.call(&command)? {
            $pattern => Ok($result),
            Reply::Refused(refusal) => Err(Error::Refused(refusal)),
            other => Err(unexpected(&command, &other)),
        }
    }};
}

fn unexpected(command: &Command<'_>, reply: &Reply) -> Error {
    let reply = format!("{reply:?}").chars().take(200).collect();
    Error::Unexpected { command: command.verb(), reply }
}

impl Client {
    /// Connects. The server may take 60 seconds for this and for each reply; see [`Connection::set_timeout`].
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
            // C stores the job as a buried one where its ready queue cannot grow.
            Reply::Buried(Some(_)) => Err(Error::Refused(Refusal::OutOfMemory)),
            Reply::Refused(refusal) => Err(Error::Refused(refusal)),
            other => Err(unexpected(&command, &other)),
        }
    }

    /// Changes the used tube.
    pub fn use_tube(&mut self, tube: &Name) -> Result<(), Error> {
        call!(self, Command::Use(tube), Reply::Using(_) => ())
    }

    // Workers.

    /// Takes a job, or waits for one without an end.
    pub fn reserve(&mut self) -> Result<Job, Error> {
        call!(self, Command::Reserve, Reply::Reserved(job) => job)
    }

    /// Takes a job, or waits for one for so many seconds: then [`Refusal::TimedOut`].
    pub fn reserve_with_timeout(&mut self, seconds: u32) -> Result<Job, Error> {
        call!(self, Command::ReserveWithTimeout(seconds), Reply::Reserved(job) => job)
    }

    /// Takes this ready, delayed or buried job.
    pub fn reserve_job(&mut self, id: u64) -> Result<Job, Error> {
        call!(self, Command::ReserveJob(id), Reply::Reserved(job) => job)
    }

    /// Removes a job.
    pub fn delete(&mut self, id: u64) -> Result<(), Error> {
        call!(self, Command::Delete(id), Reply::Deleted => ())
    }

    /// Gives a job back. The result tells whether it is ready or delayed; `false`: the server has buried it.
    pub fn release(&mut self, id: u64, pri: u32, delay: u32) -> Result<bool, Error> {
        let command = Command::Release { id, pri, delay };
        match self.connection.call(&command)? {
            Reply::Released => Ok(true),
            Reply::Buried(None) => Ok(false),
            Reply::Refused(refusal) => Err(Error::Refused(refusal)),
            other => Err(unexpected(&command, &other)),
        }
    }

    /// Sets a job aside.
    pub fn bury(&mut self, id: u64, pri: u32) -> Result<(), Error> {
        call!(self, Command::Bury { id, pri }, Reply::Buried(None) => ())
    }

    /// Begins the TTR of a job anew.
    pub fn touch(&mut self, id: u64) -> Result<(), Error> {
        call!(self, Command::Touch(id), Reply::Touched => ())
    }

    /// Adds a tube to those watched, and tells how many they are.
    pub fn watch(&mut self, tube: &Name) -> Result<u64, Error> {
        call!(self, Command::Watch(tube), Reply::Watching(count) => count)
    }

    /// Removes a tube from those watched, and tells how many they are.
    pub fn ignore(&mut self, tube: &Name) -> Result<u64, Error> {
        call!(self, Command::Ignore(tube), Reply::Watching(count) => count)
    }

    // Looking and looking after.

    /// Shows a job.
    pub fn peek(&mut self, id: u64) -> Result<Job, Error> {
        call!(self, Command::Peek(id), Reply::Found(job) => job)
    }

    /// Shows the next job of a state in the used tube. Reserved ones are an extension.
    pub fn peek_next(&mut self, state: State) -> Result<Job, Error> {
        let command = match state {
            State::Ready => Command::PeekReady,
            State::Reserved => Command::PeekReserved,
            State::Delayed => Command::PeekDelayed,
            State::Buried => Command::PeekBuried,
        };
        call!(self, command, Reply::Found(job) => job)
    }

    /// Makes up to `bound` buried jobs of the used tube ready, or delayed ones where none is buried; tells how many.
    pub fn kick(&mut self, bound: u64) -> Result<u64, Error> {
        call!(self, Command::Kick(bound), Reply::Kicked(Some(count)) => count)
    }

    /// Makes this buried or delayed job ready.
    pub fn kick_job(&mut self, id: u64) -> Result<(), Error> {
        call!(self, Command::KickJob(id), Reply::Kicked(None) => ())
    }

    /// Lets nobody reserve from the tube for so long; 0 ends a pause.
    pub fn pause_tube(&mut self, tube: &Name, seconds: u32) -> Result<(), Error> {
        call!(self, Command::PauseTube { tube, seconds }, Reply::Paused => ())
    }

    /// The counters of the server.
    pub fn stats(&mut self) -> Result<Dictionary, Error> {
        self.dictionary(&Command::Stats)
    }

    /// The counters of a tube.
    pub fn stats_tube(&mut self, tube: &Name) -> Result<Dictionary, Error> {
        self.dictionary(&Command::StatsTube(tube))
    }

    /// What the server tells of a job.
    pub fn stats_job(&mut self, id: u64) -> Result<JobInfo, Error> {
        Ok(JobInfo::from_stats(&self.dictionary(&Command::StatsJob(id))?)?)
    }

    /// Sends a command whose data is a dictionary.
    pub fn dictionary(&mut self, command: &Command<'_>) -> Result<Dictionary, Error> {
        Ok(parse_dictionary(&self.data(command)?)?)
    }

    /// All tubes, in the server's order.
    pub fn list_tubes(&mut self) -> Result<Vec<String>, Error> {
        Ok(parse_list(&self.data(&Command::ListTubes)?)?)
    }

    /// The watched tubes.
    pub fn list_tubes_watched(&mut self) -> Result<Vec<String>, Error> {
        Ok(parse_list(&self.data(&Command::ListTubesWatched)?)?)
    }

    /// The used tube.
    pub fn list_tube_used(&mut self) -> Result<String, Error> {
        call!(self, Command::ListTubeUsed, Reply::Using(tube) => tube)
    }

    fn data(&mut self, command: &Command<'_>) -> Result<Vec<u8>, Error> {
        match self.connection.call(command)? {
            Reply::Ok(data) => Ok(data),
            Reply::Refused(refusal) => Err(Error::Refused(refusal)),
            other => Err(unexpected(command, &other)),
        }
    }

    /// Closes the connection. The server makes what it held ready again.
    pub fn quit(mut self) -> Result<(), Error> {
        self.connection.push(&Command::Quit);
        self.connection.flush()
    }

    // Extensions.

    /// The extensions that the server offers; one that has none says so by having no such key.
    pub fn extensions(&mut self) -> Result<Extensions, Error> {
        Ok(Extensions::from_stats(&self.stats()?))
    }

    /// Deletes every job of the tube, and tells how many.
    pub fn flush_tube(&mut self, tube: &Name) -> Result<u64, Error> {
        call!(self, Command::FlushTube(tube), Reply::Flushed(count) => count)
    }

    /// Deletes the buried jobs of the tube, and tells how many.
    pub fn flush_buried(&mut self, tube: &Name) -> Result<u64, Error> {
        call!(self, Command::FlushBuried(tube), Reply::Flushed(count) => count)
    }

    /// A page of at most `limit` (1 to 1000) of the tube's jobs.
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

    /// Takes a job to another tube, where it keeps its state.
    pub fn move_job(&mut self, id: u64, tube: &Name) -> Result<(), Error> {
        call!(self, Command::Move { id, tube }, Reply::Moved => ())
    }

    /// Changes the priority of a ready, delayed or buried job.
    pub fn reprioritize(&mut self, id: u64, pri: u32) -> Result<(), Error> {
        call!(self, Command::Reprioritize { id, pri }, Reply::Reprioritized => ())
    }

    /// From now on the server takes no new jobs.
    pub fn drain(&mut self) -> Result<(), Error> {
        call!(self, Command::Drain, Reply::Draining => ())
    }

    /// The server takes new jobs again.
    pub fn undrain(&mut self) -> Result<(), Error> {
        call!(self, Command::Undrain, Reply::NotDraining => ())
    }

    /// The counters of a group.
    pub fn stats_group(&mut self, name: &Name) -> Result<Dictionary, Error> {
        self.dictionary(&Command::StatsGroup(name))
    }

    /// Takes up to `count` (1 to 1000) jobs. With a time-out in seconds it waits so long for the first one.
    pub fn reserve_batch(&mut self, count: u32, timeout: Option<u32>) -> Result<Vec<Job>, Error> {
        call!(self, Command::ReserveBatch { count, timeout }, Reply::ReservedBatch(jobs) => jobs)
    }

    /// Removes up to 1000 jobs, and tells how many were there and how many were not.
    pub fn delete_batch(&mut self, ids: &[u64]) -> Result<(u64, u64), Error> {
        call!(
            self,
            Command::DeleteBatch(ids),
            Reply::DeletedBatch { deleted, not_found } => (deleted, not_found)
        )
    }

    /// Touches every job that this connection holds, and tells how many.
    pub fn touch_all(&mut self) -> Result<u64, Error> {
        call!(self, Command::TouchAll, Reply::TouchedAll(count) => count)
    }

    /// Adds a tube with a weight (1 to 9999) to those watched, or changes its weight.
    pub fn watch_weighted(&mut self, tube: &Name, weight: u32) -> Result<u64, Error> {
        call!(self, Command::WatchWeighted { tube, weight }, Reply::Watching(count) => count)
    }

    /// Changes how reserves of this connection choose among the watched tubes.
    pub fn reserve_mode(&mut self, mode: ReserveMode) -> Result<(), Error> {
        call!(self, Command::ReserveMode(mode), Reply::Using(_) => ())
    }

    /// A reserve that ends with [`Refusal::Aborted`] at the next byte that the connection sends.
    pub fn reserve_with_abort(&mut self, seconds: Option<u32>) -> Result<Job, Error> {
        call!(self, Command::ReserveWithAbort(seconds), Reply::Reserved(job) => job)
    }
}
