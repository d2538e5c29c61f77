//! The report at the end of the suite: counts by mark, failures by cause, and JUnit XML.
//!
//! Owns: the grouping of failures, and the JUnit XML. Never decides whether a case has passed. Driven by `main`.

use crate::deviations::DEVIATIONS;
use crate::judge::{Outcome, Subject, Verdict};
use crate::mark::Mark;
use beanstalkd_testkit::client::Failure;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The maximum number of characters of an expected or actual reply in the name of a cause.
const MAX_CAUSE_CHARS: usize = 60;

/// Prints the numbers of passed, failed and skipped cases by mark, the causes of failures, and the deviations that
/// showed.
pub fn print(subject: &Subject, outcomes: &[Outcome]) {
    println!("{} ({}), judged as {}", subject.version, subject.name, subject.kind.name());
    println!("  {:<10} {:>6} {:>6} {:>8} {:>7}", "mark", "passed", "failed", "excused", "skipped");
    for word in Mark::WORDS {
        let of_mark: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.mark.word() == word).collect();
        print_counts(word, &of_mark);
    }
    print_counts("all", &outcomes.iter().collect::<Vec<_>>());
    let mut skipped: BTreeMap<&str, usize> = BTreeMap::new();
    for outcome in outcomes {
        if let Verdict::Skipped(reason) = outcome.verdict {
            *skipped.entry(reason).or_default() += 1;
        }
    }
    for (reason, count) in skipped {
        println!("  {count} skipped: the case {reason}");
    }
    print_deviations(outcomes);
    print_causes(outcomes);
}

fn print_counts(word: &str, outcomes: &[&Outcome]) {
    let count =
        |which: fn(&Verdict) -> bool| outcomes.iter().filter(|outcome| which(&outcome.verdict)).count();
    println!(
        "  {word:<10} {:>6} {:>6} {:>8} {:>7}",
        count(|verdict| matches!(verdict, Verdict::Passed)),
        count(|verdict| matches!(verdict, Verdict::Failed(_))),
        count(|verdict| matches!(verdict, Verdict::Excused(..))),
        count(|verdict| matches!(verdict, Verdict::Skipped(_))),
    );
}

fn print_deviations(outcomes: &[Outcome]) {
    let mut shown: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for outcome in outcomes {
        if let Verdict::Excused(deviation, showed) = outcome.verdict {
            let (times, cases) = shown.entry(deviation.name).or_default();
            *times += usize::from(showed);
            *cases += 1;
        }
    }
    if shown.is_empty() {
        return;
    }
    println!("Excused deviations of this server, each with the number of its cases in which it showed:");
    for deviation in DEVIATIONS {
        if let Some((times, cases)) = shown.get(deviation.name) {
            let class = format!("{:?}", deviation.class);
            println!("  {times:>3}/{cases:<3} {class:<10} {}: {}", deviation.name, deviation.line);
        }
    }
}

fn print_causes(outcomes: &[Outcome]) {
    let mut groups: BTreeMap<String, Vec<(&Outcome, &Failure)>> = BTreeMap::new();
    for outcome in outcomes {
        if let Verdict::Failed(failure) = &outcome.verdict {
            groups.entry(cause(failure)).or_default().push((outcome, failure));
        }
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.len()));
    if !groups.is_empty() {
        println!("Failed cases, grouped by cause; the first case of each cause is shown in full:");
    }
    for (cause, mut group) in groups {
        group.sort_by_key(|(outcome, _)| (outcome.topic, &outcome.name));
        println!("{:>4} × {cause}", group.len());
        for (at, (outcome, failure)) in group.iter().enumerate() {
            println!("       {}::{} [{}]", outcome.topic, outcome.name, outcome.mark);
            match &failure.reply {
                _ if at == 0 => println!("           {}", failure.to_string().replace('\n', "\n       ")),
                Some(reply) => println!(
                    "           {}: expected {}, got {}",
                    short(&reply.asked),
                    short(&reply.expected),
                    short(&reply.actual)
                ),
                None => println!("           {}", failure.problem),
            }
        }
    }
}

/// The name of the group of a failure: the expected and the actual reply, without the command and the numbers.
fn cause(failure: &Failure) -> String {
    match &failure.reply {
        Some(reply) => format!("expected {}, got {}", shape(&reply.expected), shape(&reply.actual)),
        None => shape(&failure.problem),
    }
}

/// The text, shortened so that it fits on a line with others.
fn short(text: &str) -> String {
    let mut short: String = text.chars().take(MAX_CAUSE_CHARS).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// The first line, with N for each number, shortened to [`MAX_CAUSE_CHARS`].
fn shape(text: &str) -> String {
    let text = text.trim_matches('"');
    let line = text.split("\\r\\n").next().unwrap_or(text);
    let line = if line.is_empty() { "an empty line" } else { line };
    let mut shape = String::new();
    for c in line.chars().take(MAX_CAUSE_CHARS) {
        if !c.is_ascii_digit() {
            shape.push(c);
        } else if !shape.ends_with('N') {
            shape.push('N');
        }
    }
    shape
}

/// The outcomes of several servers as JUnit XML: a suite for each server and topic.
pub fn junit(servers: &[(String, Vec<Outcome>)]) -> String {
    let mut xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n".to_owned();
    for (server, outcomes) in servers {
        let mut topics: BTreeMap<&str, Vec<&Outcome>> = BTreeMap::new();
        for outcome in outcomes {
            topics.entry(outcome.topic).or_default().push(outcome);
        }
        for (topic, outcomes) in topics {
            let count = |which: fn(&Verdict) -> bool| {
                outcomes.iter().filter(|outcome| which(&outcome.verdict)).count()
            };
            let _ = writeln!(
                xml,
                "  <testsuite name=\"{} {topic}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\">",
                escaped(server),
                outcomes.len(),
                count(|verdict| matches!(verdict, Verdict::Failed(_))),
                count(|verdict| matches!(verdict, Verdict::Skipped(_))),
            );
            outcomes.iter().for_each(|outcome| write_case(&mut xml, outcome));
            xml.push_str("  </testsuite>\n");
        }
    }
    xml.push_str("</testsuites>\n");
    xml
}

fn write_case(xml: &mut String, outcome: &Outcome) {
    let (name, mark) = (escaped(&outcome.name), escaped(&outcome.mark.to_string()));
    let _ = write!(
        xml,
        "    <testcase classname=\"{}\" name=\"{name}\" time=\"{:.3}\">\
         <properties><property name=\"mark\" value=\"{mark}\"/></properties>",
        outcome.topic,
        outcome.took.as_secs_f64(),
    );
    let _ = match &outcome.verdict {
        Verdict::Passed => Ok(()),
        Verdict::Failed(failure) => {
            let (cause, text) = (escaped(&cause(failure)), escaped(&failure.to_string()));
            write!(
                xml,
                "<failure type=\"{cause}\" message=\"{}\">{text}</failure>",
                escaped(&failure.problem)
            )
        }
        Verdict::Skipped(reason) => write!(xml, "<skipped message=\"the case {}\"/>", escaped(reason)),
        Verdict::Excused(deviation, showed) => {
            let word = if *showed { "shown" } else { "not shown" };
            write!(xml, "<system-out>listed deviation {}, {word}</system-out>", deviation.name)
        }
    };
    xml.push_str("</testcase>\n");
}

/// The text, escaped for XML elements and attributes. Characters that XML does not allow become question marks.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(c),
            c if c < ' ' || c == '\u{fffe}' || c == '\u{ffff}' => escaped.push('?'),
            c => escaped.push(c),
        }
    }
    escaped
}
