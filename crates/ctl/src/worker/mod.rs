//! `work`: runs a command for each job.
//!
//! Owns: the commands, and how they end. The worker of the library has the connections, reserves the jobs, touches them
//! while their commands run, and deletes, releases or buries them. [`runner`] decides which, [`attempts`] counts the
//! failures of a job, [`child`] runs the command, and [`mod@guard`] ends commands whose program was killed.

mod attempts;
mod child;
mod guard;
mod runner;

pub use guard::{is_guard, run as guard};

use crate::cli::WorkArguments;
use crate::commands::ServerArguments;
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::output::say;
use attempts::AttemptLimits;
use beanstalk_client::{Address, Connector, Reconnect, Retry, Stopper, TubeName, Worker};
use guard::RunningGuard;
use runner::{JobCommands, ResultCounts};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// The pauses between two attempts to connect again: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// Works until SIGTERM or Ctrl-C, or with `--until-empty` until there is no ready job. Then waits for the running
/// commands.
pub fn run(servers: &ServerArguments, arguments: &WorkArguments) -> Result {
    let address = servers.address()?;
    // The worker would try again for a while: a wrong address is reported at once.
    drop(servers.connector().open(address)?);
    let worker = worker(address, servers.connector().clone(), arguments)?;
    let guard = RunningGuard::start().map_err(|error| {
        Failure::Local(format!("cannot start the process that ends the commands: {error}"))
    })?;
    let WorkArguments { attempts, delay, max_delay, .. } = *arguments;
    let commands = Arc::new(JobCommands {
        command: arguments.command.clone(),
        group: guard.group(),
        limits: AttemptLimits { attempts, delay, max_delay },
        server: address.to_string(),
        has_session: arguments.session.is_some(),
        stopper: worker.stopper(),
        counts: ResultCounts::default(),
        attempts: Mutex::default(),
        failure: Mutex::default(),
    });
    stop_at_signal(worker.stopper());
    let reported = Arc::clone(&commands);
    let worker = worker.on_event(move |event| reported.report(event));
    let ended = worker.run(|job| commands.run(job));
    guard
        .dismiss()
        .map_err(|error| Failure::Local(format!("cannot end the process that ends the commands: {error}")))?;
    say(&commands.counts.summary());
    match commands.take_failure() {
        Some(failure) => Err(failure),
        None => Ok(ended.map(drop)?),
    }
}

/// The worker of the library, which counts no failures: [`JobCommands::run`] decides about a failed job. [`attempts`]
/// says why it does not count as the library does.
fn worker(address: &Address, connector: Connector, arguments: &WorkArguments) -> Result<Worker> {
    let mut connector = connector.reconnect(Reconnect::forever().pauses(PAUSES.0, PAUSES.1));
    // The worker must know whether the server can take a job back without counting a release.
    connector.check_extensions = true;
    if let Some(name) = &arguments.session {
        connector = connector.session(session_name(name)?, arguments.grace);
    }
    let worker = Worker::new(connector, address.clone())
        .slots(arguments.jobs as usize)
        .retry(Retry::by_handler())
        .with_info();
    let worker = arguments.tubes.iter().cloned().fold(worker, Worker::watch);
    Ok(if arguments.until_empty { worker.until_empty() } else { worker })
}

/// A name for the sessions of this process, to which the worker adds the numbers of its slots. It is unique: the
/// command of a job ends with its process, so a later process must not get the job from a session.
fn session_name(name: &TubeName) -> Result<TubeName> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let name = format!("{}-{:x}-{}", name.as_str(), since.as_nanos(), std::process::id());
    name.parse().map_err(|error| Failure::Local(format!("--session: {error}")))
}

/// Stops the worker at the first signal. The second one ends the program: see [`interrupt`].
fn stop_at_signal(stopper: Stopper) {
    std::thread::spawn(move || {
        interrupt::wait(Duration::MAX);
        stopper.stop();
        say("waiting for the running commands; a second signal ends them");
    });
}
