//! The corpus for authors of clients: the scripts of the suite as JSON, a file for each topic in `doc/corpus`, whose
//! README describes the format.
//!
//! Owns: the writing of the files and of the numbers of cases in the documents, their comparison with the suite, and
//! cases that play the files as they are. Cases that are code have no script, so they are not in the corpus; neither
//! are those with a step of more than [`MAX_STEP_LENGTH`]. Driven by `main`.

use crate::case::{Case, Needs, bytes_of, script};
use crate::mark::Mark;
use crate::topics;
use beanstalkd_protocol::{Origin, Verb};
use libtest_mimic::Trial;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// A longer step does not fit on a screen. It shows a limit of sizes, which a sentence says as well.
const MAX_STEP_LENGTH: usize = 4096;

/// The directory of the repository. Flags of a case may name a file in it.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/");

const PROTOCOL: &str = include_str!("../../doc/protocol.md");

/// C's commands to which this server adds so much that they have a section of `doc/protocol.md`.
const EXTENDED: [&str; 3] = ["stats", "stats-job", "stats-tube"];

/// A number of cases in a document.
struct Count {
    document: &'static str,
    /// The words after the number.
    words: &'static str,
    counts: fn(Mark) -> bool,
}

const COUNTS: &[Count] = &[
    Count { document: "doc/testing.md", words: " black-box cases", counts: |_| true },
    Count { document: "doc/conformance.md", words: " cases over raw bytes", counts: |_| true },
    Count {
        document: "doc/conformance.md",
        words: " of them test only what the protocol document says",
        counts: |mark| matches!(mark, Mark::Promised(_)),
    },
];

/// Writes the files, and the numbers of cases into the documents.
///
/// # Panics
///
/// If a file cannot be written.
pub fn write() {
    let files = files().into_iter().map(|(topic, text)| (path(topic), text));
    for (path, text) in files.chain(documents()) {
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

/// A test that the files are those that [`write()`] would write now.
pub fn comparison() -> Trial {
    Trial::test("corpus::the_files_are_as_the_suite_has_them", || {
        let mut names = vec!["README.md".to_owned()];
        for (topic, text) in files() {
            if read(topic)? != text {
                return Err(
                    format!("{} differs from the suite: run `make corpus`", path(topic).display()).into()
                );
            }
            names.push(format!("{topic}.json"));
        }
        for (path, text) in documents() {
            if std::fs::read_to_string(&path)? != text {
                return Err(
                    format!("{} has other numbers of cases: run `make corpus`", path.display()).into()
                );
            }
        }
        for entry in std::fs::read_dir(path("").parent().expect("the files are in a directory"))? {
            let name = entry?.file_name();
            if !names.iter().any(|known| name == known.as_str()) {
                return Err(
                    format!("doc/corpus has {}, and the suite has no such topic", name.display()).into()
                );
            }
        }
        Ok(())
    })
}

/// The cases of the suite that are in the corpus, with the conversations that the files have.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (topic, of_suite) in topics::all() {
        // The comparison fails if a file is missing or is not JSON.
        let Some(file) = read(topic).ok().and_then(|text| serde_json::from_str::<Value>(&text).ok()) else {
            continue;
        };
        let written = file["cases"].as_array().into_iter().flatten();
        for case in of_suite {
            let Some(written) = written.clone().find(|written| written["name"] == case.name.as_str()) else {
                continue;
            };
            let steps = written["steps"].as_array().into_iter().flatten();
            let text: Vec<String> = steps.map(notation).collect();
            let played = script(format!("{topic}::{}", case.name), text.join("\n"));
            cases.push(Case { name: played.name, run: played.run, ..case });
        }
    }
    cases
}

fn path(topic: &str) -> PathBuf {
    [ROOT, "doc", "corpus", &format!("{topic}.json")].iter().collect()
}

fn read(topic: &str) -> std::io::Result<String> {
    std::fs::read_to_string(path(topic))
}

