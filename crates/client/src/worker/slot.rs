//! The slots of a worker, and which of them may begin before every server is reachable.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::retry::FailedJobs;
use super::{Event, MAX_SILENCE, Worker};
use crate::address::Address;
use crate::core::Connector;
use crate::error::Error;
use crate::lock;

/// The resources of a slot.
pub(crate) struct WorkerSlot {
    pub server: Address,
    /// With a session of its own.
    pub connector: Connector,
    pub failures: Arc<FailedJobs>,
    pub start: Arc<FirstConnections>,
}

impl WorkerSlot {
    /// The connector of the first connection. Its time-out is short, so that a stop does not wait long.
    pub(crate) fn first_connector(&self) -> Connector {
        let timeout = self.connector.timeout.map_or(MAX_SILENCE, |timeout| timeout.min(MAX_SILENCE));
        self.connector.clone().timeout(Some(timeout))
    }
}

/// The first connections of the slots.
#[derive(Default)]
pub(crate) struct FirstConnections {
    slots: usize,
    /// Slots whose server was not there.
    failed: AtomicUsize,
    is_connected: AtomicBool,
    /// Why the work of a server was not done.
    missing: Mutex<Option<Error>>,
}

impl FirstConnections {
    /// Notes that a server is connected.
    pub(crate) fn connected(&self) {
        self.is_connected.store(true, Ordering::SeqCst);
    }

    /// Handles the error of this attempt at a slot's first connection, after trying for `tried`. Returns whether the
    /// slot tries again.
    ///
    /// # Errors
    /// If the worker must end: the same error.
    pub(crate) fn failed(
        &self,
        worker: &Worker,
        error: Error,
        attempt: u32,
        tried: Duration,
    ) -> Result<bool, Error> {
        let is_lasting = !error.is_network_error() || tried > worker.patience;
        if worker.servers.len() == 1 || is_lasting {
            return Err(error);
        }
        let new = usize::from(attempt == 1);
        let failed = self.failed.fetch_add(new, Ordering::SeqCst) + new;
        if failed == self.slots && !self.is_connected.load(Ordering::SeqCst) {
            return Err(error);
        }
        worker.emit(&Event::Disconnected { error: &error, attempt });
        if worker.until_empty {
            *lock(&self.missing) = Some(error);
            return Ok(false);
        }
        Ok(true)
    }

    /// Whether the work of every server was done.
    pub(crate) fn result(&self) -> Result<(), Error> {
        lock(&self.missing).take().map_or(Ok(()), Err)
    }
}

impl Worker {
    /// The slots, and what they have in common.
    pub(crate) fn make_slots(&self) -> Result<(Vec<WorkerSlot>, Arc<FirstConnections>), Error> {
        let start = Arc::new(FirstConnections {
            slots: self.servers.len() * self.slots,
            ..FirstConnections::default()
        });
        let mut slots = Vec::new();
        for server in &self.servers {
            let failures = Arc::new(FailedJobs::default());
            for number in 0..self.slots {
                let (failures, start) = (Arc::clone(&failures), Arc::clone(&start));
                let connector = self.connector.numbered(number)?;
                slots.push(WorkerSlot { server: server.clone(), connector, failures, start });
            }
        }
        Ok((slots, start))
    }
}
