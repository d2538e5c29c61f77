//! Orders: the requests of the API to the server, and the jobs that they select. Tasks: the progress of each order.
//!
//! Owns: the words for orders and their outcomes, and the table of tasks. Never carries out an order: the server does
//! that, in slices, with the same calls as for a client. Driven by an exchange, which reads the table, and by the
//! server, which writes it.

pub(crate) mod selection;

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroU32;
use std::vec;

use self::selection::JobWalk;
use crate::clock::Timestamp;
use crate::job::{Body, JobId, Priority};
use crate::queue::{ClientId, FlushScope};
use crate::refusal::ChangeRefusal;
use crate::seconds::Seconds;
use crate::stats::{ClientView, Connections, ServerView};
use crate::tube_name::TubeName;

/// The maximum number of running tasks: more than people start, and few enough that each gets its turns soon.
pub(crate) const MAX_RUNNING: usize = 16;

/// How many ended tasks are kept for later requests.
const MAX_ENDED_TASKS: usize = 64;

/// The maximum number of ids in a line of the log.
const MAX_IDS_SHOWN: usize = 100;

/// An order of the API.
#[derive(Debug)]
pub enum Order {
    /// Put a job.
    Put(PutOrder),
    /// Do this with some jobs.
    Change(JobAction, Selection),
    /// Pause the tube for this many seconds; 0 ends its pause.
    Pause(TubeName, Seconds),
    /// Delete jobs of the tube, or the cooldowns of deleted ones.
    Flush(TubeName, FlushScope),
    /// Begin or end drain mode.
    Drain(bool),
    /// Close the connection of the client with this id.
    KillClient(u64),
}

/// A job to put.
#[derive(Debug)]
pub struct PutOrder {
    /// The job's tube, which is made if it does not exist.
    pub tube: TubeName,
    /// The job's body.
    pub body: Body,
    /// The job's priority.
    pub priority: Priority,
    /// Time until it becomes ready.
    pub delay_s: Seconds,
    /// The job's time to run.
    pub ttr_s: Seconds,
    /// The job's tags, encoded; empty if it has no tags.
    pub tags: Vec<u8>,
}

/// The change that an order makes to each of its jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobAction {
    /// A buried or delayed job becomes ready.
    Kick,
    /// The job is deleted, even if a client has reserved it.
    Delete,
    /// The job goes to this tube.
    Move(TubeName),
    /// The job gets this priority.
    Priority(Priority),
    /// A ready or delayed job gets this delay from now on.
    Delay(Seconds),
    /// A dead job goes back to the tube from which it came; at most this many jobs in a second.
    Redrive(Option<NonZeroU32>),
}

/// The jobs to change.
#[derive(Debug)]
pub enum Selection {
    /// Jobs with these ids.
    Jobs(vec::IntoIter<JobId>),
    /// The jobs that a walk finds, at most this many: as many as were counted.
    Counted(Box<JobWalk>, u64),
}

/// The progress of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The task is running.
    Running,
    /// The task is done.
    Done,
    /// The task was stopped; its changes stay.
    Stopped,
    /// The task could not continue; its changes stay.
    Failed(ChangeRefusal),
}

/// The progress in words, for the log.
impl fmt::Display for Progress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => out.write_str("running"),
            Self::Done => out.write_str("done"),
            Self::Stopped => out.write_str("stopped"),
            Self::Failed(refusal) => write!(out, "failed: {refusal}"),
        }
    }
}

/// The number of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskId(pub u64);

/// A task: the progress of an order.
#[derive(Clone, Debug)]
pub struct Task {
    /// The number of the task.
    pub id: TaskId,
    /// The action, in the words of the API.
    pub action: &'static str,
    /// The tube, if the order names one.
    pub tube: Option<TubeName>,
    /// How many jobs the order is for, if that is known.
    pub expected: Option<u64>,
    /// How many jobs were changed.
    pub done: u64,
    /// How many jobs stayed unchanged.
    pub skipped: u64,
    /// The reason for the last of these; [`Task::reason`] is for the reader.
    pub refusal: Option<ChangeRefusal>,
    /// The job that was put, or the existing job with the same `idp` key.
    pub job: Option<JobId>,
    /// Progress of the task.
    pub progress: Progress,
    /// When it began.
    pub begun_at: Timestamp,
    /// Whether a request has asked it to stop.
    pub is_to_stop: bool,
}

