//! The hand-over to another program, as seen by the running program.
//!
//! Owns: its stages. SIGHUP begins it, if the program's file has been replaced:
//!
//! 1. *Wanted*: the loop waits for a moment in which no command is in progress, and describes the server as it is then.
//!    In the last second of the stage no new command is executed.
//! 2. *Trying*: the other program reads the description as a child, and reports whether it can continue with it. The
//!    loop serves meanwhile; the child changes nothing, and ends with this process at the latest.
//! 3. *Probing*: the loop serves until the disk of the binlog has answered. So it waits for no disk that hangs in the
//!    last step.
//! 4. *Ending*: connections with TLS cannot be handed over. They get the replies that they are owed and end; the others
//!    are served.
//! 5. *Paused*: no new command is executed. Commands in progress end, and HTTP connections end.
//! 6. The log is synced, the server is described again, and this process runs the other program, which keeps its
//!    sockets.
//!
//! If anything fails before the last step, this program continues, and gives the reason in the log and in the status of
//! the service. Clients notice the hand-over as a pause. `doc/handover.md` has the rest. Driven by the loop, once a
//! turn.

use std::io::{self, ErrorKind, Read};
use std::path::PathBuf;
use std::process::Child;

use log::{error, info};
use mio::unix::pipe::Receiver;
use mio::{Interest, Registry};

use super::EventLoop;
use crate::clock::{NS_PER_S, Timestamp};
use crate::description::Writer;
use crate::os;
use crate::os::hand_over::{DescriptionFile, FileIdentity, Program};
use crate::poll_token::PollToken;
use crate::server::hand_over::{self, DescribedFile, DescribedProcess, FORMAT, ListenerRole};

/// How long to wait for a moment in which the server can be described.
const WANTED_NS: u64 = 5 * NS_PER_S;
/// How long the other program may take to read a description.
const TRIAL_NS: u64 = 5 * NS_PER_S;
/// How long at the end of this time no new command is executed: among many clients, one always has one in progress.
const LAST_WANTED_NS: u64 = NS_PER_S;
/// How long the disk of the binlog may take to answer.
const PROBING_NS: u64 = 5 * NS_PER_S;
/// How long connections that cannot be handed over have to read the replies that they are owed.
const ENDING_NS: u64 = NS_PER_S;
/// How long the others wait for commands in progress.
const PAUSED_NS: u64 = 2 * NS_PER_S;
/// How long they wait for HTTP connections.
const HTTP_NS: u64 = NS_PER_S;
/// The time between two checks for such a moment.
const CHECK_INTERVAL_NS: u64 = 1_000_000;
/// How often a trial needs the memory of jobs, tubes and clients again: for the description, and in the other program.
const MEMORY_COPIES: usize = 2;
/// A longer text is not an answer.
const MAX_ANSWER_BYTES: usize = 65_536;
/// The reason on a full disk.
const NO_LOG_ROOM: &str = "the binlog has no room for all changes";
/// The flag for the trial of the other program.
const TRIAL_FLAG: &str = "--check-handover";

/// The facts that another program needs and that the loop itself does not use.
#[derive(Debug, Default)]
pub struct HandOverInputs {
    /// The running program; `None` if the system does not report which it is.
    pub program: Option<Program>,
    /// The descriptor that holds the lock of the binlog's directory, and the path of this directory.
    pub lock: Option<(i32, PathBuf)>,
    /// The files of unix sockets.
    pub files: Vec<DescribedFile>,
    /// The files of settings that a program reads at its start.
    pub settings: Vec<PathBuf>,
    /// How many listeners a service manager has opened.
    pub inherited: usize,
    /// The reason why this server cannot be handed over, if there is one.
    pub unsupported: Option<&'static str>,
}

/// The hand-over.
#[derive(Default)]
pub(super) struct HandOver {
    inputs: HandOverInputs,
    stage: HandOverStage,
}

#[derive(Default)]
enum HandOverStage {
    /// No hand-over is wanted.
    #[default]
    Idle,
    /// SIGHUP has come. The instant is the end of this stage, as in the next ones.
    Wanted(Timestamp),
    Trying(Timestamp, Box<Trial>),
    Probing(Timestamp, AcceptedTrial),
    Ending(Timestamp, AcceptedTrial),
    Paused(Timestamp, AcceptedTrial),
}

