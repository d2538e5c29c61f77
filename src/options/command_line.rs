//! The command line, one flag at a time.
//!
//! Owns: the words that have not been read yet. Never knows the meaning of a flag. Driven by
//! [`Options::parse`](super::Options::parse).
//!
//! getopts parses a whole line, returns one error if there is any, and accepts only UTF-8. C reads from left to right,
//! so the first of `-v`, `-h` and an error counts, even within a cluster such as `-Vv`, and a path may have any bytes.
//! Therefore getopts gets one flag at a time here, and each byte of the line as the char with that number.

use std::ffi::OsString;
use std::mem;
use std::os::unix::ffi::OsStringExt;
use std::vec;

use getopts::{Fail, Occur};

use super::argument::FlagArgument;
use super::flags::FLAGS;
use super::{BinlogPlace, Flag, UsageError};

/// A flag with its argument.
type FoundFlag = (&'static Flag, FlagArgument);

/// A command line. Each char of its words stands for one byte.
#[derive(Default)]
pub(crate) struct CommandLine {
    flags: getopts::Options,
    /// The words that have not been read yet.
    words: vec::IntoIter<String>,
    /// The letters of a cluster such as `-FVb` that have not been read yet, and the argument that may follow them.
    cluster: String,
}

impl CommandLine {
    /// The command line with these `words`, without the program's name.
    pub(crate) fn new<W>(words: W) -> Self
    where
        W: IntoIterator,
        W::Item: Into<OsString>,
    {
        let mut flags = getopts::Options::new();
        for flag in FLAGS {
            flags.opt(flag.short, flag.long, "", "", flag.takes, Occur::Optional);
        }
        let words: Vec<String> = words.into_iter().map(|word| chars_of(word.into())).collect();
        Self { flags, words: words.into_iter(), cluster: String::new() }
    }

    /// The next flag with its argument, which is empty if the flag takes none; `None` at the end of the line.
    ///
    /// # Errors
    /// If there is no such flag, if the flag lacks its argument or has one that it does not take, or if the next word
    /// is not a flag.
    pub(crate) fn next(&mut self) -> Result<Option<FoundFlag>, UsageError> {
        if self.cluster.is_empty() {
            let Some(word) = self.words.next() else { return Ok(None) };
            if let Some(long) = word.strip_prefix("--").filter(|long| !long.is_empty()) {
                let name = long.split('=').next().unwrap_or(long);
                return self.flag(&word, name, &format!("--{}", text_of(name))).map(Some);
            }
            match word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
                // No flag follows this word, and this server takes no other arguments.
                Some("-") => match self.words.next() {
                    Some(word) => return Err(UsageError::UnknownArgument(text_of(&word))),
                    None => return Ok(None),
                },
                Some(letters) => self.cluster = letters.to_owned(),
                None => return Err(UsageError::UnknownArgument(text_of(&word))),
            }
        }
        // A letter that is not a flag may be the first byte of a character with several bytes.
        let spelled = text_of(&self.cluster).chars().take(1).collect::<String>();
        let letter = self.cluster.remove(0).to_string();
        self.flag(&format!("-{letter}"), &letter, &format!("-{spelled}")).map(Some)
    }

    /// The next word, if it is not a flag.
    pub(crate) fn next_operand(&mut self) -> Option<String> {
        Some(self.next_operand_bytes()?.to_string_lossy().into_owned())
    }

    /// The target of a copy, which follows the argument of the flag.
    pub(crate) fn place_of_copy(&mut self, first: &FlagArgument) -> Result<BinlogPlace, UsageError> {
        let missing = || UsageError::MissingArgument(first.flag().to_owned());
        let word = self.next_operand_bytes().ok_or_else(missing)?;
        FlagArgument::new(first.flag().to_owned(), word).place()
    }

    /// The next word, if it is not a flag.
    fn next_operand_bytes(&mut self) -> Option<OsString> {
        let is_operand = self.cluster.is_empty()
            && self.words.as_slice().first().is_some_and(|word| !word.starts_with('-'));
        if is_operand { self.words.next().map(|word| bytes_of(&word)) } else { None }
    }

    /// The flag `name` in `word`, spelled `spelled` by the user, with its argument.
    fn flag(&mut self, word: &str, name: &str, spelled: &str) -> Result<FoundFlag, UsageError> {
        // getopts would read `--p` as `-p`, and the second `-` of `-V-` as the end of the flags.
        if (name.len() == 1) == word.starts_with("--") {
            return Err(UsageError::UnknownFlag(spelled.to_owned()));
        }
        let mut parsed = self.flags.parse([word]);
        if let Err(Fail::ArgumentMissing(_)) = parsed {
            let rest = mem::take(&mut self.cluster);
            let argument = if rest.is_empty() { self.words.next() } else { Some(rest) };
            parsed = self.flags.parse([word].into_iter().chain(argument.as_deref()));
        }
        match (parsed, FLAGS.iter().find(|flag| [flag.short, flag.long].contains(&name))) {
            (Ok(matches), Some(flag)) => {
                let argument = matches.opt_str(name).unwrap_or_default();
                Ok((flag, FlagArgument::new(spelled.to_owned(), bytes_of(&argument))))
            }
            (Err(Fail::ArgumentMissing(_)), _) => Err(UsageError::MissingArgument(spelled.to_owned())),
            (Err(Fail::UnexpectedArgument(_)), _) => Err(UsageError::UnexpectedArgument(spelled.to_owned())),
            _ => Err(UsageError::UnknownFlag(spelled.to_owned())),
        }
    }
}

/// The bytes of `word` as chars with the same numbers.
fn chars_of(word: OsString) -> String {
    word.into_vec().into_iter().map(char::from).collect()
}

/// The bytes for which these chars stand.
fn bytes_of(chars: &str) -> OsString {
    OsString::from_vec(chars.chars().map(|char| char as u8).collect())
}

/// The text for which these chars stand, for a message.
fn text_of(chars: &str) -> String {
    bytes_of(chars).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use crate::options::{Action, Options, UsageError};

    #[test]
    fn an_access_file_is_checked_for_everybody_or_for_one() {
        let check = |words: &[&str]| Options::parse(words.iter().copied());
        let file = || PathBuf::from("rules.toml");
        assert_eq!(check(&["--check-access", "rules.toml"]), Ok(Action::CheckAccess(file(), None)));
        let mailer = Some("mailer".to_owned());
        assert_eq!(
            check(&["--check-access", "rules.toml", "mailer"]),
            Ok(Action::CheckAccess(file(), mailer))
        );
        assert_eq!(check(&["--check-access=rules.toml", "-V"]), Ok(Action::CheckAccess(file(), None)));
        assert_eq!(
            check(&["--check-access", "rules.toml", "a", "b"]),
            Err(UsageError::UnknownArgument("b".to_owned()))
        );
        assert!(check(&["--access", ""]).is_err());
        assert_eq!(check(&["--hash-token"]), Ok(Action::HashToken));
    }
}
