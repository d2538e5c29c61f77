//! Arbitrary bytes as a file of rules for tubes.

use beanstalkd::clock::Timestamp;
use beanstalkd::queue::Queue;
use beanstalkd::tube_rules::{parse, report};

/// Reads `input`. An error has a line and a column in the text; a valid file has a report, and a queue takes it.
pub fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match parse(text) {
        Ok(rules) => {
            assert!(report(&rules).lines().count() >= rules.len().max(1));
            let mut queue = Queue::default();
            queue.set_tube_rules(rules, Timestamp(1));
            while queue.next_deadline() == Some(Timestamp::default()) {
                queue.advance(Timestamp(1));
            }
            queue.check_invariants();
        }
        Err(error) => {
            assert!((1..=text.matches('\n').count() + 1).contains(&error.line), "{error}");
            assert!(
                error.column >= 1 && !error.message.is_empty() && !error.message.contains('\n'),
                "{error}"
            );
        }
    }
}
