//! Arguments that several subcommands share, and how their values are read.

use std::fmt;
use std::time::Duration;

use beanstalk_client::{JobState, Seconds, Tag, TagError, TagFilter, TagKind, TubeName};
use clap::Args;
use clap::builder::{PossibleValuesParser, RangedU64ValueParser, TypedValueParser};
use globset::{GlobBuilder, GlobMatcher};
use regex::bytes::Regex;

/// Jobs by id, or all jobs that a filter matches.
#[derive(Args)]
pub struct ActOn {
    /// Jobs by id; - reads ids from standard input: words, or the lines that jobs and put print
    #[arg(
        value_name = "ID",
        value_parser = id,
        conflicts_with_all = ["tubes", "states", "older_than", "younger_than", "tag", "body", "all", "limit"]
    )]
    pub ids: Vec<Id>,
    /// The filter
    #[command(flatten)]
    pub choose: Choose,
    /// Ask or not
    #[command(flatten)]
    pub confirm: Confirm,
}

/// Jobs of tubes that a filter matches.
#[derive(Args)]
pub struct Choose {
    /// Only jobs of this tube: a name, or a pattern such as 'mail-*'
    #[arg(long = "tube", short = 't', value_parser = glob, value_name = "TUBE")]
    pub tubes: Vec<GlobMatcher>,
    /// Which of their jobs
    #[command(flatten)]
    pub filter: JobFilter,
    /// Every job; with --tube, every job of these tubes
    #[arg(long)]
    pub all: bool,
    /// At most this many of them: those that would be served first
    #[arg(long, short = 'n', value_name = "N", value_parser = limit())]
    pub limit: Option<usize>,
}

/// A filter for jobs. A job must match all of it.
#[derive(Args, Debug, Clone, Default)]
pub struct JobFilter {
    /// Patterns of tube names; if there are none, all tubes. Each command has an argument of its own for them.
    #[arg(skip)]
    pub tubes: Vec<GlobMatcher>,
    /// Only jobs in this state
    #[arg(long = "state", value_delimiter = ',', value_name = "STATE", value_parser = states())]
    pub states: Vec<JobState>,
    /// Only jobs that were put at least this long ago
    #[arg(long, value_parser = whole_seconds, value_name = "TIME")]
    pub older_than: Option<u32>,
    /// Only jobs that were put less than this long ago
    #[arg(long, value_parser = whole_seconds, value_name = "TIME")]
    pub younger_than: Option<u32>,
    /// Only jobs with this tag: idp, con, grp, aft, trc or exp, alone or with a key or a group such as grp:rows
    #[arg(long, value_parser = tag_filter, value_name = "TAG")]
    pub tag: Option<TagFilter>,
    /// Only jobs whose body matches this regular expression
    #[arg(long = "body-matches", value_name = "REGEX")]
    pub body: Option<Regex>,
}

impl JobFilter {
    /// The filter for jobs of these tubes.
    pub fn of(&self, tubes: &[GlobMatcher]) -> Self {
        Self { tubes: tubes.to_vec(), ..self.clone() }
    }

    fn is_empty(&self) -> bool {
        let ages = [self.older_than, self.younger_than];
        self.states.is_empty() && ages == [None; 2] && self.tag.is_none() && self.body.is_none()
    }
}

impl Choose {
    /// The filter; `None` if neither `--all` nor a condition is given. A tube alone does not choose jobs.
    pub fn filter(&self) -> Option<JobFilter> {
        (self.all || !self.filter.is_empty()).then(|| self.filter.of(&self.tubes))
    }
}

/// A job on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Id {
    /// Its id.
    Number(u64),
    /// The ids are on standard input.
    Stdin,
}

/// Parses an id, or `-`.
pub fn id(text: &str) -> Result<Id, String> {
    match text {
        "-" => Ok(Id::Stdin),
        digits => digits.parse().map(Id::Number).map_err(|_| "expected the id of a job, or -".to_owned()),
    }
}

