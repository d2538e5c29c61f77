//! Checks the manifests and the source against the tables of doc/architecture.md: which crate may use which, and which
//! part of the server may import which; and the sources of the queue and of the client library against the tables in
//! their `lib.rs`. Checks which parts are pure, and where the system is called. In files of their own: circles of files
//! that use each other, the lengths of files, functions, types and lines, names, and which methods of the queue the
//! model test calls.
//!
//! It reads paths, functions and types as tokens, so that comments and strings may contain anything; it reads lines and
//! names as text.

mod circles;
mod lengths;
mod names;
mod queue_methods;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use beanstalkd_protocol::Verb;
use proc_macro2::{Group, TokenStream, TokenTree};
use toml::de::DeTable;

/// The parts and crates that do no I/O and read no clock, so that a seed replays them exactly.
const PURE: &[&str] = &[
    "types",
    "structures",
    "queue",
    "protocol",
    "binlog",
    "options",
    "token",
    "exchange",
    "access",
    "toml_text",
    "tube_rules",
    "stats",
    "orders",
    "http",
    "executor",
    "commands",
    "server",
];

/// The files and directories of pure parts that are the shell around them, and may do I/O.
const SHELL: &[&str] = &[
    "src/http/server",
    "src/http/startup_health.rs",
    "src/server/event_loop",
    "crates/binlog/src/directory",
    "crates/binlog/src/postgres",
];

/// Modules of the standard library and crates that reach the system. A pure part has no path into them, except the
/// types `IpAddr` and `SocketAddr`, which are values.
const IMPURE: &[&str] = &["mio", "socket2", "nix", "libc", "net", "fs", "env", "thread", "process"];

/// The types that read a clock.
const CLOCKS: &[&str] = &["Instant", "SystemTime"];

/// The names that may be used in `os` only: calls of the system, and the question which system it is.
const SYSTEM: &[&str] = &["libc", "nix", "unsafe", "transmute", "target_os", "target_vendor"];

/// A source file as tokens.
struct Source {
    /// Relative to the directory of the workspace.
    path: PathBuf,
    tokens: TokenStream,
}

impl Source {
    /// The crate that the file belongs to, or the part of the server: the first step of its path below `src`.
    fn part(&self) -> String {
        let steps: Vec<_> = self.path.iter().map(|step| step.to_string_lossy()).collect();
        steps[1].trim_end_matches(".rs").to_owned()
    }

    fn is_server_source(&self) -> bool {
        self.path.starts_with("src")
    }

    /// The steps of its path below the root of its crate: the first one is the part.
    fn steps(&self) -> Vec<String> {
        let steps = self.path.iter().map(|step| step.to_string_lossy().into_owned());
        steps.skip_while(|step| step != "src").skip(1).collect()
    }

    /// Whether `super` at the top level of the file is the root of the crate.
    fn is_top_module(&self) -> bool {
        let steps = self.steps();
        steps.len() == 1 || steps.len() == 2 && steps[1] == "mod.rs"
    }

    fn fail(&self, line: usize, what: &str) -> String {
        format!("{}:{line}: {what}", self.path.display())
    }
}

/// A row of a table whose last column is "uses".
struct Row {
    name: String,
    /// The floor of a crate; "beside" for those beside the server. `None` for a part of the server or of a crate.
    floor: Option<String>,
    /// The other crates or parts that it uses. `None`: all of them.
    uses: Option<BTreeSet<String>>,
}

impl Row {
    fn is_below_server(&self) -> bool {
        self.floor.as_ref().is_some_and(|floor| floor != "beside")
    }

    fn may_use(&self, other: &str) -> bool {
        self.uses.as_ref().is_none_or(|uses| uses.contains(other))
    }
}

/// The names in a cell, without their directories and ends.
fn names(cell: &str) -> impl Iterator<Item = String> {
    let name = |quoted: &str| quoted.trim_start_matches("crates/").trim_end_matches('/').replace(".rs", "");
    cell.split('`').skip(1).step_by(2).map(name)
}

