//! Runs the fuzz targets without a fuzzer, on every input of the committed corpora, and then on random changes of them.
//!
//! `FUZZ_ROUNDS=n` sets the number of changed inputs for each target, and `SEED=n` the seed of the changes.

use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::Path;
use std::process::ExitCode;

use beanstalkd_testkit::corpus;
use beanstalkd_testkit::fuzz::{TARGETS, Target};
use beanstalkd_testkit::random::{Random, number_from_environment};
use libtest_mimic::{Arguments, Trial};

/// The most changes of an input.
const MAX_CHANGES: u64 = 6;

fn main() -> ExitCode {
    let replays = TARGETS.iter().map(|target| {
        Trial::test(target.name, move || {
            replay_and_fuzz(target);
            Ok(())
        })
    });
    let comparison = Trial::test("each_target_has_a_program_and_a_corpus", || {
        compare_with_directory();
        Ok(())
    });
    libtest_mimic::run(&Arguments::from_args(), replays.chain([comparison]).collect()).exit_code()
}

/// The targets have the same names in the table, in `fuzz/targets/`, in `fuzz/Cargo.toml`, in `fuzz/corpus/` and in the
/// list of doc/testing.md.
fn compare_with_directory() {
    let names: BTreeSet<_> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    let files = |directory: &str, end: &str| {
        let entries = fs::read_dir(fuzz_directory().join(directory)).expect("the directory can be read");
        let names = entries
            .map(|entry| entry.expect("it can be read").file_name().into_string().expect("it is text"));
        names
            .map(|name| name.strip_suffix(end).expect("all files are of targets").to_owned())
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(files("targets", ".rs"), names, "fuzz/targets");
    assert_eq!(files("corpus", ""), names, "fuzz/corpus");
    let manifest = fs::read_to_string(fuzz_directory().join("Cargo.toml")).expect("the manifest can be read");
    let programs =
        manifest.lines().filter_map(|line| line.strip_prefix("path = \"targets/")?.strip_suffix(".rs\""));
    assert_eq!(programs.map(str::to_owned).collect::<BTreeSet<_>>(), names, "fuzz/Cargo.toml");
    let page = fs::read_to_string(fuzz_directory().join("../doc/testing.md")).expect("the page can be read");
    let section = page.split("### Fuzzing").nth(1).expect("the page has a section about fuzzing");
    let section = section.split("```").next().unwrap_or_default();
    let listed = section.lines().filter_map(|line| Some(line.strip_prefix("- `")?.split_once('`')?.0));
    assert_eq!(listed.map(str::to_owned).collect::<BTreeSet<_>>(), names, "doc/testing.md");
}

fn replay_and_fuzz(target: &Target) {
    let &Target { name, rounds, check } = target;
    let check = |input: &[u8]| {
        let result = catch_unwind(|| check(input));
        assert!(result.is_ok(), "{name} fails on \"{}\"", input.escape_ascii());
    };
    let corpus = corpus::read(&fuzz_directory().join("corpus").join(name)).expect("the corpus can be read");
    assert!(!corpus.is_empty(), "the corpus of {name} is not empty");
    for input in &corpus {
        check(input);
    }
    let words =
        corpus::dictionary(&fuzz_directory().join("protocol.dict")).expect("the dictionary can be read");
    let mut random = Random::new(number_from_environment("SEED").unwrap_or(0));
    for _ in 0..number_from_environment("FUZZ_ROUNDS").unwrap_or(rounds) {
        let mut input = corpus[random.below(corpus.len() as u64) as usize].clone();
        for _ in 0..=random.below(MAX_CHANGES) {
            change(&mut random, &mut input, &words, &corpus);
        }
        check(&input);
    }
}

fn change(random: &mut Random, input: &mut Vec<u8>, words: &[Vec<u8>], corpus: &[Vec<u8>]) {
    let at = random.below(input.len() as u64 + 1) as usize;
    let end = at + random.below((input.len() - at) as u64 + 1) as usize;
    let word = &words[random.below(words.len() as u64) as usize];
    match random.below(6) {
        0 if at < input.len() => input[at] ^= 1 << random.below(8),
        1 if at < input.len() => input[at] = random.next() as u8,
        2 => drop(input.drain(at..end.min(at + 16))),
        3 => drop(input.splice(at..at, input[at..end].to_vec())),
        4 => {
            let other = &corpus[random.below(corpus.len() as u64) as usize];
            let from = random.below(other.len() as u64 + 1) as usize;
            input.truncate(at);
            input.extend(&other[from..]);
        }
        _ => drop(input.splice(at..at, word.iter().copied())),
    }
}

fn fuzz_directory() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz"))
}
