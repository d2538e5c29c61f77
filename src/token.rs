//! The rule of tokens: those that `auth` takes, and that of the API.

use std::fmt;

/// The shortest token, in bytes: 32 characters, even if only of hexadecimal digits, cannot be guessed.
pub const MIN_BYTES: usize = 32;

/// Why a text is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// It has fewer bytes than [`MIN_BYTES`].
    TooShort,
    /// It has more bytes than this, for which there is no room where it is sent.
    TooLong(usize),
    /// It has another character than the visible ones of ASCII.
    BadCharacter,
}

/// The token of at most `max_bytes` in a text, without the white space around it.
///
/// # Errors
/// If the text is no token.
pub fn parse(text: &[u8], max_bytes: usize) -> Result<&[u8], TokenError> {
    let token = text.trim_ascii();
    match token.len() {
        ..MIN_BYTES => Err(TokenError::TooShort),
        length if length > max_bytes => Err(TokenError::TooLong(max_bytes)),
        _ if !token.iter().all(u8::is_ascii_graphic) => Err(TokenError::BadCharacter),
        _ => Ok(token),
    }
}

impl fmt::Display for TokenError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort => write!(
                out,
                "the token has fewer than {MIN_BYTES} characters; `openssl rand -hex 32` makes one"
            ),
            Self::TooLong(max_bytes) => write!(out, "the token has more than {max_bytes} characters"),
            Self::BadCharacter => {
                out.write_str("the token has other characters than the visible ones of ASCII")
            }
        }
    }
}

impl std::error::Error for TokenError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_at_least_32_visible_characters_and_fits() {
        for (text, expected) in [
            (String::new(), Some(TokenError::TooShort)),
            ("x".repeat(31) + "\n", Some(TokenError::TooShort)),
            ("x".repeat(32), None),
            ("x".repeat(200), None),
            ("x".repeat(201), Some(TokenError::TooLong(200))),
            (format!("{} x", "x".repeat(31)), Some(TokenError::BadCharacter)),
            (format!("{}ü", "x".repeat(31)), Some(TokenError::BadCharacter)),
        ] {
            assert_eq!(parse(text.as_bytes(), 200).err(), expected, "{text}");
        }
        let token = "0123456789abcdef0123456789abcdef";
        assert_eq!(parse(format!(" {token}\r\n").as_bytes(), 200), Ok(token.as_bytes()));
    }
}
