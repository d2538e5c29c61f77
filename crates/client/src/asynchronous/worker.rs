//! A worker with tasks: one for each slot, which has the connection, and one for each job.

use std::sync::Arc;
use std::time::{Duration, Instant};

use beanstalkd_protocol::{Field, Refusal};
use beanstalkd_types::tube_name::TubeName;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::client::Client;
use crate::address::Address;
use crate::connector::Connector;
use crate::core::Attempts;
use crate::core::data::Job;
use crate::error::Error;
use crate::work::{Delivery, Event, Outcome, Report, STOP_TURN, Settled, Worker, seconds};

impl Worker {
    /// Works until it is stopped, as [`Self::run`] does, with tokio: a handler is a task. A panic of a handler is a
    /// failure of its job. If this future is dropped, the handlers end, and their jobs come again.
    ///
    /// # Errors
    /// As those of [`Self::run`].
    pub async fn run_async<H, F>(&self, handler: H) -> Result<Report, Error>
    where
        H: Fn(Arc<Delivery>) -> F + Send + Sync + 'static,
        F: Future<Output: Into<Outcome>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let mut slots = JoinSet::new();
        for (server, connector) in self.slot_connectors()? {
            let (worker, handler) = (self.clone(), Arc::clone(&handler));
            slots.spawn(async move {
                let ended = worker.slot_async(&server, &connector, &*handler).await;
                ended.inspect_err(|_| worker.stopper.stop())
            });
        }
        let mut ended = Ok(());
        while let Some(slot) = slots.join_next().await {
            ended = ended.and(slot.unwrap_or(Err(Error::Closed)));
        }
        ended.map(|()| self.counters.report())
    }

    async fn slot_async<H, F>(
        &self,
        server: &Address,
        connector: &Connector,
        handler: &H,
    ) -> Result<(), Error>
    where
        H: Fn(Arc<Delivery>) -> F + Send + Sync,
        F: Future<Output: Into<Outcome>> + Send + 'static,
    {
        let mut client = connector.connect_async(server).await?;
        for tube in &self.tubes {
            client.watch(tube).await?;
        }
        if !self.tubes.is_empty() && !self.tubes.contains(&TubeName::default_tube()) {
            client.ignore(&TubeName::default_tube()).await?;
        }
        // A server without them, or one that does not allow it, is asked for each job.
        match client.reserve_fields(&Field::ALL).await {
            Ok(()) | Err(Error::Unsupported { .. } | Error::Refused(_)) => {}
            Err(error) => return Err(error),
        }
        let (mut last_seen, mut attempts) = (Instant::now(), Attempts::default());
        while !self.stopper.is_stopped() {
            let done = match client.reserve_with_timeout(self.turn()).await {
                Ok(job) => self.work_on_async(&mut client, job, handler).await,
                Err(error) if error.is_timed_out() && self.until_empty => return Ok(()),
                Err(Error::Refused(Refusal::TimedOut)) => Ok(()),
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
                    None if self.stopper.is_stopped() => {}
                    None => return Err(error),
                },
            }
        }
        // If the server is gone, so are the reservations.
        let _ = client.quit().await;
        Ok(())
    }

    async fn work_on_async<H, F>(&self, client: &mut Client, job: Job, handler: &H) -> Result<(), Error>
    where
        H: Fn(Arc<Delivery>) -> F + Send + Sync,
        F: Future<Output: Into<Outcome>> + Send + 'static,
    {
        let info = match self.needs_info(&job.fields) {
            true => match client.stats_job(job.id).await {
                // Its TTR has ended, and another worker has deleted it since.
                Err(error) if error.is_not_found() => return Ok(()),
                info => Some(info?),
            },
            false => None,
        };
        let delivery = Arc::new(Delivery::new(job, info, &self.retry, &self.stopper));
        let span = self.span(&delivery);
        span.run(|| self.tell(&Event::Began(&delivery)));
        let began = Instant::now();
        let run = span.run(|| handler(Arc::clone(&delivery)));
        // A set ends its tasks when it is dropped.
        let mut running = JoinSet::new();
        running.spawn(span.clone().around(async move { run.await.into() }));
        let outcome = loop {
            match timeout(delivery.touch_every(), running.join_next()).await {
                Ok(Some(Ok(outcome))) => break outcome,
                Ok(Some(Err(_)) | None) => break Outcome::Failed("the handler has panicked".to_owned()),
                Err(_) => {
                    if let Err(error) = client.touch(delivery.id).await {
                        if error.is_out_of_step() {
                            client.hang_up();
                        }
                        span.run(|| self.tell(&Event::NotTouched(&delivery, &error)));
                    }
                }
            }
        };
        let took = began.elapsed();
        let plan = Settled::plan(&outcome, &delivery, &self.retry);
        let (settled, ended) = plan.after(settle(client, plan, &delivery).await);
        if let Some(settled) = settled {
            span.run(|| self.tell(&Event::Ended { delivery: &delivery, outcome: &outcome, settled, took }));
        }
        ended
    }

    /// Waits so long, unless the worker is stopped meanwhile.
    async fn rest_async(&self, pause: Duration) {
        let mut left = pause;
        while !left.is_zero() && !self.stopper.is_stopped() {
            tokio::time::sleep(left.min(STOP_TURN)).await;
            left = left.saturating_sub(STOP_TURN);
        }
    }
}

/// Does what is planned. `false`: the server has buried the job instead.
async fn settle(client: &mut Client, plan: Settled, delivery: &Delivery) -> Result<bool, Error> {
    let (id, pri) = (delivery.id, delivery.pri);
    match plan {
        Settled::Deleted => client.delete(id).await.map(|()| true),
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

/// Whether the server takes a fraction of a second, if the time has one.
async fn has_fractions(client: &mut Client, time: Duration) -> bool {
    time.subsec_nanos() > 0
        && client.known_extensions().await.is_ok_and(|extensions| extensions.has("fractions"))
}
