//! How many bytes of a connection are in the sum over all buffers.

/// A number of bytes in 32 bits, because the block of a connection has room for no more, and a `complete` can have more
/// than 4 GiB: it is rounded up to whole units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CountedBytes(u32);

impl CountedBytes {
    const UNIT_BYTES: usize = 64;

    pub(super) fn new(bytes: usize) -> Self {
        // Of the 2^38 bytes that this can count, no connection has memory for all.
        Self(u32::try_from(bytes.div_ceil(Self::UNIT_BYTES)).unwrap_or(u32::MAX))
    }

    pub(super) fn get(self) -> usize {
        self.0 as usize * Self::UNIT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_bytes_than_4_gib_are_counted_in_units_of_64() {
        for bytes in
            [0, 1, 63, 64, 65, 70_000].into_iter().chain((31..usize::BITS.min(38)).map(|bits| 1 << bits))
        {
            let counted = CountedBytes::new(bytes).get();
            assert!((bytes..bytes + 64).contains(&counted), "{counted} for {bytes}");
        }
    }
}