/// The documents that have numbers of cases, with those that the suite has now.
fn documents() -> BTreeMap<PathBuf, String> {
    let topics = topics::all();
    let marks: Vec<Mark> = topics.iter().flat_map(|(_, cases)| cases).filter_map(|case| case.mark).collect();
    let mut documents = BTreeMap::new();
    for count in COUNTS {
        let path = Path::new(ROOT).join(count.document);
        let text: &mut String = documents.entry(path).or_insert_with_key(|path| {
            std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        });
        let (before, after) = text
            .split_once(count.words)
            .unwrap_or_else(|| panic!("{} does not say how many{}", count.document, count.words));
        let before = before.trim_end_matches(|c: char| c.is_ascii_digit() || c == ',');
        let number = marks.iter().filter(|&&mark| (count.counts)(mark)).count();
        let thousands = match number / 1000 {
            0 => String::new(),
            thousands => format!("{thousands},"),
        };
        let digits = if number < 1000 { 1 } else { 3 };
        *text = format!("{before}{thousands}{:0digits$}{}{after}", number % 1000, count.words);
    }
    documents
}

/// The name and the text of each file.
fn files() -> Vec<(&'static str, String)> {
    let mut files = Vec::new();
    for (topic, cases) in topics::all() {
        let cases: Vec<String> = cases.iter().filter_map(|case| written(topic, case)).collect();
        if !cases.is_empty() {
            let topic_name = quoted(topic);
            let text = format!("{{\"topic\": {topic_name}, \"cases\": [\n{}\n]}}\n", cases.join(",\n"));
            files.push((topic, text));
        }
    }
    files
}

/// The case as JSON, with a line for its head and one for each step; none if it is not in the corpus.
fn written(topic: &str, case: &Case) -> Option<String> {
    let steps: Vec<&str> =
        case.script.as_ref()?.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if steps.iter().any(|step| step.len() > MAX_STEP_LENGTH) {
        return None;
    }
    let mark = case.mark.expect("each topic gives its cases a mark");
    let section = section(topic, mark, &steps).map_or("null".to_owned(), |section| quoted(&section));
    let needs = match case.needs {
        Needs::Protocol => "protocol",
        Needs::Since113 => "1.13",
        Needs::Persistence => "binlog",
        Needs::Drain => "drain",
        Needs::Extension => "extension",
        Needs::Manage => "manage",
        Needs::Work => "work",
        Needs::Tags => "tags",
    };
    let flags: Vec<String> =
        case.flags.iter().map(|flag| quoted(flag.strip_prefix(ROOT).unwrap_or(flag))).collect();
    let steps: Vec<String> = steps.into_iter().map(step).collect();
    Some(format!(
        "{{\"name\": {}, \"mark\": {}, \"section\": {section}, \"needs\": {}, \"flags\": [{}], \"steps\": [\n  {}\n]}}",
        quoted(&case.name),
        quoted(mark.word()),
        quoted(needs),
        flags.join(", "),
        steps.join(",\n  "),
    ))
}

/// The section that the case stands on: of C's protocol document, or of `doc/protocol.md` for a decision of ours.
fn section(topic: &str, mark: Mark, steps: &[&str]) -> Option<String> {
    let ours = match (mark, topic) {
        (Mark::Promised(section), _) => return Some(section.to_owned()),
        (Mark::Habit, _) => return None,
        (Mark::Ours, "fractions") => Some("fractions of a second"),
        (Mark::Ours, "tags") => Some("put with tags"),
        (Mark::Ours, "access") => Some("auth"),
        (Mark::Ours, _) => steps.iter().find_map(|step| {
            let said = step.split_once(": ")?.1;
            let mut words = said.split([' ', '\\']);
            let word = words.next()?;
            if word == "watch" && words.nth(1).is_some_and(|weight| weight != "->") {
                return Some("reserve-mode, watch with a weight");
            }
            if ["touch", "release"].contains(&word) {
                return Some("release, bury, touch");
            }
            let is_ours = |verb: &Verb| matches!(verb.origin(), Origin::Ours | Origin::OursGuarded);
            let added = Verb::ALL.into_iter().filter(is_ours).map(Verb::as_str);
            let has_section = added.chain(EXTENDED).any(|command| command == word);
            has_section.then(|| heading_of(word))
        }),
    }?;
    assert!(PROTOCOL.contains(&format!("\n### {ours}\n")), "doc/protocol.md has no section {ours}");
    Some(format!("doc/protocol.md: {ours}"))
}

