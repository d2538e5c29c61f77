//! The helper thread, which does the tasks of the store.
//!
//! Owns: the thread, the tasks that it was given and the outcomes that nobody has polled. The thread does one task after
//! another, in the order given, and decides nothing about the log. It syncs a file through the handle that the log
//! appends through, so that a sync never lacks a descriptor.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use super::files::sync;
use super::{Directory, FileName, Tasks};
use crate::binlog::storage::{Completion, Task};

/// A task, with the handle of the file that it syncs if that file was open when the task was given.
#[derive(Debug)]
struct Assignment {
    task: Task,
    file: Option<Arc<File>>,
}

/// Does the tasks of a store in a directory: on a thread once it was started, and before that when it is waited for.
#[derive(Debug)]
pub struct Helper(State);

#[derive(Debug)]
enum State {
    Idle {
        disk: Directory,
        given: VecDeque<Assignment>,
    },
    Running(Running),
    /// The thread could not be started.
    Failed,
}

/// A running thread. Dropping this waits for the tasks that the thread was given.
#[derive(Debug)]
struct Running {
    /// Not given to the thread yet.
    submitted: Vec<Assignment>,
    /// `None` once no more tasks can come.
    given: Option<Sender<Assignment>>,
    done: Receiver<Completion>,
    /// Tasks whose outcomes were not received.
    under_way: usize,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    /// A helper that works on `disk`.
    #[must_use]
    pub fn new(disk: Directory) -> Self {
        Self(State::Idle { disk, given: VecDeque::new() })
    }
}

impl Tasks<Directory> for Helper {
    fn submit(&mut self, task: Task, disk: &mut Directory) {
        let file = match &task {
            Task::Sync(position) => disk.open_file(FileName::Log(position.file)),
            Task::Make { .. } | Task::Shorten { .. } | Task::Remove { .. } => None,
        };
        let assignment = Assignment { task, file };
        match &mut self.0 {
            State::Idle { given, .. } => given.push_back(assignment),
            State::Running(running) => running.submitted.push(assignment),
            State::Failed => {}
        }
    }

    fn poll(&mut self) -> Option<Completion> {
        match &mut self.0 {
            State::Running(running) => {
                let completion = running.done.try_recv().ok()?;
                running.under_way -= 1;
                Some(completion)
            }
            State::Idle { .. } | State::Failed => None,
        }
    }

    fn begin(&mut self) {
        if let State::Running(running) = &mut self.0 {
            running.begin();
        }
    }

    fn wait(&mut self, _: &mut Directory) -> Option<Completion> {
        self.begin();
        match &mut self.0 {
            State::Idle { disk, given } => Some(given.pop_front()?.run(disk)),
            State::Running(running) if running.under_way > 0 => {
                let completion = running.done.recv().ok()?;
                running.under_way -= 1;
                Some(completion)
            }
            State::Running(_) | State::Failed => None,
        }
    }

    fn start(&mut self, wake: Box<dyn Fn() + Send>) -> io::Result<()> {
        if let State::Idle { disk, given } = std::mem::replace(&mut self.0, State::Failed) {
            let mut running = Running::start(disk, wake)?;
            running.submitted.extend(given);
            running.begin();
            self.0 = State::Running(running);
        }
        Ok(())
    }
}

impl Running {
    fn start(disk: Directory, wake: Box<dyn Fn() + Send>) -> io::Result<Self> {
        let (given, incoming) = channel();
        let (outgoing, done) = channel();
        let work = move || work(&incoming, &outgoing, disk, &*wake);
        let thread = Builder::new().name("binlog".to_owned()).spawn(work)?;
        Ok(Self { submitted: Vec::new(), given: Some(given), done, under_way: 0, thread: Some(thread) })
    }

    fn begin(&mut self) {
        let Some(given) = &self.given else { return };
        for assignment in self.submitted.drain(..) {
            self.under_way += 1;
            // The thread receives until this end is closed.
            let _ = given.send(assignment);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.begin();
        self.given = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Assignment {
    fn run(self, disk: &mut Directory) -> Completion {
        match self.file {
            Some(file) => {
                let start = Instant::now();
                let result = sync(&file);
                self.task.completed(start, result)
            }
            None => self.task.run(disk),
        }
    }
}

/// What the thread does until no more tasks can come.
fn work(given: &Receiver<Assignment>, done: &Sender<Completion>, mut disk: Directory, wake: &dyn Fn()) {
    while let Ok(assignment) = given.recv() {
        if done.send(assignment.run(&mut disk)).is_err() {
            return;
        }
        wake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::binlog::LogPosition;
    use crate::binlog::directory::Disk;

    fn sync_to(file: u32, offset: u64) -> Task {
        Task::Sync(LogPosition { file, offset })
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
        let mut helper = Helper::new(Directory::new(directory.path()));
        let head = Box::new([1; crate::binlog::marker::HEAD_BYTES as usize]);
        let make = Task::Make { file: 1, bytes: 4096, head };
        helper.submit(sync_to(1, 0), &mut disk);
        helper.submit(make.clone(), &mut disk);
        assert!(helper.poll().is_none(), "nothing is done before the start");
        let first = helper.wait(&mut disk).unwrap();
        assert!(first.result.is_err(), "a file that does not exist cannot be synced");
        assert_eq!(first.task, sync_to(1, 0));
        helper.start(wake).unwrap();
        let tasks = [make, sync_to(1, 88), Task::Remove { file: 1 }];
        for task in &tasks[1..] {
            helper.submit(task.clone(), &mut disk);
        }
        let done: Vec<Completion> = std::iter::from_fn(|| helper.wait(&mut disk)).collect();
        assert!(done.iter().map(|done| &done.task).eq(&tasks));
        assert!(done.iter().all(|done| done.result.is_ok()));
        drop(helper);
        assert_eq!(woken.load(Ordering::SeqCst), 3);
    }

    /// The handle is that of the file that was appended to, so that no sync can lack a descriptor, and none can reach
    /// another file that has the name by now.
    #[test]
    fn a_sync_uses_the_handle_that_was_appended_through() {
        let directory = tempfile::tempdir().unwrap();
        let mut disk = Directory::new(directory.path());
        let mut helper = Helper::new(Directory::new(directory.path()));
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
