//! A worker: in a loop, reserves a job, runs the command, and deletes, releases or buries the job.

use super::{ResultCounts, WorkShared, child};
use crate::cli::WorkArguments;
use crate::commands::reserve::watch_only;
use crate::failure::Failure;
use crate::interrupt;
use crate::output::say;
use beanstalk_client::TubeName;
use beanstalk_client::{Address, Client, Connector, Culprit, Error, Job, JobInfo, Refusal, Tag};
use std::time::{Duration, Instant, SystemTime};

/// The longest wait of one reserve, in seconds. The worker checks for an interrupt after each.
const MAX_WAIT_SECONDS: u32 = 1;

/// The longest pause between two attempts to connect again.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// A worker with its connection.
pub struct Worker<'a> {
    client: Client,
    address: &'a Address,
    connector: &'a Connector,
    shared: &'a WorkShared<'a>,
    /// The session that has its jobs, if there should be one. No other worker, and no later process, has a session with
    /// this name.
    session: Option<TubeName>,
}

fn connect(
    address: &Address,
    connector: &Connector,
    arguments: &WorkArguments,
    session: Option<&TubeName>,
) -> Result<Client, Failure> {
    let mut client = Client::from(connector.open(address)?);
    if let Some(session) = session {
        client.session(session, arguments.grace)?;
    }
    watch_only(&mut client, &arguments.tubes)?;
    Ok(client)
}

/// Whether the connection cannot be used any more, but another one may work.
fn is_lost(error: &Error) -> bool {
    error.culprit() == Culprit::Network || error.is_out_of_step()
}

/// The failure of a command of a worker, which connects again after [`Failure::Connection`].
fn failure(error: Error) -> Failure {
    if is_lost(&error) { Failure::Connection(error.to_string()) } else { error.into() }
}

/// A name for the session of the worker with this number. It is unique: the command of a job ends with its process, so
/// a later process must not get the job from a session.
fn session_name(arguments: &WorkArguments, number: u32) -> Result<Option<TubeName>, Failure> {
    let Some(name) = &arguments.session else { return Ok(None) };
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let name = format!("{}-{:x}-{}-{number}", name.as_str(), since.as_nanos(), std::process::id());
    let name = name.parse().map_err(|error| Failure::Local(format!("--session: {error}")))?;
    Ok(Some(name))
}

impl<'a> Worker<'a> {
    /// Connects, and watches the tubes of the command line.
    pub fn connect(
        address: &'a Address,
        connector: &'a Connector,
        shared: &'a WorkShared<'a>,
        number: u32,
    ) -> Result<Self, Failure> {
        let session = session_name(shared.arguments, number)?;
        let client = connect(address, connector, shared.arguments, session.as_ref())?;
        Ok(Self { client, address, connector, shared, session })
    }

    /// Works until a signal stops the program, or with `--until-empty` until there is no ready job. Then leaves the
    /// server.
    pub fn run(mut self) -> Result<(), Failure> {
        let ended = self.work();
        // If the server is gone, so are the reservations.
        let _ = self.client.quit();
        ended
    }

    fn work(&mut self) -> Result<(), Failure> {
        while !interrupt::requested() {
            let turn = if self.shared.arguments.until_empty { 0 } else { MAX_WAIT_SECONDS };
            let done = match self.client.reserve_with_timeout(turn) {
                Ok(job) => self.work_on(job),
                Err(Error::Refused(Refusal::TimedOut)) if turn == 0 => return Ok(()),
                Err(Error::Refused(Refusal::TimedOut)) => Ok(()),
                Err(error) => Err(failure(error)),
            };
            match done {
                Err(Failure::Connection(why)) => self.connect_again(&why)?,
                other => other?,
            }
        }
        Ok(())
    }

