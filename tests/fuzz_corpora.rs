//! The fuzz targets without a fuzzer: every input of the committed corpora, then random changes of them.
//!
//! `FUZZ_ROUNDS=n` sets how many changed inputs each target gets, `SEED=n` which ones.
#![allow(dead_code, reason = "the model test and the simulation use the rest of these modules")]

#[path = "../fuzz/src/byte_stream.rs"]
mod byte_stream;
#[path = "../fuzz/src/command_line.rs"]
mod command_line;
#[path = "model/naive.rs"]
mod naive;
#[path = "simulation/observer.rs"]
mod observer;
#[path = "../fuzz/src/operation_sequence.rs"]
mod operation_sequence;
#[path = "model/operations.rs"]
mod operations;
#[path = "model/random.rs"]
mod random;
#[path = "simulation/sockets.rs"]
mod sockets;
#[path = "simulation/subject.rs"]
mod subject;

use std::fs;
use std::panic::{RefUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use random::{Random, number_from_environment};

/// Changes that an input is given at most.
const MAX_CHANGES: u64 = 6;

#[test]
fn command_lines() {
    replay_and_fuzz("command_line", 2_000_000, command_line::check);
}

#[test]
fn byte_streams() {
    replay_and_fuzz("byte_stream", 30_000, byte_stream::check);
}

#[test]
fn operation_sequences() {
    replay_and_fuzz("operations", 20_000, operation_sequence::check);
}

fn replay_and_fuzz(target: &str, rounds: u64, check: impl Fn(&[u8]) + RefUnwindSafe) {
    let check = |input: &[u8]| {
        let result = catch_unwind(|| check(input));
        assert!(result.is_ok(), "{target} fails on \"{}\"", input.escape_ascii());
    };
    let corpus = corpus(target);
    assert!(!corpus.is_empty(), "{target} has a corpus");
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

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let directory = fuzz_directory().join("corpus").join(target);
    let mut paths: Vec<PathBuf> = fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.expect("the directory can be read").path())
        .collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("the file can be read")).collect()
}

/// The words of the dictionary, which is in libFuzzer's format.
fn dictionary() -> Vec<Vec<u8>> {
    let text = fs::read_to_string(fuzz_directory().join("protocol.dict")).expect("there is a dictionary");
    let quoted = text.lines().filter_map(|line| line.strip_prefix('"')?.strip_suffix('"'));
    quoted.map(unescape).collect()
}

fn unescape(word: &str) -> Vec<u8> {
    let mut pieces = word.split("\\x");
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let (code, rest) = piece.split_at(2);
        bytes.push(u8::from_str_radix(code, 16).expect("two hexadecimal digits"));
        bytes.extend(rest.bytes());
    }
    bytes
}

fn fuzz_directory() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz"))
}
