//! The YAML of stats and lists: the small part of YAML that the protocol uses.
//!
//! Owns: dictionaries of one level, lists of names, and the pages of `list-jobs` and `list-clients`.
//! Never: nested documents, anchors or text of several lines, because no server sends them.

use std::fmt::{self, Display};
use std::io::Write;

/// A dictionary of scalars in the making, one `key: value` a line.
#[derive(Debug)]
pub struct DictionaryWriter(Vec<u8>);

impl Default for DictionaryWriter {
    fn default() -> Self {
        Self(b"---\n".to_vec())
    }
}

impl DictionaryWriter {
    /// Adds a value without quotes: a number, or a word that needs none.
    pub fn plain(&mut self, key: &str, value: impl Display) {
        writeln!(self.0, "{key}: {value}").expect("a write to a vector does not fail");
    }

    /// Adds a text, in double quotes.
    pub fn quoted(&mut self, key: &str, value: impl Display) {
        writeln!(self.0, "{key}: \"{value}\"").expect("a write to a vector does not fail");
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

/// The data does not have the form that the protocol defines for the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YamlError {
    /// The line, counted from 1; 0 if the error is not in one line.
    pub line: usize,
    /// The text that was found there.
    pub found: String,
}

impl fmt::Display for YamlError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "line {}: {}", self.line, self.found)
    }
}

impl std::error::Error for YamlError {}

/// Keys and values in their order, without the quotes around values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dictionary(Vec<(String, String)>);

impl Dictionary {
    /// The value of the key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// The value of the key, if it is a whole number; a negative one counts as 0.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<u64> {
        let value = self.get(key)?;
        match value.strip_prefix('-') {
            Some(digits) => digits.parse::<u64>().ok().map(|_| 0),
            None => value.parse().ok(),
        }
    }

    /// The value of the key, if it is a whole number; 0 if the server does not have the key.
    #[must_use]
    pub fn number_or_zero(&self, key: &str) -> u64 {
        self.number(key).unwrap_or(0)
    }

    /// The keys and values, in the server's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

impl FromIterator<(String, String)> for Dictionary {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Self {
        Self(pairs.into_iter().collect())
    }
}

/// The lines of the data after `---`, with their numbers.
fn lines(data: &[u8]) -> Result<impl Iterator<Item = (usize, &str)>, YamlError> {
    let text = std::str::from_utf8(data)
        .map_err(|_| YamlError { line: 0, found: "bytes that are not UTF-8".to_owned() })?;
    let rest = text
        .strip_prefix("---\n")
        .ok_or_else(|| YamlError { line: 1, found: "no --- at the beginning".to_owned() })?;
    Ok(rest.lines().enumerate().map(|(index, line)| (index + 2, line)).filter(|(_, line)| !line.is_empty()))
}

fn wrong(line: usize, found: &str) -> YamlError {
    YamlError { line, found: found.escape_default().take(200).collect() }
}

/// Parses the data of the stats commands.
///
/// # Errors
/// The first line that does not fit the form.
pub fn parse_dictionary(data: &[u8]) -> Result<Dictionary, YamlError> {
    lines(data)?.map(|(number, line)| pair(line).ok_or_else(|| wrong(number, line))).collect()
}

fn pair(line: &str) -> Option<(String, String)> {
    let (key, value) = line.split_once(':')?;
    let value = if value.is_empty() { value } else { value.strip_prefix(' ')? };
    Some((key.trim().to_owned(), unquoted(value.trim())))
}

/// Removes double quotes around the value and resolves `\"` and `\\` within them.
fn unquoted(value: &str) -> String {
    let inner = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let Some(inner) = inner else { return value.to_owned() };
    let mut text = String::with_capacity(inner.len());
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => text.extend(characters.next()),
            other => text.push(other),
        }
    }
    text
}

/// Parses the data of the commands that list tubes.
///
/// # Errors
/// The first line that does not fit the form.
pub fn parse_list(data: &[u8]) -> Result<Vec<String>, YamlError> {
    let item = |(number, line): (usize, &str)| {
        line.strip_prefix("- ").map(unquoted).ok_or_else(|| wrong(number, line))
    };
    lines(data)?.map(item).collect()
}

