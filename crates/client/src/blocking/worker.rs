//! A worker with threads: one for each slot, which has the connection, and one for each job.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use beanstalkd_protocol::{Field, Refusal};
use beanstalkd_types::tube_name::TubeName;

use super::client::Client;
use crate::address::Address;
use crate::connector::Connector;
use crate::core::Attempts;
use crate::core::data::Job;
use crate::error::Error;
use crate::span::Span;
use crate::work::{Delivery, Event, Outcome, Report, STOP_TURN, Settled, Worker, seconds};

impl Worker {
    /// Works until it is stopped, and then until the handlers have ended. A panic of a handler is a failure of its job.
    ///
    /// # Errors
    /// If a server cannot be reached in time, or refuses to let the worker work. The other slots end first.
    pub fn run<O: Into<Outcome>>(&self, handler: impl Fn(&Delivery) -> O + Sync) -> Result<Report, Error> {
        let slots = self.slot_connectors()?;
        let handler = &|delivery: &Delivery| handler(delivery).into();
        let ended = thread::scope(|scope| {
            let slots: Vec<_> = slots
                .iter()
                .map(|(server, connector)| {
                    scope.spawn(move || {
                        let ended = self.slot(server, connector, handler);
                        // One slot that cannot work ends them all; one that has found nothing does not.
                        ended.inspect_err(|_| self.stopper.stop())
                    })
                })
                .collect();
            // All of them are waited for, also after an error.
            let ended: Vec<_> =
                slots.into_iter().map(|slot| slot.join().unwrap_or(Err(Error::Closed))).collect();
            ended.into_iter().collect::<Result<(), Error>>()
        });
        ended.map(|()| self.counters.report())
    }

    fn slot(&self, server: &Address, connector: &Connector, handler: &Handler<'_>) -> Result<(), Error> {
        let mut client = connector.connect(server)?;
        for tube in &self.tubes {
            client.watch(tube)?;
        }
        if !self.tubes.is_empty() && !self.tubes.contains(&TubeName::default_tube()) {
            client.ignore(&TubeName::default_tube())?;
        }
        // A server without them, or one that does not allow it, is asked for each job.
        match client.reserve_fields(&Field::ALL) {
            Ok(()) | Err(Error::Unsupported { .. } | Error::Refused(_)) => {}
            Err(error) => return Err(error),
        }
        let (mut last_seen, mut attempts) = (Instant::now(), Attempts::default());
        while !self.stopper.is_stopped() {
            let done = match client.reserve_with_timeout(self.turn()) {
                Ok(job) => self.work_on(&mut client, job, handler),
                Err(error) if error.is_timed_out() && self.until_empty => return Ok(()),
                Err(Error::Refused(Refusal::TimedOut)) => Ok(()),
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
                    None if self.stopper.is_stopped() => {}
                    None => return Err(error),
                },
            }
        }
        // If the server is gone, so are the reservations.
        let _ = client.quit();
        Ok(())
    }

    fn work_on(&self, client: &mut Client, job: Job, handler: &Handler<'_>) -> Result<(), Error> {
        let info = match self.needs_info(&job.fields) {
            true => match client.stats_job(job.id) {
                // Its TTR has ended, and another worker has deleted it since.
                Err(error) if error.is_not_found() => return Ok(()),
                info => Some(info?),
            },
            false => None,
        };
        let delivery = Delivery::new(job, info, &self.retry, &self.stopper);
        let span = self.span(&delivery);
        span.run(|| self.tell(&Event::Began(&delivery)));
        let began = Instant::now();
        let outcome = self.run_handler(client, &delivery, &span, handler);
        let took = began.elapsed();
        let plan = Settled::plan(&outcome, &delivery, &self.retry);
        let (settled, ended) = plan.after(settle(client, plan, &delivery));
        if let Some(settled) = settled {
            span.run(|| self.tell(&Event::Ended { delivery: &delivery, outcome: &outcome, settled, took }));
        }
        ended
    }

    /// Waits so long, unless the worker is stopped meanwhile.
    fn rest(&self, pause: Duration) {
        let mut left = pause;
        while !left.is_zero() && !self.stopper.is_stopped() {
            thread::sleep(left.min(STOP_TURN));
            left = left.saturating_sub(STOP_TURN);
        }
    }

    /// Runs the handler on a thread of its own, and touches the job meanwhile.
    fn run_handler(
        &self,
        client: &mut Client,
        delivery: &Delivery,
        span: &Span,
        handler: &Handler<'_>,
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
                        if let Err(error) = client.touch(delivery.id) {
                            if error.is_out_of_step() {
                                client.hang_up();
                            }
                            span.run(|| self.tell(&Event::NotTouched(delivery, &error)));
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

/// Does what is planned. `false`: the server has buried the job instead.
fn settle(client: &mut Client, plan: Settled, delivery: &Delivery) -> Result<bool, Error> {
    let (id, pri) = (delivery.id, delivery.pri);
    match plan {
        Settled::Deleted => client.delete(id).map(|()| true),
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

/// Whether the server takes a fraction of a second, if the time has one.
fn has_fractions(client: &mut Client, time: Duration) -> bool {
    time.subsec_nanos() > 0 && client.known_extensions().is_ok_and(|extensions| extensions.has("fractions"))
}