/// The crates and the parts of the server, from the bottom up.
fn rows() -> Vec<Row> {
    let rows = rows_in("doc/architecture.md");
    assert!(rows.len() > 20, "expected more than 20 rows in doc/architecture.md");
    rows
}

/// The rows of the tables in this file.
fn rows_in(path: &str) -> Vec<Row> {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let (mut rows, mut is_in_table) = (Vec::new(), false);
    for line in page.lines().map(|line| line.trim_start_matches("//! ")) {
        is_in_table = line.starts_with('|') && (is_in_table || line.ends_with("| uses |"));
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let Some(named) = cells.iter().position(|cell| is_in_table && cell.contains('`')) else { continue };
        let used = cells[cells.len() - 1];
        rows.extend(names(cells[named]).filter(|name| name != "src").map(|name| Row {
            name,
            floor: (named == 1).then(|| cells[0].to_owned()),
            uses: (used != "all of these").then(|| names(used).collect()),
        }));
    }
    rows
}

/// The files of the server and of the crates below it.
fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let below = rows().into_iter().filter(Row::is_below_server);
    let crates = below.map(|row| root.join("crates").join(row.name).join("src"));
    let sources = sources_in(crates.chain([root.join("src")]).collect());
    assert!(sources.len() > 200, "expected more than 200 source files");
    sources
}

fn sources_in(mut directories: Vec<PathBuf>) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = Vec::new();
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                sources.push(Source {
                    tokens: text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display())),
                    path: path.strip_prefix(root).unwrap().to_owned(),
                });
            }
        }
    }
    sources
}

/// Calls `each` for every token, with the depth of the brackets around it, and for a group before its tokens.
fn walk(tokens: &TokenStream, depth: usize, each: &mut dyn FnMut(&[TokenTree], usize)) {
    let trees: Vec<TokenTree> = tokens.clone().into_iter().collect();
    for (index, tree) in trees.iter().enumerate() {
        each(&trees[index..], depth);
        if let TokenTree::Group(group) = tree {
            walk(&group.stream(), depth + 1, each);
        }
    }
}

fn is_ident(tree: &TokenTree, name: &str) -> bool {
    matches!(tree, TokenTree::Ident(ident) if ident == name)
}

fn is_punct(tree: &TokenTree, punct: char) -> bool {
    matches!(tree, TokenTree::Punct(found) if found.as_char() == punct)
}

/// The token after `root ::` at the start of `trees`.
fn behind_root<'a>(trees: &'a [TokenTree], root: &str) -> Option<&'a TokenTree> {
    match trees {
        [first, colon, second_colon, next, ..]
            if is_ident(first, root) && is_punct(colon, ':') && is_punct(second_colon, ':') =>
        {
            Some(next)
        }
        _ => None,
    }
}

/// The first step of each path in a `{a, b::c}`.
fn first_steps(group: &Group) -> Vec<String> {
    let mut steps = Vec::new();
    let mut expected = true;
    for tree in group.stream() {
        if let (true, TokenTree::Ident(ident)) = (expected, &tree) {
            steps.push(ident.to_string());
        }
        expected = is_punct(&tree, ',');
    }
    steps
}

/// The parts that `source` names after `crate::`, with the lines.
fn imports(source: &Source) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    walk(&source.tokens, 0, &mut |trees, _| {
        let Some(next) = behind_root(trees, "crate") else { return };
        let line = next.span().start().line;
        match next {
            TokenTree::Ident(part) => found.push((part.to_string(), line)),
            TokenTree::Group(group) => {
                found.extend(first_steps(group).into_iter().map(|part| (part, line)));
            }
            _ => {}
        }
    });
    found
}

/// The crates of the workspace that the manifest of a crate names, with or without a feature, not for its tests.
fn dependencies(name: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates").join(name).join("Cargo.toml");
    let text = fs::read_to_string(path).unwrap();
    let manifest = DeTable::parse(&text).unwrap().into_inner();
    let tables = ["dependencies", "build-dependencies"].into_iter().filter_map(|table| manifest.get(table));
    let names =
        tables.flat_map(|table| table.get_ref().as_table().unwrap().keys()).map(|name| name.get_ref());
    let of_workspace = |name: &str| {
        name.strip_prefix("beanstalkd-").or_else(|| name.strip_prefix("beanstalk-")).map(str::to_owned)
    };
    names.filter_map(|name| of_workspace(name)).collect()
}

