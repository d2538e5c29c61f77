//! A worker with threads: one for each slot, which has a connection, and one for each job.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;

use super::client::Client;
use crate::error::Error;
use crate::span::Span;
use crate::worker::run::{JobRunner, RunningSlot};
use crate::worker::{Handled, Report, Worker, WorkerJob};

/// The result of a future of the blocking driver, whose steps are complete when they return.
fn poll_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("a step of the blocking driver is complete when it returns"),
    }
}

impl Worker {
    /// Works until it is stopped, and then until the handlers have ended. A panic of a handler is a failure of its job.
    ///
    /// # Errors
    /// If a server cannot be reached in time, or does not permit the worker's commands. The other slots end first.
    ///
    /// # Panics
    /// If the function of [`Self::on_event`] or of `in_span` panics; after the other slots have ended.
    pub fn run<O: Into<Handled>>(&self, handler: impl Fn(&WorkerJob) -> O + Sync) -> Result<Report, Error> {
        let (slots, start) = self.make_slots()?;
        let handler = |job: &WorkerJob| handler(job).into();
        let jobs = &Threads(&handler);
        let ended = thread::scope(|scope| {
            let slots: Vec<_> = slots
                .iter()
                .map(|slot| {
                    scope.spawn(move || {
                        let slot = AssertUnwindSafe(|| poll_once(self.run_slot::<Client>(slot, jobs)));
                        let ended = catch_unwind(slot);
                        // An error of one slot ends them all, and so does a panic; an empty server does not.
                        if !matches!(ended, Ok(Ok(()))) {
                            self.stopper.stop();
                        }
                        ended.unwrap_or_else(|panic| resume_unwind(panic))
                    })
                })
                .collect();
            // The worker waits for all slots, even after an error.
            let ended: Vec<_> = slots.into_iter().map(|slot| slot.join()).collect();
            let ended = ended.into_iter().map(|slot| slot.unwrap_or_else(|panic| resume_unwind(panic)));
            ended.collect::<Result<(), Error>>()
        });
        ended.and_then(|()| start.result()).map(|()| self.report())
    }
}

/// Runs each handler on a thread of its own.
struct Threads<'a>(&'a (dyn Fn(&WorkerJob) -> Handled + Sync));

impl JobRunner<Client> for Threads<'_> {
    async fn run(&self, slot: &mut RunningSlot<'_, Client>, job: &Arc<WorkerJob>, span: &Span) -> Handled {
        let handler = self.0;
        let (ended, end) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                let handled = span.run(|| catch_unwind(AssertUnwindSafe(|| handler(job))));
                // This cannot fail: the receiver waits for the result.
                let _ = ended
                    .send(handled.unwrap_or_else(|_| Handled::Failed("the handler has panicked".to_owned())));
            });
            loop {
                match end.recv_timeout(job.touch_every()) {
                    Ok(handled) => return handled,
                    Err(mpsc::RecvTimeoutError::Timeout) => poll_once(slot.touch_running(job, span)),
                    Err(mpsc::RecvTimeoutError::Disconnected) => {
                        return Handled::Failed("the handler has not ended".to_owned());
                    }
                }
            }
        })
    }
}