/// The files with which a program was tried: the program, and the files of settings that exist.
type TriedFiles = Vec<Option<FileIdentity>>;

/// A trial that has succeeded: the other program can continue with the description.
struct AcceptedTrial {
    files: TriedFiles,
    /// The description of the trial; the final description is written over it.
    description: DescriptionFile,
    /// How many tasks the store of the binlog had done at the end of the trial.
    done_tasks: u64,
}

/// A child that reads a description.
struct Trial {
    child: Child,
    answer: Receiver,
    output: Vec<u8>,
    /// Whether it has closed its output, and only its end is missing.
    is_silent: bool,
    accepted: Option<AcceptedTrial>,
}

impl Drop for Trial {
    fn drop(&mut self) {
        // A child that has ended is not killed, but it is reaped in any case.
        let _ = self.child.kill();
        if let Ok(None) = self.child.try_wait() {
            os::hand_over::reap_beside(&self.child);
        }
    }
}

/// The reason why a program that was tried does not run.
enum HandOverError {
    /// The program, or a file of settings, has been replaced since.
    Replaced,
    Failed(String),
}

impl HandOverInputs {
    /// The files as they are now; `None` if the program's file has not been replaced.
    fn to_try(&self) -> Option<TriedFiles> {
        let program = self.program.as_ref()?.replaced_by()?;
        let settings = self.settings.iter().map(|path| FileIdentity::of(path).ok());
        Some([Some(program)].into_iter().chain(settings).collect())
    }

    /// Checks that the server can be handed over. The next program would open the directory by its path: if another
    /// directory is there now, another server may have its lock.
    fn check_supported(&self) -> Result<(), String> {
        self.unsupported.map_or(Ok(()), |reason| Err(reason.to_owned()))?;
        let Some((lock, directory)) = &self.lock else { return Ok(()) };
        os::directory_lock::check_in_place(*lock, directory).map_err(|error| error.to_string())
    }
}

impl HandOver {
    pub(super) fn new(inputs: HandOverInputs) -> Self {
        Self { inputs, stage: HandOverStage::Idle }
    }

    /// Whether no client is accepted, either: the last stage.
    pub(super) fn is_paused(&self) -> bool {
        matches!(self.stage, HandOverStage::Paused(..))
    }

    /// Whether a hand-over is in progress.
    #[inline]
    pub(super) fn is_wanted(&self) -> bool {
        !matches!(self.stage, HandOverStage::Idle)
    }

    /// When the hand-over has work even if no event comes.
    #[cold]
    pub(super) fn next_turn_at(&self, now: Timestamp) -> Option<Timestamp> {
        match &self.stage {
            HandOverStage::Idle => None,
            HandOverStage::Wanted(_)
            | HandOverStage::Probing(..)
            | HandOverStage::Ending(..)
            | HandOverStage::Paused(..) => Some(now + CHECK_INTERVAL_NS),
            HandOverStage::Trying(_, trial) if trial.is_silent => Some(now + CHECK_INTERVAL_NS),
            HandOverStage::Trying(end, _) => Some(*end),
        }
    }
}

impl Trial {
    fn start(inputs: &HandOverInputs, description: DescriptionFile, registry: &Registry) -> io::Result<Self> {
        let (Some(program), Some(files)) = (&inputs.program, inputs.to_try()) else {
            return Err(ErrorKind::NotFound.into());
        };
        let (child, pipe) = os::hand_over::try_out(program.path(), TRIAL_FLAG, &description)?;
        let accepted = Some(AcceptedTrial { files, description, done_tasks: 0 });
        let mut trial =
            Self { child, answer: Receiver::from(pipe), output: Vec::new(), is_silent: false, accepted };
        trial.answer.set_nonblocking(true)?;
        registry.register(&mut trial.answer, PollToken::HandOver.into(), Interest::READABLE)?;
        Ok(trial)
    }

