//! Arbitrary bytes as replies of a server.

use beanstalkd_protocol::{Received, Reply, parse_dictionary, parse_list, parse_page};

/// Reads one reply after another. A reply is the same whatever follows it, and needs each of its bytes.
pub fn check(input: &[u8]) {
    let mut rest = input;
    while !rest.is_empty() {
        match Reply::read(rest) {
            Ok(Received::Whole(reply, taken)) => {
                assert_eq!(Reply::read(&rest[..taken]), Ok(Received::Whole(reply, taken)));
                let cut = Reply::read(&rest[..taken - 1]);
                assert!(matches!(cut, Ok(Received::Needs(bytes)) if (1..=taken).contains(&bytes)), "{cut:?}");
                inspect(&reply);
                rest = &rest[taken..];
            }
            Ok(Received::Needs(bytes)) => {
                assert!(bytes > rest.len());
                return;
            }
            Err(_) => return,
        }
    }
}

/// Reads the contents of the reply.
fn inspect(reply: &Reply<'_>) {
    if let Reply::ReservedBatch(jobs) = reply {
        assert_eq!(jobs.iter().filter(|(_, body)| body.as_slice().len() < usize::MAX).count(), jobs.len());
    }
    if let Reply::Data(data) = reply {
        let _ = (parse_dictionary(data), parse_list(data), parse_page(data));
    }
}
