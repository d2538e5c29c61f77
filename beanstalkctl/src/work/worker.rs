//! A worker: in a loop, reserves a job, runs the command, and deletes, releases or buries the job.

use super::{Counts, child};
use crate::cli::WorkArguments;
use crate::commands::reserve::watch_only;
use crate::failure::Failure;
use crate::interrupt;
use beanstalk_client::{Address, Client, Connector, Culprit, Error, Job, JobInfo, Refusal, Tag};
use std::time::{Duration, Instant};

/// The longest wait of one reserve, in seconds. The worker checks for an interrupt after each.
const TURN_SECONDS: u32 = 1;

/// The longest pause between two attempts to connect again.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A worker with its connection.
pub struct Worker<'a> {
    client: Client,
    address: &'a Address,
    connector: &'a Connector,
    arguments: &'a WorkArguments,
    counts: &'a Counts,
}

fn connect(address: &Address, connector: &Connector, arguments: &WorkArguments) -> Result<Client, Failure> {
    let mut client = Client::from(connector.open(address)?);
    watch_only(&mut client, &arguments.tubes)?;
    Ok(client)
}

impl<'a> Worker<'a> {
    /// Connects, and watches the tubes of the command line.
    pub fn connect(
        address: &'a Address,
        connector: &'a Connector,
        arguments: &'a WorkArguments,
        counts: &'a Counts,
    ) -> Result<Self, Failure> {
        let client = connect(address, connector, arguments)?;
        Ok(Self { client, address, connector, arguments, counts })
    }

    /// Works until the program is told to stop, or with `--until-empty` until there is no ready job.
    pub fn run(mut self) -> Result<(), Failure> {
        while !interrupt::requested() {
            let turn = if self.arguments.until_empty { 0 } else { TURN_SECONDS };
            let done = match self.client.reserve_with_timeout(turn) {
                Ok(job) => self.work_on(job),
                Err(Error::Refused(Refusal::TimedOut)) if turn == 0 => return Ok(()),
                Err(Error::Refused(Refusal::TimedOut)) => Ok(()),
                Err(error) => Err(error.into()),
            };
            match done {
                Err(Failure::Connection(why)) => self.connect_again(&why)?,
                other => other?,
            }
        }
        Ok(())
    }

    /// Tries to connect, with growing pauses, until it succeeds or the program is told to stop.
    fn connect_again(&mut self, why: &str) -> Result<(), Failure> {
        eprintln!("beanstalkctl: {}: {why}; connecting again", self.address);
        let mut pause = Duration::from_millis(100);
        while !interrupt::wait(pause) {
            match connect(self.address, self.connector, self.arguments) {
                Ok(client) => {
                    self.client = client;
                    return Ok(());
                }
                Err(Failure::Connection(_)) => pause = (pause * 2).min(LONGEST_PAUSE),
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
            other => other?,
        };
        let attempt = attempt(&info, self.arguments.attempts);
        let began = Instant::now();
        let status = self.run_command(job, &info, attempt);
        let took = began.elapsed().as_secs_f32();
        let what = format!("job {id} of {}", info.tube);
        match status {
            Ok(status) if status.success() => {
                Counts::add(&self.counts.done);
                eprintln!("beanstalkctl: {what}: done in {took:.1}s");
                self.settle(&what, |client| client.delete(id))
            }
            Ok(status) => {
                Counts::add(&self.counts.failed);
                if attempt >= self.arguments.attempts {
                    Counts::add(&self.counts.buried);
                    eprintln!("beanstalkctl: {what}: {status} after {took:.1}s, attempt {attempt}; buried");
                    return self.settle(&what, |client| client.bury(id, info.pri));
                }
                let delay = delay(attempt, self.arguments.delay, self.arguments.max_delay);
                eprintln!(
                    "beanstalkctl: {what}: {status} after {took:.1}s, attempt {attempt}; again in {delay}s"
                );
                self.settle(&what, |client| client.release(id, info.pri, delay).map(drop))
            }
            // The command cannot be started: this would fail for every other job too.
            Err(error) => {
                self.settle(&what, |client| client.release(id, info.pri, 0).map(drop))?;
                let command = self.arguments.command[0].to_string_lossy();
                Err(Failure::Local(format!("{command}: {error}")))
            }
        }
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
        ];
        // Three times in a TTR. The least is 300 ms, in time for the shortest TTR of a second.
        let every = Duration::from_millis((info.ttr * 1000 / 3).clamp(300, 60_000));
        let (client, id) = (&mut self.client, job.id);
        let mut lost = false;
        child::run(&self.arguments.command, &environment, job.body, every, &mut || {
            if lost {
                return;
            }
            if let Err(error) = client.touch(id) {
                lost = true;
                eprintln!("beanstalkctl: job {id}: {error}; the server may give it to another worker");
            }
        })
    }

    /// Deletes, releases or buries the job with `send`. If its TTR has ended, there is nothing to do.
    fn settle(
        &mut self,
        what: &str,
        send: impl FnOnce(&mut Client) -> Result<(), Error>,
    ) -> Result<(), Failure> {
        match send(&mut self.client) {
            Err(error) if error.is_not_found() => {
                eprintln!("beanstalkctl: {what}: its time to run had ended; another worker may have it");
                Ok(())
            }
            Err(error) if error.culprit() == Culprit::Network => {
                Err(Failure::from(error).while_doing(&format!("{what}: the result could not be sent")))
            }
            other => Ok(other?),
        }
    }
}

/// The number of this attempt, counted from 1. After a bury at the last attempt and a kick, it begins at 1 again.
fn attempt(info: &JobInfo, attempts: u64) -> u64 {
    (info.releases + info.timeouts + info.buries) % attempts.max(1) + 1
}

/// Seconds until the next attempt: `first`, doubled with each attempt, at most `longest`.
fn delay(attempt: u64, first: u32, longest: u32) -> u32 {
    let doublings = u32::try_from(attempt.saturating_sub(1)).unwrap_or(u32::MAX);
    let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
    first.saturating_mul(factor).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use beanstalk_client::parse_dictionary;

    fn info(releases: u64, timeouts: u64, buries: u64) -> JobInfo {
        let data = format!(
            "---\nid: 1\ntube: \"t\"\nstate: reserved\npri: 0\nage: 0\nttr: 1\nreleases: {releases}\ntimeouts: {timeouts}\n\
             buries: {buries}\n"
        );
        JobInfo::from_stats(&parse_dictionary(data.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn attempts_count_releases_and_timeouts_and_start_again_after_a_bury() {
        assert_eq!(attempt(&info(0, 0, 0), 3), 1);
        assert_eq!(attempt(&info(1, 1, 0), 3), 3);
        assert_eq!(attempt(&info(2, 0, 1), 3), 1);
        assert_eq!(attempt(&info(0, 0, 5), 1), 1);
    }

    #[test]
    fn delays_double_up_to_the_longest() {
        assert_eq!(
            [1, 2, 3, 9, 40, 4_000_000_000].map(|attempt| delay(attempt, 10, 3600)),
            [10, 20, 40, 2560, 3600, 3600]
        );
        assert_eq!(delay(5, 0, 3600), 0);
    }
}
