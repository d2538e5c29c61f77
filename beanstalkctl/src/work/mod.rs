//! `work`: runs a command for each job.
//!
//! Owns: the threads, each with a connection and one command at a time, and how they end. [`worker`] processes a job,
//! [`child`] runs the command.

mod child;
mod worker;

pub use child::end_commands;

use crate::cli::WorkArguments;
use crate::commands::Servers;
use crate::failure::Failure;
use crate::interrupt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use worker::Worker;

/// The results of all workers, counted.
#[derive(Default)]
pub struct Counts {
    done: AtomicU64,
    failed: AtomicU64,
    buried: AtomicU64,
}

impl Counts {
    fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Works until SIGTERM or Ctrl-C, or with `--until-empty` until there is no ready job. Then waits for the running commands.
pub fn run(servers: &Servers, arguments: &WorkArguments) -> Result<(), Failure> {
    let address = servers.address()?;
    let counts = Counts::default();
    let (ended, ends) = mpsc::channel();
    let mut first_failure = None;
    std::thread::scope(|scope| -> Result<(), Failure> {
        for _ in 0..arguments.jobs {
            let ended = ended.clone();
            let counts = &counts;
            // The first connection is made here, so that a wrong address is reported at once.
            let worker = Worker::connect(address, servers.connector(), arguments, counts)
                .inspect_err(|_| interrupt::request())?;
            scope.spawn(move || ended.send(worker.run()));
        }
        drop(ended);
        // If a worker fails for good, the others finish their commands and stop.
        for end in ends {
            if let Err(failure) = end {
                interrupt::request();
                first_failure.get_or_insert(failure);
            }
        }
        Ok(())
    })?;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (done, failed, buried) = (count(&counts.done), count(&counts.failed), count(&counts.buried));
    eprintln!("beanstalkctl: {done} done, {failed} failed, {buried} of them buried");
    first_failure.map_or(Ok(()), Err)
}
