//! What people write: the names of functions, of tests and of conformance cases, and the files and the constants that
//! comments name.

use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::TokenTree;

use super::{is_ident, report, sources, walk};

/// A longer name of a function or a test says more than one thing.
const MAX_NAME_CHARS: usize = 80;
/// Words that many readers do not know, or that have several meanings.
const UNUSUAL_WORDS: &[&str] = &["told", "anew", "whom", "perhaps", "said"];
/// A name that begins with one of these words does not say what it is about.
const PRONOUNS: &[&str] = &["it", "they", "those", "what", "whatever", "who", "whoever"];
/// The directories in which people write, beside the project's own.
const WRITTEN: &[&str] = &[".ci", "src", "crates", "tests", "fuzz", "doc", "packaging"];
/// How the names of such files end. Scripts, the Makefile and the like have names without an end; other ends are those
/// of recorded or generated data, of pictures, and of manual pages, whose tables have one line for each row.
const ENDS: &[&str] = &[
    "rs", "md", "toml", "js", "css", "html", "py", "sh", "php", "rb", "go", "yaml", "yml", "service",
    "socket", "conf", "cfg", "txt",
];
/// Where files are recorded, built or fetched.
const NOT_WRITTEN: &[&str] =
    &["fuzz/corpus", "tests/hand_over/formats", "target", "artifacts", "coverage", "node_modules"];

/// The files that people write.
pub(super) fn texts() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_text = |path: &Path| path.extension().is_none_or(|found| ENDS.iter().any(|end| found == *end));
    let files = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let mut texts: Vec<_> = files.filter(|path| path.is_file() && is_text(path)).collect();
    let mut directories: Vec<_> = WRITTEN.iter().map(|name| root.join(name)).collect();
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !NOT_WRITTEN.iter().any(|other| path.ends_with(other)) {
                    directories.push(path);
                }
            } else if is_text(&path) {
                texts.push(path);
            }
        }
    }
    texts
}

#[test]
fn the_names_of_functions_and_tests_are_short_and_plain() {
    let (mut failures, mut count) = (Vec::new(), 0);
    let is_word_char = |char: char| char.is_alphanumeric() || char == '_';
    for path in texts().into_iter().filter(|path| path.extension().is_some_and(|end| end == "rs")) {
        let tokens = fs::read_to_string(&path).unwrap().parse().unwrap();
        walk(&tokens, 0, &mut |trees, _| {
            let name = match trees {
                [first, TokenTree::Ident(name), ..] if is_ident(first, "fn") => name.to_string(),
                // The names of the conformance suite's cases are texts; a text of one word is usually none of them.
                [TokenTree::Literal(text), ..] if text.to_string().contains('_') => {
                    text.to_string().trim_matches('"').to_owned()
                }
                _ => return,
            };
            if !name.chars().all(is_word_char) {
                return;
            }
            count += 1;
            let is_unusual = name.split('_').any(|word| UNUSUAL_WORDS.contains(&word));
            let has_no_noun = name.split('_').next().is_some_and(|first| PRONOUNS.contains(&first));
            if is_unusual || has_no_noun || name.len() > MAX_NAME_CHARS {
                let line = trees[0].span().start().line;
                failures.push(format!("{}:{line}: {name}", path.display()));
            }
        });
    }
    assert!(count > 5_000, "expected more than 5,000 names, found {count}");
    report(failures);
}

/// Comments name a file by its name, or by the end of its path.
#[test]
fn every_source_file_that_a_comment_names_exists() {
    let paths = texts();
    let mut failures = Vec::new();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|end| end == "rs")) {
        for (index, line) in fs::read_to_string(path).unwrap().lines().enumerate() {
            let Some((_, comment)) = line.split_once("//") else { continue };
            let names = comment.split('`').skip(1).step_by(2).filter(|name| name.ends_with(".rs"));
            for name in names.filter(|name| !paths.iter().any(|path| path.ends_with(name))) {
                failures.push(format!("{}:{}: there is no file {name}", path.display(), index + 1));
            }
        }
    }
    report(failures);
}

/// The ends of the names of constants that bound a slice of long work.
const SLICES: &[&str] = &["_PER_TURN", "_PER_SLICE", "_PER_STEP", "_PER_ADVANCE"];

#[test]
fn the_table_of_slices_names_each_constant_with_its_file() {
    let table =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/executor/cost.rs")).unwrap();
    let mut rows = Vec::new();
    for row in table.lines().filter(|line| line.starts_with("//! |") && line.contains('`')) {
        let mut cells = row.split('|').skip(2).map(|cell| cell.split('`').skip(1).step_by(2));
        let (names, file) = (cells.next().unwrap(), cells.next().unwrap().next().unwrap());
        rows.extend(names.map(|name| (name.rsplit(':').next().unwrap(), file)));
    }
    let (mut defined, mut failures) = (vec![false; rows.len()], Vec::new());
    for source in sources() {
        walk(&source.tokens, 0, &mut |trees, _| {
            let [keyword, TokenTree::Ident(name), ..] = trees else { return };
            if !is_ident(keyword, "const") && !is_ident(keyword, "struct") {
                return;
            }
            let name = name.to_string();
            let row = rows.iter().position(|(known, file)| *known == name && source.path.ends_with(file));
            if let Some(row) = row {
                defined[row] = true;
            } else if SLICES.iter().any(|end| name.ends_with(end)) {
                failures.push(source.fail(keyword.span().start().line, &format!("{name} is in no row")));
            }
        });
    }
    let stale = rows.iter().zip(defined).filter(|(_, defined)| !defined);
    failures.extend(stale.map(|((name, file), _)| format!("{file} has no {name}")));
    report(failures);
}
