//! Compares the queue with a naive model of it.
//!
//! `MODEL_CASES=n` sets the number of cases, and `SEED=n` runs one of them. If a case fails, the test shortens its list
//! of operations for as long as the shorter list still fails, and prints the result.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;

use beanstalkd_testkit::cells::cells_of;
use beanstalkd_testkit::operations::{Operation, Pair, case, listing, run, shorten};
use beanstalkd_testkit::random::number_from_environment;

/// The number of cases, unless `MODEL_CASES` is set.
const CASES: u64 = 50_000;

/// Rows of the table of tags that are no operations of the queue.
const ELSEWHERE: [&str; 2] = ["drain", "restart"];

thread_local! {
    /// The message and the place of the last panic.
    static PANIC_MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

#[test]
fn the_queue_does_what_the_model_does() {
    let seeds = match number_from_environment("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number_from_environment("MODEL_CASES").unwrap_or(CASES),
    };
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|info| PANIC_MESSAGE.set(info.to_string())));
    let failure = seeds.into_iter().find_map(|seed| {
        let (limits, operations) = case(seed);
        let fails = |operations: &[Operation]| {
            panic::catch_unwind(AssertUnwindSafe(|| run(limits, operations))).is_err()
        };
        fails(&operations).then(|| {
            let shortest = shorten(operations, fails);
            fails(&shortest);
            format!("SEED={seed} {limits:?}\n{}{}", listing(&shortest), PANIC_MESSAGE.take())
        })
    });
    panic::set_hook(hook);
    if let Some(failure) = failure {
        panic!("{failure}");
    }
}

/// The rows and columns of the table of tags in the document, without the cells where nothing happens.
fn documented_cells() -> BTreeSet<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("doc/protocol.md");
    let document = std::fs::read_to_string(path).expect("the document can be read");
    let table = document.lines().skip_while(|line| !line.starts_with("| | `idp` |"));
    let mut rows =
        table.take_while(|line| line.starts_with('|')).map(|line| line.split('|').map(str::trim).skip(1));
    let columns: Vec<&str> =
        rows.next().expect("there is a table").map(|word| word.trim_matches('`')).collect();
    let mut cells = BTreeSet::new();
    for mut row in rows.skip(1) {
        let name = row.next().unwrap_or_default();
        let with_content = row.zip(&columns[1..]).filter(|(text, _)| !text.is_empty() && *text != "–");
        cells.extend(with_content.map(|(_, column)| (name.to_owned(), (*column).to_owned())));
    }
    cells
}

/// The comparison of the queue with its model says something about each cell, because the cases come to each.
#[test]
fn the_cases_come_to_each_cell_of_the_table_of_tags() {
    let mut left = documented_cells();
    assert!(left.len() > 60, "the table is found: {left:?}");
    left.retain(|(row, _)| !ELSEWHERE.contains(&row.as_str()));
    for seed in 0..CASES {
        let (limits, operations) = case(seed);
        let mut pair = Pair::new(limits);
        for operation in operations {
            let before = pair.model().clone();
            pair.step(operation);
            for (row, column) in cells_of(operation, &before, pair.model()) {
                left.remove(&(row.to_owned(), column.to_owned()));
            }
        }
        if left.is_empty() {
            println!("{} cases have come to all cells", seed + 1);
            return;
        }
    }
    panic!("no case has come to {left:?}");
}
