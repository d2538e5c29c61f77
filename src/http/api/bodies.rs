//! The bodies of requests that change something.
//!
//! Owns: how JSON becomes an order. Every key must be known and its value must have the right type; otherwise the
//! answer names the mistake.

use std::num::NonZeroU32;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value};

use super::filter::{self, AS_OF, FilterFields};
use super::problem::{Problem, short};
use crate::job::{Body, JobId, Priority};
use crate::orders::selection::JobWalk;
use crate::orders::{FLUSHES, JobAction, Order, PutOrder, Selection, flush_action};
use crate::seconds::Seconds;
use crate::tags::{JobTags, PutTags};
use crate::tube_name::TubeName;

/// The maximum number of jobs that a request can name: they fit into its body with room to spare.
const MAX_JOBS: usize = 10_000;

/// The default time to run of a put; `beanstalkctl put` has the same.
const DEFAULT_TTR: Seconds = Seconds::new(60, 0);

/// The keys of an object that have not been read yet.
pub(crate) struct UnreadKeys(Map<String, Value>);

impl UnreadKeys {
    /// The object in a body.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Problem> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err(Problem::bad("the body has to be an object")),
            Err(error) => Err(Problem::bad(format!("the body is not valid JSON: {error}"))),
        }
    }

    fn take<T>(
        &mut self,
        key: &str,
        expected: &str,
        read: impl FnOnce(Value) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        match self.0.remove(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => {
                read(value).map(Some).ok_or_else(|| Problem::bad(format!("{key}: expected {expected}")))
            }
        }
    }

    /// A number of seconds, in the range and with the fractions of the protocol.
    fn seconds(&mut self, key: &str) -> Result<Option<Seconds>, Problem> {
        let expected = "seconds up to 4294967295.999, with at most three digits after the point";
        self.take(key, expected, |value| Seconds::parse(value.as_number()?.to_string().as_bytes()))
    }

    fn tube(&mut self, key: &str) -> Result<TubeName, Problem> {
        let name = self.text(key)?.ok_or_else(|| missing(key))?;
        tube_name(&name)
    }

    fn jobs(&mut self) -> Result<Vec<JobId>, Problem> {
        let expected = format!("1 to {MAX_JOBS} numbers of jobs");
        let jobs = self.take("jobs", &expected, |value| {
            let jobs = value.as_array().filter(|jobs| (1..=MAX_JOBS).contains(&jobs.len()))?;
            jobs.iter().map(|id| id.as_u64().map(JobId)).collect()
        })?;
        jobs.ok_or_else(|| missing("jobs"))
    }

    /// Tags as `put` takes them, encoded.
    fn tags(&mut self) -> Result<Vec<u8>, Problem> {
        let expected = "a list of tags, each once: idp:KEY[:SECONDS], con:KEY[:N], grp:NAME, aft:NAME, exp:SECONDS, \
             trc:TRACEPARENT";
        let tags = self.take("tags", expected, |value| {
            let Value::Array(words) = value else { return None };
            let mut tags = PutTags::default();
            for word in &words {
                tags.add(word.as_str()?.as_bytes()).ok()?;
            }
            let mut bytes = Vec::new();
            JobTags::from(tags.kept).encode(&mut bytes).ok()?;
            // The path of the request has the tube of the job.
            tags.tube.is_none().then_some(bytes)
        })?;
        Ok(tags.unwrap_or_default())
    }

    /// Checks that all keys have been read.
    fn end(self) -> Result<(), Problem> {
        match self.0.keys().next() {
            Some(key) => Err(Problem::bad(format!("{:?}: there is no such key here", short(key)))),
            None => Ok(()),
        }
    }

    fn action(&mut self) -> Result<String, Problem> {
        self.text("action")?.ok_or_else(|| missing("action"))
    }
}

impl FilterFields for UnreadKeys {
    fn text(&mut self, key: &str) -> Result<Option<String>, Problem> {
        self.take(key, "a text", |value| {
            let Value::String(text) = value else { return None };
            Some(text)
        })
    }

    fn number(&mut self, key: &str) -> Result<Option<u32>, Problem> {
        self.take(key, "a whole number up to 4294967295", |value| u32::try_from(value.as_u64()?).ok())
    }

    fn long(&mut self, key: &str) -> Result<Option<u64>, Problem> {
        self.take(key, "a whole number", |value| value.as_u64())
    }

    fn flag(&mut self, key: &str) -> Result<Option<bool>, Problem> {
        self.take(key, "true or false", |value| value.as_bool())
    }
}

fn missing(key: &str) -> Problem {
    Problem::bad(format!("{key} is missing"))
}

/// A valid name of a tube.
pub(crate) fn tube_name(name: &str) -> Result<TubeName, Problem> {
    TubeName::parse(name.as_bytes()).ok_or_else(|| {
        let rule = "1 to 200 of A-Z a-z 0-9 - + / ; . $ _ ( ), not beginning with a hyphen";
        Problem::bad(format!("that is not a tube name: {rule}"))
    })
}

/// Reads the other fields of an action on jobs.
type ReadAction = fn(&mut UnreadKeys) -> Result<JobAction, Problem>;

