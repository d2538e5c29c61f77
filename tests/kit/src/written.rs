//! Tables and files that the code knows: a test compares them with the code. With `WRITE=1` in its environment, it
//! writes them instead.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Whether the tests write what they compare otherwise.
#[must_use]
pub fn is_requested() -> bool {
    std::env::var_os("WRITE").is_some_and(|value| value == "1")
}

/// A table of a document.
pub struct Table {
    name: &'static str,
    page: String,
    /// The place of the rows in the page.
    rows: Range<usize>,
}

impl Table {
    /// The table with this first line, in the document with this name.
    ///
    /// # Panics
    /// If there is no such table.
    #[must_use]
    pub fn find(name: &'static str, head: &str) -> Self {
        let page = fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let start = page.find(&format!("\n{head}\n|--")).unwrap_or_else(|| panic!("{name} has no {head}"));
        // The head and the line below it.
        let lengths = page[start + 1..].split_inclusive('\n').map(str::len);
        let start = start + 1 + lengths.take(2).sum::<usize>();
        let rows = page[start..].split_inclusive('\n').take_while(|line| line.starts_with('|'));
        let rows = start..start + rows.map(str::len).sum::<usize>();
        Self { name, page, rows }
    }

    /// The rows, each of which is a line.
    #[must_use]
    pub fn rows(&self) -> &str {
        &self.page[self.rows.clone()]
    }

    /// Asserts that the table has these rows, or writes them into it.
    ///
    /// # Panics
    /// If it has others, and `WRITE=1` is not there. `test` has the arguments of `cargo test` for the message.
    pub fn must_have(mut self, rows: &str, test: &str) {
        if self.rows() == rows {
            return;
        }
        let missing: Vec<_> =
            rows.lines().filter(|row| !self.rows().lines().any(|line| line == *row)).collect();
        assert!(
            is_requested(),
            "the table in {} differs: `WRITE=1 cargo test {test}` writes it. It lacks these rows:\n{}",
            self.name,
            missing.join("\n")
        );
        self.page.replace_range(self.rows, rows);
        fs::write(path(self.name), self.page).expect("the document can be written");
    }
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}
