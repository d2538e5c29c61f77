//! A worker with tasks: one for each slot, which has a connection, and one for each job.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::client::Client;
use crate::error::Error;
use crate::span::Span;
use crate::worker::run::{JobRunner, RunningSlot};
use crate::worker::{Handled, Report, Worker, WorkerJob};

impl Worker {
    /// Works until it is stopped, like [`Self::run`], with tokio: a handler is a task. A panic of a handler is a
    /// failure of its job. If this future is dropped, the handlers end, and their jobs become ready again.
    ///
    /// # Errors
    /// As those of [`Self::run`].
    ///
    /// # Panics
    /// As [`Self::run`].
    pub async fn run_async<H, F>(&self, handler: H) -> Result<Report, Error>
    where
        H: Fn(Arc<WorkerJob>) -> F + Send + Sync + 'static,
        F: Future<Output: Into<Handled>> + Send + 'static,
    {
        let jobs = Arc::new(HandlerTasks(handler));
        let (all, start) = self.make_slots()?;
        let mut slots = JoinSet::new();
        for slot in all {
            let (worker, jobs) = (self.clone(), Arc::clone(&jobs));
            slots.spawn(async move {
                let ended = worker.run_slot::<Client>(&slot, &*jobs).await;
                ended.inspect_err(|_| worker.stopper.stop())
            });
        }
        let (mut ended, mut panic) = (Ok(()), None);
        while let Some(slot) = slots.join_next().await {
            // A panic of one slot ends them all, as an error does.
            let slot = slot.inspect_err(|_| self.stopper.stop());
            match slot.map_err(|error| error.try_into_panic()) {
                Ok(slot) => ended = ended.and(slot),
                Err(Ok(payload)) => panic = Some(payload),
                // The runtime ends.
                Err(Err(_)) => ended = ended.and(Err(Error::Closed)),
            }
        }
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
        ended.and_then(|()| start.result()).map(|()| self.report())
    }
}

/// Runs each handler as a task of its own.
struct HandlerTasks<H>(H);

impl<H, F> JobRunner<Client> for HandlerTasks<H>
where
    H: Fn(Arc<WorkerJob>) -> F + Send + Sync,
    F: Future<Output: Into<Handled>> + Send + 'static,
{
    async fn run(&self, slot: &mut RunningSlot<'_, Client>, job: &Arc<WorkerJob>, span: &Span) -> Handled {
        let panicked = || Handled::Failed("the handler has panicked".to_owned());
        let handler = &self.0;
        let run = span.run(|| catch_unwind(AssertUnwindSafe(|| handler(Arc::clone(job)))));
        let Ok(run) = run else { return panicked() };
        // A set ends its tasks when it is dropped.
        let mut running = JoinSet::new();
        running.spawn(span.clone().around(async move { run.await.into() }));
        loop {
            match timeout(job.touch_every(), running.join_next()).await {
                Ok(Some(Ok(handled))) => return handled,
                Ok(Some(Err(_)) | None) => return panicked(),
                Err(_) => slot.touch_running(job, span).await,
            }
        }
    }
}
