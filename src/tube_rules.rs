//! The file of rules for tubes (`--tubes`): from TOML to rules.
//!
//! Owns: the grammar of the file, which is strict, and the rules in words. Never carries out a rule: the queue does.
//! Driven by the start, by SIGHUP and by `--check-tubes`.

use std::fmt::{self, Write as _};

use toml::de::{DeTable, DeValue};

use crate::clock::NS_PER_S;
use crate::log_setup::Count;
use crate::number::plain_u64;
use crate::pattern::Pattern;
use crate::queue::{Rate, TubeRule};
pub use crate::toml_text::FileError;
use crate::toml_text::{
    Fault, TomlValue, boolean, bytes, count, expected, find_key, key_names, pattern, read, seconds, table_of,
    tube_name, unknown,
};

/// Sets an option of a rule to the value of its key.
type SetOption = fn(&mut TubeRule, TomlValue<'_, '_>) -> Result<(), Fault>;

/// The keys of an entry, in the order in which the message about an unknown one has them.
const KEYS: [(&str, SetOption); 12] = [
    // The rule begins with it.
    ("name", |_, _| Ok(())),
    ("max-jobs", |rule, value| count(value).map(|max| rule.max_jobs = Some(max.into()))),
    ("max-bytes", |rule, value| bytes(value, 1).map(|max| rule.max_bytes = Some(max))),
    ("max-attempts", |rule, value| count(value).map(|max| rule.max_attempts = Some(max))),
    ("backoff", |rule, value| seconds(value).map(|seconds| rule.backoff_s = Some(seconds))),
    ("max-backoff", |rule, value| seconds(value).map(|seconds| rule.max_backoff_s = Some(seconds))),
    ("dead-tube", |rule, value| tube_name(value).map(|tube| rule.dead_tube = Some(tube.into()))),
    ("max-reserved", |rule, value| count(value).map(|max| rule.max_reserved = Some(max))),
    ("rate", |rule, value| read_rate(value).map(|rate| rule.rate = Some(rate))),
    // A burst belongs to the rate; `rule` reads both together.
    ("burst", |_, value| count(value).map(drop)),
    ("max-age", |rule, value| seconds(value).map(|seconds| rule.max_age_s = Some(seconds))),
    ("fair", |rule, value| boolean(value).map(|is_fair| rule.is_fair = is_fair)),
];

/// The maximum number of entries. The name of a new tube is compared with one after the other until one matches, so
/// with more entries each new tube would cost a noticeable time. With these it is about 2 microseconds, and never more
/// than 50, with the worst of patterns and names.
const MAX_ENTRIES: usize = 1000;

/// The maximum number of entries whose pattern has characters between two stars. The longest of them costs as much as
/// a hundred others: up to 1.5 microseconds.
const MAX_SEARCHES: usize = 16;

/// The rules in the text of a file, in their order.
///
/// # Errors
/// The first part of the text that does not follow `doc/rules.md`.
pub fn parse(text: &str) -> Result<Vec<TubeRule>, FileError> {
    read(text, rules)
}

fn rules(table: &DeTable<'_>) -> Result<Vec<TubeRule>, Fault> {
    let (mut rules, mut searches) = (Vec::new(), 0);
    for (key, value) in table {
        if key.get_ref() != "tube" {
            return Err(unknown(key, ["tube"]));
        }
        let DeValue::Array(entries) = value.get_ref() else {
            return Err(expected("entries that begin with [[tube]]", key.span(), value.get_ref()));
        };
        for entry in entries.iter() {
            if rules.len() == MAX_ENTRIES {
                let message = format!("there are more than {MAX_ENTRIES} entries, expected at most as many");
                return Err(Fault::new(entry.span(), message));
            }
            let table = table_of(key, entry)?;
            let rule = rule(table, entry)?;
            searches += usize::from(Pattern::new(&rule.pattern).needs_search());
            if searches > MAX_SEARCHES {
                let place = table.get("name").unwrap_or(entry).span();
                let message = format!(
                    "name: there are more than {MAX_SEARCHES} patterns with characters between two `*`, such as {:?}",
                    rule.pattern
                );
                return Err(Fault::new(place, message));
            }
            rules.push(rule);
        }
    }
    Ok(rules)
}