/// Whether to ask for confirmation before a change.
#[derive(Args)]
pub struct Confirm {
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub yes: bool,
    /// Change nothing; only print what would change
    #[arg(long)]
    pub dry_run: bool,
}

/// Tubes to act on.
#[derive(Args)]
pub struct TubeArguments {
    /// Names of tubes, or patterns such as 'mail-*'
    #[arg(required = true, value_parser = glob, value_name = "TUBE")]
    pub tubes: Vec<GlobMatcher>,
    /// Ask or not
    #[command(flatten)]
    pub confirm: Confirm,
}

/// The arguments of `redrive`.
#[derive(Args)]
pub struct RedriveArguments {
    /// Names of the dead tubes, or patterns
    #[arg(required = true, value_parser = glob, value_name = "DEAD-TUBE")]
    pub tubes: Vec<GlobMatcher>,
    /// Which of their dead jobs
    #[command(flatten)]
    pub filter: JobFilter,
    /// At most this many of them: those that would be served first
    #[arg(long, short = 'n', value_name = "N", value_parser = limit())]
    pub limit: Option<usize>,
    /// At most this rate: 100/s, 50/m or 10/h
    #[arg(long, value_parser = rate, value_name = "RATE")]
    pub rate: Option<JobRate>,
    /// Ask or not
    #[command(flatten)]
    pub confirm: Confirm,
}

impl RedriveArguments {
    /// The jobs in the form that a change of jobs takes.
    pub fn on(self) -> (ActOn, Option<JobRate>) {
        let Self { tubes, filter, limit, rate, confirm } = self;
        (ActOn { ids: Vec::new(), choose: Choose { tubes, filter, all: true, limit }, confirm }, rate)
    }
}

/// Parses a number of jobs, at least 1.
pub fn limit() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

/// A number of jobs in a span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobRate {
    /// The jobs; at least 1.
    pub jobs: u32,
    /// The time: a second, a minute or an hour.
    pub per: Duration,
}

impl fmt::Display for JobRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.per.as_secs() {
            1 => 's',
            60 => 'm',
            _ => 'h',
        };
        write!(f, "{}/{unit}", self.jobs)
    }
}

/// Parses a rate in the form of the rules for tubes.
fn rate(text: &str) -> Result<JobRate, String> {
    let (jobs, unit) = text.split_once('/').unwrap_or((text, ""));
    let seconds = match unit {
        "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3600),
        _ => None,
    };
    let jobs = jobs.parse().ok().filter(|&jobs| jobs > 0);
    let rate = jobs.zip(seconds).map(|(jobs, seconds)| JobRate { jobs, per: Duration::from_secs(seconds) });
    rate.ok_or_else(|| "expected a rate such as 100/s, 50/m or 10/h".to_owned())
}

fn tag_filter(text: &str) -> Result<TagFilter, String> {
    let expected =
        "expected idp, con, grp, aft or trc, each alone or with a key, a group (grp:rows) or a trace, or exp";
    TagFilter::parse(text).ok_or_else(|| expected.to_owned())
}

/// A tag that is kept with the job. TUBE is the tube of a put.
pub fn tag_of_put(text: &str) -> Result<Tag, String> {
    let tag: Tag = text.parse().map_err(|error: TagError| error.to_string())?;
    if tag.kind() == TagKind::Tube {
        return Err(format!("{text} names another tube: give that one as TUBE"));
    }
    Ok(tag)
}

/// Parses a state. The completions have all of them.
pub fn states() -> impl TypedValueParser<Value = JobState> {
    PossibleValuesParser::new(JobState::ALL.map(JobState::as_str)).try_map(|word| word.parse::<JobState>())
}

/// Parses a time: a number of seconds, or numbers with units such as `1h 30m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    if let Some(seconds) = Seconds::parse(text.as_bytes()) {
        return Ok(Duration::from_nanos(seconds.as_ns()));
    }
    // A number without a unit has a fraction of a second with up to three digits.
    let (number, unit) = text.split_at(text.find(|each: char| !each.is_ascii_digit()).unwrap_or(text.len()));
    let parsed = match number.parse() {
        Ok(seconds) if unit.is_empty() => return Ok(Duration::from_secs(seconds)),
        _ => humantime::parse_duration(text),
    };
    parsed.map_err(|error| format!("{error}; expected 90, 0.5, 90s, 500ms, 15m, 2h or 1d"))
}

