//! A line of an export: a job as JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use beanstalk_client::{JobInfo, JobState, Tag, TubeName};
use serde_json::{Map, Value, json};

use crate::commands::jobs::with_body;

/// The mark of a line that was written before its job was deleted on the server. In a body the quotes are escaped.
const DRAINED: &[u8] = br#""drained":true"#;

/// Whether the line has the mark of a drained job.
pub fn is_drained(line: &[u8]) -> bool {
    line.windows(DRAINED.len()).any(|part| part == DRAINED)
}

/// An exported job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The id on the server of the export.
    pub id: u64,
    /// The tube.
    pub tube: TubeName,
    /// The state at the time of the export. The import makes a reserved job ready.
    pub state: JobState,
    /// The priority.
    pub pri: u32,
    /// Seconds that were left of the delay; 0 in the other states.
    pub delay: u32,
    /// The time to run, in seconds.
    pub ttr: u32,
    /// Seconds since the put.
    pub age: u64,
    /// The tags.
    pub tags: Vec<Tag>,
    /// Whether the job still waits for the group of its tag `aft`, if it has one.
    pub held: bool,
    /// The body.
    pub body: Vec<u8>,
    /// The `id` of the server's stats, which differs in each run.
    pub server: String,
}

impl Record {
    /// From the counters of a job; an error if the name of the tube is invalid.
    pub fn new(info: &JobInfo, body: Vec<u8>, server: &str) -> Result<Self, String> {
        let narrow = |seconds: u64| u32::try_from(seconds).unwrap_or(u32::MAX);
        Ok(Self {
            id: info.id,
            tube: info.tube.parse().map_err(|error| format!("{error}"))?,
            state: info.state,
            pri: info.pri,
            delay: if info.state == JobState::Delayed { narrow(info.time_left) } else { 0 },
            ttr: narrow(info.ttr),
            age: info.age,
            tags: info.tags.clone(),
            held: info.held,
            body,
            server: server.to_owned(),
        })
    }

    /// The line, with its line end.
    pub fn line(&self) -> String {
        format!("{}\n", with_body(self.keys(), &self.body))
    }

    /// The line of a job that is deleted on the server afterwards, with its line end: it may be the only copy.
    pub fn drained_line(&self) -> String {
        let mut object = self.keys();
        object["drained"] = json!(true);
        format!("{}\n", with_body(object, &self.body))
    }

    fn keys(&self) -> Value {
        json!({
            "id": self.id,
            "tube": self.tube.as_str(),
            "state": self.state.as_str(),
            "priority": self.pri,
            "delay": self.delay,
            "ttr": self.ttr,
            "age": self.age,
            "tags": self.tags.iter().map(Tag::to_string).collect::<Vec<_>>(),
            "held": self.held,
            "server": self.server,
        })
    }

    /// Parses a line. `tube`, and one of `body` and `body_base64`, are required; the other keys have the defaults of
    /// `put`.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        let object = value.as_object().ok_or("expected a JSON object")?;
        let body = match (object.get("body"), object.get("body_base64")) {
            (Some(Value::String(text)), None) => text.clone().into_bytes(),
            (None, Some(Value::String(text))) => {
                STANDARD.decode(text).map_err(|error| format!("body_base64: {error}"))?
            }
            _ => return Err("expected one of body and body_base64, as a text".to_owned()),
        };
        let tags = match object.get("tags") {
            None => Vec::new(),
            Some(Value::Array(tags)) => tags.iter().map(tag).collect::<Result<_, _>>()?,
            Some(_) => return Err("tags: expected an array".to_owned()),
        };
        // A line by hand may not have it.
        let held = match object.get("held") {
            None => true,
            Some(held) => held.as_bool().ok_or("held: expected true or false")?,
        };
        let state = text(object, "state")?.unwrap_or("ready");
        Ok(Self {
            id: number(object, "id", 0)?,
            tube: text(object, "tube")?
                .ok_or("tube is missing")?
                .parse()
                .map_err(|error| format!("tube: {error}"))?,
            state: JobState::parse(state.as_bytes())
                .ok_or_else(|| format!("state: \"{state}\" is not a state"))?,
            pri: number(object, "priority", 1024)?,
            delay: number(object, "delay", 0)?,
            ttr: number(object, "ttr", 60)?,
            age: number(object, "age", 0)?,
            tags,
            held,
            body,
            server: text(object, "server")?.unwrap_or_default().to_owned(),
        })
    }
}

fn tag(value: &Value) -> Result<Tag, String> {
    value.as_str().unwrap_or_default().parse().map_err(|error| format!("tags: {error}"))
}

fn text<'a>(object: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>, String> {
    object.get(key).map(|value| value.as_str().ok_or_else(|| format!("{key}: expected a text"))).transpose()
}

fn number<T: TryFrom<u64>>(object: &Map<String, Value>, key: &str, default: T) -> Result<T, String> {
    match object.get(key) {
        None => Ok(default),
        Some(value) => {
            let number = value.as_u64().and_then(|number| T::try_from(number).ok());
            number.ok_or_else(|| format!("{key}: {value} is not a number in the range of this key"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(body: &[u8]) -> Record {
        Record {
            id: 7,
            tube: "mail".parse().unwrap(),
            state: JobState::Delayed,
            pri: 5,
            delay: 60,
            ttr: 9,
            age: 1,
            tags: vec!["grp:g".parse().unwrap()],
            held: false,
            body: body.to_vec(),
            server: "s1".to_owned(),
        }
    }

    #[test]
    fn every_body_comes_back() {
        for body in [&b""[..], b"to: ann\r\n\"x\"", b"\x00\xff\xfe", "\u{2028}ä".as_bytes()] {
            let line = record(body).line();
            assert_eq!(line.matches('\n').count(), 1);
            assert_eq!(Record::parse(line.as_bytes()).unwrap(), record(body));
        }
    }

    #[test]
    fn a_line_by_hand_needs_a_tube_and_a_body() {
        let made = Record::parse(br#"{"tube":"mail","body":"x"}"#).unwrap();
        assert_eq!((made.pri, made.delay, made.ttr, made.state), (1024, 0, 60, JobState::Ready));
        assert!(made.held, "a job with a tag `aft` waits");
        for line in [
            "",
            "[]",
            r#"{"tube":"mail"}"#,
            r#"{"body":"x"}"#,
            r#"{"tube":"a b","body":"x"}"#,
            r#"{"tube":"a","body":"x","body_base64":""}"#,
            r#"{"tube":"a","body_base64":"?"}"#,
            r#"{"tube":"a","body":"x","priority":-1}"#,
            r#"{"tube":"a","body":"x","delay":4294967296}"#,
            r#"{"tube":"a","body":"x","state":"lost"}"#,
            r#"{"tube":"a","body":"x","tags":["z"]}"#,
            r#"{"tube":"a","body":"x","held":0}"#,
        ] {
            assert!(Record::parse(line.as_bytes()).is_err(), "{line}");
        }
    }
}
