//! JSON as the server writes it everywhere: in HTTP responses, in the log and in dumps.
//!
//! Owns: the format of texts and numbers. `serde_json` does the rest.

use std::io::{self, Write};

use serde_core::Serialize;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter, Serializer};

/// Writes `value`.
///
/// # Errors
/// The errors of `out`.
pub fn write(out: impl Write, value: &impl Serialize) -> io::Result<()> {
    Ok(value.serialize(&mut Serializer::with_formatter(out, Style))?)
}

/// Writes `value` as a line.
///
/// # Errors
/// The errors of `out`.
pub fn write_line(mut out: impl Write, value: &impl Serialize) -> io::Result<()> {
    write(&mut out, value)?;
    out.write_all(b"\n")
}

/// Appends `value` to a text.
pub fn push(out: &mut String, value: &impl Serialize) {
    write(Text(out), value).expect("a write to a string does not fail");
}

/// `value` as a line.
pub fn line(value: &impl Serialize) -> String {
    let mut line = String::new();
    push(&mut line, value);
    line.push('\n');
    line
}

/// An object with these members.
pub struct Object<I>(pub I);

impl<K: Serialize, V: Serialize, I: Clone + IntoIterator<Item = (K, V)>> Serialize for Object<I> {
    fn serialize<S: serde_core::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.clone())
    }
}

/// A text to which `serde_json` writes. Each of its calls writes whole characters.
struct Text<'a>(&'a mut String);

impl Write for Text<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.push_str(std::str::from_utf8(bytes).map_err(io::Error::other)?);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The format of numbers and characters. Fractions have six digits, because they are microseconds. The character Delete
/// is escaped, because terminals act on it.
struct Style;

impl Formatter for Style {
    fn write_f64<W: ?Sized + Write>(&mut self, out: &mut W, value: f64) -> io::Result<()> {
        write!(out, "{value:.6}")
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        let mut parts = fragment.split('\u{7f}');
        out.write_all(parts.next().unwrap_or_default().as_bytes())?;
        parts.try_for_each(|part| write!(out, "\\u007f{part}"))
    }

    fn write_char_escape<W: ?Sized + Write>(&mut self, out: &mut W, escape: CharEscape) -> io::Result<()> {
        let escape = match escape {
            CharEscape::Backspace => CharEscape::AsciiControl(8),
            CharEscape::FormFeed => CharEscape::AsciiControl(12),
            escape => escape,
        };
        CompactFormatter.write_char_escape(out, escape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_and_escaped() {
        let text = line(&"a \"b\" \\ c\r\n\t\0\u{8}\u{c}\u{1b} ü/\u{7f}\u{7f}d");
        let expected = "\"a \\\"b\\\" \\\\ c\\r\\n\\t\\u0000\\u0008\\u000c\\u001b ü/\\u007f\\u007fd\"\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn fractions_have_six_digits() {
        assert_eq!(line(&[1.5, 0.0, 4_000_000_000.000_001]), "[1.500000,0.000000,4000000000.000001]\n");
    }
}
