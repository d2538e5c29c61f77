//! How long a file and a line are, and in the crates, the server and the shared code of the tests, how long a function
//! and how large a type is. How many lines each crate and the server have, which doc/architecture.md says.

use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use beanstalkd_testkit::written::Table;

use super::names::texts;
use super::{Source, is_ident, is_punct, report, rows, sources, sources_in, walk};

/// A longer file usually has two subjects.
const MAX_FILE_LINES: usize = 600;
/// A longer function does not fit on a screen.
const MAX_FUNCTION_LINES: usize = 60;
/// A type with more fields usually has two subjects.
const MAX_FIELDS: usize = 12;
/// A longer line does not fit beside another file. Tables, and code blocks of documents, may have longer ones.
const MAX_LINE_CHARS: usize = 120;

/// A crate may grow or shrink by one part in `TOLERANCE` before its row must change, so that a large addition is
/// visible.
const TOLERANCE: usize = 50;

/// The files whose functions and types are short: those of the server, of the client library and the tool, and the code
/// that the tests share.
fn short_sources() -> Vec<Source> {
    let directories = ["crates/client/src", "crates/ctl/src", "tests/kit/src", "tests/model/src"];
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let others = sources_in(directories.map(|directory| root.join(directory)).to_vec());
    assert!(others.len() > 140, "expected more than 140 other files");
    sources().into_iter().chain(others).collect()
}

#[test]
fn no_file_is_longer_than_the_limit() {
    let files = texts().into_iter().filter(|path| path.extension().is_some_and(|end| end == "rs"));
    let lines = files.map(|path| (fs::read_to_string(&path).unwrap().lines().count(), path));
    let long = lines.filter(|(count, _)| *count > MAX_FILE_LINES);
    report(long.map(|(count, path)| format!("{}:{count}: the file is too long", path.display())).collect());
}

/// Longer functions of the model, and why.
const LONG_FUNCTIONS: &[&str] = &[
    // An arm for each command.
    "command_as_seen",
    // A line for each key.
    "stats",
];

#[test]
fn every_function_fits_on_a_screen() {
    let mut failures = Vec::new();
    for source in short_sources() {
        walk(&source.tokens, 0, &mut |trees, _| {
            let [keyword, TokenTree::Ident(name), rest @ ..] = trees else { return };
            if !is_ident(keyword, "fn") {
                return;
            }
            let end = rest.iter().find_map(|tree| match tree {
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                    Some(group.span_close().end().line)
                }
                TokenTree::Punct(punct) if punct.as_char() == ';' => Some(0),
                _ => None,
            });
            let start = keyword.span().start().line;
            let lines = end.unwrap_or(0).saturating_sub(start) + 1;
            let is_exempt =
                source.path.starts_with("tests/model") && LONG_FUNCTIONS.iter().any(|long| name == long);
            if lines > MAX_FUNCTION_LINES && !is_exempt {
                failures.push(source.fail(start, &format!("{name} has {lines} lines")));
            }
        });
    }
    report(failures);
}

/// Types with more fields, and why.
const LARGE_TYPES: &[(&str, &str)] = &[
    // All parts of one subject, which are types of their own.
    ("crates/binlog/src/writer/mod.rs", "Binlog"),
    ("crates/queue/src/rules/mod.rs", "Rules"),
    ("crates/queue/src/lib.rs", "Queue"),
    ("src/executor/mod.rs", "Executor"),
    ("src/server/event_loop/mod.rs", "EventLoop"),
    ("src/server/mod.rs", "Server"),
    // A block of memory for everything about one object.
    ("crates/queue/src/state/clients.rs", "Client"),
    ("crates/queue/src/state/tubes.rs", "Tube"),
    // A field for each row of a table: arguments, options, figures, kinds of records.
    ("crates/binlog/src/replay/jobs.rs", "LoggedJobs"),
    ("crates/client/src/core/data.rs", "JobInfo"),
    ("crates/protocol/src/samples.rs", "Arguments"),
    ("crates/queue/src/operations/views.rs", "TubeView"),
    ("src/options/mod.rs", "Draft"),
    ("src/stats/server.rs", "ServerView"),
    // The model keeps each fact by itself.
    ("tests/model/src/queue/mod.rs", "Job"),
    ("tests/model/src/queue/mod.rs", "Model"),
];

/// How many fields stand between the braces of a struct: each has one colon of its own.
fn count_fields(fields: TokenStream) -> usize {
    let trees: Vec<_> = fields.into_iter().collect();
    let is_colon = |tree: &TokenTree| is_punct(tree, ':');
    let alone =
        |window: &&[TokenTree]| !is_colon(&window[0]) && is_colon(&window[1]) && !is_colon(&window[2]);
    trees.windows(3).filter(alone).count()
}

