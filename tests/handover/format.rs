//! The format of a description: what changes it, and what a reader makes of bytes that are none.

use std::hash::{DefaultHasher, Hasher};

use beanstalkd::queue::PoisonLimits;
use beanstalkd::server::hand_over::{FORMAT, check};
use beanstalkd_testkit::fuzz;
use beanstalkd_testkit::random::Random;
use beanstalkd_testkit::subject::executor;

/// What the format writes of one server: the version, the length, and a hash of the bytes.
const KNOWN: (u32, usize, u64) = (2, 10_306, 17_611_891_906_200_675_044);

#[test]
fn a_format_that_has_changed_has_another_version() {
    let bytes = fuzz::described_server();
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes);
    let now = (FORMAT, bytes.len(), hasher.finish());
    assert_eq!(
        now, KNOWN,
        "if what is described has changed, FORMAT needs the next number, and KNOWN what is here"
    );
}

#[test]
fn a_description_is_read_whole_or_not_at_all() {
    let bytes = fuzz::described_server();
    let read = |bytes: &[u8]| check(executor(PoisonLimits::default(), 1000), bytes);
    assert_eq!(read(&bytes), Ok(()));
    for end in 0..bytes.len() {
        assert!(read(&bytes[..end]).is_err(), "{end} of {} bytes", bytes.len());
    }
    assert!(read(&[&bytes[..], b"x"].concat()).is_err(), "one byte more");
    let mut random = Random::new(1);
    for _ in 0..20_000 {
        let mut changed = bytes.clone();
        for _ in 0..=random.below(3) {
            let place = random.below(changed.len() as u64) as usize;
            changed[place] = if random.once_in(2) { random.next() as u8 } else { changed[place] ^ 1 };
        }
        let _ = read(&changed);
    }
}
