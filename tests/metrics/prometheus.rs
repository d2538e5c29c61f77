//! A strict parser of Prometheus's text format (version 0.0.4). It refuses everything that the format does not define.

use std::collections::HashSet;

/// A family with its samples: the series as written, and the value.
#[derive(Debug)]
pub struct Family {
    pub name: String,
    pub kind: String,
    pub samples: Vec<(String, f64)>,
}

/// The families of a scrape.
///
/// # Panics
/// If the text is not valid.
pub fn parse(text: &str) -> Vec<Family> {
    assert!(text.ends_with('\n'), "the last line ends with a line end");
    let mut families: Vec<Family> = Vec::new();
    let mut names = HashSet::new();
    let mut series = HashSet::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help text");
            assert!(help.ends_with('.'), "the help text of {name} is a sentence: {help}");
            assert!(is_name(name) && names.insert(name.to_owned()), "{name} is valid and appears once");
            let kind =
                lines.next().and_then(|line| line.strip_prefix(&format!("# TYPE {name} "))).expect(name);
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{kind}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
            families.push(Family { name: name.to_owned(), kind: kind.to_owned(), samples: Vec::new() });
            continue;
        }
        let family = families.last_mut().expect("a family comes before its samples");
        let (left, value) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = left.split_once('{').map_or((left, ""), |(name, labels)| {
            (name, labels.strip_suffix('}').expect("the end of the labels"))
        });
        check_labels(labels);
        let suffixes: &[&str] =
            if family.kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        let suffix = name.strip_prefix(&family.name).unwrap_or_else(|| panic!("{name} in {}", family.name));
        assert!(suffixes.contains(&suffix), "{name}");
        assert!(series.insert(left.to_owned()), "{left} appears once");
        family.samples.push((left.to_owned(), value.parse().expect("a number")));
    }
    families.iter().filter(|family| family.kind == "histogram").for_each(check_histogram);
    assert!(families.iter().all(|family| !family.samples.is_empty()), "no family is empty");
    families
}

fn is_name(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        && name.starts_with(|first: char| first.is_ascii_lowercase())
}

/// Names, equals signs and quoted texts in which quotes, backslashes and line ends are escaped.
fn check_labels(mut labels: &str) {
    while !labels.is_empty() {
        let (name, rest) = labels.split_once("=\"").expect("a quoted value");
        assert!(is_name(name), "{name}");
        let mut escaped = false;
        let end = rest.find(|character| {
            let is_end = character == '"' && !escaped;
            assert!(!escaped || "\\\"n".contains(character), "{labels}");
            escaped = character == '\\' && !escaped;
            is_end
        });
        labels = &rest[end.expect("the end of the value") + 1..];
        labels = labels.strip_prefix(',').unwrap_or(labels);
    }
}

/// Requires that the samples of each tube, or all samples, are a histogram, and follow each other.
fn check_histogram(family: &Family) {
    let tube =
        |series: &str| series.split("tube=\"").nth(1).map(|rest| rest.split('"').next().map(str::to_owned));
    let mut tubes = HashSet::new();
    for samples in family.samples.chunk_by(|(a, _), (b, _)| tube(a) == tube(b)) {
        assert!(tubes.insert(tube(&samples[0].0)), "the samples of {} follow each other", samples[0].0);
        check_buckets(samples);
    }
}

/// Requires that the buckets ascend, that their counts are cumulative, and that the last one counts everything.
fn check_buckets(samples: &[(String, f64)]) {
    let (buckets, rest): (Vec<_>, Vec<_>) = samples.iter().partition(|(series, _)| series.contains("le=\""));
    let bounds = buckets.iter().map(|(series, count)| {
        let bound = series.split("le=\"").nth(1).unwrap().trim_end_matches("\"}");
        (if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() }, *count)
    });
    let bounds: Vec<(f64, f64)> = bounds.collect();
    assert!(bounds.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{bounds:?}");
    let [sum, count] = rest.as_slice() else { panic!("{rest:?}") };
    assert!(sum.0.contains("_sum") && count.0.contains("_count"));
    assert_eq!(bounds.last(), Some(&(f64::INFINITY, count.1)));
}