    /// The outcome, once it is known.
    fn outcome(&mut self) -> Option<Result<AcceptedTrial, String>> {
        let mut piece = [0; 1024];
        loop {
            match self.answer.read(&mut piece) {
                Ok(0) => break,
                Ok(count) if self.output.len() + count > MAX_ANSWER_BYTES => {
                    return Some(Err(format!("its answer has more than {MAX_ANSWER_BYTES} bytes")));
                }
                Ok(count) => self.output.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) => return Some(Err(error.to_string())),
            }
        }
        self.is_silent = true;
        // The child has closed its output; it ends now, or the time limit ends it.
        match self.child.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) if status.success() && self.output.ends_with(answer(FORMAT).as_bytes()) => {
                self.accepted.take().map(Ok)
            }
            Ok(Some(status)) => Some(Err(self.complaint(&status.to_string()))),
            Err(error) => Some(Err(error.to_string())),
        }
    }

    fn complaint(&self, status: &str) -> String {
        let output = String::from_utf8_lossy(&self.output);
        match output.lines().rfind(|line| !line.trim().is_empty()) {
            None => status.to_owned(),
            Some(line) => format!("{} ({status})", line.trim()),
        }
    }
}

/// The answer of a program that could read a description of this format.
#[must_use]
pub fn answer(format: u32) -> String {
    format!("ok {format}\n")
}

/// The reason if the disk of the binlog does not answer.
fn no_answer(waited_ns: u64) -> String {
    format!("the disk of the binlog did not answer in {} s", waited_ns / NS_PER_S)
}

impl EventLoop {
    /// SIGHUP: begins a hand-over if the program's file has been replaced; returns whether it did.
    pub(super) fn begin_hand_over(&mut self, now: Timestamp) -> bool {
        let HandOver { inputs, stage } = &mut self.hand_over;
        let Some(program) = inputs.program.as_ref().filter(|program| program.replaced_by().is_some()) else {
            return false;
        };
        if !matches!(stage, HandOverStage::Idle) {
            info!("SIGHUP: a hand-over is in progress");
            return true;
        }
        info!("SIGHUP: {} has been replaced: handing over to the new program", program.path().display());
        match inputs.check_supported() {
            Ok(()) => *stage = HandOverStage::Wanted(now + WANTED_NS),
            Err(reason) => self.give_up_hand_over(&reason),
        }
        true
    }

    /// Takes the next step. Called at the end of a turn.
    #[cold]
    pub(super) fn continue_hand_over(&mut self, now: Timestamp) {
        match std::mem::take(&mut self.hand_over.stage) {
            HandOverStage::Idle => {}
            HandOverStage::Wanted(_) if self.server.is_quiet() && !self.lacks_more_than_states() => {
                match self.begin_trial(now) {
                    // Describing a large server takes seconds, which are not taken from the time of the trial.
                    Ok(trial) => {
                        self.server.pause(false);
                        let end = self.clock.now() + TRIAL_NS;
                        self.hand_over.stage = HandOverStage::Trying(end, Box::new(trial));
                    }
                    Err(error) => self.give_up_hand_over(&format!("cannot start it for a trial: {error}")),
                }
            }
            HandOverStage::Wanted(end) if now >= end => {
                let waited_s = WANTED_NS / NS_PER_S;
                let reason = if self.lacks_more_than_states() {
                    NO_LOG_ROOM.to_owned()
                } else {
                    format!("for {waited_s} s, a command was in progress")
                };
                self.give_up_hand_over(&reason);
            }
            HandOverStage::Wanted(end) => {
                // Orders begin to wait at any time.
                self.server.executor_mut().stop_waiting_orders();
                if now + LAST_WANTED_NS >= end && !self.lacks_more_than_states() {
                    self.server.pause(true);
                }
                self.hand_over.stage = HandOverStage::Wanted(end);
            }
            HandOverStage::Trying(end, mut trial) => match trial.outcome() {
                Some(Ok(mut accepted)) if self.is_tried(&accepted.files) => {
                    accepted.done_tasks = self.server.executor().persistence.done_tasks();
                    self.continue_probing(now + PROBING_NS, accepted, now);
                }
                Some(Ok(_)) => self.try_again(now),
                Some(Err(reason)) => self.give_up_hand_over(&reason),
                None if now >= end => {
                    let most_s = TRIAL_NS / NS_PER_S;
                    self.give_up_hand_over(&format!("its trial took longer than {most_s} s"));
                }
                None => self.hand_over.stage = HandOverStage::Trying(end, trial),
            },
            HandOverStage::Probing(end, accepted) => self.continue_probing(end, accepted, now),
            HandOverStage::Ending(end, accepted) => self.continue_ending(end, accepted, now),
            HandOverStage::Paused(end, accepted) => self.continue_paused(end, accepted, now),
        }
    }

