//! Names of tubes, keys and groups, which all follow the rules of tube names.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

/// The longest name, in bytes.
const MAX_BYTES: usize = 200;

/// The name of a tube, a key or a group: 1 to 200 bytes of `A-Z a-z 0-9 - + / ; . $ _ ( )`, not beginning with `-`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(String);

/// The text is not a valid name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameError(String);

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\"{}\" is not a name: expected 1 to {MAX_BYTES} of A-Z a-z 0-9 - + / ; . $ _ ( ), not beginning with -",
            self.0
        )
    }
}

impl std::error::Error for NameError {}

impl Name {
    /// The tube `default`, which a new connection uses and watches.
    pub fn default_tube() -> Self {
        Self("default".to_owned())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-+/;.$_()".contains(&byte);
        if (1..=MAX_BYTES).contains(&text.len()) && !text.starts_with('-') && text.bytes().all(allowed) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError(text.to_owned()))
        }
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules_of_tube_names() {
        for good in ["a", "mail-out", "$x;(y)/z+1._", &"n".repeat(200)] {
            assert!(good.parse::<Name>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "a b", "a:b", "ä", "a\r", &"n".repeat(201)] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }
}
