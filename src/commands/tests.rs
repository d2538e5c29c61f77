//! Compares the table of commands with the documents.

use beanstalkd_testkit::written::Table;

use crate::access::Roles;
use crate::executor::{CommandRow, Subject};
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

/// The commands that need the same are in one row. The rows with the same roles are together.
#[test]
fn the_document_has_what_each_command_needs() {
    let lines = documented();
    let mut rows: Vec<(u8, String, Vec<String>)> = Vec::new();
    for verb in Verb::ALL {
        let (line, _) = lines.iter().find(|(line, _)| command(line).verb() == verb).unwrap();
        let row = CommandRow::of(&command(line));
        let (order, roles) = match (row.subject, row.roles) {
            (Subject::Nothing, _) => (u8::MAX, "nothing".to_owned()),
            (_, Roles::ANY) => (Roles::ANY.bits(), "any role".to_owned()),
            (_, roles) => (roles.bits(), roles.to_string()),
        };
        let needs = format!("{roles} | {}", subject(row.subject));
        let word = format!("`{}`", verb.as_str());
        match rows.iter_mut().find(|(_, known, _)| *known == needs) {
            Some((.., words)) => words.push(word),
            None => rows.push((order, needs, vec![word])),
        }
    }
    rows.sort_by_key(|(order, ..)| *order);
    let rows = rows.into_iter().map(|(_, needs, words)| format!("| {} | {needs} |\n", words.join(", ")));
    let table = Table::find("doc/security.md", "| command | role | for |");
    table.must_have(&rows.collect::<String>(), "--lib what_each_command_needs");
}

fn subject(subject: Subject<'_>) -> &'static str {
    match subject {
        Subject::Nothing => "–",
        Subject::AnyTube | Subject::Mentioned(_) => "some tube",
        Subject::Every => "every tube (`*`)",
        Subject::Used | Subject::Target(_) => "the used tube",
        Subject::Watched => "each watched tube; the others leave the watch list",
        Subject::Named(_) => "the tube that it names",
        Subject::Group(_) => "the group that it names",
        Subject::OfJob(_) | Subject::OfJobs(_) => "the job's tube",
        Subject::OfJobAndNamed(..) => "the job's tube; produce or manage for the other tube",
    }
}
