//! The lines of a body: as text, which is wrapped or not, or as bytes. Pure.

use crate::output::visible;

/// The greatest number of bytes of a body that are shown.
const MAX_BYTES: usize = 1 << 20;

/// How a body is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BodyForm {
    /// As bytes in hexadecimal digits.
    pub hex: bool,
    /// Lines of text that are too long continue in the next line.
    pub wrap: bool,
}

/// The lines of the body in `width` columns. JSON is formatted, and control characters are escaped.
pub fn lines(bytes: &[u8], form: BodyForm, width: usize) -> Vec<String> {
    let shown = &bytes[..bytes.len().min(MAX_BYTES)];
    let mut lines = if form.hex { hex(shown) } else { text(shown) };
    if form.wrap && !form.hex {
        lines = lines.iter().flat_map(|line| wrapped(line, width.max(1))).collect();
    }
    if bytes.len() > shown.len() {
        lines.push(format!("… and {} more bytes", bytes.len() - shown.len()));
    }
    lines
}

fn text(bytes: &[u8]) -> Vec<String> {
    let text = match serde_json::from_slice::<serde_json::Value>(bytes) {
        Ok(value) => visible(format!("{value:#}").as_bytes(), true),
        Err(_) => visible(bytes, true),
    };
    text.replace('\t', "    ").lines().map(str::to_owned).collect()
}

fn wrapped(line: &str, width: usize) -> Vec<String> {
    let characters: Vec<char> = line.chars().collect();
    if characters.is_empty() {
        vec![String::new()]
    } else {
        characters.chunks(width).map(|part| part.iter().collect()).collect()
    }
}

/// The bytes as `hexdump -C` shows them.
fn hex(bytes: &[u8]) -> Vec<String> {
    let line = |(position, part): (usize, &[u8])| {
        let mut digits = String::new();
        for column in 0..16 {
            let space = if column == 8 { "  " } else { " " };
            digits.push_str(space);
            match part.get(column) {
                Some(byte) => digits.push_str(&format!("{byte:02x}")),
                None => digits.push_str("  "),
            }
        }
        let text: String = part
            .iter()
            .map(|byte| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' })
            .collect();
        format!("{:08x} {digits}  |{text}|", position * 16)
    };
    bytes.chunks(16).enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_wrapped_cut_or_shown_as_bytes() {
        let form = |hex, wrap| BodyForm { hex, wrap };
        assert_eq!(lines(b"abcde\n\nf", form(false, true), 2), ["ab", "cd", "e", "", "f"]);
        assert_eq!(lines(b"abcde\nf", form(false, false), 2), ["abcde", "f"]);
        assert_eq!(lines(b"{\"a\":\"\xc2\x9b\"}", form(false, true), 80), ["{", "  \"a\": \"\\u{9b}\"", "}"]);
        assert_eq!(
            lines(b"0123456789abcdef\x00\xff", form(true, true), 80),
            [
                "00000000  30 31 32 33 34 35 36 37  38 39 61 62 63 64 65 66  |0123456789abcdef|",
                "00000010  00 ff                                             |..|"
            ]
        );
        let large = lines(&vec![b'\n'; MAX_BYTES + 3], form(false, true), 80);
        assert_eq!(large.last().unwrap(), "… and 3 more bytes");
    }
}
