//! The tasks of the binlog's store, which the test executes instead of the helper thread.
//!
//! Owns: the submitted tasks that the test has not taken yet. The test executes a task, lets it fail, or loses it in a
//! crash.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use beanstalkd_binlog::{Completion, Disk, OnDisk, Storage, StoreTask, TaskRunner};

/// A list of tasks. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ByHand(Rc<RefCell<VecDeque<StoreTask>>>);

impl ByHand {
    /// A store on `disk` that submits its tasks here. The tasks of an earlier store are dropped.
    pub fn storage<D: Disk + 'static>(&self, disk: D) -> Box<dyn Storage> {
        self.0.borrow_mut().clear();
        Box::new(OnDisk::with_tasks(disk, self.clone()))
    }

    /// Takes the oldest task.
    pub fn next(&self) -> Option<StoreTask> {
        self.0.borrow_mut().pop_front()
    }

    /// Takes back the oldest tasks, which [`ByHand::next`] returned in this order.
    pub fn take_back(&self, tasks: impl Iterator<Item = StoreTask>) {
        let mut all = self.0.borrow_mut();
        let newer = std::mem::replace(&mut *all, tasks.collect());
        all.extend(newer);
    }
}

impl<D: Disk> TaskRunner<D> for ByHand {
    fn submit(&mut self, task: StoreTask, _: &mut D) {
        self.0.borrow_mut().push_back(task);
    }

    /// Always empty, because the test reports each completion to the binlog.
    fn poll(&mut self) -> Option<Completion> {
        None
    }

    fn is_busy(&self) -> bool {
        !self.0.borrow().is_empty()
    }

    fn wait(&mut self, disk: &mut D) -> Option<Completion> {
        Some(self.next()?.run(disk))
    }

    fn start(&mut self, _: Box<dyn Fn() + Send>) -> io::Result<()> {
        Ok(())
    }
}