#[test]
fn a_type_has_few_fields_or_is_one_of_the_large_ones() {
    let (mut failures, mut large) = (Vec::new(), 0);
    for source in short_sources() {
        walk(&source.tokens, 0, &mut |trees, _| {
            let [keyword, TokenTree::Ident(name), rest @ ..] = trees else { return };
            if !is_ident(keyword, "struct") {
                return;
            }
            let body = rest.iter().take_while(|tree| !is_punct(tree, ';')).find_map(|tree| match tree {
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(group.stream()),
                _ => None,
            });
            let (fields, line) = (body.map_or(0, count_fields), keyword.span().start().line);
            let is_exempt =
                LARGE_TYPES.iter().any(|(path, known)| source.path == Path::new(path) && name == known);
            if fields > MAX_FIELDS && is_exempt {
                large += 1;
            } else if fields > MAX_FIELDS {
                failures.push(source.fail(line, &format!("{name} has {fields} fields")));
            }
        });
    }
    report(failures);
    assert_eq!(large, LARGE_TYPES.len(), "each type of the list has more fields");
}

#[test]
fn no_line_is_longer_than_the_limit() {
    let mut failures = Vec::new();
    for path in texts() {
        let text = fs::read_to_string(&path).unwrap();
        let is_document = path.extension().is_some_and(|end| end == "md");
        let has_tables = is_document || path.extension().is_some_and(|end| end == "rs");
        let mut is_code = false;
        for (index, line) in text.lines().enumerate() {
            let is_fence = is_document && line.trim_start().starts_with("```");
            is_code ^= is_fence;
            let text = line.trim_start_matches(['/', '!', ' ']);
            let may_be_long = has_tables && text.starts_with('|') || is_document && (is_code || is_fence);
            if !may_be_long && line.chars().count() > MAX_LINE_CHARS {
                failures.push(format!("{}:{}: the line is too long", path.display(), index + 1));
            }
        }
    }
    report(failures);
}

/// The lines of code: without blank lines, comments, and items for tests.
fn count_code(text: &str) -> usize {
    let (mut lines, mut count) = (text.lines().map(str::trim).peekable(), 0);
    while let Some(line) = lines.next() {
        if !line.starts_with("#[cfg(test)]") {
            count += usize::from(!line.is_empty() && !line.starts_with("//"));
            continue;
        }
        while lines.next_if(|line| line.starts_with('#')).is_some() {}
        // The item ends with its last brace, or has none.
        let mut depth = 0;
        for line in lines.by_ref() {
            depth += line.matches('{').count();
            depth -= line.matches('}').count();
            if depth == 0 {
                break;
            }
        }
    }
    count
}

fn is_test_file(path: &str) -> bool {
    path.ends_with("test.rs")
        || path.ends_with("tests.rs")
        || ["/tests/", "/testing", "/benches/", "/examples/", "/bench/"]
            .iter()
            .any(|part| path.contains(part))
}

#[test]
fn the_page_has_the_size_of_each_crate_and_of_the_server() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let count_in = |directory: &str| {
        let files = texts().into_iter().filter_map(|path| {
            let name = path.strip_prefix(root).unwrap().to_str()?.to_owned();
            (name.starts_with(directory) && name.ends_with(".rs") && !is_test_file(&name)).then_some(path)
        });
        files.map(|path| count_code(&fs::read_to_string(path).unwrap())).sum::<usize>()
    };
    let crates =
        rows().into_iter().filter(|row| row.floor.is_some()).map(|row| format!("crates/{}/", row.name));
    let sizes: Vec<_> = crates.chain(["src/".to_owned()]).map(|part| (count_in(&part), part)).collect();
    let table = Table::find("doc/architecture.md", "| part | lines of code |");
    let listed = |part: &str| {
        let row = table.rows().lines().find(|row| row.starts_with(&format!("| `{part}` |")))?;
        row.trim_end_matches([' ', '|']).rsplit(' ').next()?.replace(',', "").parse::<usize>().ok()
    };
    let is_listed = |(size, part): &(usize, String)| {
        listed(part).is_some_and(|listed| listed.abs_diff(*size) <= size / TOLERANCE)
    };
    if sizes.iter().all(is_listed) && table.rows().lines().count() == sizes.len() {
        return;
    }
    let row = |(size, part): &(usize, String)| format!("| `{part}` | {},{:03} |\n", size / 1000, size % 1000);
    table.must_have(&sizes.iter().map(row).collect::<String>(), "--test architecture the_page_has_the_size");
}
