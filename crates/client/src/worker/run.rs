//! The run of a slot: reserves a job, has it handled, and ends it.
//!
//! Owns: the order of a slot's commands, and the connection that has its job. Both drivers run it. A task of tokio
//! polls it; the blocking driver completes each step before it returns, so one poll takes it to its end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use beanstalkd_protocol::{Field, Refusal};
use beanstalkd_types::seconds::Seconds;
use beanstalkd_types::tube_name::TubeName;

use super::{
    Event, Handled, MAX_LATE_WAIT, MAX_SETTLES, MAX_SILENCE, STOP_CHECK_INTERVAL, Settled, Worker, WorkerJob,
    WorkerSlot, seconds,
};
use crate::address::Address;
use crate::core::data::{Extensions, Job, JobInfo};
use crate::core::engine::{Engine, Reopening};
use crate::core::put::PutOptions;
use crate::core::{Backoff, Connector};
use crate::error::Error;
use crate::span::Span;

/// A client as a driver has it.
pub(crate) trait SlotConnection: Send + Sized {
    /// Connects.
    fn open(connector: &Connector, server: &Address) -> impl Future<Output = Result<Self, Error>> + Send;

    /// Closes the connection, and waits until the server has closed it.
    fn leave(self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Waits for this time.
    fn pause(time: Duration) -> impl Future<Output = ()> + Send;

    fn engine(&mut self) -> &mut Engine;

    /// Closes the connection. The next command opens another one.
    fn hang_up(&mut self);
}

/// Runs the handler of a job, and touches the job in the meantime.
pub(crate) trait JobRunner<C: SlotConnection>: Sync {
    fn run(
        &self,
        slot: &mut RunningSlot<'_, C>,
        job: &Arc<WorkerJob>,
        span: &Span,
    ) -> impl Future<Output = Handled> + Send;
}

/// Passes the commands of a slot to the macro `$make`, for a driver if there is one.
macro_rules! with_slot_commands {
    ($make:ident $(, $driver:ident)?) => {
        $make! {
            $($driver,)?
            fn watch(tube: &TubeName) -> u64;
            fn ignore(tube: &TubeName) -> u64;
            fn reserve_fields(list: &[Field]) -> ();
            fn extensions() -> Extensions;
            fn reserve_with_timeout(seconds: Seconds) -> Job;
            fn stats_job(id: u64) -> JobInfo;
            fn touch(id: u64) -> ();
            fn delete(id: u64) -> ();
            fn complete(id: u64, puts: &[(PutOptions, &[u8])]) -> Vec<u64>;
            fn bury(id: u64, pri: u32) -> ();
            fn release(id: u64, pri: u32, delay: Seconds) -> bool;
            fn release_uncounted(id: u64, pri: u32, delay: Seconds) -> ();
        }
    };
}

macro_rules! slot_client_trait {
    ($(fn $name:ident($($argument:ident: $of:ty),*) -> $result:ty;)+) => {
        /// The commands of a slot. Each driver implements them with the methods of its client.
        pub(crate) trait SlotClient: SlotConnection { $(
            fn $name(&mut self, $($argument: $of),*) -> impl Future<Output = Result<$result, Error>> + Send;
        )+ }
    };
}

with_slot_commands!(slot_client_trait);

pub(crate) use with_slot_commands;

impl Worker {
    /// Works until the worker is stopped, or with `until_empty` until there is no ready job.
    pub(crate) async fn run_slot<C: SlotClient>(
        &self,
        slot: &WorkerSlot,
        jobs: &impl JobRunner<C>,
    ) -> Result<(), Error> {
        let Some(client) = self.first_client::<C>(slot).await? else { return Ok(()) };
        let mut running = RunningSlot { worker: self, slot, client, reserved_on: None, is_lost: false };
        let (mut last_seen, mut backoff) = (Instant::now(), Backoff::default());
        while !self.stopper.is_stopped() {
            let sent = Instant::now();
            let done = match running.reserve().await {
                Ok(job) => running.work_on(job, jobs).await,
                Err(error) if error.is_timed_out() && self.until_empty => return Ok(()),
                Err(Error::Refused(Refusal::TimedOut)) => {
                    self.rest::<C>(self.rest_of_timeout(sent)).await;
                    Ok(())
                }
                // The session has a job of an earlier connection, for at most another second.
                Err(Error::Refused(Refusal::DeadlineSoon)) => {
                    self.rest::<C>(STOP_CHECK_INTERVAL).await;
                    Ok(())
                }
                Err(error) => Err(error),
            };
            match done {
                Ok(()) => (last_seen, backoff) = (Instant::now(), Backoff::default()),
                Err(error) => match self.pause_after(&error, last_seen.elapsed(), &mut backoff) {
                    Some(pause) => {
                        running.client.hang_up();
                        self.rest::<C>(pause).await;
                    }
                    None if self.stopper.is_stopped() => running.client.hang_up(),
                    None => return Err(error),
                },
            }
        }
        let mut client = running.client;
        // If a reply is late, a reply to `quit` would be late, too.
        if client.engine().number().is_some() && !client.engine().is_late() {
            client.engine().worker_timeout = Some(MAX_SILENCE);
            // If the server is gone, so are the reservations.
            let _ = client.leave().await;
        }
        Ok(())
    }