    fn begin_trial(&mut self, now: Timestamp) -> io::Result<Trial> {
        // At the limit of its control group, the kernel would kill this process.
        let counted = self.server.executor().memory_bytes();
        let in_use = os::process::resident_bytes().unwrap_or(counted);
        let needed = (in_use + MEMORY_COPIES * counted) as u64;
        if let Some(limit) = os::limits::group_memory_bytes().filter(|&limit| limit < needed) {
            let reason = format!("it takes {needed} bytes of memory, and the control group has {limit}");
            return Err(io::Error::other(reason));
        }
        let mut file = DescriptionFile::new()?;
        self.describe(&mut file, now)?;
        Trial::start(&self.hand_over.inputs, file, &self.registry)
    }

    /// Waits until the disk has answered.
    fn continue_probing(&mut self, end: Timestamp, accepted: AcceptedTrial, now: Timestamp) {
        if self.has_disk_answered(&accepted) {
            self.continue_ending(now + ENDING_NS, accepted, now);
        } else if now >= end {
            self.give_up_hand_over(&no_answer(PROBING_NS));
        } else {
            self.hand_over.stage = HandOverStage::Probing(end, accepted);
        }
    }

    /// Whether the store has done a task since the end of the trial, or has nothing to do for the hand-over. A file can
    /// take minutes to make.
    fn has_disk_answered(&mut self, accepted: &AcceptedTrial) -> bool {
        let persistence = &mut self.server.executor_mut().persistence;
        let has_answered =
            persistence.is_ready_to_quiesce() || persistence.done_tasks() > accepted.done_tasks;
        if !has_answered {
            persistence.interrupt_making();
        }
        has_answered
    }

    /// Waits until the connections that cannot be handed over have ended, and then pauses the others. None of them ends
    /// while the hand-over would fail for lack of room in the log.
    fn continue_ending(&mut self, end: Timestamp, accepted: AcceptedTrial, now: Timestamp) {
        if self.lacks_more_than_states() {
            if now >= end {
                self.give_up_hand_over(NO_LOG_ROOM);
            } else {
                self.hand_over.stage = HandOverStage::Ending(end, accepted);
            }
            return;
        }
        self.hand_over.stage = if self.server.end_those_that_cannot_be_described() > 0 && now < end {
            HandOverStage::Ending(end, accepted)
        } else {
            self.server.close_those_that_cannot_be_described(now);
            self.server.pause(true);
            HandOverStage::Paused(now + PAUSED_NS, accepted)
        };
    }

    /// Waits until all commands in progress have ended, and then hands over.
    fn continue_paused(&mut self, end: Timestamp, mut accepted: AcceptedTrial, now: Timestamp) {
        // The last commands may have had replies that are too long.
        self.server.close_those_that_cannot_be_described(now);
        let is_http_idle = self.metrics.iter().chain(&self.admin).all(|site| site.is_idle());
        let waits_for_http = !is_http_idle && now + (PAUSED_NS - HTTP_NS) < end;
        // There may have been nothing to do for the disk until now.
        let has_disk_answered = self.has_disk_answered(&accepted);
        if !has_disk_answered || !self.server.is_quiet() || waits_for_http {
            // Some orders may have begun during the trial.
            self.server.executor_mut().stop_waiting_orders();
            if now >= end && !has_disk_answered {
                self.give_up_hand_over(&no_answer(PAUSED_NS));
            } else if now >= end {
                let waited_s = PAUSED_NS / NS_PER_S;
                self.give_up_hand_over(&format!("a command did not end in {waited_s} s"));
            } else {
                self.hand_over.stage = HandOverStage::Paused(end, accepted);
            }
            return;
        }
        match self.hand_over_now(&mut accepted) {
            HandOverError::Failed(reason) => self.give_up_hand_over(&reason),
            HandOverError::Replaced => self.try_again(now),
        }
    }