impl Order {
    /// The action, as a word of the API.
    #[must_use]
    pub fn action(&self) -> &'static str {
        match self {
            Self::Put(_) => "put",
            Self::Change(JobAction::Kick, _) => "kick",
            Self::Change(JobAction::Delete, _) => "delete",
            Self::Change(JobAction::Move(_), _) => "move",
            Self::Change(JobAction::Priority(_), _) => "priority",
            Self::Change(JobAction::Delay(_), _) => "delay",
            Self::Change(JobAction::Redrive(_), _) => "redrive",
            Self::Pause(_, Seconds::ZERO) => "resume",
            Self::Pause(..) => "pause",
            Self::Flush(_, scope) => flush_action(*scope),
            Self::Drain(true) => "drain",
            Self::Drain(false) => "undrain",
            Self::KillClient(_) => "kill-client",
        }
    }

    /// The order in words, for the log.
    #[must_use]
    pub fn in_words(&self) -> String {
        let word = self.action();
        match self {
            Self::Put(PutOrder { tube, .. }) | Self::Flush(tube, _) | Self::Pause(tube, Seconds::ZERO) => {
                format!("{word} {}", tube.as_str())
            }
            Self::Pause(tube, seconds) => format!("{word} {} {seconds}", tube.as_str()),
            Self::Drain(_) => word.to_owned(),
            Self::KillClient(number) => format!("{word} {number}"),
            Self::Change(action, selection) => {
                let jobs = match selection {
                    Selection::Jobs(ids) => {
                        let shown: Vec<String> =
                            ids.as_slice().iter().take(MAX_IDS_SHOWN).map(|id| id.0.to_string()).collect();
                        let others = ids.len().saturating_sub(MAX_IDS_SHOWN);
                        let others =
                            if others == 0 { String::new() } else { format!(" and {others} other jobs") };
                        format!("{}{others}", shown.join(", "))
                    }
                    Selection::Counted(walk, count) => format!("{count} jobs of {}", walk.tube().as_str()),
                };
                match action {
                    JobAction::Kick | JobAction::Delete | JobAction::Redrive(None) => {
                        format!("{word} {jobs}")
                    }
                    JobAction::Move(tube) => format!("{word} {jobs} to {}", tube.as_str()),
                    JobAction::Priority(priority) => format!("{word} {jobs} to {}", priority.0),
                    JobAction::Delay(seconds) => format!("{word} {jobs} by {seconds}"),
                    JobAction::Redrive(Some(rate)) => format!("{word} {jobs} at {rate} a second"),
                }
            }
        }
    }

    /// Whether the order changes a single thing, so that the request is answered when it is done.
    #[must_use]
    pub fn is_short(&self) -> bool {
        match self {
            Self::Put(_) | Self::Pause(..) | Self::Drain(_) | Self::KillClient(_) => true,
            Self::Change(_, Selection::Jobs(jobs)) => jobs.len() == 1,
            Self::Change(_, Selection::Counted(..)) | Self::Flush(..) => false,
        }
    }

    fn tube(&self) -> Option<&TubeName> {
        match self {
            Self::Put(PutOrder { tube, .. }) | Self::Pause(tube, _) | Self::Flush(tube, _) => Some(tube),
            Self::Change(_, Selection::Counted(walk, _)) => Some(walk.tube()),
            Self::Change(_, Selection::Jobs(_)) | Self::Drain(_) | Self::KillClient(_) => None,
        }
    }

    fn expected(&self) -> Option<u64> {
        match self {
            Self::Change(_, Selection::Counted(_, counted)) => Some(*counted),
            Self::Change(_, Selection::Jobs(jobs)) => Some(jobs.len() as u64),
            Self::Put(_) | Self::Pause(..) | Self::Flush(..) | Self::Drain(_) | Self::KillClient(_) => None,
        }
    }
}

/// The scopes of a flush that the API offers.
pub(crate) const FLUSHES: [FlushScope; 3] = [FlushScope::All, FlushScope::Buried, FlushScope::Cooldowns];

/// The word of the API for a flush.
#[must_use]
pub(crate) fn flush_action(scope: FlushScope) -> &'static str {
    match scope {
        FlushScope::All => "flush",
        FlushScope::Buried => "flush-buried",
        FlushScope::Cooldowns => "flush-cooldowns",
    }
}

impl Task {
    /// Whether the task has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.progress != Progress::Running
    }

    /// Why the task has failed, or why a job has stayed unchanged, if one has.
    #[must_use]
    pub fn reason(&self) -> Option<ChangeRefusal> {
        match self.progress {
            Progress::Failed(refusal) => Some(refusal),
            Progress::Running | Progress::Done | Progress::Stopped => self.refusal,
        }
    }

    /// Counts the outcome for one job.
    pub fn count(&mut self, outcome: Result<(), ChangeRefusal>) {
        match outcome {
            Ok(()) => self.done += 1,
            Err(refusal) => {
                self.skipped += 1;
                self.refusal = Some(refusal);
            }
        }
    }
}

