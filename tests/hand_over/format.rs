//! The format of a description: which changes alter it, and how a reader treats older versions and other bytes.
//!
//! `formats/N` is a description of the server that [`fuzz::described_server`] makes, written by the program that
//! introduced version N. No change of this program can change these bytes: they stand for the previous program.
//! `WRITE=1` writes the file of a new version.

use std::fs;

use beanstalkd::server::hand_over::{FORMAT, OLDEST_FORMAT, check};
use beanstalkd_queue::PoisonLimits;
use beanstalkd_testkit::fuzz;
use beanstalkd_testkit::random::Random;
use beanstalkd_testkit::simulated::executor;
use beanstalkd_testkit::written::is_requested;

fn recorded(format: u32) -> String {
    format!("{}/tests/hand_over/formats/{format}", env!("CARGO_MANIFEST_DIR"))
}

fn read(bytes: &[u8]) -> Result<u32, String> {
    check(executor(PoisonLimits::default(), 1000), bytes).map_err(|error| error.to_string())
}

#[test]
fn a_format_that_has_changed_has_another_version() {
    let bytes = fuzz::described_server();
    let path = recorded(FORMAT);
    if is_requested() && fs::metadata(&path).is_err() {
        fs::write(&path, &bytes).unwrap();
    }
    let known = fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}; WRITE=1 writes it"));
    let first = known.iter().zip(&bytes).position(|(known, now)| known != now);
    assert!(
        known == bytes,
        "the description differs from byte {first:?} on. If the format has changed, FORMAT needs the next number, \
         unless another commit has given it one since the last release. If only the server of \
         `fuzz::described_server` is another one, or a reply that it has not sent, remove {path}: WRITE=1 writes it"
    );
}

#[test]
fn a_description_of_each_older_program_is_read() {
    for format in OLDEST_FORMAT..=FORMAT {
        let bytes = fs::read(recorded(format)).unwrap();
        assert_eq!(read(&bytes), Ok(format));
        let mut other = bytes.clone();
        for unknown in [OLDEST_FORMAT - 1, FORMAT + 1, u32::MAX] {
            other[16..20].copy_from_slice(&unknown.to_le_bytes());
            assert!(read(&other).unwrap_err().contains("does not know"), "{unknown}");
        }
    }
}

#[test]
fn a_description_is_read_whole_or_not_at_all() {
    let bytes = fuzz::described_server();
    assert_eq!(read(&bytes), Ok(FORMAT));
    for end in 0..bytes.len() {
        assert!(read(&bytes[..end]).is_err(), "{end} of {} bytes", bytes.len());
    }
    assert!(read(&[&bytes[..], b"x"].concat()).is_err(), "one byte more");
    let mut random = Random::new(1);
    for _ in 0..20_000 {
        let mut changed = bytes.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(changed.len() as u64) as usize;
            changed[at] = if random.once_in(2) { random.next() as u8 } else { changed[at] ^ 1 };
        }
        let _ = read(&changed);
    }
}

/// The described server has a client that waits for the end of job 9. Its connection must say so, too.
#[test]
fn a_client_waits_for_the_same_in_the_queue_and_in_its_connection() {
    let bytes = fuzz::described_server();
    let wait_for_end = [&[2][..], &9_u64.to_le_bytes()].concat();
    let wait_for_other_end = [&[2][..], &8_u64.to_le_bytes()].concat();
    for other_wait in [&[0, 0][..], &[1, 1, 0, 0, 0], &wait_for_other_end] {
        let offsets = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(&wait_for_end));
        let refusals: Vec<_> = offsets
            .filter_map(|at| {
                let mut changed = bytes.clone();
                changed.splice(at..at + wait_for_end.len(), other_wait.iter().copied());
                read(&changed).err()
            })
            .collect();
        assert!(
            refusals.iter().any(|error| error.contains("a client and its connection do not match")),
            "{other_wait:?}: {refusals:?}"
        );
    }
}
