//! What all clients of one life of the server share.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::model::Model;
use beanstalkd_testkit::server::Address;

/// The most violations that are told in full.
const TOLD: usize = 1_000;

/// Everything that must not have happened.
#[derive(Default)]
pub struct Violations(Mutex<Vec<String>>);

impl Violations {
    /// Takes one down, and tells it at once.
    pub fn add(&self, violation: String) {
        let mut all = self.0.lock().expect("no holder panics");
        if all.len() < TOLD {
            println!("VIOLATION: {violation}");
        }
        all.push(violation);
    }

    pub fn count(&self) -> usize {
        self.0.lock().expect("no holder panics").len()
    }
}

/// One life of the server, as its clients see it.
pub struct Harness<'a> {
    pub address: Address,
    pub model: &'a Model,
    pub violations: &'a Violations,
    /// The pause of a client between two commands: it bounds the rate.
    pub pause: Duration,
    /// Clients shall come to an end.
    pub stopping: AtomicBool,
    /// The server is about to end amid their work: from here on broken connections are no violation.
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