fn rule(table: &DeTable<'_>, entry: TomlValue<'_, '_>) -> Result<TubeRule, Fault> {
    let Some(name) = table.get("name") else {
        return Err(Fault::new(entry.span(), "this entry has no name, expected name = \"PATTERN\""));
    };
    let of_key = |key: &str, fault: Fault| Fault::new(fault.place, format!("{key}: {}", fault.message));
    let mut rule = TubeRule::new(pattern(name).map_err(|fault| of_key("name", fault))?);
    for (key, value) in table {
        let set = find_key(&KEYS, key).ok_or_else(|| unknown(key, key_names(&KEYS)))?;
        set(&mut rule, value).map_err(|fault| of_key(key.get_ref(), fault))?;
    }
    let needs: [(_, &[&str]); 3] =
        [("max-backoff", &["backoff"]), ("dead-tube", &["max-attempts", "max-age"]), ("burst", &["rate"])];
    for (key, needed) in needs {
        if let Some((key, _)) = table.get_key_value(key)
            && needed.iter().all(|&needed| table.get(needed).is_none())
        {
            let needed = needed.join(" or ");
            let message = format!("{}: it does nothing without {needed} in this entry", key.get_ref());
            return Err(Fault::new(key.span(), message));
        }
    }
    if let (Some(rate), Some(burst)) = (&mut rule.rate, table.get("burst")) {
        rate.burst = count(burst)?;
    }
    Ok(rule)
}

/// A text such as "100/s". The bucket holds the tokens of one second, at least one.
fn read_rate(value: TomlValue<'_, '_>) -> Result<Rate, Fault> {
    let parts = value.get_ref().as_str().and_then(|text| text.split_once('/'));
    let rate = parts.and_then(|(tokens, period)| {
        let period_s = match period {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            _ => return None,
        };
        let tokens = u32::try_from(plain_u64(tokens)?).ok()?;
        let burst = (tokens / period_s).max(1);
        let period_ns = u64::from(period_s) * NS_PER_S;
        (tokens > 0).then_some(Rate { tokens, period_ns, burst })
    });
    rate.ok_or_else(|| {
        let max = u32::MAX;
        let expected = format!("expected a rate such as \"100/s\", \"5/m\" or \"1/h\", of 1 to {max}");
        Fault::new(value.span(), expected)
    })
}

/// The rules in words, a line for each setting of each entry.
#[must_use]
pub fn report(rules: &[TubeRule]) -> String {
    let mut text = String::new();
    for (position, rule) in rules.iter().enumerate() {
        let mut line = |words: fmt::Arguments<'_>| {
            writeln!(text, "{words}").expect("a write to a string does not fail");
        };
        line(format_args!("{}", rule.pattern));
        if let Some(first) = rules[..position].iter().find(|first| covers(&first.pattern, &rule.pattern)) {
            let first = &first.pattern;
            line(format_args!(
                "  hint: no tube follows this entry, because {first} above matches the same names"
            ));
        }
        if let Some(max) = rule.max_jobs {
            line(format_args!("  takes at most {}", Count(max, "job")));
        }
        if let Some(max) = rule.max_bytes {
            line(format_args!("  takes jobs of at most {} together", Count(max, "byte")));
        }
        if rule.is_fair {
            line(format_args!("  among jobs of the same priority, the con: keys take turns"));
        }
        if let Some(max) = rule.max_reserved {
            let max = Count(max.into(), "job");
            line(format_args!("  clients can have reserved at most {max} at a time"));
        }
        if let Some(Rate { tokens, period_ns, burst }) = rule.rate {
            let (seconds, jobs) = (period_ns / NS_PER_S, Count(tokens.into(), "job"));
            line(format_args!(
                "  {jobs} can be reserved every {seconds} s; after a time without any, {burst} at once"
            ));
        }
        if let Some(delay_s) = rule.backoff_s {
            let max = rule.max_backoff_s.map_or(String::new(), |max| format!(", at most {max} s"));
            line(format_args!(
                "  a job waits {delay_s} s after a failure, and twice as long after each further{max}"
            ));
        }
        if let Some(max) = rule.max_attempts {
            let times = Count(max.into(), "time");
            let end = death(rules, position).unwrap_or_else(|| "is buried".to_owned());
            line(format_args!("  a job that has failed {times} {end}"));
        }
        if let Some(max) = rule.max_age_s {
            let end = death(rules, position).unwrap_or_else(|| "is deleted".to_owned());
            line(format_args!(
                "  a job that came into the tube {max} s ago, and that no client has reserved, {end}"
            ));
        }
    }
    if rules.is_empty() {
        text.push_str("no tube has a rule\n");
    }
    text
}

