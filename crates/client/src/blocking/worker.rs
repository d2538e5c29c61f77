//! A worker with threads: one for each slot, which has a connection, and one for each job.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use beanstalkd_protocol::{Field, Refusal};
use beanstalkd_types::tube_name::TubeName;

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
    /// Works until it is stopped, and then until the handlers have ended. A panic of a handler is a failure of its job.
    ///
    /// # Errors
    /// If a server cannot be reached in time, or does not permit the worker's commands. The other slots end first.
    ///
    /// # Panics
    /// If the function of [`Self::on_event`] or of `in_span` panics; after the other slots have ended.
    pub fn run<O: Into<Outcome>>(&self, handler: impl Fn(&Delivery) -> O + Sync) -> Result<Report, Error> {
        let (slots, start) = self.make_slots()?;
        let handler = &|delivery: &Delivery| handler(delivery).into();
        let ended = thread::scope(|scope| {
            let slots: Vec<_> = slots
                .iter()
                .map(|slot| {
                    scope.spawn(move || {
                        let slot = AssertUnwindSafe(|| self.run_slot(slot, handler));
                        let ended = catch_unwind(slot);
                        // An error of one slot ends them all, and so does a panic; an empty server does not.
                        if !matches!(ended, Ok(Ok(()))) {
                            self.stopper.stop();
                        }
                        ended.unwrap_or_else(|panic| resume_unwind(panic))
                    })
                })
                .collect();
            // It waits for all of them, even after an error.
            let ended: Vec<_> = slots.into_iter().map(|slot| slot.join()).collect();
            let ended = ended.into_iter().map(|slot| slot.unwrap_or_else(|panic| resume_unwind(panic)));
            ended.collect::<Result<(), Error>>()
        });
        ended.and_then(|()| start.result()).map(|()| self.counters.report())
    }

    /// The first connection of a slot, which watches its tubes; `None` if the slot has nothing to do.
    fn open_slot(&self, slot: &WorkerSlot) -> Result<Option<Client>, Error> {
        let (began, mut attempts, mut is_first) = (Instant::now(), Attempts::default(), true);
        while !self.stopper.is_stopped() {
            let error = match self.set_up(slot) {
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
            self.rest(pause);
        }
        Ok(None)
    }

    fn set_up(&self, slot: &WorkerSlot) -> Result<Client, Error> {
        let mut client = slot.first_connector().connect(&slot.server)?;
        for tube in &self.tubes {
            client.watch(tube)?;
        }
        if !self.tubes.is_empty() && !self.tubes.contains(&TubeName::default_tube()) {
            client.ignore(&TubeName::default_tube())?;
        }
        // If the server lacks them or does not permit them, the worker asks about each job.
        match client.reserve_fields(&Field::ALL) {
            Ok(()) | Err(Error::Unsupported { .. } | Error::Refused(_)) => {}
            Err(error) => return Err(error),
        }
        client.set_timeout(slot.connector.timeout);
        Ok(client)
    }

    fn run_slot(&self, slot: &WorkerSlot, handler: &Handler<'_>) -> Result<(), Error> {
        let Some(mut client) = self.open_slot(slot)? else { return Ok(()) };
        let (mut last_seen, mut attempts) = (Instant::now(), Attempts::default());
        while !self.stopper.is_stopped() {
            let sent = Instant::now();
            let done = match self.reserve(&mut client) {
                Ok(job) => self.work_on(&mut client, job, slot, handler),
                Err(error) if error.is_timed_out() && self.until_empty => return Ok(()),
                Err(Error::Refused(Refusal::TimedOut)) => {
                    self.rest(self.rest_of_turn(sent));
                    Ok(())
                }
                // The session has a job of an earlier connection, for at most another second.
                Err(Error::Refused(Refusal::DeadlineSoon)) => {
                    self.rest(STOP_TURN);
                    Ok(())
                }
                Err(error) => Err(error),
            };
            match done {
                Ok(()) => (last_seen, attempts) = (Instant::now(), Attempts::default()),
                Err(error) => match self.pause_after(&error, last_seen.elapsed(), &mut attempts) {
                    Some(pause) => {
                        client.hang_up();
                        self.rest(pause);
                    }
                    None if self.stopper.is_stopped() => client.hang_up(),
                    None => return Err(error),
                },
            }
        }
        if client.number().is_some() {
            client.set_max_timeout(Some(MAX_SILENCE));
            // If the server is gone, so are the reservations.
            let _ = client.quit();
        }
        Ok(())
    }

    /// Reserves a job. Between the attempts at another connection, the slot pauses itself, because a stop ends its
    /// pauses.
    fn reserve(&self, client: &mut Client) -> Result<Job, Error> {
        client.set_reopening(Reopening::Once);
        client.set_max_timeout(Some(MAX_SILENCE));
        let reserved = client.reserve_with_timeout(self.turn());
        client.set_reopening(Reopening::Usual);
        client.set_max_timeout(None);
        reserved
    }

    fn work_on(
        &self,
        client: &mut Client,
        job: Job,
        slot: &WorkerSlot,
        handler: &Handler<'_>,
    ) -> Result<(), Error> {
        let held_on = &mut client.number();
        let info = match self.needs_info(&job.fields) {
            true => {
                client.set_reopening(self.reopening_for_job());
                let info = client.stats_job(job.id);
                client.set_reopening(Reopening::Usual);
                match info {
                    // Its TTR has ended, and another worker has deleted it since.
                    Err(error) if error.is_not_found() => return Ok(()),
                    info => Some(info?),
                }
            }
            false => None,
        };
        if !self.still_has(client, job.id, held_on)? {
            return Ok(());
        }
        let delivery = Delivery::new(job, info, self, &slot.failures);
        if self.stopper.is_stopped() {
            self.give_back(client, &delivery, held_on);
            return Ok(());
        }
        let span = self.span(&delivery);
        span.run(|| self.emit(&Event::Began(&delivery)));
        let began = Instant::now();
        let mut outcome = self.run_handler(client, &delivery, &span, handler, held_on);
        let took = began.elapsed();
        let plan = Settled::plan(&outcome, &delivery, &self.retry);
        let (settled, ended) = self.finish(client, plan, &mut outcome, &delivery, held_on);
        slot.failures.note(&delivery, settled);
        span.run(|| self.emit(&Event::Ended { delivery: &delivery, outcome: &outcome, settled, took }));
        ended
    }

    /// Whether the server still has the job reserved for this worker. A lost connection has released it, unless there
    /// is a session: then the server is asked. A server that was restarted may have another job with its id.
    fn still_has(&self, client: &mut Client, id: u64, held_on: &mut Option<u64>) -> Result<bool, Error> {
        if client.number() == *held_on {
            return Ok(true);
        }
        if !self.has_session() {
            return Ok(false);
        }
        match self.touch(client, id, held_on) {
            Err(error) if error.is_not_found() => Ok(false),
            touched => touched.map(|()| true),
        }
    }

    /// Touches the job: without a session only on the connection that has reserved it.
    fn touch(&self, client: &mut Client, id: u64, held_on: &mut Option<u64>) -> Result<(), Error> {
        client.set_reopening(self.reopening_for_job());
        let touched = client.touch(id);
        client.set_reopening(Reopening::Usual);
        if touched.is_ok() {
            *held_on = client.number();
        }
        touched
    }

    /// Ends the job as planned, on a connection that has it reserved. Returns what was done, and the error if the
    /// connection is not to be used any more.
    fn finish(
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
            match self.still_has(client, delivery.id, held_on) {
                Ok(true) => {}
                Ok(false) => return (settled, Ok(())),
                Err(error) => return plan.after(Err(error)),
            }
            client.set_reopening(Reopening::Never);
            let result = settle(client, plan, outcome, delivery);
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
    fn give_back(&self, client: &mut Client, delivery: &Delivery, held_on: &mut Option<u64>) {
        if self.has_session() {
            // If this fails, the job is ready when its TTR or the grace of the session ends.
            let (plan, mut outcome) = (Settled::GivenBack(Duration::ZERO), Outcome::Postpone(Duration::ZERO));
            let _ = self.finish(client, plan, &mut outcome, delivery, held_on);
        }
    }

    /// Waits for this time, or until the worker is stopped.
    fn rest(&self, pause: Duration) {
        let mut left = pause;
        while !left.is_zero() && !self.stopper.is_stopped() {
            thread::sleep(left.min(STOP_TURN));
            left = left.saturating_sub(STOP_TURN);
        }
    }

    /// Runs the handler on a separate thread, and touches the job in the meantime.
    fn run_handler(
        &self,
        client: &mut Client,
        delivery: &Delivery,
        span: &Span,
        handler: &Handler<'_>,
        held_on: &mut Option<u64>,
    ) -> Outcome {
        let (ended, end) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                let outcome = span.run(|| catch_unwind(AssertUnwindSafe(|| handler(delivery))));
                // The receiver waits for it.
                let _ = ended
                    .send(outcome.unwrap_or_else(|_| Outcome::Failed("the handler has panicked".to_owned())));
            });
            loop {
                match end.recv_timeout(delivery.touch_every()) {
                    Ok(outcome) => return outcome,
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        if let Err(error) = self.touch(client, delivery.id, held_on) {
                            if error.is_out_of_step() {
                                client.hang_up();
                            }
                            span.run(|| self.emit(&Event::NotTouched(delivery, &error)));
                        }
                    }
                    Err(mpsc::RecvTimeoutError::Disconnected) => {
                        return Outcome::Failed("the handler has not ended".to_owned());
                    }
                }
            }
        })
    }
}

