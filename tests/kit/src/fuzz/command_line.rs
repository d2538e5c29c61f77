//! Arbitrary bytes as a command line.

use beanstalkd_protocol::{Command, ParseError, parse, parse_tags};
use beanstalkd_types::tags::JobTags;

use crate::tags::encoded;

/// Parses `line`. A parsed command, as it is written, must parse to the same command.
pub fn check(line: &[u8]) {
    let parsed = parse(line);
    if line.contains(&0) {
        // The body of a put with tags is skipped, whatever is wrong with them.
        let is_refused = match parsed {
            Ok(Command::PutWith(_, text)) => parse_tags(text).is_err(),
            parsed => parsed == Err(ParseError::BadFormat),
        };
        assert!(is_refused, "a line with a NUL is refused");
    }
    if let Ok(command) = parsed {
        let mut written = Vec::new();
        command.write(&mut written);
        assert_eq!(parse(&written), parsed);
    }
    if let Ok(Command::PutWith(_, text)) = parsed
        && let Ok(tags) = parse_tags(text)
    {
        let bytes = encoded(tags.kept);
        assert_eq!(JobTags::decode(&bytes), Some(tags.kept.into()));
    }
}
