//! A connected server, with the extensions that it offers.

use beanstalk_client::{
    Address, Client, Command, Connector, Counting, Dictionary, Error, Extensions, JobId, JobInfo, JobState,
    Refusal, Reply, Seconds, TubeName, YamlError, parse_dictionary,
};
use globset::GlobMatcher;

use crate::failure::{Failure, Result};
use crate::output::say;

/// A connected server, with its stats and its extensions.
pub struct Server {
    /// The connection.
    pub client: Client,
    /// The address of the server, as the user wrote it.
    pub address: Address,
    /// The data of `stats` when it was connected.
    pub stats: Dictionary,
    extensions: Extensions,
}

/// A server that is asked again and again, also after its connection was lost.
pub struct PolledServer {
    /// Its address.
    pub address: Address,
    /// The settings for connections to it.
    pub connector: Connector,
    /// The connected server; `None` if it does not answer.
    pub connected: Option<Server>,
}

impl PolledServer {
    /// The connected server. Connects if it is not.
    pub fn connected(&mut self) -> Result<&mut Server> {
        Ok(match &mut self.connected {
            Some(server) => server,
            gone => gone.insert(Server::open(&self.address, &self.connector)?),
        })
    }
}

/// A tube with its counters.
pub struct Tube {
    /// Its name.
    pub name: TubeName,
    /// The data of `stats-tube`.
    pub stats: Dictionary,
}

impl Tube {
    /// The number of jobs in this state.
    pub fn count(&self, state: JobState) -> u64 {
        self.stats.number_or_zero(&format!("current-jobs-{state}"))
    }

    /// The number of jobs in all states.
    pub fn jobs(&self) -> u64 {
        JobState::ALL.into_iter().map(|state| self.count(state)).sum()
    }
}

impl Server {
    /// Connects and asks the server for its stats.
    pub fn open(address: &Address, connector: &Connector) -> Result<Self> {
        let open = || -> Result<Self, Error> {
            let mut client = Client::from(connector.open(address)?);
            let stats = client.stats()?;
            let extensions = Extensions::from_stats(&stats);
            Ok(Self { client, address: address.clone(), stats, extensions })
        };
        open().map_err(|error| match error {
            // These errors name the address.
            Error::Connect { .. } | Error::SpeaksNoTls { .. } => Failure::from(error),
            error => Failure::from(error).while_doing(&address.to_string()),
        })
    }

    /// The `id` of its stats, which differs in each run; empty if it has none.
    pub fn id(&self) -> String {
        self.stats.get("id").unwrap_or_default().to_owned()
    }

    /// How a release is sent that is no failure of the job: uncounted, if the server has that.
    pub fn uncounted(&self) -> Counting {
        if self.has("release-uncounted") { Counting::Uncounted } else { Counting::Counted }
    }

    /// Whether the server offers this extension: a command or a tag.
    pub fn has(&self, word: &str) -> bool {
        self.extensions.has(word)
    }

    /// The time of this option as the server can take it: for a server without fractions of a second the time is
    /// rounded up, and a message says so.
    pub fn time(&self, option: &str, seconds: Seconds) -> Seconds {
        if seconds.thousandths() == 0 || self.has("fractions") {
            return seconds;
        }
        let rounded = Seconds::from(seconds.whole().saturating_add(1));
        say(&format!("this server has whole seconds only: {option} is {rounded}s instead of {seconds}s"));
        rounded
    }

    /// The names of the tubes that match one of the patterns, sorted; without patterns, of all tubes.
    pub fn tube_names(&mut self, patterns: &[GlobMatcher]) -> Result<Vec<TubeName>> {
        let all = self.client.list_tubes()?;
        let chosen = all.iter().filter(|name| {
            patterns.is_empty() || patterns.iter().any(|pattern| pattern.is_match(name.as_str()))
        });
        // An invalid name could not be sent back to the server.
        let mut names: Vec<TubeName> = chosen.filter_map(|name| name.parse().ok()).collect();
        names.sort();
        // If nothing is found, the command reports it.
        let is_found = |pattern: &&GlobMatcher| names.iter().any(|name| pattern.is_match(name.as_str()));
        for pattern in patterns.iter().filter(|pattern| !names.is_empty() && !is_found(pattern)) {
            say(&format!("no tube matches {}", pattern.glob()));
        }
        Ok(names)
    }

    /// The tubes that match, with their counters. A tube that is removed in the meantime is left out.
    pub fn tubes(&mut self, patterns: &[GlobMatcher]) -> Result<Vec<Tube>> {
        let names = self.tube_names(patterns)?;
        self.tubes_named(names)
    }

    /// The tubes of these names, with their counters. A tube that does not exist is left out.
    pub fn tubes_named(&mut self, names: Vec<TubeName>) -> Result<Vec<Tube>> {
        let commands = names.iter().map(|name| Command::StatsTube(name.into()));
        let found = self.stats_of("stats-tube", commands, Ok)?;
        let tubes = names.into_iter().zip(found);
        Ok(tubes.filter_map(|(name, stats)| Some(Tube { name, stats: stats? })).collect())
    }

    /// The counters of these jobs, in the order of `ids`; `None` for a job that does not exist.
    pub fn job_infos(&mut self, ids: impl IntoIterator<Item = u64>) -> Result<Vec<Option<JobInfo>>> {
        let commands = ids.into_iter().map(|id| Command::StatsJob(JobId(id)));
        self.stats_of("stats-job", commands, |stats| JobInfo::from_stats(&stats))
    }

    /// What `read` finds in the data for each command; `None` if there is no such tube or job.
    pub fn stats_of<'a, T>(
        &mut self,
        name: &str,
        commands: impl IntoIterator<Item = Command<'a>>,
        read: impl Fn(Dictionary) -> Result<T, YamlError>,
    ) -> Result<Vec<Option<T>>> {
        let found = self.client.call_all(commands, |reply| match reply {
            Reply::Data(data) => Ok(Some(parse_dictionary(data).and_then(&read).map_err(Error::from)?)),
            Reply::NotFound => Ok(None),
            other => Err(unexpected(name, &other)),
        })?;
        found.into_iter().collect()
    }

    /// The bodies of these jobs, in the order of `ids`; `None` for a job that does not exist.
    pub fn bodies(&mut self, ids: impl IntoIterator<Item = u64>) -> Result<Vec<Option<Vec<u8>>>> {
        let commands = ids.into_iter().map(|id| Command::Peek(JobId(id)));
        let bodies = self.client.call_all(commands, |reply| match reply {
            Reply::Found(_, body) => Ok(Some(body.as_slice().to_vec())),
            Reply::NotFound => Ok(None),
            other => Err(unexpected("peek", &other)),
        })?;
        bodies.into_iter().collect()
    }
}

/// The failure for a reply that the command should not get.
pub fn unexpected(command: &str, reply: &Reply<'_>) -> Failure {
    let reply = reply.refusal().map_or_else(|| reply.shortened(), |refusal| refusal.to_string());
    Failure::Refused(format!("the server answered {command} with {reply}"))
}

/// The failure of a put.
pub fn put_failed(error: Error) -> Failure {
    match error {
        Error::Refused(Refusal::Draining) => {
            Failure::Refused("the server accepts no new jobs (DRAINING)".to_owned())
        }
        Error::Refused(refusal) => Failure::Refused(format!("the server answered put with {refusal}")),
        error => error.into(),
    }
}
