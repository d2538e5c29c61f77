//! The fields of `reserve-fields`, which C beanstalkd does not have: the values after the size in a RESERVED line.

use super::argument::{Argument, words};

words! {
    /// A value of a job that a RESERVED line can have. In a list, the number of a field is its position here, from 1.
    pub enum Field {
        Tube = "tube",
        Attempts = "attempts",
        Timeouts = "timeouts",
        Releases = "releases",
        Age = "age",
        Pri = "pri",
        Ttr = "ttr",
        Trace = "trace",
    }
}

/// Fields in an order, each at most once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldList {
    /// Four bits for each field, the first field in the lowest; 0 after the last.
    packed: u32,
}

const _: () = assert!(
    Field::ALL.len() < 1 << FieldList::BITS && Field::ALL.len() as u32 * FieldList::BITS <= u32::BITS
);

impl FieldList {
    const BITS: u32 = 4;

    /// A list of these fields; `None` if one of them occurs twice.
    #[must_use]
    pub fn new(fields: impl IntoIterator<Item = Field>) -> Option<Self> {
        let mut list = Self::default();
        for (position, field) in fields.into_iter().enumerate() {
            if list.iter().any(|before| before == field) {
                return None;
            }
            list.packed |= (field as u32 + 1) << (position as u32 * Self::BITS);
        }
        Some(list)
    }

    /// The list that [`Self::packed`] has encoded as this number; `None` if the number is not valid.
    #[must_use]
    pub fn unpack(packed: u32) -> Option<Self> {
        let list = Self { packed };
        Self::new(list.iter()).filter(|read| *read == list)
    }

    /// The list as a number.
    #[must_use]
    pub fn packed(self) -> u32 {
        self.packed
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.packed == 0
    }

    /// The fields in their order.
    pub fn iter(self) -> impl Iterator<Item = Field> {
        let mut rest = self.packed;
        std::iter::from_fn(move || {
            let position = (rest & ((1 << Self::BITS) - 1)) as usize;
            rest >>= Self::BITS;
            Field::ALL.get(position.checked_sub(1)?).copied()
        })
    }

    /// Parses the words, each with a space before it, to the end of the line.
    #[must_use]
    pub fn parse(rest: &[u8]) -> Option<Self> {
        if rest.is_empty() {
            return Some(Self::default());
        }
        let words = rest.strip_prefix(b" ")?.split(|&byte| byte == b' ');
        let fields: Option<Vec<Field>> = words.map(Field::of_word).collect();
        Self::new(fields?)
    }
}

impl Argument for FieldList {
    fn write(&self, line: &mut Vec<u8>) {
        self.iter().for_each(|field| field.as_str().write(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, ParseError, parse};

    #[test]
    fn each_field_is_there_once_and_in_its_order() {
        let list = |fields: &[Field]| FieldList::new(fields.iter().copied()).expect("each once");
        fn parsed(line: &str) -> Result<Command<'_>, ParseError> {
            parse(line.as_bytes())
        }
        assert_eq!(parsed("reserve-fields"), Ok(Command::ReserveFields(FieldList::default())));
        let two = list(&[Field::Trace, Field::Tube]);
        assert_eq!(parsed("reserve-fields trace tube"), Ok(Command::ReserveFields(two)));
        let all = list(&Field::ALL);
        assert_eq!(
            parsed("reserve-fields tube attempts timeouts releases age pri ttr trace"),
            Ok(Command::ReserveFields(all))
        );
        assert!(all.iter().eq(Field::ALL) && two.iter().eq([Field::Trace, Field::Tube]));
        for rest in [
            " ",
            " tube ",
            "  tube",
            " tube tube",
            " TUBE",
            " tube,age",
            " body",
            "tube",
            " tube  age",
            " \0",
        ] {
            assert_eq!(parsed(&format!("reserve-fields{rest}")), Err(ParseError::BadFormat), "{rest:?}");
        }
        assert_eq!(parsed("reserve-field tube"), Err(ParseError::BadFormat));
        for packed in [9, 0x11, 0x101, u32::MAX, 0x10, 1 << 31] {
            assert_eq!(FieldList::unpack(packed), None, "{packed:x}");
        }
        assert_eq!(FieldList::unpack(all.packed()), Some(all));
    }
}
