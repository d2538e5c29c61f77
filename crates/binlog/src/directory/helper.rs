//! The helper thread, which carries out the tasks of the store.
//!
//! Owns: the thread, its tasks, and the outcomes that the log has not polled. The thread does one task after another,
//! in the given order, and decides nothing about the log. While the thread is working, the loop passes no task on.
//! Syncs of one file that come directly after each other in that time are done as one. The thread syncs a file through
//! the handle with which the log appends, so that a sync never lacks a descriptor.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use super::{Directory, FileName, TaskRunner};
use crate::storage::{Completion, StoreTask};

/// A task, with the handle of the file to sync if that file was open when the task was given.
#[derive(Debug)]
struct Assignment {
    task: StoreTask,
    file: Option<Arc<File>>,
}

/// Carries out the tasks of a store in a directory: on a thread once it has been started, and before that when the log
/// waits for them.
#[derive(Debug)]
pub struct DirectoryHelper(HelperState);

#[derive(Debug)]
enum HelperState {
    Idle {
        disk: Directory,
        given: VecDeque<Assignment>,
    },
    Running(DirectoryThread),
    /// The thread could not be started.
    Failed,
}

/// A running thread. Dropping this waits for the tasks given to the thread.
#[derive(Debug)]
struct DirectoryThread {
    /// Tasks that have not been passed to the thread yet.
    submitted: Vec<Assignment>,
    /// `None` once no more tasks can come.
    given: Option<Sender<Assignment>>,
    done: Receiver<Done>,
    /// Tasks whose outcomes have not been received.
    under_way: usize,
    /// Whether the file that the thread makes is not wanted now.
    is_interrupted: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The outcome of some assignments, which is the outcome of the last one.
#[derive(Debug)]
struct Done {
    completion: Completion,
    assignments: usize,
}

impl DirectoryHelper {
    /// A helper that works on `disk`.
    #[must_use]
    pub fn new(disk: Directory) -> Self {
        Self(HelperState::Idle { disk, given: VecDeque::new() })
    }
}

impl TaskRunner<Directory> for DirectoryHelper {
    fn submit(&mut self, task: StoreTask, disk: &mut Directory) {
        let file = match &task {
            StoreTask::Sync(position) => disk.open_file(FileName::Log(position.file)),
            StoreTask::Make { .. } | StoreTask::Shorten { .. } | StoreTask::Remove { .. } => None,
        };
        let assignment = Assignment { task, file };
        match &mut self.0 {
            HelperState::Idle { given, .. } => given.push_back(assignment),
            HelperState::Running(running) => running.submit(assignment),
            HelperState::Failed => {}
        }
    }

    fn poll(&mut self) -> Option<Completion> {
        match &mut self.0 {
            HelperState::Running(running) => {
                let done = running.done.try_recv().ok()?;
                Some(running.note(done))
            }
            HelperState::Idle { .. } | HelperState::Failed => None,
        }
    }

    fn begin(&mut self) {
        if let HelperState::Running(running) = &mut self.0 {
            running.begin();
        }
    }

    /// None while the thread is working: tasks submitted until it is done can be done as one.
    fn has_tasks_to_begin(&self) -> bool {
        match &self.0 {
            HelperState::Running(running) => running.under_way == 0 && !running.submitted.is_empty(),
            HelperState::Idle { .. } | HelperState::Failed => false,
        }
    }

    fn interrupt_making(&mut self) {
        if let HelperState::Running(running) = &self.0 {
            running.is_interrupted.store(true, Ordering::Relaxed);
        }
    }

    fn is_busy(&self) -> bool {
        match &self.0 {
            HelperState::Idle { given, .. } => !given.is_empty(),
            HelperState::Running(running) => running.under_way > 0 || !running.submitted.is_empty(),
            HelperState::Failed => false,
        }
    }

    fn wait(&mut self, _: &mut Directory) -> Option<Completion> {
        self.begin();
        match &mut self.0 {
            HelperState::Idle { disk, given } => Some(given.pop_front()?.run(disk, &|| false)),
            HelperState::Running(running) if running.under_way > 0 => {
                let done = running.done.recv().ok()?;
                Some(running.note(done))
            }
            HelperState::Running(_) | HelperState::Failed => None,
        }
    }

