//! How many bytes of a connection are in the sum over all buffers.

/// A number of bytes in 32 bits, because the block of a connection has room for no more, and a `complete` can have more
/// than 4 GiB. It is exact below 2 GiB; above, it is the number of whole units of 64 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CountedBytes(u32);

impl CountedBytes {
    /// This bit is set if the others count units.
    const IN_UNITS: u32 = 1 << 31;
    const UNIT_BITS: u32 = 16;

    pub(super) fn new(bytes: usize) -> Self {
        match u32::try_from(bytes) {
            Ok(bytes) if bytes < Self::IN_UNITS => Self(bytes),
            Ok(_) | Err(_) => {
                // Of the 2^47 bytes that this can count, no process has memory for all.
                let units = u32::try_from(bytes >> Self::UNIT_BITS).unwrap_or(u32::MAX);
                Self(units | Self::IN_UNITS)
            }
        }
    }

    pub(super) fn get(self) -> usize {
        let Self(packed) = self;
        if packed < Self::IN_UNITS {
            packed as usize
        } else {
            ((packed - Self::IN_UNITS) as usize) << Self::UNIT_BITS
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_bytes_than_4_gib_are_counted_in_units_of_64_kib() {
        for bytes in [0, 1, 70_000, (1 << 31) - 1] {
            assert_eq!(CountedBytes::new(bytes).get(), bytes);
        }
        let large = (31..usize::BITS.min(46)).flat_map(|bits| [1_usize << bits, (1 << bits) + 12_345]);
        for bytes in large {
            let counted = CountedBytes::new(bytes).get();
            assert!(counted <= bytes && bytes - counted < 1 << 16, "{counted} of {bytes}");
        }
    }
}
