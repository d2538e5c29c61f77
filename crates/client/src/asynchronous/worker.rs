//! A worker with tasks: one for each slot, which has a connection, and one for each job.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use beanstalkd_protocol::{Field, Refusal};
use beanstalkd_types::tube_name::TubeName;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::client::Client;
use crate::core::Attempts;
use crate::core::data::Job;
use crate::core::engine::Reopening;
use crate::error::Error;
use crate::span::Span;
use crate::work::{
    Delivery, Event, MAX_SETTLES, MAX_SILENCE, Outcome, Report, STOP_TURN, Settled, Worker, WorkerSlot,
    seconds,
};

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
        H: Fn(Arc<Delivery>) -> F + Send + Sync + 'static,
        F: Future<Output: Into<Outcome>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let (all, start) = self.make_slots()?;
        let mut slots = JoinSet::new();
        for slot in all {
            let (worker, handler) = (self.clone(), Arc::clone(&handler));
            slots.spawn(async move {
                let ended = worker.run_slot_async(&slot, &*handler).await;
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
        ended.and_then(|()| start.result()).map(|()| self.counters.report())
    }

    /// The first connection of a slot, which watches its tubes; `None` if the slot has nothing to do.
    async fn open_slot_async(&self, slot: &WorkerSlot) -> Result<Option<Client>, Error> {
        let (began, mut attempts, mut is_first) = (Instant::now(), Attempts::default(), true);
        while !self.stopper.is_stopped() {
            let error = match self.set_up_async(slot).await {
                Ok(client) => {
                    slot.start.connected();
                    return Ok(Some(client));
                }
                Err(error) => error,
            };
            if !slot.start.failed(self, error, std::mem::take(&mut is_first), began.elapsed())? {
                return Ok(None);
            }
            let pause = self.pause(&mut attempts);
            self.rest_async(pause).await;
        }
        Ok(None)
    }

    async fn set_up_async(&self, slot: &WorkerSlot) -> Result<Client, Error> {
        let mut client = slot.first_connector().connect_async(&slot.server).await?;
        for tube in &self.tubes {
            client.watch(tube).await?;
        }
        if !self.tubes.is_empty() && !self.tubes.contains(&TubeName::default_tube()) {
            client.ignore(&TubeName::default_tube()).await?;
        }
        // If the server lacks them or does not permit them, the worker asks about each job.
        match client.reserve_fields(&Field::ALL).await {
            Ok(()) | Err(Error::Unsupported { .. } | Error::Refused(_)) => {}
            Err(error) => return Err(error),
        }
        client.set_timeout(slot.connector.timeout);
        Ok(client)
    }

    async fn run_slot_async<H, F>(&self, slot: &WorkerSlot, handler: &H) -> Result<(), Error>
    where
        H: Fn(Arc<Delivery>) -> F + Send + Sync,
        F: Future<Output: Into<Outcome>> + Send + 'static,
    {
        let Some(mut client) = self.open_slot_async(slot).await? else { return Ok(()) };
        let (mut last_seen, mut attempts) = (Instant::now(), Attempts::default());
        while !self.stopper.is_stopped() {
            let sent = Instant::now();
            let done = match self.reserve_async(&mut client).await {
                Ok(job) => self.work_on_async(&mut client, job, slot, handler).await,
                Err(error) if error.is_timed_out() && self.until_empty => return Ok(()),
                Err(Error::Refused(Refusal::TimedOut)) => {
                    self.rest_async(self.rest_of_turn(sent)).await;
                    Ok(())
                }
                // The session has a job of an earlier connection, for at most another second.
                Err(Error::Refused(Refusal::DeadlineSoon)) => {
                    self.rest_async(STOP_TURN).await;
                    Ok(())
                }
                Err(error) => Err(error),
            };
            match done {
                Ok(()) => (last_seen, attempts) = (Instant::now(), Attempts::default()),
                Err(error) => match self.pause_after(&error, last_seen.elapsed(), &mut attempts) {
                    Some(pause) => {
                        client.hang_up();
                        self.rest_async(pause).await;
                    }
                    None if self.stopper.is_stopped() => client.hang_up(),
                    None => return Err(error),
                },
            }
        }
        if client.number().is_some() {
            client.set_max_timeout(Some(MAX_SILENCE));
            // If the server is gone, so are the reservations.
            let _ = client.quit().await;
        }
        Ok(())
    }

    /// Reserves a job. Between the attempts at another connection, the slot pauses itself, because a stop ends its
    /// pauses.
    async fn reserve_async(&self, client: &mut Client) -> Result<Job, Error> {
        client.set_reopening(Reopening::Once);
        client.set_max_timeout(Some(MAX_SILENCE));
        let reserved = client.reserve_with_timeout(self.turn()).await;
        client.set_reopening(Reopening::Usual);
        client.set_max_timeout(None);
        reserved
    }

    async fn work_on_async<H, F>(
        &self,
        client: &mut Client,
        job: Job,
        slot: &WorkerSlot,
        handler: &H,
    ) -> Result<(), Error>
    where
        H: Fn(Arc<Delivery>) -> F + Send + Sync,
        F: Future<Output: Into<Outcome>> + Send + 'static,
    {
        let held_on = &mut client.number();
        let info = match self.needs_info(&job.fields) {
            true => {
                client.set_reopening(self.reopening_for_job());
                let info = client.stats_job(job.id).await;
                client.set_reopening(Reopening::Usual);
                match info {
                    // Its TTR has ended, and another worker has deleted it since.
                    Err(error) if error.is_not_found() => return Ok(()),
                    info => Some(info?),
                }
            }
            false => None,
        };
        if !self.still_has_async(client, job.id, held_on).await? {
            return Ok(());
        }
        let delivery = Arc::new(Delivery::new(job, info, self, &slot.failures));
        if self.stopper.is_stopped() {
            self.give_back_async(client, &delivery, held_on).await;
            return Ok(());
        }
        let span = self.span(&delivery);
        span.run(|| self.emit(&Event::Began(&delivery)));
        let began = Instant::now();
        let run = span.run(|| catch_unwind(AssertUnwindSafe(|| handler(Arc::clone(&delivery)))));
        let mut outcome = match run {
            Ok(run) => self.run_handler_async(client, &delivery, &span, run, held_on).await,
            Err(_) => Outcome::Failed("the handler has panicked".to_owned()),
        };
        let took = began.elapsed();
        let plan = Settled::plan(&outcome, &delivery, &self.retry);
        let (settled, ended) = self.finish_async(client, plan, &mut outcome, &delivery, held_on).await;
        slot.failures.note(&delivery, settled);
        span.run(|| self.emit(&Event::Ended { delivery: &delivery, outcome: &outcome, settled, took }));
        ended
    }

    /// Runs the handler's future as a separate task, and touches the job in the meantime.
    async fn run_handler_async<F>(
        &self,
        client: &mut Client,
        delivery: &Delivery,
        span: &Span,
        run: F,
        held_on: &mut Option<u64>,
    ) -> Outcome
    where
        F: Future<Output: Into<Outcome>> + Send + 'static,
    {
        // A set ends its tasks when it is dropped.
        let mut running = JoinSet::new();
        running.spawn(span.clone().around(async move { run.await.into() }));
        loop {
            match timeout(delivery.touch_every(), running.join_next()).await {
                Ok(Some(Ok(outcome))) => return outcome,
                Ok(Some(Err(_)) | None) => return Outcome::Failed("the handler has panicked".to_owned()),
                Err(_) => {
                    if let Err(error) = self.touch_async(client, delivery.id, held_on).await {
                        if error.is_out_of_step() {
                            client.hang_up();
                        }
                        span.run(|| self.emit(&Event::NotTouched(delivery, &error)));
                    }
                }
            }
        }
    }

    /// Whether the server still has the job reserved for this worker. A lost connection has released it, unless there
    /// is a session: then the server is asked. A server that was restarted may have another job with its id.
    async fn still_has_async(
        &self,
        client: &mut Client,
        id: u64,
        held_on: &mut Option<u64>,
    ) -> Result<bool, Error> {
        if client.number() == *held_on {
            return Ok(true);
        }
        if !self.has_session() {
            return Ok(false);
        }
        match self.touch_async(client, id, held_on).await {
            Err(error) if error.is_not_found() => Ok(false),
            touched => touched.map(|()| true),
        }
    }

    /// Touches the job: without a session only on the connection that has reserved it.
    async fn touch_async(
        &self,
        client: &mut Client,
        id: u64,
        held_on: &mut Option<u64>,
    ) -> Result<(), Error> {
        client.set_reopening(self.reopening_for_job());
        let touched = client.touch(id).await;
        client.set_reopening(Reopening::Usual);
        if touched.is_ok() {
            *held_on = client.number();
        }
        touched
    }

    /// Ends the job as planned, on a connection that has it reserved. Returns what was done, and the error if the
    /// connection is not to be used any more.
    async fn finish_async(
        &self,
        client: &mut Client,
        mut plan: Settled,
        outcome: &mut Outcome,
        delivery: &Delivery,
        held_on: &mut Option<u64>,
    ) -> (Settled, Result<(), Error>) {
        let mut settled = Settled::Lost;
        client.set_max_timeout(self.stopper.is_stopped().then_some(MAX_SILENCE));
        for _ in 0..MAX_SETTLES {
            match self.still_has_async(client, delivery.id, held_on).await {
                Ok(true) => {}
                Ok(false) => return (settled, Ok(())),
                Err(error) => return plan.after(Err(error)),
            }
            client.set_reopening(Reopening::Never);
            let result = settle(client, plan, outcome, delivery).await;
            client.set_reopening(Reopening::Usual);
            if let Err(error) = &result
                && let Some(failed) = outcome.refused(error)
            {
                *outcome = failed;
                plan = Settled::plan(outcome, delivery, &self.retry);
                continue;
            }
            match result {
                Err(error) if error.is_of_network() && self.has_session() => {
                    client.hang_up();
                    settled = Settled::Unconfirmed;
                }
                result => return plan.after(result),
            }
        }
        (Settled::Unconfirmed, Ok(()))
    }

    /// Gives a job back that was not begun, because the worker is stopped. Without a session, the end of the connection
    /// does that, and nothing is counted.
    async fn give_back_async(&self, client: &mut Client, delivery: &Delivery, held_on: &mut Option<u64>) {
        if self.has_session() {
            // If this fails, the job is ready when its TTR or the grace of the session ends.
            let (plan, mut outcome) = (Settled::GivenBack(Duration::ZERO), Outcome::Postpone(Duration::ZERO));
            let _ = self.finish_async(client, plan, &mut outcome, delivery, held_on).await;
        }
    }

    /// Waits for this time, or until the worker is stopped.
    async fn rest_async(&self, pause: Duration) {
        let mut left = pause;
        while !left.is_zero() && !self.stopper.is_stopped() {
            tokio::time::sleep(left.min(STOP_TURN)).await;
            left = left.saturating_sub(STOP_TURN);
        }
    }
}

/// Carries out the plan. `false` if the server has buried the job instead.
async fn settle(
    client: &mut Client,
    plan: Settled,
    outcome: &Outcome,
    delivery: &Delivery,
) -> Result<bool, Error> {
    let (id, pri) = (delivery.id, delivery.pri);
    match plan {
        Settled::Deleted => client.delete(id).await.map(|()| true),
        Settled::Completed => client.complete(id, &outcome.puts()).await.map(|_| true),
        Settled::Buried => client.bury(id, pri).await.map(|()| true),
        Settled::Released(delay) => {
            let delay = seconds(delay, has_fractions(client, delay).await);
            client.release(id, pri, delay).await
        }
        Settled::GivenBack(delay) => {
            let delay = seconds(delay, has_fractions(client, delay).await);
            match client.release_uncounted(id, pri, delay).await {
                Err(Error::Unsupported { .. }) => client.release(id, pri, delay).await,
                given_back => given_back.map(|()| true),
            }
        }
        Settled::Lost | Settled::Unconfirmed => Ok(true),
    }
}

/// Whether the server supports fractions of a second, if the time has one.
async fn has_fractions(client: &mut Client, time: Duration) -> bool {
    time.subsec_nanos() > 0
        && client.known_extensions().await.is_ok_and(|extensions| extensions.has("fractions"))
}
