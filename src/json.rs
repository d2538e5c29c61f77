//! The little JSON that is written: texts. Numbers and brackets need no help.

use std::fmt;

/// A text as JSON writes it, in quotes (RFC 8259, section 7).
#[derive(Clone, Copy, Debug)]
pub struct Text<'a>(pub &'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        out.write_char('"')?;
        for character in self.0.chars() {
            match character {
                '"' => out.write_str("\\\"")?,
                '\\' => out.write_str("\\\\")?,
                '\n' => out.write_str("\\n")?,
                '\r' => out.write_str("\\r")?,
                '\t' => out.write_str("\\t")?,
                control if control < ' ' => write!(out, "\\u{:04x}", u32::from(control))?,
                other => out.write_char(other)?,
            }
        }
        out.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_and_escaped() {
        let text = Text("a \"b\" \\ c\r\n\t\0\u{1b} ü/\u{7f}").to_string();
        assert_eq!(text, "\"a \\\"b\\\" \\\\ c\\r\\n\\t\\u0000\\u001b ü/\u{7f}\"");
    }
}