    fn start(&mut self, wake: Box<dyn Fn() + Send>) -> io::Result<()> {
        if let HelperState::Idle { disk, given } = std::mem::replace(&mut self.0, HelperState::Failed) {
            let mut running = DirectoryThread::start(disk, wake)?;
            running.submitted.extend(given);
            running.begin();
            self.0 = HelperState::Running(running);
        }
        Ok(())
    }
}

impl DirectoryThread {
    fn start(disk: Directory, wake: Box<dyn Fn() + Send>) -> io::Result<Self> {
        let (given, incoming) = channel();
        let (outgoing, done) = channel();
        let is_interrupted = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_interrupted);
        let work = move || {
            crate::os::hand_over::leave_signals_to_others();
            work(&incoming, &outgoing, disk, &*wake, &|| seen.load(Ordering::Relaxed));
        };
        let thread = Some(Builder::new().name("binlog".to_owned()).spawn(work)?);
        Ok(Self { submitted: Vec::new(), given: Some(given), done, under_way: 0, is_interrupted, thread })
    }

    fn submit(&mut self, assignment: Assignment) {
        // The log makes one file at a time: an interruption was meant for the file before this one.
        if matches!(assignment.task, StoreTask::Make { .. }) {
            self.is_interrupted.store(false, Ordering::Relaxed);
        }
        self.submitted.push(assignment);
    }

    fn begin(&mut self) {
        let Some(given) = &self.given else { return };
        for assignment in self.submitted.drain(..) {
            self.under_way += 1;
            // The thread receives until this end is closed.
            let _ = given.send(assignment);
        }
    }

    fn note(&mut self, done: Done) -> Completion {
        self.under_way -= done.assignments;
        done.completion
    }
}

