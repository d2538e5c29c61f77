//! The records in the ciphertext.
//!
//! Owns: how far the ciphertext of one client has been followed. rustls does not report how many records it decrypts,
//! and a record with one byte takes as long as several simple requests.

/// The type, the version and the length of a record.
const HEADER_BYTES: u16 = 5;

/// The last record of the ciphertext so far.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// How many bytes of its header have come.
    header: u16,
    /// The length of its content, known from the end of the header on.
    length: u16,
    /// How many bytes of its content have not come yet.
    missing: u16,
}

impl Records {
    /// Follows the next bytes of the ciphertext, to the end of its next `max` records. Returns how many bytes that are,
    /// and how many records end in them.
    pub(super) fn follow(&mut self, wire: &[u8], max: usize) -> (usize, usize) {
        let (mut rest, mut ended) = (wire, 0);
        while ended < max && !rest.is_empty() {
            if self.is_complete() {
                *self = Self::default();
            }
            let (header, content) = rest.split_at(rest.len().min((HEADER_BYTES - self.header).into()));
            self.header += header.len() as u16;
            for &byte in header {
                // In the end, this has the last two bytes.
                self.length = self.length << 8 | u16::from(byte);
                self.missing = self.length;
            }
            let count = content.len().min(self.missing.into());
            self.missing -= count as u16;
            rest = &content[count..];
            ended += usize::from(self.is_complete());
        }
        (wire.len() - rest.len(), ended)
    }

    fn is_complete(&self) -> bool {
        self.header == HEADER_BYTES && self.missing == 0
    }

    /// How many bytes of the last record have come. rustls keeps room for them until the next record.
    pub(super) fn held_bytes(&self) -> usize {
        let content = if self.header < HEADER_BYTES { 0 } else { self.length - self.missing };
        usize::from(self.header) + usize::from(content)
    }
}

#[cfg(test)]
mod tests {
    use super::Records;

    #[test]
    fn records_are_followed_wherever_the_ciphertext_is_cut() {
        let record = |length: u16| {
            let [high, low] = length.to_be_bytes();
            [&[23, 3, 3, high, low][..], &vec![255; length.into()]].concat()
        };
        let lengths = [18, 0, 16_640, 1, 0, 0, 300];
        let wire: Vec<u8> = lengths.iter().flat_map(|&length| record(length)).collect();
        for piece in [1, 2, 3, 7, 100, wire.len()] {
            let mut records = Records::default();
            let ended: usize = wire.chunks(piece).map(|bytes| records.follow(bytes, usize::MAX).1).sum();
            assert_eq!((ended, records.held_bytes()), (lengths.len(), 305), "pieces of {piece} bytes");
        }
        let mut records = Records::default();
        assert_eq!(records.follow(&wire, 2), (28, 2), "it stops at the end of the second");
        assert_eq!(records.follow(&wire[28..], 0), (0, 0));
        assert_eq!(records.follow(&wire[28..1028], 5), (1000, 0));
        assert_eq!(records.held_bytes(), 1000);
    }
}
