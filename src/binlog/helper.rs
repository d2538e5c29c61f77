//! The helper thread, on which the binlog's slow calls are made.
//!
//! Owns: the thread, the way in and the way out. It keeps no state of the log and decides nothing: tasks
//! are done one after another in the order given. Driven by the server, which is woken for each completion.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::Duration;

use super::disk::{Completion, Disk, DiskTask, is_lack_of_descriptors};

/// The longest time between two attempts to sync a file for which there is no descriptor
const LONGEST_WAIT: Duration = Duration::from_millis(256);
/// and the number of attempts, some five seconds in all.
const ATTEMPTS: u32 = 28;

/// A running helper thread. Dropping it waits for the tasks already given.
#[derive(Debug)]
pub struct Helper {
    /// `None` once no more tasks may come.
    tasks: Option<Sender<DiskTask>>,
    completions: Receiver<Completion>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    /// Starts the thread, which works on `disk` and calls `wake` after each completion.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub fn start(mut disk: impl Disk + Send + 'static, wake: Box<dyn Fn() + Send>) -> io::Result<Self> {
        let (tasks, incoming) = channel::<DiskTask>();
        let (outgoing, completions) = channel();
        let thread = Builder::new().name("binlog".to_owned()).spawn(move || {
            for task in incoming {
                if outgoing.send(run_patiently(task, |task| task.run(&mut disk))).is_err() {
                    return;
                }
                wake();
            }
        })?;
        Ok(Self { tasks: Some(tasks), completions, thread: Some(thread) })
    }

    /// Gives the thread a task.
    pub fn submit(&self, task: DiskTask) {
        if let Some(tasks) = &self.tasks {
            // The thread ends only after this end is closed, so there is always someone to take it.
            let _ = tasks.send(task);
        }
    }

    /// The next completion, if one has come.
    #[must_use]
    pub fn try_next(&self) -> Option<Completion> {
        self.completions.try_recv().ok()
    }

    /// Waits for the next completion; `None` if the thread is gone. Only for use while a task is
    /// under way.
    #[must_use]
    pub fn wait_next(&self) -> Option<Completion> {
        self.completions.recv().ok()
    }

    /// Waits until all tasks are done, ends the thread and returns what was not yet taken.
    #[must_use]
    pub fn finish(mut self) -> Vec<Completion> {
        self.stop();
        self.completions.try_iter().collect()
    }

    fn stop(&mut self) {
        self.tasks = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Does the task. A sync for which no descriptor is left has not begun, and is tried again for some seconds: what is
/// written after it must not become durable before it. Everything else comes back at once, and the log asks again.
fn run_patiently(task: DiskTask, mut run: impl FnMut(DiskTask) -> Completion) -> Completion {
    if let DiskTask::Sync { .. } = task {
        let mut wait = Duration::from_millis(1);
        for attempt in 1..ATTEMPTS {
            let completion = run(task.clone());
            match &completion.result {
                Err(error) if is_lack_of_descriptors(error) => {
                    if attempt == 1 {
                        log::warn!("binlog: {error}; trying to sync again for some seconds");
                    }
                    sleep(wait);
                    wait = (wait * 2).min(LONGEST_WAIT);
                }
                _ => return completion,
            }
        }
    }
    run(task)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::binlog::disk::Directory;

    #[test]
    fn only_a_sync_that_lacks_a_descriptor_is_tried_again() {
        const EMFILE: i32 = 24;
        let attempts = |task: DiskTask, error: &dyn Fn() -> io::Error| {
            let mut attempts = 0;
            let completion = run_patiently(task, |task| {
                attempts += 1;
                let result = if attempts < 3 { Err(error()) } else { Ok(()) };
                Completion { task, elapsed_us: 1, result }
            });
            (attempts, completion.result.is_ok())
        };
        let lacks_descriptor = || io::Error::from_raw_os_error(EMFILE);
        let sync = DiskTask::Sync { index: 1, offset: 0 };
        assert_eq!(attempts(sync.clone(), &lacks_descriptor), (3, true));
        assert_eq!(attempts(sync, &|| io::ErrorKind::OutOfMemory.into()), (1, false));
        assert_eq!(attempts(DiskTask::Unlink { index: 1 }, &lacks_descriptor), (1, false));
    }

    #[test]
    fn tasks_are_done_in_order_and_each_wakes() {
        let directory = tempfile::tempdir().unwrap();
        let woken = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&woken);
        let wake = Box::new(move || {
            counter.fetch_add(1, Ordering::SeqCst);
        });
        let helper = Helper::start(Directory::new(directory.path()), wake).unwrap();
        let head = Box::new([1; crate::binlog::marker::HEAD_BYTES as usize]);
        let tasks = [
            DiskTask::Sync { index: 1, offset: 0 },
            DiskTask::Create { index: 1, bytes: 4096, head },
            DiskTask::Sync { index: 1, offset: 88 },
            DiskTask::Unlink { index: 1 },
        ];
        for task in tasks.clone() {
            helper.submit(task);
        }
        let first = helper.wait_next().unwrap();
        assert!(first.result.is_err(), "a file that is not there cannot be synced");
        assert_eq!(first.task, tasks[0]);
        let rest = helper.finish();
        assert!(rest.iter().map(|done| &done.task).eq(&tasks[1..]));
        assert!(rest.iter().all(|done| done.result.is_ok()));
        assert_eq!(woken.load(Ordering::SeqCst), 4);
    }
}
