//! `work`: runs a command for each job.
//!
//! Owns: the threads, each with a connection and one command at a time, and how they end. [`worker`] processes a job,
//! [`attempts`] counts its failures, [`child`] runs the command, and [`mod@guard`] ends commands whose program was
//! killed.

mod attempts;
mod child;
mod guard;
mod worker;

pub use guard::{is_guard, run as guard};

use crate::cli::WorkArguments;
use crate::commands::ServerArguments;
use crate::failure::Failure;
use crate::interrupt;
use crate::output::say;
use attempts::{AttemptLimits, FailedAttempts};
use guard::RunningGuard;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use worker::Worker;

/// The state that the workers of this process share.
pub struct WorkShared<'a> {
    arguments: &'a WorkArguments,
    limits: AttemptLimits,
    guard: RunningGuard,
    counts: ResultCounts,
    attempts: Mutex<FailedAttempts>,
}

impl WorkShared<'_> {
    fn attempts(&self) -> MutexGuard<'_, FailedAttempts> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The results of all workers, counted.
#[derive(Default)]
struct ResultCounts {
    done: AtomicU64,
    failed: AtomicU64,
    buried: AtomicU64,
}

impl ResultCounts {
    fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Works until SIGTERM or Ctrl-C, or with `--until-empty` until there is no ready job. Then waits for the running
/// commands.
pub fn run(servers: &ServerArguments, arguments: &WorkArguments) -> Result<(), Failure> {
    let address = servers.address()?;
    let WorkArguments { attempts, delay, max_delay, .. } = *arguments;
    let shared = WorkShared {
        arguments,
        limits: AttemptLimits { attempts, delay, max_delay },
        guard: RunningGuard::start()
            .map_err(|error| Failure::Local(format!("a process that ends the commands: {error}")))?,
        counts: ResultCounts::default(),
        attempts: Mutex::default(),
    };
    let (ended, ends) = mpsc::channel();
    let mut first_failure = None;
    std::thread::scope(|scope| -> Result<(), Failure> {
        for number in 0..arguments.jobs {
            let ended = ended.clone();
            let shared = &shared;
            // The first connection is made here, so that a wrong address is reported at once.
            let worker = Worker::connect(address, servers.connector(), shared, number)
                .inspect_err(|_| interrupt::request())?;
            scope.spawn(move || ended.send(worker.run()));
        }
        drop(ended);
        // If a worker cannot continue, the others finish their commands and stop.
        for end in ends {
            if let Err(failure) = end {
                interrupt::request();
                first_failure.get_or_insert(failure);
            }
        }
        Ok(())
    })?;
    let WorkShared { guard, counts, .. } = shared;
    guard
        .dismiss()
        .map_err(|error| Failure::Local(format!("the process that ends the commands: {error}")))?;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (done, failed, buried) = (count(&counts.done), count(&counts.failed), count(&counts.buried));
    say(&format!("{done} done, {failed} failed, {buried} of them buried"));
    first_failure.map_or(Ok(()), Err)
}
