//! Paths and queries of URLs.
//!
//! Owns: how escapes are decoded, and that nothing is passed over: a parameter that is not known is a mistake.

/// Decodes a segment of a path; `None` if an escape is broken, or the bytes are not UTF-8.
pub fn decode_segment(text: &str) -> Option<String> {
    decode(text, false)
}

fn decode(text: &str, plus_is_space: bool) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        decoded.push(match byte {
            b'%' => {
                let (high, low) = (hex(rest.next()?)?, hex(rest.next()?)?);
                high << 4 | low
            }
            b'+' if plus_is_space => b' ',
            byte => byte,
        });
    }
    String::from_utf8(decoded).ok()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// The parameters of a query that are not read yet.
#[derive(Debug)]
pub struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// The parameters of the text behind the `?`.
    ///
    /// # Errors
    /// The part that cannot be decoded.
    pub fn parse(query: &str) -> Result<Self, String> {
        let mut parameters = Vec::new();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            match (decode(key, true), decode(value, true)) {
                (Some(key), Some(value)) => parameters.push((key, value)),
                _ => return Err(part.to_owned()),
            }
        }
        Ok(Self(parameters))
    }

    /// Takes the value of a parameter. An empty value counts as none.
    pub fn take(&mut self, key: &str) -> Option<String> {
        let place = self.0.iter().position(|(found, _)| found == key)?;
        Some(self.0.swap_remove(place).1).filter(|value| !value.is_empty())
    }

    /// The name of a parameter that nobody has taken, or that was given twice.
    pub fn left(&self) -> Option<&str> {
        self.0.first().map(|(key, _)| key.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_and_broken_ones_refused() {
        assert_eq!(decode_segment("a%2Fb+c").as_deref(), Some("a/b+c"));
        for broken in ["%", "%2", "%zz", "%+1", "%ff"] {
            assert_eq!(decode_segment(broken), None, "{broken}");
        }
    }

    #[test]
    fn parameters_are_taken_once_and_the_rest_is_seen() {
        let mut parameters = Parameters::parse("a=1+%2B&b=&c&a=2").unwrap();
        assert_eq!(parameters.take("a").as_deref(), Some("1 +"));
        assert_eq!(parameters.take("b"), None);
        assert_eq!(parameters.take("c"), None);
        assert_eq!(parameters.left(), Some("a"));
        assert_eq!(Parameters::parse("a=%z").unwrap_err(), "a=%z");
    }
}
