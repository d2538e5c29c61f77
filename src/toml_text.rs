//! Files of settings in TOML: the parts that all of them share.
//!
//! Owns: the positions of faults, and the values that several files have: numbers, bytes, times, patterns of tube
//! names. Never knows a key. Driven by the reader of each file.

// A value of any other type of TOML is an error.
#![allow(clippy::wildcard_enum_match_arm)]

use std::fmt;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use crate::number::{number_of_bytes, plain_u64};
use crate::tube_name::{TubeName, TubeNameRef, is_name_byte};

/// A fault in a file, and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// The line, from 1 on.
    pub line: usize,
    /// The character in the line, from 1 on.
    pub column: usize,
    /// The text that was found, and the expected one.
    pub message: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "line {}, column {}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for FileError {}

/// A fault in a text.
pub(crate) struct Fault {
    /// The bytes in which it is.
    pub(crate) place: Range<usize>,
    pub(crate) message: String,
}

impl Fault {
    pub(crate) fn new(place: Range<usize>, message: impl Into<String>) -> Self {
        Self { place, message: message.into() }
    }
}

/// A key of a table, with its position.
pub(crate) type TomlKey<'k, 'i> = &'k Spanned<std::borrow::Cow<'i, str>>;
/// A value, with its position.
pub(crate) type TomlValue<'v, 'i> = &'v Spanned<DeValue<'i>>;

/// The result of `use_table` for the table in `text`.
pub(crate) fn read<T>(
    text: &str,
    use_table: impl FnOnce(&DeTable<'_>) -> Result<T, Fault>,
) -> Result<T, FileError> {
    let at = |fault: Fault| {
        let before = text.get(..fault.place.start).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        FileError {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message: fault.message,
        }
    };
    let table = DeTable::parse(text).map_err(|error| {
        let (place, message) = (error.span().unwrap_or_default(), error.message().trim_end());
        // The reader does not name it.
        let key = text.get(place.clone()).filter(|_| message == "duplicate key");
        let message = match key {
            Some(key) => format!("{key}: duplicate key, expected each key once in an entry or a table"),
            None => message.replace('\n', ", "),
        };
        at(Fault::new(place, message))
    })?;
    use_table(table.get_ref()).map_err(at)
}

/// A whole number in a range.
pub(crate) fn number(value: TomlValue<'_, '_>, min: u32, max: u32) -> Result<u32, Fault> {
    let number = value.get_ref().as_integer();
    let number = number.and_then(|number| u32::from_str_radix(number.as_str(), number.radix()).ok());
    number
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| Fault::new(value.span(), format!("expected a whole number of {min} to {max}")))
}

/// A whole number that is at least 1.
pub(crate) fn count(value: TomlValue<'_, '_>) -> Result<u32, Fault> {
    number(value, 1, u32::MAX)
}

/// A number of bytes, or a text such as "64m"; at least `min`.
pub(crate) fn bytes(value: TomlValue<'_, '_>, min: u64) -> Result<u64, Fault> {
    let bytes = match value.get_ref() {
        DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
        DeValue::String(text) if text.starts_with(|first: char| first.is_ascii_digit()) => {
            number_of_bytes(text)
        }
        _ => None,
    };
    bytes.filter(|&bytes| bytes >= min).ok_or_else(|| {
        Fault::new(
            value.span(),
            format!("expected a number of bytes, at least {min}, such as 65535, \"64k\", \"10m\" or \"1g\""),
        )
    })
}

/// A text such as "10s": whole seconds, at least 1.
pub(crate) fn seconds(value: TomlValue<'_, '_>) -> Result<u32, Fault> {
    let seconds = value.get_ref().as_str().and_then(|text| {
        let (digits, unit_s) = match text.char_indices().last()? {
            (end, 's') => (&text[..end], 1),
            (end, 'm') => (&text[..end], 60),
            (end, 'h') => (&text[..end], 3600),
            (end, 'd') => (&text[..end], 24 * 3600),
            _ => return None,
        };
        let count = u32::try_from(plain_u64(digits)?).ok()?;
        count.checked_mul(unit_s).filter(|&seconds| seconds > 0)
    });
    let expected = || {
        let max = u32::MAX;
        format!("expected a time such as \"10s\", \"5m\", \"1h\" or \"7d\", of 1 to {max} seconds")
    };
    seconds.ok_or_else(|| Fault::new(value.span(), expected()))
}