/// Parses the time between two looks at the servers.
pub fn interval(text: &str) -> Result<Duration, String> {
    let bounds = Duration::from_millis(10)..=Duration::from_secs(24 * 3600);
    let interval = duration(text)?;
    if bounds.contains(&interval) { Ok(interval) } else { Err("expected 10ms to 24h".to_owned()) }
}

/// Parses the grace of a session.
pub fn grace(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|grace| {
        if grace <= Duration::from_secs(3600) { Ok(grace) } else { Err("at most 1h".to_owned()) }
    })
}

/// Parses the beginning of the names of sessions. The program adds up to 40 bytes.
pub fn session(text: &str) -> Result<TubeName, String> {
    let name: TubeName = text.parse().map_err(|error| format!("{error}"))?;
    if text.len() <= TubeName::MAX_BYTES - 40 { Ok(name) } else { Err("at most 160 bytes".to_owned()) }
}

/// Parses a time in the unit of the protocol: seconds with up to three digits after the point, below 2^32. A shorter
/// fraction is rounded up.
pub fn seconds(text: &str) -> Result<Seconds, String> {
    let thousandths = duration(text)?.as_micros().div_ceil(1000);
    let whole = u32::try_from(thousandths / 1000).map_err(|_| "at most 4294967295 seconds".to_owned())?;
    Ok(Seconds::new(whole, (thousandths % 1000) as u16))
}

/// Parses a time of which only whole seconds are known or kept, such as the age of a job.
pub fn whole_seconds(text: &str) -> Result<u32, String> {
    let seconds = seconds(text)?;
    if seconds.thousandths() == 0 { Ok(seconds.whole()) } else { Err("expected whole seconds".to_owned()) }
}

/// Parses a pattern of tube names. `*` also matches a slash, because tube names are not paths.
pub fn glob(text: &str) -> Result<GlobMatcher, String> {
    let glob = GlobBuilder::new(text).literal_separator(false).backslash_escape(false).build();
    glob.map(|glob| glob.compile_matcher()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_or_have_units() {
        for (text, expected) in [
            ("90", "90"),
            ("15m", "900"),
            ("1h 1s", "3601"),
            ("0.5", "0.5"),
            ("500ms", "0.5"),
            ("1s 5ms", "1.005"),
            ("1us", "0.001"),
            ("4294967295.999", "4294967295.999"),
        ] {
            assert_eq!(seconds(text).map(|seconds| seconds.to_string()), Ok(expected.to_owned()), "{text}");
        }
        for text in ["soon", "", "-1", "4294967296", "18446744073709551616", ".5", "5.", "0.1234", "1 "] {
            assert!(seconds(text).is_err(), "{text}");
        }
        assert_eq!([whole_seconds("90"), whole_seconds("1500ms 500ms")], [Ok(90), Ok(2)]);
        assert!(whole_seconds("0.5").is_err() && whole_seconds("900ms").is_err());
    }

    #[test]
    fn rates_are_read_as_in_the_rules_for_tubes() {
        for text in ["100/s", "50/m", "1/h", "4294967295/s"] {
            assert_eq!(rate(text).unwrap().to_string(), text);
        }
        for text in ["", "/s", "0/s", "-1/s", "1.5/s", "10", "10/", "10/d", "10/s/s", "4294967296/s"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn patterns_match_whole_names() {
        let matches = |pattern, name: &str| glob(pattern).unwrap().is_match(name);
        assert!(matches("mail-*", "mail-out") && matches("*", "a/b") && matches("a?c", "abc"));
        assert!(matches("[a-f]x", "bx") && matches("mail-{in,out}", "mail-in") && !matches("{in,out}", "i"));
        assert!(!matches("mail", "mail-out") && !matches("a[bc]", "ad"));
        assert!(glob("a[").is_err());
    }
}