impl Drop for DirectoryThread {
    fn drop(&mut self) {
        self.begin();
        self.given = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Assignment {
    /// Whether it includes the work of `earlier`: both are syncs of one file.
    fn includes(&self, earlier: &Self) -> bool {
        match (&self.task, &earlier.task) {
            (StoreTask::Sync(position), StoreTask::Sync(before)) => position.file == before.file,
            _ => false,
        }
    }

    fn run(self, disk: &mut Directory, is_interrupted: &dyn Fn() -> bool) -> Completion {
        match self.file {
            Some(file) => {
                let start = Instant::now();
                let result = disk.sync_open(&file);
                self.task.completed(start, result)
            }
            None => self.task.run_unless(disk, is_interrupted),
        }
    }
}

/// The body of the thread: works until no more tasks can come.
fn work(
    given: &Receiver<Assignment>,
    done: &Sender<Done>,
    mut disk: Directory,
    wake: &dyn Fn(),
    is_interrupted: &dyn Fn() -> bool,
) {
    let mut next = None;
    while let Some(mut assignment) = next.take().or_else(|| given.recv().ok()) {
        let mut assignments = 1;
        next = loop {
            match given.try_recv() {
                Ok(later) if later.includes(&assignment) => assignment = later,
                later => break later.ok(),
            }
            assignments += 1;
        };
        if done.send(Done { completion: assignment.run(&mut disk, is_interrupted), assignments }).is_err() {
            return;
        }
        wake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;
    use crate::LogPosition;
    use crate::directory::Disk;

    fn sync_to(file: u32, offset: u64) -> StoreTask {
        StoreTask::Sync(LogPosition { file, offset })
    }

    #[test]
    fn tasks_are_done_in_order_and_each_wakes() {
        let directory = tempfile::tempdir().unwrap();
        let woken = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&woken);
        let wake = Box::new(move || {
            counter.fetch_add(1, Ordering::SeqCst);
        });
        let mut disk = Directory::new(directory.path());
        let mut helper = DirectoryHelper::new(Directory::new(directory.path()));
        let head = Box::new([1; crate::marker::HEAD_BYTES as usize]);
        let make = StoreTask::Make { file: 1, bytes: 4096, head };
        helper.submit(sync_to(1, 0), &mut disk);
        helper.submit(make.clone(), &mut disk);
        assert!(helper.poll().is_none(), "nothing is done before the start");
        let first = helper.wait(&mut disk).unwrap();
        assert!(first.result.is_err(), "a file that does not exist cannot be synced");
        assert_eq!(first.task, sync_to(1, 0));
        helper.start(wake).unwrap();
        let tasks = [make, sync_to(1, 88), StoreTask::Remove { file: 1 }];
        for task in &tasks[1..] {
            helper.submit(task.clone(), &mut disk);
        }
        let done: Vec<Completion> = std::iter::from_fn(|| helper.wait(&mut disk)).collect();
        assert!(done.iter().map(|done| &done.task).eq(&tasks));
        assert!(done.iter().all(|done| done.result.is_ok()));
        drop(helper);
        assert_eq!(woken.load(Ordering::SeqCst), 3);
    }

    /// Each interruption ends the file that is being made, and not the next one.
    #[test]
    fn a_file_that_is_being_made_can_be_interrupted() {
        let directory = tempfile::tempdir().unwrap();
        let mut disk = Directory::new(directory.path());
        let mut helper = DirectoryHelper::new(Directory::new(directory.path()));
        helper.start(Box::new(|| ())).unwrap();
        let head = Box::new([1; crate::marker::HEAD_BYTES as usize]);
        let mut make = |bytes, interrupts| {
            helper.submit(StoreTask::Make { file: 1, bytes, head: head.clone() }, &mut disk);
            helper.begin();
            if interrupts {
                helper.interrupt_making();
            }
            helper.wait(&mut disk).unwrap().result
        };
        assert_eq!(make(1 << 30, true).unwrap_err().kind(), io::ErrorKind::Interrupted);
        make(4096, false).unwrap();
        assert_eq!(make(1 << 30, true).unwrap_err().kind(), io::ErrorKind::Interrupted);
    }

    #[test]
    fn syncs_of_one_file_that_wait_are_done_as_one() {
        let directory = tempfile::tempdir().unwrap();
        let mut disk = Directory::new(directory.path());
        let (given, incoming) = channel();
        let (outgoing, done) = channel();
        disk.create(FileName::Log(1)).unwrap();
        disk.create(FileName::Log(2)).unwrap();
        let tasks =
            [sync_to(1, 1), sync_to(1, 2), sync_to(2, 1), StoreTask::Remove { file: 1 }, sync_to(2, 2)];
        for task in tasks {
            let file = match task {
                StoreTask::Sync(position) => disk.open_file(FileName::Log(position.file)),
                _ => None,
            };
            given.send(Assignment { task, file }).unwrap();
        }
        drop(given);
        work(&incoming, &outgoing, disk, &|| {}, &|| false);
        drop(outgoing);
        let done: Vec<_> = done.iter().map(|done| (done.completion.task, done.assignments)).collect();
        let expected =
            [(sync_to(1, 2), 2), (sync_to(2, 1), 1), (StoreTask::Remove { file: 1 }, 1), (sync_to(2, 2), 1)];
        assert_eq!(done, expected);
    }

    /// The handle is the one through which the file was appended to, so that no sync can lack a descriptor, and none
    /// can reach another file that has since got the name.
    #[test]
    fn a_sync_uses_the_handle_that_was_appended_through() {
        let directory = tempfile::tempdir().unwrap();
        let mut disk = Directory::new(directory.path());
        let mut helper = DirectoryHelper::new(Directory::new(directory.path()));
        disk.create(FileName::Log(1)).unwrap();
        disk.write_at(FileName::Log(1), 0, b"bytes").unwrap();
        std::fs::rename(directory.path().join("binlog.1"), directory.path().join("elsewhere")).unwrap();
        helper.submit(sync_to(1, 5), &mut disk);
        disk.release(FileName::Log(1));
        assert!(helper.wait(&mut disk).unwrap().result.is_ok());
        helper.submit(sync_to(1, 5), &mut disk);
        assert!(helper.wait(&mut disk).unwrap().result.is_err(), "there is no handle any more, and no file");
    }
}
