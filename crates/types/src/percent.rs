//! The escapes of URLs: a percent sign and two hexadecimal digits stand for a byte.

/// `text` with its escapes decoded; `None` if one of them is broken, or if the bytes are not UTF-8.
#[must_use]
pub fn decode(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
    while let Some(byte) = rest.next() {
        decoded.push(match byte {
            b'%' => u8::try_from(digit(rest.next())? << 4 | digit(rest.next())?).ok()?,
            byte => byte,
        });
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_and_broken_ones_refused() {
        assert_eq!(decode("a%2Fb+c%c3%BC").as_deref(), Some("a/b+cü"));
        for broken in ["%", "%2", "%zz", "%+1", "%ff"] {
            assert_eq!(decode(broken), None, "{broken}");
        }
    }
}