    /// Starts from the beginning: the trial has tried other files.
    fn try_again(&mut self, now: Timestamp) {
        self.server.pause(false);
        if self.hand_over.inputs.to_try().is_some() {
            info!("the program or its settings have been replaced again: starting another trial");
            self.hand_over.stage = HandOverStage::Wanted(now + WANTED_NS);
        } else {
            info!("no other program is there any more: this program continues");
            self.reload_without_hand_over();
        }
    }

    /// Whether the files are the tried program and the tried files of settings.
    fn is_tried(&self, files: &TriedFiles) -> bool {
        self.hand_over.inputs.to_try().as_ref() == Some(files)
    }

    /// Whether the log lacks changes that another program could not take over. It may be about to get them.
    fn lacks_more_than_states(&self) -> bool {
        self.server.executor().persistence.lacks_more_than_states()
    }

    /// Returns only if the hand-over fails.
    fn hand_over_now(
        &mut self,
        AcceptedTrial { files, description, .. }: &mut AcceptedTrial,
    ) -> HandOverError {
        if !self.is_tried(files) {
            return HandOverError::Replaced;
        }
        // From now on signals wait for the next program, also signals that have come and have not been handled yet.
        let held = match os::hand_over::hold_signals() {
            Ok(held) => held,
            Err(error) => return HandOverError::Failed(format!("cannot hold signals back: {error}")),
        };
        self.signals.pass_on(&held);
        let process = match self.describe_at_rest(description) {
            Ok(described) => described,
            Err(error) => return HandOverError::Failed(format!("cannot describe this server: {error}")),
        };
        let clients = self.server.handles().map(|handle| handle.descriptor);
        let descriptors: Vec<i32> = process.descriptors().chain(clients).collect();
        // Describing a large server takes long enough for another package to be installed.
        let Some(program) = self.hand_over.inputs.program.as_ref().filter(|_| self.is_tried(files)) else {
            return HandOverError::Replaced;
        };
        if let Err(reason) = self.hand_over.inputs.check_supported() {
            return HandOverError::Failed(reason);
        }
        info!("handing over {} connections to {}", self.server.client_count(), program.path().display());
        let error = os::hand_over::change_program(program.path(), description, &descriptors, &held);
        HandOverError::Failed(format!("cannot start it: {error}"))
    }

    /// Describes the server, whose log is complete. Nobody can change the description any more.
    fn describe_at_rest(&mut self, file: &mut DescriptionFile) -> io::Result<DescribedProcess> {
        let now = self.clock.now();
        self.server.executor_mut().quiesce_binlog(now);
        if self.server.executor().has_failed() {
            return Err(io::Error::other("the binlog has failed"));
        }
        if self.server.executor().has_unlogged_changes() {
            return Err(io::Error::other(NO_LOG_ROOM));
        }
        let process = self.describe(file, now)?;
        file.seal()?;
        Ok(process)
    }

    /// Describes the server as it is now.
    fn describe(&self, file: &mut DescriptionFile, now: Timestamp) -> io::Result<DescribedProcess> {
        let inputs = &self.hand_over.inputs;
        let mut listeners = self.listeners.described();
        for (site, role) in [(&self.metrics, ListenerRole::Metrics), (&self.admin, ListenerRole::Admin)] {
            listeners.extend(site.as_ref().map(|site| site.listener().described(role)));
        }
        let process = DescribedProcess {
            now,
            clock_offset_ns: self.clock.offset_ns,
            listeners,
            inherited: inputs.inherited,
            files: inputs.files.clone(),
            lock: inputs.lock.as_ref().map(|(descriptor, _)| *descriptor),
        };
        file.fill(|sink| hand_over::describe(&self.server, &process, &mut Writer::new(sink)))?;
        Ok(process)
    }

    /// This program continues, and reloads as it does if there is no other program.
    fn give_up_hand_over(&mut self, reason: &str) {
        self.hand_over.stage = HandOverStage::Idle;
        self.server.pause(false);
        let path = self.hand_over.inputs.program.as_ref().map(Program::path).unwrap_or("?".as_ref());
        error!("cannot hand over to {}: {reason}; this program continues", path.display());
        if self.hand_over.inputs.to_try().is_none() {
            // The running program is back on the disk.
            return self.reload_without_hand_over();
        }
        if let Some(notifier) = &mut self.notifier {
            notifier.note_failed_hand_over(reason);
        }
        self.reload_files();
    }
}