/// Parses the data of `list-jobs` or `list-clients`: the cursor of the next page, empty on the last one, and a
/// dictionary for each job or client.
///
/// # Errors
/// The first line that does not fit the form.
pub fn parse_page(data: &[u8]) -> Result<(String, Vec<Dictionary>), YamlError> {
    let (mut next, mut items, mut has_items) = (None, Vec::new(), false);
    for (number, line) in lines(data)? {
        if let Some(flow) = line.trim_start().strip_prefix("- ").filter(|_| has_items) {
            items.push(flow_dictionary(flow).ok_or_else(|| wrong(number, line))?);
            continue;
        }
        let (key, value) = pair(line).ok_or_else(|| wrong(number, line))?;
        match key.as_str() {
            "next" => next = Some(value),
            "jobs" | "clients" if value.is_empty() || value == "[]" => has_items = true,
            _ => {} // later versions may add keys
        }
    }
    match next {
        Some(next) if has_items => Ok((next, items)),
        _ => Err(wrong(0, "a page without next and its lines")),
    }
}

/// Parses `{key: value, …}`. Commas within quotes do not separate entries.
fn flow_dictionary(flow: &str) -> Option<Dictionary> {
    let mut rest = flow.trim().strip_prefix('{')?.strip_suffix('}')?.trim();
    let mut pairs = Vec::new();
    while !rest.is_empty() {
        let (entry, behind) = rest.split_at(entry_length(rest));
        pairs.push(pair(entry.trim())?);
        rest = behind.strip_prefix(',').unwrap_or(behind).trim_start();
    }
    Some(Dictionary(pairs))
}

/// The number of bytes before the first comma outside of quotes.
fn entry_length(rest: &str) -> usize {
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' if !quoted => return at,
            _ => {}
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dictionary_keeps_the_order_and_drops_quotes() {
        let stats =
            parse_dictionary(b"---\nname: \"a:b\"\npri: 5\ntime-left: -3\nempty: \"\"\nalso:\n").unwrap();
        assert_eq!(stats.get("name"), Some("a:b"));
        assert_eq!(stats.number("pri"), Some(5));
        assert_eq!(stats.number("time-left"), Some(0));
        assert_eq!(stats.get("empty"), Some(""));
        assert_eq!(stats.get("also"), Some(""));
        assert_eq!(stats.number("name"), None);
        assert_eq!(
            stats.iter().map(|(key, _)| key).collect::<Vec<_>>(),
            ["name", "pri", "time-left", "empty", "also"]
        );
    }

    #[test]
    fn a_list_is_parsed_to_names() {
        assert_eq!(parse_list(b"---\n- default\n- mail\n").unwrap(), ["default", "mail"]);
        assert_eq!(parse_list(b"---\n").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_page_has_a_cursor_and_jobs() {
        let data =
            b"---\nnext: \"5.7\"\njobs:\n- {id: 7, pri: 1, idempotency-key: \"a,b\"}\n- {id: 9, pri: 2}\n";
        let (next, jobs) = parse_page(data).unwrap();
        assert_eq!(next, "5.7");
        assert_eq!(jobs.iter().map(|job| job.number("id")).collect::<Vec<_>>(), [Some(7), Some(9)]);
        assert_eq!(jobs[0].get("idempotency-key"), Some("a,b"));
        assert_eq!(parse_page(b"---\nnext: \"\"\njobs: []\n").unwrap(), (String::new(), Vec::new()));
    }

    #[test]
    fn malformed_data_is_an_error() {
        for data in [&b""[..], b"--", b"---\nno colon\n", b"---\nk:v\n", b"\xff", b"---\n\xff\n"] {
            assert!(parse_dictionary(data).is_err(), "{data:?}");
        }
        assert!(parse_list(b"---\nname: x\n").is_err());
        for data in
            [&b"---\njobs:\n"[..], b"---\nnext: \"\"\njobs:\n- id\n", b"---\nnext: \"\"\njobs:\n- {id}\n"]
        {
            assert!(parse_page(data).is_err(), "{data:?}");
        }
    }
}