/// The running tasks, and the last ones that have ended.
#[derive(Debug, Default)]
pub struct Tasks {
    last_id: u64,
    /// Ordered by their numbers.
    tasks: VecDeque<Task>,
    /// The tasks that have ended, in the order of their ends.
    ended: VecDeque<TaskId>,
}

impl Tasks {
    /// No tasks.
    #[must_use]
    pub const fn none() -> Self {
        Self { last_id: 0, tasks: VecDeque::new(), ended: VecDeque::new() }
    }

    /// No tasks yet. The first one will have the number after this one.
    #[must_use]
    pub fn after(last_id: u64) -> Self {
        Self { last_id, ..Self::none() }
    }

    /// Adds the task of an order; `None` if too many are running.
    pub fn add(&mut self, order: &Order, now: Timestamp) -> Option<TaskId> {
        if self.tasks.len() - self.ended.len() == MAX_RUNNING {
            return None;
        }
        if self.ended.len() >= MAX_ENDED_TASKS
            && let Some(first) = self.ended.pop_front()
        {
            self.tasks.retain(|task| task.id != first);
        }
        self.last_id += 1;
        let id = TaskId(self.last_id);
        self.tasks.push_back(Task {
            id,
            action: order.action(),
            tube: order.tube().cloned(),
            expected: order.expected(),
            done: 0,
            skipped: 0,
            refusal: None,
            job: None,
            progress: Progress::Running,
            begun_at: now,
            is_to_stop: false,
        });
        Some(id)
    }

    /// The task with this number, if it is running or is among the last that have ended.
    #[must_use]
    pub fn get(&self, id: TaskId) -> Option<&Task> {
        self.tasks.iter().find(|task| task.id == id)
    }

    /// The task with this number, for changes.
    pub fn get_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        self.tasks.iter_mut().find(|task| task.id == id)
    }

    /// Keeps the new state of a task.
    pub fn replace(&mut self, task: Task) {
        if let Some(kept) = self.get_mut(task.id) {
            *kept = task;
        }
    }

    /// Ends a running task, and returns it.
    pub fn end(&mut self, id: TaskId, progress: Progress) -> Option<&Task> {
        let task = self.tasks.iter_mut().find(|task| task.id == id)?;
        task.progress = progress;
        self.ended.push_back(id);
        Some(task)
    }

    /// All tasks, the newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &Task> {
        self.tasks.iter().rev()
    }
}

/// The interface of the server for its HTTP sites: its figures, and the execution of orders.
pub trait Control {
    /// The server at `now`. A view costs time, so one is made only for a request.
    fn server_view(&self, now: Timestamp) -> ServerView<'_>;

    /// Starts an order. `None` if too many orders are running; then nothing has changed.
    fn order(&mut self, order: Order, now: Timestamp) -> Option<TaskId>;

    /// Stops a task, if it is still running.
    fn stop(&mut self, id: TaskId);

    /// The tasks.
    fn tasks(&self) -> &Tasks;

    /// A client with its connection from `connections`; `None` if it has disconnected.
    fn client(&self, id: ClientId, connections: &dyn Connections, now: Timestamp) -> Option<ClientView<'_>>;

    /// Whether an answer may show the current figures and tasks: replies about the changes so far can be sent.
    fn may_answer(&self) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounded_number_of_tasks_is_under_way_and_kept() {
        let mut tasks = Tasks::default();
        let now = Timestamp(1);
        for _ in 0..MAX_RUNNING {
            tasks.add(&Order::Drain(true), now).unwrap();
        }
        assert_eq!(tasks.add(&Order::Drain(true), now), None);
        for number in 2..1000 {
            tasks.end(TaskId(number), Progress::Done).unwrap();
            assert_eq!(tasks.add(&Order::Drain(false), now), Some(TaskId(number + MAX_RUNNING as u64 - 1)));
        }
        assert!(tasks.tasks.len() <= MAX_RUNNING + MAX_ENDED_TASKS);
        assert!(tasks.get(TaskId(2)).is_none() && tasks.get(TaskId(999)).is_some());
        // The task that has ended last is kept longest, although it is the oldest.
        tasks.end(TaskId(1), Progress::Done).unwrap();
        tasks.add(&Order::Drain(false), now).unwrap();
        assert!(tasks.get(TaskId(1)).is_some());
    }
}
