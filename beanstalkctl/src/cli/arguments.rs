//! Arguments that several subcommands share, and how their values are read.

use crate::listing::Filter;
use beanstalk_client::State;
use clap::Args;
use globset::{GlobBuilder, GlobMatcher};
use regex::bytes::Regex;
use std::time::Duration;

/// Jobs by id, or all that fit.
#[derive(Args)]
pub struct ActOn {
    /// Jobs by id
    #[arg(value_name = "ID", conflicts_with_all = ["tubes", "states", "older_than", "body", "all"])]
    pub ids: Vec<u64>,
    /// Jobs that fit
    #[command(flatten)]
    pub choose: Choose,
    /// Ask or not
    #[command(flatten)]
    pub confirm: Confirm,
}

/// Jobs of tubes that fit.
#[derive(Args)]
pub struct Choose {
    /// Jobs of these tubes; a name or a pattern such as 'mail-*'
    #[arg(long = "tube", short = 't', value_parser = glob, value_name = "TUBE")]
    pub tubes: Vec<GlobMatcher>,
    /// Which of their jobs
    #[command(flatten)]
    pub filter: FilterArguments,
    /// Every job, of the tubes if there are any
    #[arg(long)]
    pub all: bool,
}

/// Which jobs of tubes.
#[derive(Args)]
pub struct FilterArguments {
    /// Jobs in this state: ready, reserved, delayed or buried
    #[arg(long = "state", value_delimiter = ',', value_name = "STATE")]
    pub states: Vec<State>,
    /// Jobs that were put at least so long ago
    #[arg(long, value_parser = seconds, value_name = "TIME")]
    pub older_than: Option<u32>,
    /// Jobs whose body has this regular expression
    #[arg(long = "body-matches", value_name = "REGEX")]
    pub body: Option<Regex>,
}

impl FilterArguments {
    /// As the listing takes it.
    pub fn filter(&self, tubes: &[GlobMatcher]) -> Filter {
        Filter {
            tubes: tubes.to_vec(),
            states: self.states.clone(),
            older_than: self.older_than.map(u64::from),
            body: self.body.clone(),
        }
    }

    fn is_empty(&self) -> bool {
        self.states.is_empty() && self.older_than.is_none() && self.body.is_none()
    }
}

impl Choose {
    /// The filter; `None` where nothing says that many jobs are meant.
    pub fn filter(&self) -> Option<Filter> {
        (self.all || !self.filter.is_empty()).then(|| self.filter.filter(&self.tubes))
    }
}

/// Whether to ask before many things change.
#[derive(Args)]
pub struct Confirm {
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
    /// Change nothing, only say what would change
    #[arg(long)]
    pub dry_run: bool,
}

/// Tubes to act on.
#[derive(Args)]
pub struct Tubes {
    /// Names of tubes, or patterns such as 'mail-*'
    #[arg(required = true, value_parser = glob, value_name = "TUBE")]
    pub tubes: Vec<GlobMatcher>,
    /// Ask or not
    #[command(flatten)]
    pub confirm: Confirm,
}

/// When a job is ready.
#[derive(Args)]
pub struct Delay {
    /// Ready after so long
    #[arg(long = "delay", short = 'd', value_parser = seconds, default_value = "0s", value_name = "TIME")]
    pub seconds: u32,
}

/// A time: seconds, or with units.
pub fn duration(text: &str) -> Result<Duration, String> {
    match text.parse::<u64>() {
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(_) => humantime::parse_duration(text)
            .map_err(|error| format!("{error}; expected 90, 90s, 15m, 2h or 1d")),
    }
}

/// A time in whole seconds, as the protocol has it.
pub fn seconds(text: &str) -> Result<u32, String> {
    u32::try_from(duration(text)?.as_secs()).map_err(|_| "at most 4294967295 seconds".to_owned())
}

/// A pattern of names. A star stands for a slash, too: names of tubes are no paths.
pub fn glob(text: &str) -> Result<GlobMatcher, String> {
    let glob = GlobBuilder::new(text).literal_separator(false).backslash_escape(false).build();
    glob.map(|glob| glob.compile_matcher()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_or_have_units() {
        assert_eq!([seconds("90"), seconds("15m"), seconds("1h 1s")], [Ok(90), Ok(900), Ok(3601)]);
        assert!(seconds("soon").is_err() && seconds("-1").is_err() && seconds("4294967296").is_err());
    }

    #[test]
    fn patterns_match_whole_names() {
        let matches = |pattern, name: &str| glob(pattern).unwrap().is_match(name);
        assert!(matches("mail-*", "mail-out") && matches("*", "a/b") && matches("a?c", "abc"));
        assert!(!matches("mail", "mail-out") && !matches("a[bc]", "ad"));
        assert!(glob("a[").is_err());
    }
}
