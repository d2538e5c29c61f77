//! Patterns of tube names: `*` stands for any bytes, also none, and `?` for one.
//!
//! Owns: whether a name matches. A name is compared with up to a thousand patterns, so a comparison is cheap by
//! construction: both ends of a pattern are compared where they must be, which usually fails at the first byte. Only a
//! pattern with two or more stars needs a search; callers limit the number of these (`needs_search`).

/// A pattern. It matches a whole name, never a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: Box<[u8]>,
    /// The number of bytes before the first star; without a star, all of them.
    head: usize,
    /// The number of bytes after the last star.
    tail: usize,
    /// The number of bytes that are not stars: no shorter name matches.
    min_bytes: usize,
}

impl Pattern {
    /// The pattern with this text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let text: Box<[u8]> = text.as_bytes().into();
        let is_star = |byte: &u8| *byte == b'*';
        let head = text.iter().position(is_star).unwrap_or(text.len());
        let tail = text.iter().rev().position(is_star).unwrap_or(0);
        let min_bytes = text.iter().filter(|&byte| !is_star(byte)).count();
        Self { text, head, tail, min_bytes }
    }

    /// Whether a comparison can take long, up to some microseconds, because there are characters between two stars.
    #[must_use]
    pub fn needs_search(&self) -> bool {
        self.head + self.tail < self.min_bytes
    }

    /// Whether the name matches.
    #[inline]
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let name = name.as_bytes();
        let (text, end) = (&*self.text, self.text.len() - self.tail);
        if name.len() < self.min_bytes || !fits(&text[..self.head], name) {
            return false;
        }
        if self.head == text.len() {
            return name.len() == text.len();
        }
        let name_end = name.len() - self.tail;
        fits(&text[end..], &name[name_end..])
            && (!self.needs_search() || contains_in_order(&text[self.head..end], &name[self.head..name_end]))
    }
}

/// Whether the name has the parts between the stars, one after the other. The first place of each leaves the most room
/// for the others, so none needs a second place.
#[inline(never)]
fn contains_in_order(parts: &[u8], mut name: &[u8]) -> bool {
    parts.split(|&byte| byte == b'*').filter(|part| !part.is_empty()).all(|part| {
        let place = name.windows(part.len()).position(|window| fits(part, window));
        place.is_some_and(|place| {
            name = &name[place + part.len()..];
            true
        })
    })
}

/// Whether the beginning of the name is `part`, which has no star and is not longer than the name.
#[inline]
fn fits(part: &[u8], name: &[u8]) -> bool {
    let is_other = |(&part, &byte): (&u8, &u8)| (part != byte) & (part != b'?');
    match (part, name) {
        // Most comparisons end here.
        ([part, ..], [byte, ..]) if is_other((part, byte)) => false,
        // The compiler compares a whole block at once.
        _ => part
            .chunks(BLOCK)
            .zip(name.chunks(BLOCK))
            .all(|(part, name)| !part.iter().zip(name).fold(false, |is_any, pair| is_any | is_other(pair))),
    }
}

/// The number of bytes that are compared before the result is checked.
const BLOCK: usize = 16;

#[cfg(test)]
mod tests {
    use wildmatch::WildMatch;

    use super::*;
    use crate::random::Generator;

    #[test]
    fn a_name_matches_exactly_as_with_a_general_matcher() {
        let mut random = Generator::new(7);
        let mut text = |alphabet: &[u8], max: u128| -> String {
            let length = 1 + random.below(max);
            (0..length).map(|_| alphabet[random.below(alphabet.len() as u128) as usize] as char).collect()
        };
        let mut matches = 0;
        for round in 0..300_000 {
            // Short names of two letters, so that many match; and long ones that are compared in blocks.
            let (pattern, name) = match round % 3 {
                0 => (text(b"ab*?", 8), text(b"ab", 8)),
                1 => (text(b"aaaaaaaab*?", 12), text(b"aaaaaab", 12)),
                _ => (text(b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaa*?", 50), text(b"a", 60)),
            };
            let expected = WildMatch::new(&pattern).matches(&name);
            assert_eq!(Pattern::new(&pattern).matches(&name), expected, "{pattern} {name}");
            matches += u32::from(expected);
        }
        assert!((30_000..270_000).contains(&matches), "{matches} matches");
    }

    #[test]
    fn only_characters_between_stars_need_a_search() {
        for (pattern, expected) in [
            ("a", false),
            ("a?b", false),
            ("*", false),
            ("a?*", false),
            ("*-tenant7", false),
            ("a*?b", false),
            ("a**b", false),
            ("*a*", true),
            ("a*?*b", true),
            ("a*b*c", true),
        ] {
            assert_eq!(Pattern::new(pattern).needs_search(), expected, "{pattern}");
        }
    }
}