    /// Tries to connect, with growing pauses, until it succeeds or a signal stops the program.
    fn connect_again(&mut self, why: &str) -> Result<(), Failure> {
        say(&format!("{}: {why}; connecting again", self.address));
        let mut pause = Duration::from_millis(100);
        while !interrupt::wait(pause) {
            match connect(self.address, self.connector, self.shared.arguments, self.session.as_ref()) {
                Ok(client) => {
                    self.client = client;
                    return Ok(());
                }
                Err(Failure::Connection(_)) => pause = (pause * 2).min(MAX_PAUSE),
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    fn work_on(&mut self, job: Job) -> Result<(), Failure> {
        let id = job.id;
        let info = match self.client.stats_job(id) {
            // The TTR has ended, and another worker has deleted the job since.
            Err(error) if error.is_not_found() => return Ok(()),
            other => other.map_err(failure)?,
        };
        let what = format!("job {id} of {}", info.tube);
        let failures = self.shared.attempts().failures(&info, &self.shared.limits);
        if failures >= self.shared.limits.attempts {
            say(&format!("{what}: has failed {failures} times, the last time by a time-out; buried"));
            return self.bury(&what, &info);
        }
        let began = Instant::now();
        let status = self.run_command(job, &info, failures + 1);
        let took = began.elapsed().as_secs_f32();
        match status {
            Ok(status) if status.success() => {
                ResultCounts::add(&self.shared.counts.done);
                self.shared.attempts().forget(id);
                say(&format!("{what}: done in {took:.1}s"));
                self.settle(&what, |client| client.delete(id)).map(drop)
            }
            Ok(status) => {
                ResultCounts::add(&self.shared.counts.failed);
                self.after_failure(&format!("{what}: {status} after {took:.1}s"), &info, failures + 1)
            }
            // The command cannot be started: this would also fail for every other job. The server makes the job ready
            // when the connection ends, and counts no release.
            Err(error) => {
                let command = self.shared.arguments.command[0].to_string_lossy().into_owned();
                Err(Failure::Local(format!("{command} cannot be started: {error}; {what} stays as it was")))
            }
        }
    }

    /// Releases or buries a job after this many failures.
    fn after_failure(&mut self, what: &str, info: &JobInfo, failures: u64) -> Result<(), Failure> {
        let attempt = format!("attempt {failures}");
        if failures >= self.shared.limits.attempts {
            say(&format!("{what}, {attempt}; buried"));
            return self.bury(what, info);
        }
        self.shared.attempts().failed(info, failures);
        let delay = self.shared.limits.delay_after(failures);
        say(&format!("{what}, {attempt}; again in {delay}s"));
        if self.settle(what, |client| client.release(info.id, info.pri, delay))? == Some(false) {
            ResultCounts::add(&self.shared.counts.buried);
            self.shared.attempts().buried(info);
            say(&format!("{what}: the server has buried it, by its own limit"));
        }
        Ok(())
    }

    fn bury(&mut self, what: &str, info: &JobInfo) -> Result<(), Failure> {
        if self.settle(what, |client| client.bury(info.id, info.pri))?.is_some() {
            ResultCounts::add(&self.shared.counts.buried);
            self.shared.attempts().buried(info);
        }
        Ok(())
    }

    fn run_command(
        &mut self,
        job: Job,
        info: &JobInfo,
        attempt: u64,
    ) -> std::io::Result<std::process::ExitStatus> {
        let tags: Vec<String> = info.tags.iter().map(Tag::to_string).collect();
        let environment = [
            ("BEANSTALK_JOB_ID", job.id.to_string()),
            ("BEANSTALK_TUBE", info.tube.clone()),
            ("BEANSTALK_TAGS", tags.join(" ")),
            ("BEANSTALK_PRIORITY", info.pri.to_string()),
            ("BEANSTALK_ATTEMPT", attempt.to_string()),
            ("BEANSTALK_RESERVES", info.reserves.to_string()),
            ("BEANSTALK_AGE", info.age.to_string()),
            ("BEANSTALK_TRACE", info.trace.as_ref().map(ToString::to_string).unwrap_or_default()),
        ];
        // Three times in a TTR. The least is 300 ms, in time for the shortest TTR of a second.
        let every = Duration::from_millis((info.ttr * 1000 / 3).clamp(300, 60_000));
        let (client, id) = (&mut self.client, job.id);
        let (address, connector, arguments) = (self.address, self.connector, self.shared.arguments);
        let session = self.session.as_ref();
        let mut lost = false;
        child::run(
            &self.shared.arguments.command,
            self.shared.guard.group(),
            &environment,
            job.body,
            every,
            &mut || {
                if lost {
                    return;
                }
                if let Err(error) = client.touch(id) {
                    if session.is_some() && is_lost(&error) {
                        // The session has the job. The next turn touches it, or tries to connect again.
                        if let Ok(again) = connect(address, connector, arguments, session) {
                            *client = again;
                        }
                        return;
                    }
                    lost = true;
                    say(&format!("job {id}: {error}; the server may give it to another worker"));
                }
            },
        )
    }

    /// Deletes, releases or buries the job with `send`. If its TTR has ended, there is nothing to do.
    fn settle<T>(
        &mut self,
        what: &str,
        send: impl Fn(&mut Client) -> Result<T, Error>,
    ) -> Result<Option<T>, Failure> {
        let mut sent = send(&mut self.client);
        while self.session.is_some()
            && let Err(error) = &sent
            && is_lost(error)
            && !interrupt::requested()
        {
            // The session has the job, unless the first try has come through: then the job is not found.
            self.connect_again(&error.to_string())?;
            sent = send(&mut self.client);
        }
        match sent {
            Err(error) if error.is_not_found() => {
                say(&format!("{what}: its time to run had ended; another worker may have it"));
                Ok(None)
            }
            Err(error) if is_lost(&error) => {
                Err(failure(error).while_doing(&format!("{what}: the result could not be sent")))
            }
            other => Ok(Some(other.map_err(failure)?)),
        }
    }
}