#[test]
fn a_crate_uses_only_what_its_row_names() {
    for row in rows().iter().filter(|row| row.floor.is_some()) {
        assert_eq!(Some(dependencies(&row.name)), row.uses, "the manifest of {}", row.name);
    }
}

fn report(failures: Vec<String>) {
    assert!(failures.is_empty(), "\n{}\n", failures.join("\n"));
}

#[test]
fn every_crate_and_part_has_a_row_and_every_row_is_one() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let crates = fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let of_server = sources().into_iter().filter(Source::is_server_source);
    let parts = of_server.map(|source| source.part()).filter(|part| part != "lib");
    let rows: BTreeSet<_> = rows().into_iter().map(|row| row.name).collect();
    assert_eq!(crates.chain(parts).collect::<BTreeSet<_>>(), rows);
}

/// Without circles, because each row uses only rows above it.
#[test]
fn the_tables_are_in_order() {
    for rows in [rows(), rows_in("crates/client/src/lib.rs"), rows_in("crates/queue/src/lib.rs")] {
        let mut above = BTreeSet::new();
        for row in rows {
            assert!(row.uses.is_none_or(|uses| uses.is_subset(&above)), "{} uses a row below it", row.name);
            above.insert(row.name);
        }
    }
}

/// With this, a name after `crate::` that is no part of the server comes from a crate below it.
#[test]
fn the_root_names_only_the_crates_below_it() {
    let sources = sources();
    let root = sources.iter().find(|source| source.path == Path::new("src/lib.rs")).unwrap();
    walk(&root.tokens, 0, &mut |trees, _| {
        if let [keyword, TokenTree::Ident(first), ..] = trees
            && is_ident(keyword, "use")
        {
            assert!(first.to_string().starts_with("beanstalkd_"), "src/lib.rs uses {first}");
        }
    });
}

/// What a part imports although its row does not name it, and what its row names although the part does not import it.
/// `exports` has the part of a name that the root exports.
fn wrong_imports(sources: &[Source], rows: &[Row], exports: &BTreeMap<String, String>) -> Vec<String> {
    let (mut failures, mut used) = (Vec::new(), BTreeSet::new());
    let row_of = |name: &str| rows.iter().find(|row| row.floor.is_none() && row.name == name);
    for source in sources {
        let part = source.steps()[0].replace(".rs", "");
        let row = row_of(&part);
        for (imported, line) in imports(source) {
            let other = exports.get(&imported).unwrap_or(&imported);
            used.insert((part.clone(), other.clone()));
            if row_of(other).is_some() && *other != part && row.is_none_or(|row| !row.may_use(other)) {
                failures.push(source.fail(line, &format!("{part} must not import {imported} of {other}")));
            }
        }
        walk(&source.tokens, 0, &mut |trees, depth| {
            let Some(next) = behind_root(trees, "super") else { return };
            if is_ident(next, "super") || depth == 0 && source.is_top_module() {
                failures.push(
                    source.fail(next.span().start().line, "another part is named by crate::, not super::"),
                );
            }
        });
    }
    for row in rows.iter().filter(|row| row.floor.is_none()) {
        let is_unused = |other: &&String| !used.contains(&(row.name.clone(), (*other).clone()));
        let unused = row.uses.iter().flatten().filter(is_unused);
        failures.extend(unused.map(|other| format!("{} does not import {other}", row.name)));
    }
    failures
}

#[test]
fn imports_point_down_the_table() {
    let sources: Vec<_> = sources().into_iter().filter(Source::is_server_source).collect();
    report(wrong_imports(&sources, &rows(), &BTreeMap::new()));
}

