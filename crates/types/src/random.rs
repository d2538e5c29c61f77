//! Random numbers from a seed: the same seed gives the same numbers on every machine.

/// A generator of random numbers (SplitMix64).
#[derive(Clone, Debug, Default)]
pub struct Generator(u64);

impl Generator {
    /// A generator with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `bound`. The distribution is uniform as long as `bound` is far below 2^128.
    pub fn below(&mut self, bound: u128) -> u128 {
        let random = self.draw();
        if let Ok(bound) = u64::try_from(bound) {
            return (u128::from(random) * u128::from(bound)) >> 64;
        }
        (u128::from(random) << 64 | u128::from(self.draw())) % bound
    }
}
