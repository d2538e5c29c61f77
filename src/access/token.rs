//! Tokens, which are kept as hashes alone.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::token::{self, TokenError};

/// The SHA-256 hash of a token.
#[derive(Clone, Copy)]
pub struct TokenHash([u8; Self::BYTES]);

impl TokenHash {
    /// The longest one: it has room in a line of `auth`.
    pub const MAX_TOKEN_BYTES: usize = 200;

    const BYTES: usize = 32;

    /// The hash of a token.
    #[must_use]
    pub fn of(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// The hash of the token in a text, without the white space around it.
    ///
    /// # Errors
    /// If the text is no token.
    pub fn of_text(text: &[u8]) -> Result<Self, TokenError> {
        token::parse(text, Self::MAX_TOKEN_BYTES).map(Self::of)
    }

    /// The hash that is written as 64 hexadecimal digits.
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

    /// Whether the hashes are the same. The time it takes tells nothing of them.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        self.0[..].ct_eq(&other.0).into()
    }
}

/// The 64 digits of the access file.
impl fmt::Display for TokenHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

/// A hash is no secret, but the log needs none.
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
}