/// `true` or `false`.
pub(crate) fn boolean(value: TomlValue<'_, '_>) -> Result<bool, Fault> {
    match value.get_ref() {
        DeValue::Boolean(is_so) => Ok(*is_so),
        other => Err(expected("true or false", value.span(), other)),
    }
}

/// The name of a tube.
pub(crate) fn tube_name<'v>(value: TomlValue<'v, '_>) -> Result<&'v str, Fault> {
    let DeValue::String(name) = value.get_ref() else {
        return Err(expected("the name of a tube in quotes", value.span(), value.get_ref()));
    };
    TubeName::check(name.as_bytes()).map(TubeNameRef::as_str).ok_or_else(|| {
        let max = TubeName::MAX_BYTES;
        let rule = "letters, digits and -+/;.$_(), not - first";
        Fault::new(value.span(), format!("{name:?} is not a tube name, expected 1 to {max} {rule}"))
    })
}

/// A pattern of tube names.
pub(crate) fn pattern<'v>(value: TomlValue<'v, '_>) -> Result<&'v str, Fault> {
    let DeValue::String(pattern) = value.get_ref() else {
        return Err(expected("a pattern of tube names in quotes", value.span(), value.get_ref()));
    };
    let is_pattern = (1..=TubeName::MAX_BYTES).contains(&pattern.len())
        && pattern.bytes().all(|byte| is_name_byte(byte) || matches!(byte, b'*' | b'?'));
    if is_pattern {
        return Ok(pattern);
    }
    let max = TubeName::MAX_BYTES;
    Err(Fault::new(
        value.span(),
        format!(
            "{pattern:?} matches no tube: a pattern has 1 to {max} characters of tube names, `*` for any characters \
             and `?` for one"
        ),
    ))
}

pub(crate) fn table_of<'v, 'i>(
    key: TomlKey<'_, '_>,
    value: TomlValue<'v, 'i>,
) -> Result<&'v DeTable<'i>, Fault> {
    let what = || format!("a table for {}", key.get_ref());
    value.get_ref().as_table().ok_or_else(|| expected(&what(), value.span(), value.get_ref()))
}

pub(crate) fn array_of<'v, 'i>(
    key: TomlKey<'_, '_>,
    value: TomlValue<'v, 'i>,
) -> Result<&'v DeArray<'i>, Fault> {
    let what = || format!("a list for {}, such as [\"a\", \"b\"]", key.get_ref());
    value.get_ref().as_array().ok_or_else(|| expected(&what(), value.span(), value.get_ref()))
}

pub(crate) fn expected(what: &str, at: Range<usize>, found: &DeValue<'_>) -> Fault {
    Fault::new(at, format!("expected {what}, but this is a value of type {}", found.type_str()))
}

/// The entry of a key in a list of known keys.
pub(crate) fn find_key<T: Copy>(known: &[(&str, T)], key: TomlKey<'_, '_>) -> Option<T> {
    known.iter().find(|(name, _)| name == key.get_ref()).map(|&(_, found)| found)
}

pub(crate) fn key_names<T>(known: &[(&'static str, T)]) -> impl Iterator<Item = &'static str> {
    known.iter().map(|&(name, _)| name)
}

pub(crate) fn unknown(key: TomlKey<'_, '_>, known: impl IntoIterator<Item = &'static str>) -> Fault {
    let known = known.into_iter().collect::<Vec<_>>().join(", ");
    Fault::new(key.span(), format!("unknown key {:?}; the keys here are: {known}", key.get_ref()))
}
