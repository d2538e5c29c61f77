//! Every command that a client can send, and its bytes.

use crate::data::State;
use crate::name::Name;
use crate::tag::Tag;
use std::io::Write;

/// A command. Those in the second half are extensions, which C beanstalkd answers with UNKNOWN_COMMAND or BAD_FORMAT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command<'a> {
    /// Puts a job into the used tube.
    Put {
        /// 0 is the most urgent.
        pri: u32,
        /// Seconds until the job is ready.
        delay: u32,
        /// Seconds that a client has for the job; a server makes 0 a 1.
        ttr: u32,
        /// Any bytes.
        body: &'a [u8],
        /// An extension where there are any.
        tags: &'a [Tag],
    },
    /// Changes the used tube.
    Use(&'a Name),
    /// Takes a job from the watched tubes, or waits for one.
    Reserve,
    /// The same, for at most so many seconds; 0 does not wait.
    ReserveWithTimeout(u32),
    /// Takes this ready, delayed or buried job.
    ReserveJob(u64),
    /// Removes a job.
    Delete(u64),
    /// Gives a reserved job back.
    Release {
        /// The job.
        id: u64,
        /// Its new priority.
        pri: u32,
        /// Seconds until it is ready.
        delay: u32,
    },
    /// Sets a reserved job aside.
    Bury {
        /// The job.
        id: u64,
        /// Its new priority.
        pri: u32,
    },
    /// Begins the TTR of a reserved job anew.
    Touch(u64),
    /// Adds a tube to those watched.
    Watch(&'a Name),
    /// Removes a tube from those watched.
    Ignore(&'a Name),
    /// Shows a job.
    Peek(u64),
    /// Shows the job of the used tube that a reserve would take.
    PeekReady,
    /// Shows the job of the used tube whose delay ends first.
    PeekDelayed,
    /// Shows the job of the used tube that was buried first.
    PeekBuried,
    /// Makes up to so many buried jobs of the used tube ready, or delayed ones where none is buried.
    Kick(u64),
    /// Makes this buried or delayed job ready.
    KickJob(u64),
    /// Lets nobody reserve from the tube.
    PauseTube {
        /// The tube.
        tube: &'a Name,
        /// For so long; 0 ends a pause.
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
        /// Of which state.
        state: State,
        /// At most so many, 1 to 1000.
        limit: u32,
        /// Where the page before ended.
        cursor: Option<&'a str>,
    },
    /// Shows the job of the used tube that is reserved longest.
    PeekReserved,
    /// Takes a job to another tube.
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
    /// From now on the server takes no new jobs.
    Drain,
    /// The server takes new jobs again.
    Undrain,
    /// Shows the counters of a group.
    StatsGroup(&'a Name),
    /// Takes up to so many jobs.
    ReserveBatch {
        /// 1 to 1000.
        count: u32,
        /// Waits so many seconds for the first one.
        timeout: Option<u32>,
    },
    /// Removes up to 1000 jobs.
    DeleteBatch(&'a [u64]),
    /// Touches every job that this connection holds.
    TouchAll,
    /// Adds a tube with a weight to those watched.
    WatchWeighted {
        /// The tube.
        tube: &'a Name,
        /// 1 to 9999.
        weight: u32,
    },
    /// Changes how reserves of this connection choose among the watched tubes.
    ReserveMode(ReserveMode),
    /// A reserve that ends at the next byte that the client sends.
    ReserveWithAbort(Option<u32>),
}

/// How a reserve chooses among the watched tubes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReserveMode {
    /// By priority over all watched tubes, as C does.
    Fifo,
    /// By chance, in proportion to the weights.
    Weighted,
    /// By weight divided by the mean run time of the tube's jobs.
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
    /// Appends the command as it goes over the wire.
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
            Self::WatchWeighted { tube, weight } => write!(out, "watch {tube} {weight}"),
            Self::ReserveMode(mode) => write!(out, "reserve-mode {}", mode.word()),
            Self::ReserveWithAbort(None) => out.write_all(b"reserve-with-abort"),
            Self::ReserveWithAbort(Some(seconds)) => write!(out, "reserve-with-abort {seconds}"),
            // The commands of C are written above.
            _ => Ok(()),
        }
    }

    /// The words before the arguments, for messages.
    pub fn verb(&self) -> String {
        let mut line = Vec::new();
        self.encode(&mut line);
        let end = line.iter().position(|byte| b" \r".contains(byte)).unwrap_or(line.len());
        String::from_utf8_lossy(&line[..end]).into_owned()
    }

    /// How many seconds the server may wait before it answers: 0 where it answers at once, `None` without an end.
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
    fn commands_with_arguments_have_them_in_order() {
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
            (Command::Quit, "quit\r\n"),
        ] {
            assert_eq!(encoded(&command), line);
        }
    }

    #[test]
    fn the_verb_is_the_word_of_the_protocol() {
        assert_eq!(Command::Stats.verb(), "stats");
        assert_eq!(Command::DeleteBatch(&[1]).verb(), "delete-batch");
    }
}