/// What the dead tube of the entry at `position` means for a job that dies, if there is one.
fn death(rules: &[TubeRule], position: usize) -> Option<String> {
    let rule = &rules[position];
    let dead_tube = rule.dead_tube.as_deref()?;
    Some(if dead_tube == &*rule.pattern {
        "is buried, because its dead tube is the tube itself".to_owned()
    } else if is_for(rules, position, dead_tube) {
        format!("goes to the tube {dead_tube}; in that tube itself, it is buried")
    } else {
        format!("goes to the tube {dead_tube}")
    })
}

/// Whether the tube follows the entry at `position`.
fn is_for(rules: &[TubeRule], position: usize, tube: &str) -> bool {
    rules.iter().position(|rule| Pattern::new(&rule.pattern).matches(tube)) == Some(position)
}

/// Whether the pattern `first` matches each name that `second` matches. A few that do are not found, such as `?*` for
/// `*?`.
fn covers(first: &str, second: &str) -> bool {
    let (first, second) = (first.as_bytes(), second.as_bytes());
    let (mut at, mut from) = (0, 0);
    // The last star of `first`, and how much of `second` it stands for.
    let mut star: Option<(usize, usize)> = None;
    while from < second.len() {
        match first.get(at) {
            Some(b'*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(&byte) if byte == second[from] || byte == b'?' && second[from] != b'*' => {
                (at, from) = (at + 1, from + 1);
            }
            _ => {
                let Some((star_at, end)) = star else { return false };
                star = Some((star_at, end + 1));
                (at, from) = (star_at + 1, end + 1);
            }
        }
    }
    first[at..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expect_faults(faults: &[(&str, &str)]) {
        for (text, expected) in faults {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}\n{error}");
        }
    }

    #[test]
    fn each_fault_is_found_with_its_place_and_its_key() {
        expect_faults(&[
            ("x = 1", "line 1, column 1: unknown key \"x\"; the keys here are: tube"),
            ("[tube]\nname = \"a\"", "line 1, column 2: expected entries that begin with [[tube]]"),
            ("tube = [1]", "line 1, column 9: expected a table for tube"),
            ("[[tube]]\nmax-jobs = 1", "line 1, column 1: this entry has no name"),
            (
                "[[tube]]\nname = \"a b\"",
                "line 2, column 8: name: \"a b\" matches no tube: a pattern has 1 to 200",
            ),
            (
                "[[tube]]\nname = 5",
                "line 2, column 8: name: expected a pattern of tube names in quotes, but this is a value of type",
            ),
            (
                "[[tube]]\nname = \"a\"\nmax-job = 1",
                "line 3, column 1: unknown key \"max-job\"; the keys here are: name, max-jobs, max-bytes, \
                 max-attempts, backoff, max-backoff, dead-tube, max-reserved, rate, burst, max-age, fair",
            ),
            (
                "[[tube]]\nname = \"a\"\nmax-jobs = 0",
                "line 3, column 12: max-jobs: expected a whole number of 1 to 4294967295",
            ),
            (
                "[[tube]]\nname = \"a\"\nmax-bytes = \"2q\"",
                "line 3, column 13: max-bytes: expected a number of bytes",
            ),
            (
                "[[tube]]\nname = \"a\"\nmax-bytes = 0",
                "line 3, column 13: max-bytes: expected a number of bytes, at least 1",
            ),
            (
                "[[tube]]\nname = \"a\"\nmax-bytes = \"+5k\"",
                "line 3, column 13: max-bytes: expected a number of bytes, at least 1",
            ),
            (
                "[[tube]]\nname = \"a\"\nname = \"b\"",
                "line 3, column 1: name: duplicate key, expected each key once in an entry",
            ),
            (
                "[[tube]]\nname = \"a\"\nmax-age = \"1d\"\nfair = true\nmax-age = \"2d\"",
                "line 5, column 1: max-age: duplicate key, expected each key once in an entry",
            ),
        ]);
    }

    #[test]
    fn each_fault_of_the_rules_that_delay_and_limit_is_found_with_its_place_and_its_key() {
        expect_faults(&[
            ("[[tube]]\nname = \"a\"\nfair = 1", "line 3, column 8: fair: expected true or false"),
            (
                "[[tube]]\nname = \"a\"\nmax-age = \"0d\"",
                "line 3, column 11: max-age: expected a time such as",
            ),
            (
                "[[tube]]\nname = \"a\"\nbackoff = \"10\"",
                "line 3, column 11: backoff: expected a time such as",
            ),
            (
                "[[tube]]\nname = \"a\"\nbackoff = \"0s\"",
                "line 3, column 11: backoff: expected a time such as",
            ),
            (
                "[[tube]]\nname = \"a\"\nmax-backoff = \"1h\"",
                "line 3, column 1: max-backoff: it does nothing without backoff",
            ),
            (
                "[[tube]]\nname = \"a\"\ndead-tube = \"b\"",
                "line 3, column 1: dead-tube: it does nothing without max-attempts",
            ),
            (
                "[[tube]]\nname = \"a\"\ndead-tube = \"b*\"",
                "line 3, column 13: dead-tube: \"b*\" is not a tube name",
            ),
            ("[[tube]]\nname = \"a\"\nrate = \"1/d\"", "line 3, column 8: rate: expected a rate such as"),
            ("[[tube]]\nname = \"a\"\nrate = \"0/s\"", "line 3, column 8: rate: expected a rate such as"),
            ("[[tube]]\nname = \"a\"\nburst = 1", "line 3, column 1: burst: it does nothing without rate"),
            ("[[tube]\n", "line 1, column 8: "),
        ]);
    }

    #[test]
    fn entries_keep_their_order() {
        let text =
            "[[tube]]\nname = \"mail-*\"\nmax-jobs = 0x10\n[[tube]]\nname = \"*\"\nmax-bytes = \"2k\"\n";
        let rules = parse(text).unwrap();
        let patterns: Vec<&str> = rules.iter().map(|rule| &*rule.pattern).collect();
        assert_eq!(
            (patterns, rules[0].max_jobs, rules[1].max_bytes),
            (vec!["mail-*", "*"], Some(16), Some(2048))
        );
        assert_eq!(
            report(&rules),
            "mail-*\n  takes at most 16 jobs\n*\n  takes jobs of at most 2048 bytes together\n"
        );
        assert_eq!(report(&parse("").unwrap()), "no tube has a rule\n");
    }

    #[test]
    fn each_setting_has_its_words_in_the_report() {
        let words = |settings: &str| {
            let report = report(&parse(&format!("[[tube]]\nname = {settings}")).unwrap());
            report.lines().skip(1).map(|line| format!("{}\n", line.trim())).collect::<String>()
        };
        for (settings, expected) in [
            ("\"a\"\nmax-jobs = 1", "takes at most 1 job"),
            ("\"a\"\nmax-bytes = 1", "takes jobs of at most 1 byte together"),
            ("\"a\"\nmax-reserved = 1", "clients can have reserved at most 1 job at a time"),
            ("\"a\"\nmax-attempts = 1", "a job that has failed 1 time is buried"),
            (
                "\"a\"\nmax-attempts = 2\ndead-tube = \"b\"",
                "a job that has failed 2 times goes to the tube b",
            ),
            (
                "\"a\"\nmax-attempts = 2\ndead-tube = \"a\"",
                "a job that has failed 2 times is buried, because its dead tube is the tube itself",
            ),
            (
                "\"m-*\"\nmax-attempts = 2\ndead-tube = \"m-dead\"",
                "a job that has failed 2 times goes to the tube m-dead; in that tube itself, it is buried",
            ),
            (
                "\"a\"\nmax-age = \"1h\"",
                "a job that came into the tube 3600 s ago, and that no client has reserved, is deleted",
            ),
            (
                "\"a\"\nmax-age = \"1h\"\ndead-tube = \"a\"",
                "a job that came into the tube 3600 s ago, and that no client has reserved, is buried, because its \
                 dead tube is the tube itself",
            ),
            (
                "\"a\"\nrate = \"1/h\"\nburst = 1000",
                "1 job can be reserved every 3600 s; after a time without any, 1000 at once",
            ),
        ] {
            assert_eq!(words(settings), format!("{expected}\n"), "{settings}");
        }
        let both = "[[tube]]\nname = \"m-dead\"\nmax-jobs = 9\n[[tube]]\nname = \"m-*\"\nmax-attempts = 2\n\
                    dead-tube = \"m-dead\"";
        assert!(report(&parse(both).unwrap()).ends_with("goes to the tube m-dead\n"), "it has its own entry");
    }

    #[test]
    fn an_entry_that_no_tube_can_follow_gets_a_hint() {
        let hints = |patterns: &[&str]| {
            let text: String = patterns.iter().map(|name| format!("[[tube]]\nname = {name:?}\n")).collect();
            report(&parse(&text).unwrap()).lines().filter(|line| line.contains("hint: ")).count()
        };
        let twice = report(&parse("[[tube]]\nname = \"a\"\n[[tube]]\nname = \"a\"").unwrap());
        assert_eq!(
            twice,
            "a\na\n  hint: no tube follows this entry, because a above matches the same names\n"
        );
        for (first, second, is_covered) in [
            ("*", "a", true),
            ("*", "*", true),
            ("a*", "a-b*", true),
            ("a*", "a?", true),
            ("a?", "a?", true),
            ("*b*", "a*b?*", true),
            ("a", "a*", false),
            ("a?", "a*", false),
            ("?", "*", false),
            ("a*", "*", false),
            ("*-a", "*-b", false),
            ("a*c", "ab", false),
        ] {
            assert_eq!(hints(&[first, second]), usize::from(is_covered), "{first} {second}");
            // What is found is true of names.
            if is_covered {
                let name = second.replace('*', "").replace('?', "x");
                assert!(Pattern::new(first).matches(&name) || name.is_empty(), "{first} {name}");
            }
        }
        assert_eq!(hints(&["b", "*", "c", "d"]), 2);
    }

    #[test]
    fn entries_above_the_maximum_are_refused() {
        let text = |entries: usize| "[[tube]]\nname = \"a\"\n".repeat(entries);
        assert_eq!(parse(&text(MAX_ENTRIES)).unwrap().len(), MAX_ENTRIES);
        let error = parse(&text(MAX_ENTRIES + 1)).unwrap_err().to_string();
        assert!(error.starts_with("line 2001, column 1: there are more than 1000 entries"), "{error}");
    }

    #[test]
    fn patterns_that_need_a_search_are_limited() {
        let text = |searches: usize| {
            let one = "[[tube]]\nname = \"*-tenant\"\n[[tube]]\nname = \"a*b\"\n[[tube]]\nname = \"*a?*\"\n";
            one.repeat(searches)
        };
        assert_eq!(parse(&text(MAX_SEARCHES)).unwrap().len(), 3 * MAX_SEARCHES);
        let error = parse(&text(MAX_SEARCHES + 1)).unwrap_err().to_string();
        let expected = "line 102, column 8: name: there are more than 16 patterns with characters between two `*`, \
                        such as \"*a?*\"";
        assert_eq!(error, expected);
    }
}
