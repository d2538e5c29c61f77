//! Random numbers from a seed: the same seed gives the same numbers on every machine.

use std::ops::RangeInclusive;

use beanstalkd_types::random::Generator;

/// A generator with what tests ask for.
#[derive(Clone, Debug)]
pub struct Random(Generator);

impl Random {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Generator::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x9e37_79b9_7f4a_7c15))
    }

    /// The next number.
    #[expect(clippy::should_implement_trait, reason = "the sequence has no end, so no number is optional")]
    pub fn next(&mut self) -> u64 {
        self.0.draw()
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A number in `range`.
    pub fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.below(range.end() - range.start() + 1)
    }

    /// An index of a list of this length.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }
}

/// The number in the environment variable `name`, if it is set.
pub fn number_from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}: expected a number")))
}

/// The value of one of the rows. A row is its weight and an expression: the larger the weight, the more often it is
/// chosen.
#[macro_export]
macro_rules! weighted {
    ($random:expr, $(($weight:literal, $value:expr)),+ $(,)?) => {{
        let mut number = $random.below([$($weight),+].iter().sum());
        let mut is_chosen = |weight| {
            number < weight || {
                number -= weight;
                false
            }
        };
        $(if is_chosen($weight) { $value } else)+ { unreachable!("a number below the sum of the weights") }
    }};
}