/// The heading of `doc/protocol.md` that names the command.
fn heading_of(command: &str) -> &'static str {
    let mut headings = PROTOCOL.lines().filter_map(|line| line.strip_prefix("### "));
    headings
        .find(|heading| heading.split(", ").any(|word| word == command))
        .unwrap_or_else(|| panic!("doc/protocol.md has no section for {command}"))
}

/// A step of a script as JSON.
fn step(line: &str) -> String {
    if let Some(count) = line.strip_prefix("waiting ") {
        return format!("{{\"waiting\": {count}}}");
    }
    let (repeat, line) = line.strip_prefix("until ").map_or((false, line), |line| (true, line));
    let (connection, rest) = line.split_once(": ").expect("a step begins with a client");
    let mut json = format!("{{\"connection\": {}", quoted(connection));
    if let Some(action) = rest.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')) {
        let _ = write!(json, ", \"action\": {}", quoted(action));
    } else if let Some((question, pairs)) = rest.split_once(" => ") {
        let pairs: Vec<String> = pairs
            .split(", ")
            .map(|pair| pair.split_once(": ").expect("a pair is `key: value`"))
            .map(|(key, value)| format!("{}: {}", quoted(key), quoted(value)))
            .collect();
        let _ = write!(json, ", \"send\": {}, \"expect-pairs\": {{{}}}", bytes(question), pairs.join(", "));
        if repeat {
            json += ", \"repeat\": true";
        }
    } else {
        let (said, expected) = match (rest.strip_prefix("-> "), rest.strip_suffix(" ->")) {
            (Some(expected), _) => (None, Some(expected)),
            (None, Some(said)) => (Some(said), None),
            (None, None) => {
                rest.split_once(" -> ").map(|(said, reply)| (Some(said), Some(reply))).expect("a step has ->")
            }
        };
        if let Some(said) = said {
            let _ = write!(json, ", \"send\": {}", bytes(said));
        }
        match expected {
            Some("<closed>") => json += ", \"expect-closed\": true",
            Some(expected) => {
                let _ = write!(json, ", \"expect\": {}", bytes(expected));
            }
            None => {}
        }
    }
    json + "}"
}

/// A step of a file in the notation of scripts.
fn notation(step: &Value) -> String {
    if let Some(count) = step["waiting"].as_u64() {
        return format!("waiting {count}");
    }
    let text = |key: &str| step[key].as_str();
    let connection = text("connection").unwrap_or_default();
    if let Some(action) = text("action") {
        return format!("{connection}: <{action}>");
    }
    let said = text("send").map(escaped);
    if let Some(pairs) = step["expect-pairs"].as_object() {
        let until = if step["repeat"] == true { "until " } else { "" };
        let pairs: Vec<String> = pairs
            .iter()
            .map(|(key, value)| format!("{key}: {}", value.as_str().unwrap_or_default()))
            .collect();
        return format!("{until}{connection}: {} => {}", said.unwrap_or_default(), pairs.join(", "));
    }
    let closed = step["expect-closed"] == true;
    let expected = if closed { Some("<closed>".to_owned()) } else { text("expect").map(escaped) };
    let said = said.map(|said| said + " ").unwrap_or_default();
    let expected = expected.map(|expected| format!(" {expected}")).unwrap_or_default();
    format!("{connection}: {said}->{expected}")
}

/// The text as a string of JSON.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// The bytes of one side of a step as a string of JSON, with a character for each byte.
fn bytes(side: &str) -> String {
    quoted(&bytes_of(side).into_iter().map(char::from).collect::<String>())
}

/// A side of a step in the notation, from the string that [`bytes`] makes.
fn escaped(text: &str) -> String {
    let escape = |c: char| match c {
        '!'..='~' if c != '\\' && c != '|' => c.to_string(),
        _ => format!("\\x{:02x}", u32::from(c)),
    };
    text.chars().map(escape).chain(["\\c".to_owned()]).collect()
}
