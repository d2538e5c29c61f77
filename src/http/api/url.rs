//! Queries of URLs.
//!
//! Owns: the rule that nothing is ignored: an unknown parameter is a mistake.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::filter::FilterFields;
use super::problem::{Problem, short};
use crate::percent;

/// The parameters of a query that have not been read yet.
#[derive(Debug)]
pub(crate) struct QueryParameters(Vec<(String, String)>);

impl QueryParameters {
    /// The parameters in the text after the `?`.
    ///
    /// # Errors
    /// The part that cannot be decoded.
    pub(crate) fn parse(query: &str) -> Result<Self, String> {
        let mut parameters = Vec::new();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let decode = |text: &str| percent::decode(&text.replace('+', " "));
            match (decode(key), decode(value)) {
                (Some(key), Some(value)) => parameters.push((key, value)),
                _ => return Err(part.to_owned()),
            }
        }
        Ok(Self(parameters))
    }

    /// Takes the value of a parameter. An empty value counts as none.
    pub(crate) fn take(&mut self, key: &str) -> Option<String> {
        let index = self.0.iter().position(|(found, _)| found == key)?;
        Some(self.0.swap_remove(index).1).filter(|value| !value.is_empty())
    }

    /// Takes a number.
    fn parsed<T: FromStr>(&mut self, key: &str) -> Result<Option<T>, Problem> {
        let read =
            |text: String| text.parse().map_err(|_| Problem::bad(format!("{key}: expected a whole number")));
        self.take(key).map(read).transpose()
    }

    /// Takes a number in a range.
    pub(crate) fn number_in<T: FromStr + PartialOrd + Display>(
        &mut self,
        range: RangeInclusive<T>,
        key: &str,
    ) -> Result<Option<T>, Problem> {
        let number = self.parsed(key)?;
        if number.as_ref().is_none_or(|number| range.contains(number)) {
            return Ok(number);
        }
        Err(Problem::bad(format!("{key}: expected {} to {}", range.start(), range.end())))
    }

    /// Takes the maximum number of rows on a page.
    pub(crate) fn limit(&mut self, default: usize, max: usize) -> Result<usize, Problem> {
        Ok(self.number_in(1..=max, "limit")?.unwrap_or(default))
    }

    /// Takes the cursor of the page before this one, if there is one.
    pub(crate) fn cursor<T>(&mut self, parse: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, Problem> {
        let wrong = || Problem::bad("cursor: expected the one of another page");
        self.take("cursor").map(|text| parse(&text).ok_or_else(wrong)).transpose()
    }

    /// Checks that all parameters have been taken.
    pub(crate) fn end(&self) -> Result<(), Problem> {
        match self.0.first() {
            None => Ok(()),
            Some((key, _)) => Err(Problem::bad(format!(
                "{:?}: there is no such parameter here, or it is given twice",
                short(key)
            ))),
        }
    }
}

impl FilterFields for QueryParameters {
    fn text(&mut self, key: &str) -> Result<Option<String>, Problem> {
        Ok(self.take(key))
    }

    fn number(&mut self, key: &str) -> Result<Option<u32>, Problem> {
        self.parsed(key)
    }

    fn long(&mut self, key: &str) -> Result<Option<u64>, Problem> {
        self.parsed(key)
    }

    fn flag(&mut self, key: &str) -> Result<Option<bool>, Problem> {
        match self.take(key).as_deref() {
            None => Ok(None),
            Some("false") => Ok(Some(false)),
            Some("true") => Ok(Some(true)),
            Some(_) => Err(Problem::bad(format!("{key}: expected true or false"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_taken_once_and_the_rest_is_seen() {
        let mut parameters = QueryParameters::parse("a=1+%2B&b=&c&a=2").unwrap();
        assert_eq!(parameters.take("a").as_deref(), Some("1 +"));
        assert_eq!(parameters.take("b"), None);
        assert_eq!(parameters.take("c"), None);
        assert!(parameters.end().unwrap_err().message.starts_with("\"a\": "));
        assert_eq!(QueryParameters::parse("a=%z").unwrap_err(), "a=%z");
    }
}
