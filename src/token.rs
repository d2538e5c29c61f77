//! Tokens: the tokens of `auth`, and the token of the API. Only their hashes are kept.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The minimum length of a token, in bytes: 32 characters cannot be guessed, even if they are only hexadecimal digits.
pub const MIN_BYTES: usize = 32;

/// The maximum length of a token of `auth`, in bytes: it fits into a line.
pub const MAX_AUTH_BYTES: usize = 200;

/// The maximum length of the API's token, in bytes: it fits into the head of a request.
pub const MAX_API_BYTES: usize = 1024;

/// The reason why a text is not a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// The text is shorter than [`MIN_BYTES`].
    TooShort,
    /// The text is longer than this number of bytes: there is no room for more in a request.
    TooLong(usize),
    /// The text has a character that is not a visible ASCII character.
    BadCharacter,
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
                out.write_str("the token has a character that is not a visible character of ASCII")
            }
        }
    }
}

impl std::error::Error for TokenError {}

/// The SHA-256 hash of a token.
#[derive(Clone, Copy)]
pub struct TokenHash([u8; Self::BYTES]);

impl From<[u8; Self::BYTES]> for TokenHash {
    fn from(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }
}

impl TokenHash {
    /// The length of a hash.
    pub const BYTES: usize = 32;

    /// Bytes of the hash.
    #[must_use]
    pub fn bytes(&self) -> [u8; Self::BYTES] {
        self.0
    }

    /// The hash of a token.
    #[must_use]
    pub fn of(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// The hash of the token in a text; white space around it is ignored. The token has at most `max_bytes`.
    ///
    /// # Errors
    /// If the text is not a token.
    pub fn of_text(text: &[u8], max_bytes: usize) -> Result<Self, TokenError> {
        let token = text.trim_ascii();
        match token.len() {
            ..MIN_BYTES => Err(TokenError::TooShort),
            length if length > max_bytes => Err(TokenError::TooLong(max_bytes)),
            _ if !token.iter().all(u8::is_ascii_graphic) => Err(TokenError::BadCharacter),
            _ => Ok(Self::of(token)),
        }
    }

    /// Parses a hash of 64 hexadecimal digits.
    #[must_use]
    pub fn parse(digits: &str) -> Option<Self> {
        let digits = digits.as_bytes();
        let mut hash = [0; Self::BYTES];
        if digits.len() != 2 * hash.len() {
            return None;
        }
        for (byte, pair) in hash.iter_mut().zip(digits.chunks(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            *byte = (digit(0)? * 16 + digit(1)?) as u8;
        }
        Some(Self(hash))
    }

    /// Whether the hashes are equal. The duration does not depend on them.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        self.0[..].ct_eq(&other.0).into()
    }
}

/// The 64 digits, as in the access file.
impl fmt::Display for TokenHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

/// A hash is not secret, but the log does not need it.
impl fmt::Debug for TokenHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("TokenHash")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_that_of_sha256sum() {
        // printf %s abc | sha256sum
        let digits = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(TokenHash::of(b"abc").to_string(), digits);
        let hash = TokenHash::parse(digits).unwrap();
        assert!(hash.is(&TokenHash::of(b"abc")));
        assert!(TokenHash::parse(&digits.to_uppercase()).unwrap().is(&hash));
        assert!(!hash.is(&TokenHash::of(b"abd")));
        for bad in ["", "00", &digits[1..], &format!("{digits}0"), &digits.replace('b', "g"), &"ü".repeat(32)]
        {
            assert!(TokenHash::parse(bad).is_none(), "{bad}");
        }
    }

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
            assert_eq!(TokenHash::of_text(text.as_bytes(), 200).err(), expected, "{text}");
        }
    }

    #[test]
    fn only_the_whole_token_matches() {
        let token = TokenHash::of_text(b" 0123456789abcdef0123456789abcdef\r\n", 200).unwrap();
        assert!(token.is(&TokenHash::of(b"0123456789abcdef0123456789abcdef")));
        for other in [b"".as_slice(), b"0123456789abcdef0123456789abcdeg", b"0123456789abcdef0123456789abcde"]
        {
            assert!(!token.is(&TokenHash::of(other)));
        }
        assert_eq!(format!("{token:?}"), "TokenHash", "no log has it");
    }
}
