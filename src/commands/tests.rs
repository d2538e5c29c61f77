//! Compares the table of commands with the documents.

use std::fs;
use std::path::{Path, PathBuf};

use super::CommandRow;
use super::guard::Subject;
use crate::access::Roles;
use crate::protocol::{Command, Origin, Verb, parse};

/// The commands in the tables of doc/protocol.md: the line of each, with values in place of the arguments, and whether
/// it is in the table of extensions.
fn documented() -> Vec<(String, bool)> {
    let document = include_str!("../../doc/protocol.md");
    let (_, commands) = document.split_once("\n## Commands\n").unwrap();
    let (commands, _) = commands.split_once("\n### put\n").unwrap();
    let (of_c, ours) = commands.split_once("are extensions of this server").unwrap();
    let lines = |table: &str, is_ours: bool| -> Vec<(String, bool)> {
        let cells = table.lines().filter_map(|row| row.strip_prefix("| `")?.split('|').next());
        let spans = cells.flat_map(|cell| cell.split('`').step_by(2));
        spans
            .filter(|span| span.starts_with(char::is_alphabetic))
            .map(|span| (example(span), is_ours))
            .collect()
    };
    [lines(of_c, false), lines(ours, true)].concat()
}

/// A line for the usage of a command, without its optional parts.
fn example(usage: &str) -> String {
    let usage = usage.split('[').next().unwrap_or_default().trim_end_matches([' ', '…']);
    let word = |word: &str| {
        let value = match word {
            "<tube>" | "<name>" | "<token>" => "t",
            "<state>" => "ready",
            "<mode>" => "fifo",
            "<tag>" => "idp:k",
            number if number.starts_with('<') => "2",
            word => word,
        };
        value.to_owned()
    };
    usage.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

fn command(line: &str) -> Command<'_> {
    parse(line.as_bytes()).unwrap_or_else(|error| panic!("{line}: {error:?}"))
}

#[test]
fn the_document_has_each_command_once() {
    let documented = documented();
    for verb in Verb::ALL {
        let is_ours = matches!(verb.origin(), Origin::Ours | Origin::OursGuarded);
        let rows =
            documented.iter().filter(|(line, table)| command(line).verb() == verb && *table == is_ours);
        assert_eq!(rows.count(), 1, "{}", verb.as_str());
    }
    // Four of C's commands take further arguments here.
    assert_eq!(documented.len(), Verb::COUNT + 4);
}

#[test]
fn the_document_has_each_counter_of_commands() {
    let document = include_str!("../../doc/protocol.md");
    for verb in Verb::ALL.into_iter().filter(|verb| verb.origin() != Origin::OursGuarded) {
        let key = verb.counter_key();
        assert!(document.contains(&format!("`{key}`")), "{key}");
    }
}

#[test]
fn the_document_has_what_each_command_needs() {
    let document = include_str!("../../doc/security.md");
    let lines = documented();
    for verb in Verb::ALL {
        let (line, _) = lines.iter().find(|(line, _)| command(line).verb() == verb).unwrap();
        let row = CommandRow::of(&command(line));
        let (roles, of) = match (row.subject, row.roles) {
            (Subject::Nothing, _) => ("nothing".to_owned(), "–"),
            (of, Roles::ANY) => ("any role".to_owned(), subject(of, verb)),
            (of, roles) => (roles.to_string(), subject(of, verb)),
        };
        let rows = document.lines().filter(|line| line.starts_with('|'));
        let mut rows = rows.filter(|row| {
            row.split('|').nth(1).is_some_and(|words| {
                words.split(',').any(|word| word.trim() == format!("`{}`", verb.as_str()))
            })
        });
        let row = rows.next().unwrap_or_else(|| panic!("{} has no row", verb.as_str()));
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!(cells[2..4], [roles.as_str(), of], "{}", verb.as_str());
        assert_eq!(rows.next(), None, "{} has one row", verb.as_str());
    }
}

fn subject(subject: Subject<'_>, verb: Verb) -> &'static str {
    match subject {
        Subject::Nothing => "–",
        Subject::AnyTube | Subject::Mentioned(_) => "some tube",
        Subject::Every => "every tube (`*`)",
        Subject::Used | Subject::Target(_) => "the used tube",
        Subject::Watched => "each watched tube; the others leave the watch list",
        Subject::Named(_) if verb == Verb::StatsGroup => "the group that it names",
        Subject::Named(_) => "the tube that it names",
        Subject::OfJob(_) | Subject::OfJobs(_) => "the job's tube",
        Subject::OfJobAndNamed(..) => "the job's tube; produce or manage for the other tube",
    }
}

/// The maximum number of the server's files, without tests, that name a command: the table and the grammar of the
/// protocol or a page of the API, the table here, the file of the command, the method of the queue.
const MAX_FILES_OF_A_COMMAND: usize = 4;

/// The Rust files below the directory, without those of tests and clients.
fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !["tests", "client", "ctl", "target"].contains(&name.as_str()) {
            sources(&path, found);
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

#[test]
fn a_command_is_named_in_few_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    sources(&root.join("src"), &mut paths);
    sources(&root.join("crates"), &mut paths);
    let texts: Vec<(PathBuf, String)> = paths
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
            (path, text)
        })
        .collect();
    for verb in [Verb::Reprioritize, Verb::TouchAll, Verb::FlushBuried, Verb::DeleteBatch, Verb::ReserveMode]
    {
        let word = verb.as_str();
        let names = [word.to_owned(), word.replace('-', "_"), format!("Command::{verb:?}")];
        let is_named = |text: &String| names.iter().any(|name| text.contains(name));
        let files: Vec<_> = texts.iter().filter(|(_, text)| is_named(text)).map(|(path, _)| path).collect();
        assert!((2..=MAX_FILES_OF_A_COMMAND).contains(&files.len()), "{word}: {files:#?}");
    }
}
