//! The data of replies as types: counters of jobs, pages of jobs, extensions.

use std::collections::BTreeSet;

use beanstalkd_protocol::{Dictionary, FieldList, YamlError, parse_page};
use beanstalkd_types::job::{BodyRef, JobId, JobState};
use beanstalkd_types::tags::TagKind;
use beanstalkd_types::tube_name::TubeName;

use super::fields::Fields;
use super::tag::{Tag, TraceParent};

/// A job with its body, from a reserve or a peek.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Job {
    /// The id.
    pub id: u64,
    /// The body.
    pub body: Vec<u8>,
    /// The fields that the connection has requested with [`Client::reserve_fields`](crate::Client::reserve_fields).
    pub fields: Fields,
}

impl Job {
    /// The job of a RESERVED line with these values of its fields.
    pub(crate) fn with_fields(id: JobId, body: BodyRef<'_>, values: &str, list: FieldList) -> Self {
        Self { fields: Fields::read(list, values), ..Self::from((id, body)) }
    }
}

impl From<(JobId, BodyRef<'_>)> for Job {
    fn from((id, body): (JobId, BodyRef<'_>)) -> Self {
        Self { id: id.0, body: body.as_slice().to_vec(), fields: Fields::default() }
    }
}

/// The end of a page of `list-jobs` or `list-clients`. Only the server understands it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(String);

impl Cursor {
    /// The maximum length: with it, a tube's name of 200 bytes, the state and the limit, a line of `list-jobs` has at
    /// most 320 bytes. A line of `list-clients`, which has at most 224, has room for more.
    const MAX_BYTES: usize = 90;

    /// The cursor in a text: one word of visible characters, so that it can be sent back in a line.
    pub fn parse(text: &str) -> Option<Self> {
        let is_word = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        (is_word && text.len() <= Self::MAX_BYTES).then(|| Self(text.to_owned()))
    }

    /// The cursor of the next page; `None` on the last page.
    pub(crate) fn of_page(next: &str) -> Result<Option<Self>, YamlError> {
        match next {
            "" => Ok(None),
            text => Self::parse(text).map(Some).ok_or_else(|| missing("next")),
        }
    }

    /// The cursor as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The counters of a job: the keys of `stats-job`. Times are in seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the keys of stats-job")]
pub struct JobInfo {
    pub id: u64,
    pub tube: String,
    pub state: JobState,
    pub pri: u32,
    pub age: u64,
    pub delay: u64,
    pub ttr: u64,
    pub time_left: u64,
    /// The size of the body in bytes; `stats-job` does not have it.
    pub bytes: Option<u64>,
    pub reserves: u64,
    pub timeouts: u64,
    pub releases: u64,
    pub buries: u64,
    pub kicks: u64,
    /// The job waits until a group is empty.
    pub held: bool,
    pub tags: Vec<Tag>,
    /// The session that has reserved the job, if it is of the identity of this connection.
    pub session: Option<String>,
    /// The original tube of a dead job.
    pub dead_from: Option<TubeName>,
    /// Since when a dead job is dead, in seconds since 1970.
    pub dead_since: Option<u64>,
    /// The trace of the tag `trc:`.
    pub trace: Option<TraceParent>,
    /// The failures that count for the rule `max-attempts` of its tube.
    pub failures: Option<u64>,
    /// The words for what the job waits for, such as `delay` or `pause`. `list-jobs` does not have them.
    pub waits_for: Vec<String>,
}

impl JobInfo {
    /// Reads the data of `stats-job`.
    pub fn from_stats(stats: &Dictionary) -> Result<Self, YamlError> {
        let tube = stats.get("tube").ok_or_else(|| missing("tube"))?;
        let state = stats.get("state").and_then(|word| word.parse().ok()).ok_or_else(|| missing("state"))?;
        Self::from_keys(stats, tube, state)
    }

    fn from_keys(keys: &Dictionary, tube: &str, state: JobState) -> Result<Self, YamlError> {
        let needed = |key| keys.number(key).ok_or_else(|| missing(key));
        Ok(Self {
            id: needed("id")?,
            tube: tube.to_owned(),
            state,
            pri: u32::try_from(needed("pri")?).map_err(|_| missing("pri"))?,
            age: needed("age")?,
            delay: keys.number_or_zero("delay"),
            ttr: needed("ttr")?,
            time_left: keys.number_or_zero("time-left"),
            bytes: keys.number("bytes"),
            reserves: keys.number_or_zero("reserves"),
            timeouts: keys.number_or_zero("timeouts"),
            releases: keys.number_or_zero("releases"),
            buries: keys.number_or_zero("buries"),
            kicks: keys.number_or_zero("kicks"),
            held: keys.get("held") == Some("true"),
            tags: tags(keys),
            session: keys.get("session").filter(|name| !name.is_empty()).map(str::to_owned),
            dead_from: keys.get("dead-from").and_then(|name| name.parse().ok()),
            dead_since: keys.number("dead-since").filter(|seconds| *seconds > 0),
            trace: keys.get("trace").and_then(|text| text.parse().ok()),
            failures: keys.number("failures"),
            waits_for: words(keys.get("waits-for")).map(str::to_owned).collect(),
        })
    }

    /// The counters that a reservation also has, as its fields.
    pub(crate) fn fields(&self) -> Fields {
        Fields {
            tube: Some(self.tube.clone()),
            attempts: Some(self.reserves),
            timeouts: Some(self.timeouts),
            releases: Some(self.releases),
            age: Some(self.age),
            pri: Some(self.pri),
            ttr: Some(self.ttr),
            trace: self.trace.clone(),
        }
    }
}

/// The words of a value with spaces between them.
fn words(value: Option<&str>) -> impl Iterator<Item = &str> {
    value.unwrap_or_default().split_ascii_whitespace()
}

fn missing(key: &str) -> YamlError {
    YamlError { line: 0, found: format!("the key {key} is missing or wrong") }
}

/// The tags, from their keys. An empty value or 0 means that there is none, and a limit of 1 is the default.
fn tags(keys: &Dictionary) -> Vec<Tag> {
    let tag = |kind: TagKind| {
        let (key, number, usual) = match kind {
            TagKind::Idempotency => ("idempotency-key", "idempotency-ttl", 0),
            TagKind::Concurrency => ("concurrency-key", "concurrency-limit", 1),
            TagKind::Group => ("group", "", 0),
            TagKind::After => ("after-group", "", 0),
            TagKind::Expiry => ("expires-in", "", 0),
            TagKind::Trace => ("trace", "", 0),
            TagKind::Tube => return None,
        };
        let (word, name) = (kind.word(), keys.get(key)?);
        let number = keys.number(number).filter(|number| *number > usual);
        format!("{word}:{name}{}", number.map(|number| format!(":{number}")).unwrap_or_default()).parse().ok()
    };
    TagKind::ALL.into_iter().filter_map(tag).collect()
}

/// A page of `list-jobs`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page {
    /// The cursor of the next page; `None` on the last page.
    pub next: Option<Cursor>,
    /// The jobs, in the order in which they would be served.
    pub jobs: Vec<JobInfo>,
}

impl Page {
    /// Reads the data of `list-jobs <tube> <state>`.
    pub fn parse(data: &[u8], tube: &str, state: JobState) -> Result<Self, YamlError> {
        let (next, jobs) = parse_page(data)?;
        let jobs = jobs.iter().map(|keys| JobInfo::from_keys(keys, tube, state)).collect::<Result<_, _>>()?;
        Ok(Self { next: Cursor::of_page(&next)?, jobs })
    }
}

/// The extensions that a server offers: commands and tags, from the last key of its stats.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extensions(BTreeSet<String>);

impl Extensions {
    /// Reads the key `extensions` from the data of `stats`. C beanstalkd has no such key.
    pub fn from_stats(stats: &Dictionary) -> Self {
        let words = words(stats.get("extensions"));
        Self(words.map(|word| word.trim_end_matches(':').to_owned()).collect())
    }

    /// Whether the server offers this command or tag (`idp`, `grp`, …).
    pub fn has(&self, word: &str) -> bool {
        self.0.contains(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use beanstalkd_protocol::parse_dictionary;

    const C_JOB: &[u8] =
        b"---\nid: 3\ntube: default\nstate: delayed\npri: 4294967295\nage: 5\ndelay: 6\nttr: 7\n\
        time-left: 1\nfile: 0\nreserves: 1\ntimeouts: 2\nreleases: 3\nburies: 4\nkicks: 5\n";

    #[test]
    fn a_job_of_c_has_no_size_and_no_tags() {
        let job = JobInfo::from_stats(&parse_dictionary(C_JOB).unwrap()).unwrap();
        assert_eq!((job.id, job.state, job.pri, job.time_left), (3, JobState::Delayed, u32::MAX, 1));
        assert_eq!((job.bytes, job.held, job.tags, job.dead_from), (None, false, Vec::new(), None));
        assert_eq!((job.session, job.dead_since, job.waits_for), (None, None, Vec::new()));
    }

    #[test]
    fn a_job_has_its_session_its_death_and_what_it_waits_for() {
        let with = |more: &str| [C_JOB, more.as_bytes()].concat();
        let info = |data: &[u8]| JobInfo::from_stats(&parse_dictionary(data).unwrap()).unwrap();
        let job = info(&with("session: \"worker-7\"\ndead-since: 1784000000\nwaits-for: \"pause key\"\n"));
        assert_eq!((job.session.as_deref(), job.dead_since), (Some("worker-7"), Some(1_784_000_000)));
        assert_eq!(job.waits_for, ["pause", "key"]);
        let job = info(&with("session: \"\"\ndead-since: 0\nwaits-for: \"worker\"\n"));
        assert_eq!((job.session, job.dead_since, job.waits_for), (None, None, vec!["worker".to_owned()]));
        let trace = format!("00-{}-{}-01", "a".repeat(32), "b".repeat(16));
        let job = info(&with(&format!("trace: \"{trace}\"\nfailures: 2\n")));
        assert_eq!((job.trace.unwrap().as_str(), job.failures), (&*trace, Some(2)));
    }

    #[test]
    fn tags_come_from_their_keys() {
        let mut data = C_JOB.to_vec();
        data.extend_from_slice(
            b"idempotency-key: \"a\"\nidempotency-ttl: 60\ngroup: \"g\"\nafter-group: \"\"\nconcurrency-key: \"c\"\n\
            concurrency-limit: 1\nheld: true\nexpires-in: 0\ndead-from: \"mail\"\n",
        );
        let job = JobInfo::from_stats(&parse_dictionary(&data).unwrap()).unwrap();
        let tags: Vec<String> = job.tags.iter().map(Tag::to_string).collect();
        assert_eq!(tags, ["idp:a:60", "con:c", "grp:g"]);
        assert!(job.held);
        assert_eq!(job.dead_from.as_ref().map(TubeName::as_str), Some("mail"));
    }

    #[test]
    fn a_cursor_is_any_word_that_can_be_sent_back() {
        let long = "x".repeat(Cursor::MAX_BYTES + 1);
        for (next, is_cursor) in [
            ("a b", false),
            ("a\u{e4}", false),
            (&long, false),
            ("opaque:1/2", true),
            (&long[1..], true),
            ("", true),
        ] {
            let data = format!("---\nnext: \"{next}\"\njobs:\n");
            assert_eq!(Page::parse(data.as_bytes(), "t", JobState::Ready).is_ok(), is_cursor, "{next}");
        }
    }

    #[test]
    fn extensions_are_read_as_words() {
        let stats = parse_dictionary(b"---\nid: x\nextensions: \"flush-tube list-jobs idp:\"\n").unwrap();
        let extensions = Extensions::from_stats(&stats);
        assert!(extensions.has("flush-tube") && extensions.has("idp") && !extensions.has("move"));
        assert!(!Extensions::from_stats(&Dictionary::default()).has("list-jobs"));
    }
}