type Handler<'a> = dyn Fn(&Delivery) -> Outcome + Sync + 'a;

/// Carries out the plan. `false` if the server has buried the job instead.
fn settle(client: &mut Client, plan: Settled, outcome: &Outcome, delivery: &Delivery) -> Result<bool, Error> {
    let (id, pri) = (delivery.id, delivery.pri);
    match plan {
        Settled::Deleted => client.delete(id).map(|()| true),
        Settled::Completed => client.complete(id, &outcome.puts()).map(|_| true),
        Settled::Buried => client.bury(id, pri).map(|()| true),
        Settled::Released(delay) => {
            let delay = seconds(delay, has_fractions(client, delay));
            client.release(id, pri, delay)
        }
        Settled::GivenBack(delay) => {
            let delay = seconds(delay, has_fractions(client, delay));
            match client.release_uncounted(id, pri, delay) {
                Err(Error::Unsupported { .. }) => client.release(id, pri, delay),
                given_back => given_back.map(|()| true),
            }
        }
        Settled::Lost | Settled::Unconfirmed => Ok(true),
    }
}

/// Whether the server supports fractions of a second, if the time has one.
fn has_fractions(client: &mut Client, time: Duration) -> bool {
    time.subsec_nanos() > 0 && client.known_extensions().is_ok_and(|extensions| extensions.has("fractions"))
}
