//! Runs the fuzz targets without a fuzzer, on every input of the committed corpora, and then on random changes of them.
//!
//! `FUZZ_ROUNDS=n` sets the number of changed inputs for each target, and `SEED=n` the seed of the changes.

use std::fs;
use std::panic::{RefUnwindSafe, catch_unwind};
use std::path::Path;

use beanstalkd_testkit::random::{Random, number_from_environment};
use beanstalkd_testkit::{corpus, fuzz};

/// The most changes of an input.
const MAX_CHANGES: u64 = 6;

#[test]
fn command_lines() {
    replay_and_fuzz("command_line", 2_000_000, fuzz::command_line);
}

#[test]
fn byte_streams() {
    replay_and_fuzz("byte_stream", 30_000, fuzz::byte_stream);
}

#[test]
fn byte_streams_to_a_server_with_access_rules() {
    replay_and_fuzz("guarded_stream", 30_000, fuzz::guarded_stream);
}

#[test]
fn access_files() {
    replay_and_fuzz("access_file", 100_000, fuzz::access_file);
}

#[test]
fn files_of_rules_for_tubes() {
    replay_and_fuzz("tube_rules", 100_000, fuzz::tube_rules);
}

#[test]
fn replies() {
    replay_and_fuzz("replies", 300_000, fuzz::replies);
}

#[test]
fn descriptions_of_servers() {
    replay_and_fuzz("description", 20_000, fuzz::description);
}

#[test]
fn operation_sequences() {
    replay_and_fuzz("operations", 20_000, fuzz::operations);
}

#[test]
fn tls_handshakes() {
    replay_and_fuzz("tls_handshake", 10_000, fuzz::tls_handshake);
}

fn replay_and_fuzz(target: &str, rounds: u64, check: impl Fn(&[u8]) + RefUnwindSafe) {
    let check = |input: &[u8]| {
        let result = catch_unwind(|| check(input));
        assert!(result.is_ok(), "{target} fails on \"{}\"", input.escape_ascii());
    };
    let corpus = corpus::read(&fuzz_directory().join("corpus").join(target)).expect("the corpus can be read");
    assert!(!corpus.is_empty(), "the corpus of {target} is not empty");
    for input in &corpus {
        check(input);
    }
    let words = dictionary();
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

/// The words of the dictionary, which is in libFuzzer's format.
fn dictionary() -> Vec<Vec<u8>> {
    let text =
        fs::read_to_string(fuzz_directory().join("protocol.dict")).expect("the dictionary can be read");
    let quoted = text.lines().filter_map(|line| line.strip_prefix('"')?.strip_suffix('"'));
    let words: Option<Vec<_>> = quoted.map(corpus::unescape).collect();
    words.expect("the words of the dictionary are escaped correctly")
}

fn fuzz_directory() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz"))
}
