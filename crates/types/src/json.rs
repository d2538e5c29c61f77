//! The little JSON that is written: texts. Numbers and brackets need no help.

use std::fmt;

/// A text as JSON writes it, in quotes (RFC 8259, section 7). Delete is escaped as well, because terminals obey it.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a>(pub &'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("\"")?;
        let mut rest = self.0;
        while let Some(end) = rest.find(|c: char| matches!(c, '"' | '\\') || c.is_ascii_control()) {
            out.write_str(&rest[..end])?;
            match rest.as_bytes()[end] {
                b'"' => out.write_str("\\\"")?,
                b'\\' => out.write_str("\\\\")?,
                b'\n' => out.write_str("\\n")?,
                b'\r' => out.write_str("\\r")?,
                b'\t' => out.write_str("\\t")?,
                control => write!(out, "\\u{control:04x}")?,
            }
            rest = &rest[end + 1..];
        }
        out.write_str(rest)?;
        out.write_str("\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_and_escaped() {
        let text = Text("a \"b\" \\ c\r\n\t\0\u{1b} ü/\u{7f}").to_string();
        assert_eq!(text, "\"a \\\"b\\\" \\\\ c\\r\\n\\t\\u0000\\u001b ü/\\u007f\"");
    }
}
