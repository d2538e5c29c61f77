//! The tasks of the binlog's store, which the test executes instead of the helper thread.
//!
//! Owns: the submitted tasks that the test has not taken yet. The test executes a task, lets it fail, or loses it in a
//! crash.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use beanstalkd_binlog::{Completion, Disk, OnDisk, Storage, StoreTask, TaskRunner};

/// A list of tasks. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ByHand {
    tasks: Rc<RefCell<VecDeque<StoreTask>>>,
    /// Whether the log does not want the file that it has requested last.
    is_interrupted: Rc<Cell<bool>>,
}

impl ByHand {
    /// A store on `disk` that submits its tasks here. The tasks of an earlier store are dropped.
    pub fn storage<D: Disk + 'static>(&self, disk: D) -> Box<dyn Storage> {
        self.tasks.borrow_mut().clear();
        Box::new(OnDisk::with_tasks(disk, self.clone()))
    }

    /// Takes the oldest task.
    pub fn next(&self) -> Option<StoreTask> {
        self.tasks.borrow_mut().pop_front()
    }

    /// Takes back the oldest tasks, which [`ByHand::next`] returned in this order.
    pub fn take_back(&self, tasks: impl Iterator<Item = StoreTask>) {
        let mut all = self.tasks.borrow_mut();
        let newer = std::mem::replace(&mut *all, tasks.collect());
        all.extend(newer);
    }
}

impl<D: Disk> TaskRunner<D> for ByHand {
    fn submit(&mut self, task: StoreTask, _: &mut D) {
        if matches!(task, StoreTask::Make { .. }) {
            self.is_interrupted.set(false);
        }
        self.tasks.borrow_mut().push_back(task);
    }

    /// Always empty, because the test reports each completion to the binlog.
    fn poll(&mut self) -> Option<Completion> {
        None
    }

    fn interrupt_making(&mut self) {
        self.is_interrupted.set(true);
    }

    fn is_busy(&self) -> bool {
        !self.tasks.borrow().is_empty()
    }

    fn wait(&mut self, disk: &mut D) -> Option<Completion> {
        let task = self.next()?;
        if matches!(task, StoreTask::Make { .. }) && self.is_interrupted.get() {
            return Some(Completion { task, elapsed_us: 1, result: Err(io::ErrorKind::Interrupted.into()) });
        }
        Some(task.run(disk))
    }

    fn start(&mut self, _: Box<dyn Fn() + Send>) -> io::Result<()> {
        Ok(())
    }
}
