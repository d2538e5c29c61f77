//! A connection to a server, with the extensions that it offers.

use crate::failure::Failure;
use crate::output::say;
use beanstalk_client::{
    Address, Client, Command, Connector, Dictionary, Error, Extensions, JobInfo, Name, Refusal, Reply,
};
use beanstalk_client::{State, parse_dictionary};
use globset::GlobMatcher;

/// A client with the stats and the extensions of its server.
pub struct Session {
    /// The connection.
    pub client: Client,
    /// The address of the server, as the user wrote it.
    pub address: Address,
    /// The data of `stats` when the session began.
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
    /// The number of jobs in this state.
    pub fn count(&self, state: State) -> u64 {
        self.stats.number_or_zero(&format!("current-jobs-{state}"))
    }

    /// The number of jobs in all states.
    pub fn jobs(&self) -> u64 {
        State::ALL.into_iter().map(|state| self.count(state)).sum()
    }
}

impl Session {
    /// Connects and asks the server for its stats.
    pub fn open(address: &Address, connector: &Connector) -> Result<Self, Failure> {
        let open = || -> Result<Self, Error> {
            let mut client = Client::from(connector.open(address)?);
            let stats = client.stats()?;
            let extensions = Extensions::from_stats(&stats);
            Ok(Self { client, address: address.clone(), stats, extensions })
        };
        open().map_err(|error| match error {
            Error::Connect { .. } => Failure::from(error),
            error => Failure::from(error).while_doing(&address.to_string()),
        })
    }

    /// Whether the server offers this extension: a command or a tag.
    pub fn has(&self, word: &str) -> bool {
        self.extensions.has(word)
    }

    /// The names of the tubes that match one of the patterns, sorted; without patterns, of all tubes.
    pub fn tube_names(&mut self, patterns: &[GlobMatcher]) -> Result<Vec<Name>, Failure> {
        let all = self.client.list_tubes()?;
        let chosen = all.iter().filter(|name| {
            patterns.is_empty() || patterns.iter().any(|pattern| pattern.is_match(name.as_str()))
        });
        // An invalid name could not be sent back to the server.
        let mut names: Vec<Name> = chosen.filter_map(|name| name.parse().ok()).collect();
        names.sort();
        // If nothing is found, the command says so.
        let is_found = |pattern: &&GlobMatcher| names.iter().any(|name| pattern.is_match(name.as_str()));
        for pattern in patterns.iter().filter(|pattern| !names.is_empty() && !is_found(pattern)) {
            say(&format!("no tube matches {}", pattern.glob()));
        }
        Ok(names)
    }

    /// The same tubes with their counters. A tube that is removed meanwhile is left out.
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

    /// The counters of these jobs, in the order of `ids`; `None` for a job that does not exist.
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

    /// The bodies of these jobs, in the order of `ids`; `None` for a job that does not exist.
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

/// The failure for a reply that the command should not get.
pub fn unexpected(command: &str, reply: &Reply) -> Failure {
    match reply {
        Reply::Refused(refusal) => Failure::Refused(format!("the server answered {command} with {refusal}")),
        other => {
            let reply: String = format!("{other:?}").chars().take(200).collect();
            Failure::Refused(format!("the server answered {command} with {reply}"))
        }
    }
}
