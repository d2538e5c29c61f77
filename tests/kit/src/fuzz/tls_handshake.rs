//! Arbitrary bytes from an anonymous client to a TLS listener, in any pieces.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::rc::Rc;

use beanstalkd::tls::{Acceptor, Channel, MAX_HANDSHAKE_BYTES};

use crate::tls;

thread_local! {
    static ACCEPTOR: Rc<Acceptor> = tls::acceptor();
}

/// A socket with what has arrived.
#[derive(Default)]
struct Socket {
    inbound: VecDeque<u8>,
    read: usize,
    written: usize,
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.inbound.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = self.inbound.read(buffer)?;
        self.read += count;
        Ok(count)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written += bytes.len();
        Ok(bytes.len())
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        slices.iter().map(|slice| self.write(slice)).sum()
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The first byte of the input sets the length of the pieces; the others are sent. No byte reaches the server behind
/// TLS, and no handshake without its keys completes; the server reads no more than it may, and its replies are short.
pub fn check(input: &[u8]) {
    let Some((&first, bytes)) = input.split_first() else { return };
    let length = if first == 0 { usize::MAX } else { first.into() };
    let mut channel = Channel::new(ACCEPTOR.with(Rc::clone)).expect("there are random numbers");
    let mut socket = Socket::default();
    for piece in bytes.chunks(length) {
        socket.inbound.extend(piece);
        let result = loop {
            let result =
                channel.read(&mut socket, 1 << 16, |_| panic!("a byte of an anonymous client came through"));
            // A call ends after its share of records.
            if !matches!(&result, Err(error) if error.kind() == ErrorKind::Interrupted) {
                break result;
            }
        };
        match result {
            Ok(count) => panic!("an anonymous client has ended its stream with a close_notify: {count}"),
            Err(error) if error.kind() == ErrorKind::WouldBlock => assert!(channel.is_handshaking()),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::InvalidData);
                break;
            }
        }
    }
    assert!(channel.peer_certificate().is_none());
    assert!(socket.read <= MAX_HANDSHAKE_BYTES && socket.written < MAX_HANDSHAKE_BYTES);
}