/// The actions on jobs.
const JOB_ACTIONS: [(&str, ReadAction); 6] = [
    ("kick", |_| Ok(JobAction::Kick)),
    ("delete", |_| Ok(JobAction::Delete)),
    ("move", |fields| Ok(JobAction::Move(fields.tube("to")?))),
    ("priority", |fields| {
        Ok(JobAction::Priority(Priority(fields.number("priority")?.ok_or_else(|| missing("priority"))?)))
    }),
    ("delay", |fields| Ok(JobAction::Delay(fields.seconds("delay")?.ok_or_else(|| missing("delay"))?))),
    ("redrive", |fields| {
        let rate = fields.take("rate", "a whole number from 1 to 4294967295", |value| {
            NonZeroU32::new(u32::try_from(value.as_u64()?).ok()?)
        });
        Ok(JobAction::Redrive(rate?))
    }),
];

/// The action on jobs with this name. Beside these, there are the `others`.
fn job_action(action: &str, fields: &mut UnreadKeys, others: &[&str]) -> Result<JobAction, Problem> {
    match JOB_ACTIONS.into_iter().find(|&(word, _)| word == action) {
        Some((_, read)) => read(fields),
        None => Err(unknown(action, &[others, &JOB_ACTIONS.map(|(word, _)| word)].concat())),
    }
}

fn unknown(action: &str, known: &[&str]) -> Problem {
    Problem::bad(format!("action {:?}: expected one of {}", short(action), known.join(", ")))
}

/// A job to put into the tube.
pub(crate) fn put(tube: TubeName, mut fields: UnreadKeys) -> Result<Order, Problem> {
    let body = fields.text("body")?.ok_or_else(|| missing("body"))?;
    let body = match fields.text("encoding")?.as_deref() {
        None | Some("text") => body.into_bytes(),
        Some("base64") => BASE64_STANDARD.decode(body).map_err(|_| Problem::bad("body: expected base64"))?,
        Some(_) => return Err(Problem::bad("encoding: expected text or base64")),
    };
    let job = PutOrder {
        tube,
        body: Body::from(body),
        priority: Priority(fields.number("priority")?.unwrap_or(0)),
        delay_s: fields.seconds("delay")?.unwrap_or(Seconds::ZERO),
        ttr_s: fields.seconds("ttr")?.unwrap_or(DEFAULT_TTR),
        tags: fields.tags()?,
    };
    fields.end()?;
    Ok(Order::Put(job))
}

/// The order for one job, or for the jobs that the body names.
pub(crate) fn on_jobs(id: Option<JobId>, mut fields: UnreadKeys) -> Result<Order, Problem> {
    let action = fields.action()?;
    let job_action = job_action(&action, &mut fields, &[])?;
    let jobs = id.map_or_else(|| fields.jobs(), |id| Ok(vec![id]))?;
    fields.end()?;
    Ok(Order::Change(job_action, Selection::Jobs(jobs.into_iter())))
}

/// The order for a tube, or for the jobs of the tube that this run of the server (`instance`) has counted.
pub(crate) fn on_tube(tube: TubeName, mut fields: UnreadKeys, instance: &str) -> Result<Order, Problem> {
    let action = fields.action()?;
    let scope = FLUSHES.into_iter().find(|&scope| flush_action(scope) == action);
    let order = match (action.as_str(), scope) {
        ("pause", _) => Order::Pause(tube, fields.seconds("seconds")?.ok_or_else(|| missing("seconds"))?),
        ("resume", _) => Order::Pause(tube, Seconds::ZERO),
        (_, Some(scope)) => Order::Flush(tube, scope),
        (_, None) => {
            let others = [&["pause", "resume"][..], &FLUSHES.map(flush_action)].concat();
            let job_action = job_action(&action, &mut fields, &others)?;
            let state = fields.text("state")?.ok_or_else(|| missing("state"))?;
            let state = filter::state(&state)?;
            let counted = fields.long("expected")?.ok_or_else(|| missing("expected"))?;
            let as_of = fields.text(AS_OF)?.ok_or_else(|| missing(AS_OF))?;
            let as_of = filter::as_of(&as_of, instance)?;
            let filter = filter::filter(&mut fields, as_of)?;
            let walk = JobWalk::new(tube, state, filter, None);
            Order::Change(job_action, Selection::Counted(Box::new(walk), counted))
        }
    };
    fields.end()?;
    Ok(order)
}

/// The order for a client.
pub(crate) fn on_client(id: u64, mut fields: UnreadKeys) -> Result<Order, Problem> {
    let action = fields.action()?;
    if action != "kill" {
        return Err(unknown(&action, &["kill"]));
    }
    fields.end()?;
    Ok(Order::KillClient(id))
}

/// The order for the server.
pub(crate) fn on_server(mut fields: UnreadKeys) -> Result<Order, Problem> {
    let action = fields.action()?;
    let order = match action.as_str() {
        "drain" => Order::Drain(true),
        "undrain" => Order::Drain(false),
        _ => return Err(unknown(&action, &["drain", "undrain"])),
    };
    fields.end()?;
    Ok(order)
}
