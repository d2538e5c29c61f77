//! The commands of the protocol and their encoding.

use crate::data::State;
use crate::name::Name;
use crate::tag::Tag;
use std::io::Write;

/// A command. From [`Command::FlushTube`] on, they are extensions: C beanstalkd answers UNKNOWN_COMMAND or BAD_FORMAT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command<'a> {
    /// Puts a job into the used tube.
    Put {
        /// 0 is the most urgent.
        pri: u32,
        /// Seconds until the job is ready.
        delay: u32,
        /// The time to run in seconds; servers treat 0 as 1.
        ttr: u32,
        /// The body: any bytes.
        body: &'a [u8],
        /// The tags: an extension, if there are any.
        tags: &'a [Tag],
    },
    /// Changes the used tube.
    Use(&'a Name),
    /// Reserves a job of the watched tubes, or waits for one.
    Reserve,
    /// Reserves a job, and waits at most this many seconds for one; 0 does not wait.
    ReserveWithTimeout(u32),
    /// Reserves this ready, delayed or buried job.
    ReserveJob(u64),
    /// Deletes a job.
    Delete(u64),
    /// Releases a reserved job.
    Release {
        /// The job.
        id: u64,
        /// Its new priority.
        pri: u32,
        /// Seconds until it is ready.
        delay: u32,
    },
    /// Buries a reserved job.
    Bury {
        /// The job.
        id: u64,
        /// Its new priority.
        pri: u32,
    },
    /// Starts the TTR of a reserved job again.
    Touch(u64),
    /// Watches a tube.
    Watch(&'a Name),
    /// Stops watching a tube.
    Ignore(&'a Name),
    /// Shows a job.
    Peek(u64),
    /// Shows the job of the used tube that a reserve would take.
    PeekReady,
    /// Shows the job of the used tube whose delay ends first.
    PeekDelayed,
    /// Shows the job of the used tube that was buried first.
    PeekBuried,
    /// Makes up to this many buried jobs of the used tube ready, or delayed jobs if none is buried.
    Kick(u64),
    /// Makes this buried or delayed job ready.
    KickJob(u64),
    /// Pauses a tube: no client can reserve its jobs.
    PauseTube {
        /// The tube.
        tube: &'a Name,
        /// The length of the pause; 0 ends a pause.
        seconds: u32,
    },
    /// Shows the counters of the server.
    Stats,
    /// Shows the counters of a job.
    StatsJob(u64),
    /// Shows the counters of a tube.
    StatsTube(&'a Name),
    /// Lists all tubes.
    ListTubes,
    /// Lists the watched tubes.
    ListTubesWatched,
    /// Names the used tube.
    ListTubeUsed,
    /// Closes the connection. There is no reply.
    Quit,

    /// Deletes every job of the tube, reserved ones included.
    FlushTube(&'a Name),
    /// Deletes the buried jobs of the tube.
    FlushBuried(&'a Name),
    /// Lists a page of the tube's jobs.
    ListJobs {
        /// The tube.
        tube: &'a Name,
        /// Their state.
        state: State,
        /// The greatest number of jobs, 1 to 1000.
        limit: u32,
        /// The cursor that came with the previous page.
        cursor: Option<&'a str>,
    },
    /// Shows the job of the used tube that has been reserved longest.
    PeekReserved,
    /// Moves a job to another tube.
    Move {
        /// The job.
        id: u64,
        /// Its new tube.
        tube: &'a Name,
    },
    /// Changes the priority of a ready, delayed or buried job.
    Reprioritize {
        /// The job.
        id: u64,
        /// Its new priority.
        pri: u32,
    },
    /// Starts drain mode: the server accepts no new jobs.
    Drain,
    /// Ends drain mode: the server accepts new jobs again.
    Undrain,
    /// Shows the counters of a group.
    StatsGroup(&'a Name),
    /// Reserves several jobs.
    ReserveBatch {
        /// The greatest number of jobs, 1 to 1000.
        count: u32,
        /// Seconds to wait for the first job; `None` does not wait.
        timeout: Option<u32>,
    },
    /// Deletes 1 to 1000 jobs.
    DeleteBatch(&'a [u64]),
    /// Touches every job that this connection has reserved.
    TouchAll,
    /// Logs in with a token.
    Auth(&'a str),
    /// Watches a tube with a weight, or changes its weight.
    WatchWeighted {
        /// The tube.
        tube: &'a Name,
        /// The weight, 1 to 9999.
        weight: u32,
    },
    /// Sets how the reserves of this connection choose among the watched tubes.
    ReserveMode(ReserveMode),
    /// A reserve whose wait ends at the next byte from the client; with a number, also after this many seconds.
    ReserveWithAbort(Option<u32>),
}

/// How a reserve chooses among the watched tubes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReserveMode {
    /// By priority over all watched tubes, as C does.
    Fifo,
    /// At random, with probabilities in proportion to the weights.
    Weighted,
    /// As [`Self::Weighted`], with each weight divided by the mean running time of the tube's jobs.
    WeightedFair,
}

impl ReserveMode {
    fn word(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Weighted => "weighted",
            Self::WeightedFair => "weighted-fair",
        }
    }
}

impl Command<'_> {
    /// Appends the command's bytes, including a body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        // Writing to a vector does not fail.
        let _ = self.write(out);
    }

    fn write(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        match self {
            Self::Put { pri, delay, ttr, body, tags } => {
                write!(out, "put {pri} {delay} {ttr} {}", body.len())?;
                for tag in *tags {
                    write!(out, " {tag}")?;
                }
                out.extend_from_slice(b"\r\n");
                out.extend_from_slice(body);
            }
            Self::Use(tube) => write!(out, "use {tube}")?,
            Self::Reserve => out.extend_from_slice(b"reserve"),
            Self::ReserveWithTimeout(seconds) => write!(out, "reserve-with-timeout {seconds}")?,
            Self::ReserveJob(id) => write!(out, "reserve-job {id}")?,
            Self::Delete(id) => write!(out, "delete {id}")?,
            Self::Release { id, pri, delay } => write!(out, "release {id} {pri} {delay}")?,
            Self::Bury { id, pri } => write!(out, "bury {id} {pri}")?,
            Self::Touch(id) => write!(out, "touch {id}")?,
            Self::Watch(tube) => write!(out, "watch {tube}")?,
            Self::Ignore(tube) => write!(out, "ignore {tube}")?,
            Self::Peek(id) => write!(out, "peek {id}")?,
            Self::PeekReady => out.extend_from_slice(b"peek-ready"),
            Self::PeekDelayed => out.extend_from_slice(b"peek-delayed"),
            Self::PeekBuried => out.extend_from_slice(b"peek-buried"),
            Self::Kick(bound) => write!(out, "kick {bound}")?,
            Self::KickJob(id) => write!(out, "kick-job {id}")?,
            Self::PauseTube { tube, seconds } => write!(out, "pause-tube {tube} {seconds}")?,
            Self::Stats => out.extend_from_slice(b"stats"),
            Self::StatsJob(id) => write!(out, "stats-job {id}")?,
            Self::StatsTube(tube) => write!(out, "stats-tube {tube}")?,
            Self::ListTubes => out.extend_from_slice(b"list-tubes"),
            Self::ListTubesWatched => out.extend_from_slice(b"list-tubes-watched"),
            Self::ListTubeUsed => out.extend_from_slice(b"list-tube-used"),
            Self::Quit => out.extend_from_slice(b"quit"),
            extension => extension.write_extension(out)?,
        }
        out.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn write_extension(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        match self {
            Self::FlushTube(tube) => write!(out, "flush-tube {tube}"),
            Self::FlushBuried(tube) => write!(out, "flush-buried {tube}"),
            Self::ListJobs { tube, state, limit, cursor } => {
                write!(out, "list-jobs {tube} {state} {limit}")?;
                cursor.map_or(Ok(()), |cursor| write!(out, " {cursor}"))
            }
            Self::PeekReserved => out.write_all(b"peek-reserved"),
            Self::Move { id, tube } => write!(out, "move {id} {tube}"),
            Self::Reprioritize { id, pri } => write!(out, "reprioritize {id} {pri}"),
            Self::Drain => out.write_all(b"drain"),
            Self::Undrain => out.write_all(b"undrain"),
            Self::StatsGroup(name) => write!(out, "stats-group {name}"),
            Self::ReserveBatch { count, timeout: None } => write!(out, "reserve-batch {count}"),
            Self::ReserveBatch { count, timeout: Some(seconds) } => {
                write!(out, "reserve-batch {count} {seconds}")
            }
            Self::DeleteBatch(ids) => {
                out.write_all(b"delete-batch")?;
                ids.iter().try_for_each(|id| write!(out, " {id}"))
            }
            Self::TouchAll => out.write_all(b"touch-all"),
            Self::Auth(token) => write!(out, "auth {token}"),
            Self::WatchWeighted { tube, weight } => write!(out, "watch {tube} {weight}"),
            Self::ReserveMode(mode) => write!(out, "reserve-mode {}", mode.word()),
            Self::ReserveWithAbort(None) => out.write_all(b"reserve-with-abort"),
            Self::ReserveWithAbort(Some(seconds)) => write!(out, "reserve-with-abort {seconds}"),
            // The commands of C are written above.
            _ => Ok(()),
        }
    }

    /// The name of the command, for messages.
    pub fn verb(&self) -> String {
        let mut line = Vec::new();
        self.encode(&mut line);
        let end = line.iter().position(|byte| b" \r".contains(byte)).unwrap_or(line.len());
        String::from_utf8_lossy(&line[..end]).into_owned()
    }

    /// How many seconds the server may wait before it replies: 0 if it replies at once, `None` if there is no limit.
    pub(crate) fn longest_wait(&self) -> Option<u32> {
        match self {
            Self::Reserve | Self::ReserveWithAbort(None) => None,
            Self::ReserveWithTimeout(seconds)
            | Self::ReserveWithAbort(Some(seconds))
            | Self::ReserveBatch { timeout: Some(seconds), .. } => Some(*seconds),
            _ => Some(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(command: &Command) -> String {
        let mut out = Vec::new();
        command.encode(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn arguments_are_encoded_in_order() {
        let tube: Name = "mail".parse().unwrap();
        let tags = ["idp:a:5".parse().unwrap(), "grp:g".parse().unwrap()];
        for (command, line) in [
            (
                Command::Put { pri: 1, delay: 2, ttr: 3, body: b"hello", tags: &[] },
                "put 1 2 3 5\r\nhello\r\n",
            ),
            (
                Command::Put { pri: 1, delay: 2, ttr: 3, body: b"", tags: &tags },
                "put 1 2 3 0 idp:a:5 grp:g\r\n\r\n",
            ),
            (Command::Release { id: 4, pri: 5, delay: 6 }, "release 4 5 6\r\n"),
            (Command::Bury { id: 4, pri: 5 }, "bury 4 5\r\n"),
            (Command::PauseTube { tube: &tube, seconds: 9 }, "pause-tube mail 9\r\n"),
            (
                Command::ListJobs { tube: &tube, state: State::Ready, limit: 10, cursor: None },
                "list-jobs mail ready 10\r\n",
            ),
            (
                Command::ListJobs { tube: &tube, state: State::Buried, limit: 10, cursor: Some("x1") },
                "list-jobs mail buried 10 x1\r\n",
            ),
            (Command::Move { id: 7, tube: &tube }, "move 7 mail\r\n"),
            (Command::DeleteBatch(&[1, 2, 3]), "delete-batch 1 2 3\r\n"),
            (Command::ReserveBatch { count: 5, timeout: Some(1) }, "reserve-batch 5 1\r\n"),
            (Command::ReserveMode(ReserveMode::WeightedFair), "reserve-mode weighted-fair\r\n"),
            (Command::Auth("t0k3n"), "auth t0k3n\r\n"),
            (Command::Quit, "quit\r\n"),
        ] {
            assert_eq!(encoded(&command), line);
        }
    }

    #[test]
    fn the_verb_is_the_name_of_the_command() {
        assert_eq!(Command::Stats.verb(), "stats");
        assert_eq!(Command::DeleteBatch(&[1]).verb(), "delete-batch");
    }
}
