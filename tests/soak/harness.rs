//! The state that all clients of one run of the server share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use beanstalkd_testkit::history::History;
use beanstalkd_testkit::server::Address;

use crate::tagged::Tagged;

/// The jobs with tags, and the history of all jobs.
pub type Both<'a> = (MutexGuard<'a, Tagged>, MutexGuard<'a, History>);

/// A single run of the server, with the shared state of its clients.
pub struct Harness<'a> {
    pub address: Address,
    tagged: &'a Mutex<Tagged>,
    history: &'a Mutex<History>,
    /// The pause of a client between two commands, which limits the rate.
    pub pause: Duration,
    /// Whether clients must stop.
    pub stopping: AtomicBool,
    /// Whether the server is about to end while clients work. From then on broken connections are no violation.
    pub dying: AtomicBool,
    pub replies: AtomicU64,
    pub connections: AtomicU64,
}

impl<'a> Harness<'a> {
    pub fn new(
        address: Address,
        tagged: &'a Mutex<Tagged>,
        history: &'a Mutex<History>,
        pause: Duration,
    ) -> Self {
        let (stopping, dying) = (AtomicBool::new(false), AtomicBool::new(false));
        let (replies, connections) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { address, tagged, history, pause, stopping, dying, replies, connections }
    }

    pub fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().expect("no thread panics while it holds the lock")
    }

    /// Locks both, always in this order. Nobody who has the history may call this.
    pub fn both(&self) -> Both<'a> {
        let tagged = self.tagged.lock().expect("no thread panics while it holds the lock");
        (tagged, self.history.lock().expect("no thread panics while it holds the lock"))
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    pub fn is_dying(&self) -> bool {
        self.dying.load(Ordering::SeqCst)
    }
}
