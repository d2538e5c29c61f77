//! The packed corpora of the fuzzers: one file for each target, one input in each line, escaped as in a Rust byte
//! string. And the fuzzers' dictionary: a file, and the commands.
//!
//! libFuzzer needs a directory with one file for each input, and the dictionary as one file: `make fuzz` makes both,
//! `make pack-corpus` packs the corpus.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use beanstalkd_protocol::Verb;
use beanstalkd_types::job::JobId;

use crate::commands;

/// The inputs in the packed file at `path`.
pub fn read(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    let text = fs::read_to_string(path)?;
    text.lines()
        .map(|line| unescape(line).ok_or_else(|| io::Error::other(format!("{}: {line}", path.display()))))
        .collect()
}

/// Writes `inputs` to `path`, each once, in an order that does not depend on the order of `inputs`.
pub fn write(path: &Path, inputs: impl IntoIterator<Item = Vec<u8>>) -> io::Result<()> {
    let inputs: BTreeSet<Vec<u8>> = inputs.into_iter().collect();
    let mut file = io::BufWriter::new(fs::File::create(path)?);
    for input in inputs {
        writeln!(file, "{}", input.escape_ascii())?;
    }
    file.flush()
}

/// Makes a file of each input of `packed` in `directory`.
pub fn unpack(packed: &Path, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    for (number, input) in read(packed)?.into_iter().enumerate() {
        fs::write(directory.join(format!("{number:04}")), input)?;
    }
    Ok(())
}

/// Packs the files in `directory` into `packed`.
pub fn pack(directory: &Path, packed: &Path) -> io::Result<()> {
    let files: Vec<_> = fs::read_dir(directory)?.collect::<Result<_, _>>()?;
    let inputs: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file.path())).collect::<Result<_, _>>()?;
    write(packed, inputs)
}

/// The words of the dictionary at `path`, which is in libFuzzer's format, and the word and a line of each command.
pub fn dictionary(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    let text = fs::read_to_string(path)?;
    let quoted = text.lines().filter_map(|line| line.strip_prefix('"')?.strip_suffix('"'));
    let words: Option<Vec<_>> = quoted.map(unescape).collect();
    let mut words = words.ok_or_else(|| io::Error::other(format!("{}: wrong escapes", path.display())))?;
    for verb in Verb::ALL {
        words.push(verb.as_str().into());
        words.push(commands::line(verb, &commands::arguments(&[JobId(1)])));
    }
    Ok(words)
}

/// Writes [`dictionary`] of `from` to `to`, for libFuzzer.
pub fn write_dictionary(from: &Path, to: &Path) -> io::Result<()> {
    let line = |word: Vec<u8>| {
        let bytes: String = word.iter().map(|byte| format!("\\x{byte:02x}")).collect();
        format!("\"{bytes}\"\n")
    };
    fs::write(to, dictionary(from)?.into_iter().map(line).collect::<String>())
}

/// The bytes that the escaped `text` stands for; `None` if it is not escaped correctly.
pub fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next()? {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'x' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            quoted @ (b'\\' | b'"' | b'\'') => quoted,
            _ => return None,
        });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_packing() {
        let directory = tempfile::tempdir().unwrap();
        let packed = directory.path().join("packed");
        let inputs = vec![Vec::new(), (0..=255).collect(), b"put 0\r\n\\x".to_vec()];
        write(&packed, inputs.clone()).unwrap();
        unpack(&packed, &directory.path().join("files")).unwrap();
        pack(&directory.path().join("files"), &packed).unwrap();
        let read: BTreeSet<_> = read(&packed).unwrap().into_iter().collect();
        assert_eq!(read, inputs.into_iter().collect());
    }

    #[test]
    fn text_that_is_not_escaped_is_refused() {
        assert!(["\\q", "\\x1", "\\"].iter().all(|text| unescape(text).is_none()));
    }
}
