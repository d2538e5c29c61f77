//! A connection to a server of which it is known what it can do.

use crate::failure::Failure;
use beanstalk_client::{
    Address, Client, Command, Connection, Dictionary, Error, Extensions, JobInfo, Name, Refusal, Reply,
};
use beanstalk_client::{State, parse_dictionary};
use globset::GlobMatcher;
use std::time::Duration;

/// A client with what its server has told of itself.
pub struct Session {
    /// The connection.
    pub client: Client,
    /// Where it goes, as the user wrote it.
    pub address: Address,
    /// The server's counters when the session began.
    pub stats: Dictionary,
    extensions: Extensions,
}

/// A tube with its counters.
pub struct Tube {
    /// Its name.
    pub name: Name,
    /// The data of `stats-tube`.
    pub stats: Dictionary,
}

impl Tube {
    /// How many jobs are in this state.
    pub fn count(&self, state: State) -> u64 {
        self.stats.number_or_zero(&format!("current-jobs-{state}"))
    }

    /// How many jobs there are.
    pub fn jobs(&self) -> u64 {
        State::ALL.into_iter().map(|state| self.count(state)).sum()
    }
}

impl Session {
    /// Connects, and asks the server what it can do.
    pub fn open(address: &Address, timeout: Duration) -> Result<Self, Failure> {
        let open = || -> Result<Self, Error> {
            let mut client = Client::from(Connection::open_within(address, Some(timeout))?);
            let stats = client.stats()?;
            let extensions = Extensions::from_stats(&stats);
            Ok(Self { client, address: address.clone(), stats, extensions })
        };
        open().map_err(|error| match error {
            Error::Connect { .. } => Failure::from(error),
            error => Failure::from(error).while_doing(&address.to_string()),
        })
    }

    /// Whether the server has this command or tag.
    pub fn has(&self, word: &str) -> bool {
        self.extensions.has(word)
    }

    /// The tubes that one of the patterns names, all where there is none, in the order of their names.
    pub fn tube_names(&mut self, patterns: &[GlobMatcher]) -> Result<Vec<Name>, Failure> {
        let all = self.client.list_tubes()?;
        let chosen = all.iter().filter(|name| {
            patterns.is_empty() || patterns.iter().any(|pattern| pattern.is_match(name.as_str()))
        });
        // A name that is none could not be sent back.
        let mut names: Vec<Name> = chosen.filter_map(|name| name.parse().ok()).collect();
        names.sort();
        Ok(names)
    }

    /// The same, with their counters. A tube that vanishes meanwhile is not among them.
    pub fn tubes(&mut self, patterns: &[GlobMatcher]) -> Result<Vec<Tube>, Failure> {
        let names = self.tube_names(patterns)?;
        let replies = self.client.call_all(names.iter().map(Command::StatsTube))?;
        let mut tubes = Vec::with_capacity(names.len());
        for (name, reply) in names.into_iter().zip(replies) {
            match reply {
                Reply::Ok(data) => {
                    let stats = parse_dictionary(&data).map_err(Error::from)?;
                    tubes.push(Tube { name, stats });
                }
                Reply::Refused(Refusal::NotFound) => {}
                other => return Err(unexpected("stats-tube", &other)),
            }
        }
        Ok(tubes)
    }

    /// What the server tells of these jobs; `None` of those that there are not.
    pub fn job_infos(&mut self, ids: impl IntoIterator<Item = u64>) -> Result<Vec<Option<JobInfo>>, Failure> {
        let replies = self.client.call_all(ids.into_iter().map(Command::StatsJob))?;
        let info = |reply| match reply {
            Reply::Ok(data) => {
                let stats = parse_dictionary(&data).map_err(Error::from)?;
                Ok(Some(JobInfo::from_stats(&stats).map_err(Error::from)?))
            }
            Reply::Refused(Refusal::NotFound) => Ok(None),
            other => Err(unexpected("stats-job", &other)),
        };
        replies.into_iter().map(info).collect()
    }

    /// The bodies of these jobs; `None` of those that there are not.
    pub fn bodies(&mut self, ids: impl IntoIterator<Item = u64>) -> Result<Vec<Option<Vec<u8>>>, Failure> {
        let replies = self.client.call_all(ids.into_iter().map(Command::Peek))?;
        let body = |reply| match reply {
            Reply::Found(job) => Ok(Some(job.body)),
            Reply::Refused(Refusal::NotFound) => Ok(None),
            other => Err(unexpected("peek", &other)),
        };
        replies.into_iter().map(body).collect()
    }
}

/// A reply that a command does not have, or a refusal that it should not get here.
pub fn unexpected(command: &str, reply: &Reply) -> Failure {
    match reply {
        Reply::Refused(refusal) => Failure::Refused(format!("the server answered {command} with {refusal}")),
        other => {
            let reply: String = format!("{other:?}").chars().take(200).collect();
            Failure::Refused(format!("the server answered {command} with {reply}"))
        }
    }
}
