//! `rules`: the rules for tubes in force, and their effects.
//!
//! The server reports the rule of each tube, by its pattern. The settings of the rule are in the file, which may differ
//! from the file that the server has read.

use std::path::Path;

use beanstalk_client::JobState;
use serde_json::{Value, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::cli::RulesArguments;
use crate::failure::{Failure, OfFile, Result};
use crate::output::{Output, say, table};
use crate::server::{Server, Tube};

/// An entry of the file: its pattern, and its other keys with their values.
struct RuleEntry {
    name: String,
    asks_for: Vec<(String, String)>,
}

/// A line of the table: an entry, or a rule without an entry, and a tube that follows it, if there is one.
struct RuleLine<'a> {
    rule: &'a str,
    entry: Option<&'a RuleEntry>,
    tube: Option<&'a Tube>,
}

/// Prints the tubes that follow a rule. With the file, also prints the settings of each rule.
pub fn run(server: &mut Server, arguments: &RulesArguments, out: &mut Output) -> Result {
    let entries = arguments.file.as_deref().map(entries).transpose()?;
    let tubes = server.tubes(&arguments.tubes)?;
    let ruled: Vec<&Tube> = tubes.iter().filter(|tube| !rule_of(tube).is_empty()).collect();
    let mut lines = Vec::new();
    for (position, entry) in entries.iter().flatten().enumerate() {
        let line = |tube| RuleLine { rule: &entry.name, entry: Some(entry), tube };
        let before = lines.len();
        // Of two entries with the same name, tubes follow the first.
        let is_first = !entries.iter().flatten().take(position).any(|first| first.name == entry.name);
        let follow = ruled.iter().filter(|tube| is_first && rule_of(tube) == entry.name);
        lines.extend(follow.map(|&tube| line(Some(tube))));
        if lines.len() == before {
            lines.push(line(None));
        }
    }
    for &tube in &ruled {
        let rule = rule_of(tube);
        if entries.iter().flatten().any(|entry| entry.name == rule) {
            continue;
        }
        if let Some(path) = &arguments.file {
            let (name, path) = (&tube.name, path.display());
            say(&format!(
                "the tube {name} follows {rule:?}, which is not in {path}: the server has read another file"
            ));
        }
        lines.push(RuleLine { rule, entry: None, tube: Some(tube) });
    }
    if lines.is_empty() {
        return Err(Failure::NothingMatched("no tube follows a rule".to_owned()));
    }
    print(&lines, entries.is_some(), out)
}

fn rule_of(tube: &Tube) -> &str {
    tube.stats.get("rule").unwrap_or_default()
}

/// The entries of the file. Their settings are not checked: the server does that.
fn entries(path: &Path) -> Result<Vec<RuleEntry>> {
    let wrong = |reason: &str| Failure::Local(format!("{}: {reason}", path.display()));
    let text = std::fs::read_to_string(path).of_file(path)?;
    let file = DeTable::parse(&text).map_err(|error| wrong(error.to_string().trim_end()))?;
    let Some(entries) = file.get_ref().get("tube") else { return Ok(Vec::new()) };
    let DeValue::Array(entries) = entries.get_ref() else {
        return Err(wrong("expected entries that begin with [[tube]]"));
    };
    let entry = |entry: &Spanned<DeValue<'_>>| {
        let DeValue::Table(keys) = entry.get_ref() else {
            return Err(wrong("expected entries that begin with [[tube]]"));
        };
        let mut keys: Vec<(String, String)> =
            keys.iter().map(|(key, value)| (key.get_ref().to_string(), plain(value.get_ref()))).collect();
        let name = keys.iter().position(|(key, _)| key == "name");
        let name = name.ok_or_else(|| wrong("an entry has no name"))?;
        Ok(RuleEntry { name: keys.remove(name).1, asks_for: keys })
    };
    entries.iter().map(entry).collect()
}

/// A value as in the file, without its quotes. Rules have only these types of values.
fn plain(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Boolean(flag) => flag.to_string(),
        _ => "?".to_owned(),
    }
}

fn print(lines: &[RuleLine<'_>], has_file: bool, out: &mut Output) -> Result {
    if out.is_json() {
        return lines.iter().try_for_each(|line| out.value(&value(line)));
    }
    let asked = if has_file { "ASKS FOR" } else { "" };
    let header = ["RULE", asked, "TUBE", "JOBS", "RESERVED", "DEAD", "THROTTLED", "REJECTED"];
    let row = |line: &RuleLine<'_>| {
        let of_tube = |figure: &dyn Fn(&Tube) -> String| line.tube.map_or("-".to_owned(), figure);
        vec![
            line.rule.to_owned(),
            line.entry.map_or("?".to_owned(), asks_for),
            of_tube(&|tube| tube.name.to_string()),
            of_tube(&|tube| tube.jobs().to_string()),
            of_tube(&|tube| tube.count(JobState::Reserved).to_string()),
            of_tube(&|tube| tube.stats.number_or_zero("dead-jobs").to_string()),
            of_tube(&|tube| if is_throttled(tube) { "yes" } else { "-" }.to_owned()),
            of_tube(&|tube| tube.stats.number_or_zero("rejected-full").to_string()),
        ]
    };
    out.lines(&table(&header, 3, &lines.iter().map(row).collect::<Vec<_>>()))
}

fn is_throttled(tube: &Tube) -> bool {
    tube.stats.number_or_zero("throttled") > 0
}

/// The keys of the entry, in one line.
fn asks_for(entry: &RuleEntry) -> String {
    let words: Vec<String> = entry.asks_for.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if words.is_empty() { "nothing".to_owned() } else { words.join(" ") }
}

fn value(line: &RuleLine<'_>) -> Value {
    let of_tube = |key: &str| line.tube.map(|tube| tube.stats.number_or_zero(key));
    let asks_for = line.entry.map(|entry| {
        let pairs = entry.asks_for.iter().map(|(key, value)| (key.clone(), json!(value)));
        Value::Object(pairs.collect())
    });
    json!({
        "rule": line.rule,
        "asks_for": asks_for,
        "tube": line.tube.map(|tube| tube.name.as_str()),
        "jobs": line.tube.map(Tube::jobs),
        "reserved": of_tube("current-jobs-reserved"),
        "dead_jobs": of_tube("dead-jobs"),
        "throttled": line.tube.map(is_throttled),
        "rejected_full": of_tube("rejected-full"),
    })
}
