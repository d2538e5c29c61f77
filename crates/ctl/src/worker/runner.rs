//! The commands of the jobs: runs one for each job, decides what becomes of the job, and reports it.

use std::ffi::OsString;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use beanstalk_client::{Culprit, Error, Event, Handled, JobInfo, Settled, Stopper, Tag, WorkerJob};

use super::attempts::{AttemptLimits, FailedAttempts};
use super::child;
use crate::failure::Failure;
use crate::output::say;

/// Runs the commands. All slots of the worker share it.
pub struct JobCommands {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The process group of all commands.
    pub group: i32,
    pub limits: AttemptLimits,
    /// The server, for messages.
    pub server: String,
    /// Whether a session keeps the jobs when the connection is lost.
    pub has_session: bool,
    pub stopper: Stopper,
    pub counts: ResultCounts,
    pub attempts: Mutex<FailedAttempts>,
    /// Why no command can run.
    pub failure: Mutex<Option<Failure>>,
}

/// The results of all commands, counted.
#[derive(Default)]
pub struct ResultCounts {
    done: AtomicU64,
    failed: AtomicU64,
    buried: AtomicU64,
}

impl ResultCounts {
    fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// The last message of the program.
    pub fn summary(&self) -> String {
        let [done, failed, buried] =
            [&self.done, &self.failed, &self.buried].map(|counter| counter.load(Ordering::Relaxed));
        format!("{done} done, {failed} failed, {buried} of them buried")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The beginning of a message about a job.
fn name_of(job: &WorkerJob) -> String {
    format!("job {} of {}", job.id, job.tube())
}

/// The variables of the command.
fn environment(job: &WorkerJob, info: &JobInfo, attempt: u64) -> [(&'static str, String); 8] {
    let tags: Vec<String> = info.tags.iter().map(Tag::to_string).collect();
    [
        ("BEANSTALK_JOB_ID", job.id.to_string()),
        ("BEANSTALK_TUBE", info.tube.clone()),
        ("BEANSTALK_TAGS", tags.join(" ")),
        ("BEANSTALK_PRIORITY", info.pri.to_string()),
        ("BEANSTALK_ATTEMPT", attempt.to_string()),
        ("BEANSTALK_RESERVES", info.reserves.to_string()),
        ("BEANSTALK_AGE", info.age.to_string()),
        ("BEANSTALK_TRACE", info.trace.as_ref().map(ToString::to_string).unwrap_or_default()),
    ]
}

impl JobCommands {
    /// Runs the command of a job. Returns the result for the worker.
    pub fn run(&self, job: &WorkerJob) -> Handled {
        let Some(info) = &job.info else {
            return Handled::Failed("its counters are not known".to_owned());
        };
        let failures = lock(&self.attempts).failures(info, &self.limits);
        if failures >= self.limits.attempts {
            return Handled::Bury(format!("has failed {failures} times, the last time by a time-out"));
        }
        let attempt = failures + 1;
        let began = Instant::now();
        let environment = environment(job, info, attempt);
        let status = match child::run(&self.command, self.group, &environment, job.body.clone()) {
            Ok(status) => status,
            Err(error) => return self.cannot_start(job, &error),
        };
        if status.success() {
            ResultCounts::add(&self.counts.done);
            lock(&self.attempts).forget(job.id);
            return Handled::Done;
        }
        ResultCounts::add(&self.counts.failed);
        let why = format!("{status} after {:.1}s, attempt {attempt}", began.elapsed().as_secs_f32());
        if attempt >= self.limits.attempts {
            return Handled::Bury(why);
        }
        lock(&self.attempts).failed(info, attempt);
        Handled::RetryAfter(Duration::from_secs(self.limits.delay_after(attempt).into()), why)
    }

    /// Why no command could run, if none could.
    pub fn take_failure(&self) -> Option<Failure> {
        lock(&self.failure).take()
    }

    /// Stops the worker because the command cannot be started: every other job would also fail. The job goes back
    /// without a change.
    fn cannot_start(&self, job: &WorkerJob, error: &std::io::Error) -> Handled {
        let (command, job) = (self.command[0].to_string_lossy(), name_of(job));
        let failure = Failure::Local(format!("{command} cannot be started: {error}; {job} stays as it was"));
        lock(&self.failure).get_or_insert(failure);
        self.stopper.stop();
        Handled::Postpone(Duration::ZERO)
    }

    /// Reports an event of the worker.
    pub fn report(&self, event: &Event<'_>) {
        match event {
            Event::Ended { job, handled, settled, took } => {
                self.ended(job, handled, *settled, *took);
            }
            // If there is a session, it has the job.
            Event::NotTouched(_, error) if self.has_session && is_lost(error) => {}
            Event::NotTouched(job, error) => {
                say(&format!("job {}: {error}; the server may give it to another worker", job.id));
            }
            Event::Disconnected { error, attempt: 1 } => {
                say(&format!("{}: {error}; connecting again", self.server));
            }
            _ => {}
        }
    }

    fn ended(&self, job: &WorkerJob, handled: &Handled, settled: Settled, took: Duration) {
        if settled == Settled::Buried {
            ResultCounts::add(&self.counts.buried);
            job.info.iter().for_each(|info| lock(&self.attempts).buried(info));
        }
        let result = match handled {
            Handled::Failed(why) | Handled::RetryAfter(_, why) | Handled::Bury(why) => why.clone(),
            // The failure of the program names the job.
            Handled::Postpone(_) => return,
            // `Done`: the handler returns no other result.
            _ => format!("done in {:.1}s", took.as_secs_f32()),
        };
        let end = match settled {
            Settled::Released(delay) => format!("; again in {}s", delay.as_secs()),
            Settled::Buried if matches!(handled, Handled::Bury(_)) => "; buried".to_owned(),
            Settled::Buried => "; the server has buried it, by its own limit".to_owned(),
            Settled::Lost => "; its reservation had ended, and another worker may have it".to_owned(),
            Settled::Unconfirmed => "; the result could not be sent".to_owned(),
            _ => String::new(),
        };
        say(&format!("{}: {result}{end}", name_of(job)));
    }
}

/// Whether the connection cannot be used any more, but another one may work.
fn is_lost(error: &Error) -> bool {
    error.culprit() == Culprit::Network || error.is_out_of_step()
}
