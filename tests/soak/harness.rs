//! The state that all clients of one run of the server share.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::model::Model;
use beanstalkd_testkit::server::Address;

/// The most violations that are printed.
const MAX_PRINTED: usize = 1_000;

/// The violations so far.
#[derive(Default)]
pub struct Violations(Mutex<Vec<String>>);

impl Violations {
    /// Adds a violation, and prints it.
    pub fn add(&self, violation: String) {
        let mut all = self.0.lock().expect("no thread panics while it holds the lock");
        if all.len() < MAX_PRINTED {
            println!("VIOLATION: {violation}");
        }
        all.push(violation);
    }

    pub fn count(&self) -> usize {
        self.0.lock().expect("no thread panics while it holds the lock").len()
    }
}

/// A single run of the server, with the shared state of its clients.
pub struct Harness<'a> {
    pub address: Address,
    pub model: &'a Model,
    pub violations: &'a Violations,
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
    pub fn new(address: Address, model: &'a Model, violations: &'a Violations, pause: Duration) -> Self {
        let (stopping, dying) = (AtomicBool::new(false), AtomicBool::new(false));
        let (replies, connections) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { address, model, violations, pause, stopping, dying, replies, connections }
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    pub fn is_dying(&self) -> bool {
        self.dying.load(Ordering::SeqCst)
    }
}