    /// The first connection of a slot, which watches its tubes; `None` if the slot has nothing to do.
    async fn first_client<C: SlotClient>(&self, slot: &WorkerSlot) -> Result<Option<C>, Error> {
        let (began, mut backoff) = (Instant::now(), Backoff::default());
        while !self.stopper.is_stopped() {
            let error = match self.set_up::<C>(slot).await {
                Ok(client) => {
                    slot.start.connected();
                    return Ok(Some(client));
                }
                Err(error) => error,
            };
            if !slot.start.failed(self, error, backoff.next(), began.elapsed())? {
                return Ok(None);
            }
            let pause = self.pause(&mut backoff);
            self.rest::<C>(pause).await;
        }
        Ok(None)
    }

    async fn set_up<C: SlotClient>(&self, slot: &WorkerSlot) -> Result<C, Error> {
        let mut client = C::open(&slot.first_connector(), &slot.server).await?;
        for tube in &self.tubes {
            client.watch(tube).await?;
        }
        if !self.tubes.is_empty() && !self.tubes.contains(&TubeName::default_tube()) {
            client.ignore(&TubeName::default_tube()).await?;
        }
        if !self.with_info {
            // If the server lacks them or does not permit them, the worker asks about each job.
            match client.reserve_fields(&Field::ALL).await {
                Ok(()) | Err(Error::Unsupported { .. } | Error::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        client.engine().connector.timeout = slot.connector.timeout;
        Ok(client)
    }

    /// Waits for this time, or until the worker is stopped.
    async fn rest<C: SlotConnection>(&self, pause: Duration) {
        let mut left = pause;
        while !left.is_zero() && !self.stopper.is_stopped() {
            C::pause(left.min(STOP_CHECK_INTERVAL)).await;
            left = left.saturating_sub(STOP_CHECK_INTERVAL);
        }
    }
}

/// A slot with its connection.
pub(crate) struct RunningSlot<'a, C> {
    worker: &'a Worker,
    slot: &'a WorkerSlot,
    client: C,
    /// The number of the connection on which the server has the job reserved.
    reserved_on: Option<u64>,
    /// Whether a touch has shown that the job is not reserved for this worker any more.
    is_lost: bool,
}

impl<C: SlotClient> RunningSlot<'_, C> {
    /// The client for the next commands, whose lost connection is opened again like this. Between further attempts the
    /// slot pauses itself, because a stop ends them. For a stopped worker the time-out is shorter, and much shorter on
    /// a connection on which a reply is late: the server still gets the command if it answers again later.
    fn client_with(&mut self, reopening: Reopening) -> &mut C {
        let engine = self.client.engine();
        engine.reopening = reopening;
        let max = if engine.is_late() { MAX_LATE_WAIT } else { MAX_SILENCE };
        engine.worker_timeout = self.worker.stopper.is_stopped().then_some(max);
        &mut self.client
    }

    async fn reserve(&mut self) -> Result<Job, Error> {
        let timeout = self.worker.reserve_timeout();
        let client = self.client_with(Reopening::Once);
        client.engine().worker_timeout = Some(MAX_SILENCE);
        client.reserve_with_timeout(timeout).await
    }

    async fn work_on(&mut self, job: Job, jobs: &impl JobRunner<C>) -> Result<(), Error> {
        let worker = self.worker;
        (self.reserved_on, self.is_lost) = (self.client.engine().number(), false);
        let info = if worker.needs_info(&job.fields) {
            match self.info(job.id).await {
                // Its TTR has ended, and another worker has deleted it since.
                Err(error) if error.is_not_found() => return Ok(()),
                info => Some(info?),
            }
        } else {
            None
        };
        if !self.still_has(job.id).await? {
            return Ok(());
        }
        let job = Arc::new(WorkerJob::new(job, info, worker, &self.slot.failures));
        if worker.stopper.is_stopped() {
            self.give_back(&job).await;
            return Ok(());
        }
        let span = worker.span(&job);
        span.run(|| worker.emit(&Event::Began(&job)));
        let began = Instant::now();
        let mut handled = jobs.run(self, &job, &span).await;
        let took = began.elapsed();
        let plan = Settled::plan(&handled, &job, &worker.retry);
        let (settled, ended) = self.finish(plan, &mut handled, &job).await;
        self.slot.failures.note(&job, settled);
        span.run(|| worker.emit(&Event::Ended { job: &job, handled: &handled, settled, took }));
        ended
    }

    async fn info(&mut self, id: u64) -> Result<JobInfo, Error> {
        let (worker, mut backoff) = (self.worker, Backoff::default());
        loop {
            let info = self.client_with(worker.reopening_for_job()).stats_job(id).await;
            let pause = info.as_ref().err().and_then(|error| worker.pause_for_job(error, &mut backoff));
            let Some(pause) = pause else { return info };
            C::pause(pause).await;
        }
    }

    /// Whether the server still has the job reserved for this worker. A lost connection has released it, unless there
    /// is a session: then the server is asked. A server that was restarted may have another job with its id.
    async fn still_has(&mut self, id: u64) -> Result<bool, Error> {
        if self.client.engine().number() == self.reserved_on {
            return Ok(true);
        }
        if !self.worker.has_session() {
            return Ok(false);
        }
        match self.touch(id).await {
            Err(error) if error.is_not_found() => Ok(false),
            touched => touched.map(|()| true),
        }
    }

    /// Touches the job: without a session only on the connection that has reserved it.
    async fn touch(&mut self, id: u64) -> Result<(), Error> {
        let (worker, mut backoff) = (self.worker, Backoff::default());
        let touched = loop {
            let touched = self.client_with(worker.reopening_for_job()).touch(id).await;
            let pause = touched.as_ref().err().and_then(|error| worker.pause_for_job(error, &mut backoff));
            let Some(pause) = pause else { break touched };
            C::pause(pause).await;
        };
        if touched.is_ok() {
            self.reserved_on = self.client.engine().number();
        }
        touched
    }

    /// Touches the job of the running handler, until it is known to be lost.
    pub(crate) async fn touch_running(&mut self, job: &WorkerJob, span: &Span) {
        if self.is_lost {
            return;
        }
        let Err(error) = self.touch(job.id).await else { return };
        let is_open = self.client.engine().number() == self.reserved_on;
        self.is_lost = error.is_not_found() || !is_open && !self.worker.has_session();
        span.run(|| self.worker.emit(&Event::NotTouched(job, &error)));
    }

    /// Ends the job as planned, on a connection that has it reserved. Returns what was done, and the error if the
    /// connection is not to be used any more.
    async fn finish(
        &mut self,
        mut plan: Settled,
        handled: &mut Handled,
        job: &WorkerJob,
    ) -> (Settled, Result<(), Error>) {
        let mut settled = Settled::Lost;
        for _ in 0..MAX_SETTLES {
            match self.still_has(job.id).await {
                Ok(true) => {}
                Ok(false) => return (settled, Ok(())),
                Err(error) => return plan.after(Err(error)),
            }
            let result = self.settle(plan, handled, job).await;
            if let Err(error) = &result
                && let Some(failed) = handled.refused(error)
            {
                *handled = failed;
                plan = Settled::plan(handled, job, &self.worker.retry);
                continue;
            }
            match result {
                Err(error) if error.is_network_error() && self.worker.has_session() => {
                    self.client.hang_up();
                    settled = Settled::Unconfirmed;
                    if self.worker.stopper.is_stopped() && error.is_late() {
                        break;
                    }
                }
                result => return plan.after(result),
            }
        }
        (Settled::Unconfirmed, Ok(()))
    }

    /// Carries out the plan. `false` if the server has buried the job instead.
    async fn settle(&mut self, plan: Settled, handled: &Handled, job: &WorkerJob) -> Result<bool, Error> {
        let (id, pri) = (job.id, job.pri);
        self.client_with(Reopening::Never);
        match plan {
            Settled::Deleted => self.client.delete(id).await.map(|()| true),
            Settled::Completed => self.client.complete(id, &handled.puts()).await.map(|_| true),
            Settled::Buried => self.client.bury(id, pri).await.map(|()| true),
            Settled::Released(delay) => {
                let delay = self.seconds(delay).await;
                self.client.release(id, pri, delay).await
            }
            Settled::GivenBack(delay) => {
                let delay = self.seconds(delay).await;
                match self.client.release_uncounted(id, pri, delay).await {
                    // The end of the connection makes the job ready, too, and no counter shows it.
                    Err(Error::Unsupported { .. }) if delay.is_zero() && !self.worker.has_session() => {
                        self.client.hang_up();
                        Ok(true)
                    }
                    Err(Error::Unsupported { .. }) => self.client.release(id, pri, delay).await,
                    given_back => given_back.map(|()| true),
                }
            }
            Settled::Lost | Settled::Unconfirmed => Ok(true),
        }
    }

    /// Gives a job back that was not begun, because the worker is stopped. Without a session, the end of the connection
    /// does that, and nothing is counted.
    async fn give_back(&mut self, job: &WorkerJob) {
        if self.worker.has_session() {
            // If this fails, the job is ready when its TTR or the grace of the session ends.
            let (plan, mut handled) = (Settled::GivenBack(Duration::ZERO), Handled::Postpone(Duration::ZERO));
            let _ = self.finish(plan, &mut handled, job).await;
        }
    }

    /// A time as precise as the server supports. The server is asked only about a time with a fraction.
    async fn seconds(&mut self, time: Duration) -> Seconds {
        let has_fractions = time.subsec_nanos() > 0
            && self.client.extensions().await.is_ok_and(|extensions| extensions.has("fractions"));
        self.client_with(Reopening::Never);
        seconds(time, has_fractions)
    }
}