/// The parts of a crate by the names that its root exports from them.
fn exports_of(directory: &Path) -> BTreeMap<String, String> {
    let text = fs::read_to_string(directory.join("lib.rs")).unwrap();
    let uses =
        text.split("pub use self::").skip(1).filter_map(|rest| rest.split_once(';')?.0.split_once("::"));
    let names = |(part, rest): (&str, &str)| {
        let names: Vec<_> = rest.split(|char: char| !char.is_alphanumeric() && char != '_').collect();
        names.into_iter().map(|name| (name.to_owned(), part.to_owned())).collect::<Vec<_>>()
    };
    uses.flat_map(names).collect()
}

fn sources_without_tests(directory: &Path) -> Vec<Source> {
    let mut sources = sources_in(vec![directory.to_owned()]);
    let ends = ["testing.rs", "tests.rs", "tests"];
    sources.retain(|source| !source.steps().iter().any(|step| ends.iter().any(|end| step.ends_with(end))));
    sources.iter_mut().for_each(|source| source.tokens = without_tests(source));
    sources
}

/// The sources of a crate without its root and its tests.
fn parts_of(directory: &Path) -> Vec<Source> {
    let mut sources = sources_without_tests(directory);
    sources.retain(|source| source.steps() != ["lib.rs"]);
    sources
}

#[test]
fn the_parts_of_a_crate_use_what_their_rows_name() {
    for name in ["queue", "client"] {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates").join(name).join("src");
        let (sources, rows) = (parts_of(&directory), rows_in(&format!("crates/{name}/src/lib.rs")));
        let mut failures = wrong_imports(&sources, &rows, &exports_of(&directory));
        // The parts of the queue call methods of one type, which need no import.
        failures.retain(|failure| name != "queue" || !failure.contains(" does not import "));
        let parts: BTreeSet<_> = sources.iter().map(|source| source.steps()[0].replace(".rs", "")).collect();
        assert_eq!(parts, rows.iter().map(|row| row.name.clone()).collect(), "the rows of {name}");
        report(failures);
    }
}

#[test]
fn only_operations_of_the_queue_use_their_methods() {
    let mut failures = Vec::new();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/queue/src/operations");
    for source in parts_of(&directory) {
        walk(&source.tokens, 0, &mut |trees, _| {
            if let [keyword, TokenTree::Group(group), item, ..] = trees
                && is_ident(keyword, "pub")
                && group.stream().to_string() == "crate"
                && !is_ident(item, "mod")
            {
                failures.push(source.fail(item.span().start().line, "only operations use this: pub(super)"));
            }
        });
    }
    report(failures);
}

#[test]
fn the_pure_parts_do_not_use_the_system() {
    let mut failures = Vec::new();
    let is_pure = |source: &Source| {
        PURE.contains(&source.part().as_str()) && SHELL.iter().all(|shell| !source.path.starts_with(shell))
    };
    for source in sources().into_iter().filter(is_pure) {
        walk(&source.tokens, 0, &mut |trees, _| {
            let TokenTree::Ident(ident) = &trees[0] else { return };
            let name = ident.to_string();
            let enters = IMPURE.contains(&name.as_str())
                && behind_root(trees, &name)
                    .is_some_and(|next| !is_ident(next, "IpAddr") && !is_ident(next, "SocketAddr"));
            if enters || CLOCKS.contains(&name.as_str()) {
                failures.push(source.fail(ident.span().start().line, &format!("{name} in a pure part")));
            }
        });
    }
    report(failures);
}

#[test]
fn only_os_has_unsafe_code_and_calls_the_system_directly() {
    let mut failures = Vec::new();
    for source in sources().iter().filter(|source| source.part() != "os") {
        walk(&source.tokens, 0, &mut |trees, _| {
            if let TokenTree::Ident(ident) = &trees[0]
                && SYSTEM.contains(&ident.to_string().as_str())
            {
                failures.push(source.fail(ident.span().start().line, &format!("{ident} outside of os")));
            }
        });
    }
    report(failures);
}

