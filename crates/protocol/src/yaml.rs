//! The YAML of stats and lists: the little of it that the protocol uses.

use std::fmt::Display;
use std::io::Write;

/// A dictionary of scalars, one `key: value` a line.
#[derive(Debug)]
pub struct Dictionary(Vec<u8>);

impl Default for Dictionary {
    fn default() -> Self {
        Self(b"---\n".to_vec())
    }
}

impl Dictionary {
    /// Adds a value as it is: a number, or a word that needs no quotes.
    pub fn plain(&mut self, key: &str, value: impl Display) {
        writeln!(self.0, "{key}: {value}").expect("a vector takes all bytes");
    }

    /// Adds a text, in double quotes.
    pub fn quoted(&mut self, key: &str, value: impl Display) {
        writeln!(self.0, "{key}: \"{value}\"").expect("a vector takes all bytes");
    }

    /// The document.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// A list of names, one `- name` a line.
pub fn write_list<'a>(names: impl Iterator<Item = &'a str>) -> Vec<u8> {
    let mut list = b"---\n".to_vec();
    for name in names {
        list.extend_from_slice(b"- ");
        list.extend_from_slice(name.as_bytes());
        list.push(b'\n');
    }
    list
}