/// Where a command is named beside the table of the protocol and that of the server, and why.
const NAMED_ELSEWHERE: &[(&str, &str)] = &[
    // A body follows its line: the exchange reads or skips it.
    ("PutWith", "src/exchange/mod.rs"),
    // The names in its tags are judged after its line, and the log has a refusal of them.
    ("Put", "src/executor/guard/judge.rs"),
    // Puts follow its line.
    ("Complete", "src/exchange/mod.rs"),
    ("Complete", "src/exchange/complete.rs"),
    ("Complete", "src/commands/complete.rs"),
    ("Put", "src/commands/complete.rs"),
    ("PutWith", "src/commands/complete.rs"),
    // A server without access rules has no such command.
    ("Auth", "src/commands/auth.rs"),
    // C does not count them, and the table of figures lists them by themselves.
    ("ReserveJob", "src/stats/server.rs"),
    ("KickJob", "src/stats/server.rs"),
    ("Quit", "src/stats/server.rs"),
];

/// The source without its tests.
fn without_tests(source: &Source) -> TokenStream {
    let trees: Vec<_> = source.tokens.clone().into_iter().collect();
    let tests = trees.windows(3).position(|three| {
        is_ident(&three[0], "mod") && is_ident(&three[1], "tests") && matches!(three[2], TokenTree::Group(_))
    });
    trees.into_iter().take(tests.unwrap_or(usize::MAX)).collect()
}

/// A new command is a row in each of the two tables, and a file: nothing else names its variant, so nothing else has to
/// be changed for it.
#[test]
fn only_the_tables_name_a_command() {
    let tables = ["crates/protocol/src/command.rs", "src/commands/mod.rs"];
    let (mut failures, mut found) = (Vec::new(), BTreeSet::new());
    for source in sources() {
        let path = source.path.display().to_string();
        let is_exempt = path.starts_with("crates/protocol/") || path.ends_with("tests.rs");
        if tables.contains(&path.as_str()) || is_exempt || path.contains("/tests/") {
            continue;
        }
        walk(&without_tests(&source), 0, &mut |trees, _| {
            let next = behind_root(trees, "Command").or_else(|| behind_root(trees, "Verb"));
            let Some(TokenTree::Ident(name)) = next else { return };
            let name = name.to_string();
            let is_command = name == "PutWith" || Verb::ALL.iter().any(|verb| format!("{verb:?}") == name);
            let row = (name.as_str(), path.as_str());
            if let Some(row) = NAMED_ELSEWHERE.iter().find(|known| **known == row) {
                found.insert(row);
            } else if is_command {
                failures.push(source.fail(trees[0].span().start().line, &format!("{name} is named")));
            }
        });
    }
    let stale = NAMED_ELSEWHERE.iter().filter(|row| !found.contains(row));
    failures.extend(stale.map(|(name, path)| format!("{path} does not name {name}")));
    report(failures);
}

/// The maximum number of files that name a command: the two tables, the file of the command, and two of these: its
/// grammar, the queue's method, its order by the API.
const MAX_FILES_OF_A_COMMAND: usize = 5;

/// Counts also functions and texts with the command's word. A word without a hyphen, such as "put" or "move", is not
/// counted: it often means something else.
#[test]
fn a_command_is_named_in_few_files() {
    let mut files: BTreeMap<&str, BTreeSet<PathBuf>> = BTreeMap::new();
    for source in sources() {
        let path = source.path.to_string_lossy();
        if path.ends_with("tests.rs") || path.ends_with("testing.rs") || path.contains("/tests/") {
            continue;
        }
        walk(&without_tests(&source), 0, &mut |trees, _| {
            let word = match &trees[0] {
                TokenTree::Ident(name) => name.to_string().replace('_', "-"),
                TokenTree::Literal(text) => text.to_string().trim_matches(['"', ' ']).to_owned(),
                TokenTree::Group(_) | TokenTree::Punct(_) => return,
            };
            let mut words = Verb::ALL.iter().map(|verb| verb.as_str());
            if let Some(word) = words.find(|verb| *verb == word && word.contains('-')) {
                files.entry(word).or_default().insert(source.path.clone());
            }
        });
    }
    assert!(files.len() > 20, "expected more than 20 commands, found {}", files.len());
    files.retain(|_, files| files.len() > MAX_FILES_OF_A_COMMAND);
    assert!(files.is_empty(), "{files:#?}");
}
