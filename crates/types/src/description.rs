//! The fields of a description: a serialized snapshot of a server's state, from which the new program continues after a
//! hand-over.
//!
//! Owns: the encoding of numbers, texts, lists and records. Reading never panics and never allocates more memory than
//! the bytes that are left. Numbers are little-endian and have a fixed width. Code that describes a record lists each
//! of its fields ([`described!`](crate::described)), so that a new field is a compile error until it is described.
//! `doc/handover.md` describes the whole format.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::clock::Timestamp;
use crate::job::{Body, Counters, JobId, Priority};
use crate::seconds::Seconds;

/// The writer passes its bytes on in pieces of about this size.
const PIECE_BYTES: usize = 1 << 16;

/// The bytes are not a description, or have another format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the description is malformed: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

/// Writes a description.
pub struct Writer<'a> {
    piece: Vec<u8>,
    sink: &'a mut dyn FnMut(Vec<u8>),
}

impl<'a> Writer<'a> {
    /// A writer that passes its bytes to `sink`, piece by piece.
    pub fn new(sink: &'a mut dyn FnMut(Vec<u8>)) -> Self {
        Self { piece: Vec::new(), sink }
    }

    /// Writes bytes as they are.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        if self.piece.len() + bytes.len() > PIECE_BYTES {
            self.raw_beyond(bytes);
        } else {
            self.piece.extend_from_slice(bytes);
        }
    }

    /// Writes bytes that do not fit into the current piece. No piece is larger than its limit, whatever a client has
    /// put.
    fn raw_beyond(&mut self, mut bytes: &[u8]) {
        while self.piece.len() + bytes.len() > PIECE_BYTES {
            let (fits, rest) = bytes.split_at(PIECE_BYTES - self.piece.len());
            self.piece.extend_from_slice(fits);
            bytes = rest;
            self.pass_on();
        }
        self.piece.extend_from_slice(bytes);
    }

    fn pass_on(&mut self) {
        (self.sink)(std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES)));
    }

    /// Writes `N` bytes, which are 0 until the caller stores its fields in them. To copy the fields from a buffer would
    /// be slow, because the processor would load many bytes at once that were just stored in small parts.
    #[inline]
    pub fn fields<const N: usize>(&mut self) -> &mut [u8; N] {
        const { assert!(N <= PIECE_BYTES, "the fields fit into a piece") };
        if self.piece.len() + N > PIECE_BYTES {
            self.pass_on();
        }
        self.piece.resize(self.piece.len() + N, 0);
        self.piece.last_chunk_mut().expect("the bytes were added")
    }

    /// Writes a length and that many bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        bytes.len().describe(self);
        self.raw(bytes);
    }

    /// Writes the number of items that follow.
    pub fn count(&mut self, count: usize) {
        count.describe(self);
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        (self.sink)(std::mem::take(&mut self.piece));
    }
}

/// Reads a description.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    /// The version of the format; the newest one until the version has been read.
    version: u32,
    /// The address of the last bytes that were copied out of the description.
    last_copy: Option<&'a AtomicUsize>,
}

impl<'a> Reader<'a> {
    /// A reader of all of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, version: u32::MAX, last_copy: None }
    }

    /// From now on the reader stores the address of the last copied bytes in `last_copy`: the memory after them is
    /// needed next.
    pub fn report_copies(&mut self, last_copy: &'a AtomicUsize) {
        self.last_copy = Some(last_copy);
    }

    /// Notes that `bytes` were copied, and to which address.
    #[inline]
    pub fn note_copy(&self, bytes: &[u8]) {
        if let Some(last_copy) = self.last_copy.filter(|_| !bytes.is_empty()) {
            last_copy.store(bytes.as_ptr().addr(), Ordering::Relaxed);
        }
    }

    /// A reader of the next `count` bytes alone.
    ///
    /// # Errors
    /// If fewer bytes are left.
    #[inline]
    pub fn part(&mut self, count: usize) -> Result<Self, Malformed> {
        Ok(Self { bytes: self.raw(count)?, ..*self })
    }

    /// Sets the version of the format that the description has.
    pub fn set_version(&mut self, version: u32) {
        self.version = version;
    }

    /// The version of the format.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The next value, if the description has at least this version of the format; older ones get the default.
    ///
    /// # Errors
    /// If the bytes are missing or are not such a value.
    pub fn since<T: Described + Default>(&mut self, version: u32) -> Result<T, Malformed> {
        if self.version < version { Ok(T::default()) } else { self.value() }
    }

    /// The next bytes as they are.
    ///
    /// # Errors
    /// If fewer bytes are left.
    #[inline]
    pub fn raw(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.bytes.split_at_checked(count).ok_or(Malformed("it ends too early"))?;
        self.bytes = rest;
        Ok(bytes)
    }

    /// The next bytes, with their length before them.
    ///
    /// # Errors
    /// If fewer bytes are left.
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let count = self.value()?;
        self.raw(count)
    }

    /// A text.
    ///
    /// # Errors
    /// If the text is missing or is not UTF-8.
    pub fn text(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed("a text is not UTF-8"))
    }

    /// The next value.
    ///
    /// # Errors
    /// If the bytes are missing or are not such a value.
    #[inline]
    pub fn value<T: Described>(&mut self) -> Result<T, Malformed> {
        T::read(self)
    }

    /// The number of items that follow, each of which takes at least one byte.
    ///
    /// # Errors
    /// If fewer bytes are left than that.
    pub fn count(&mut self) -> Result<usize, Malformed> {
        let count: usize = self.value()?;
        if count > self.bytes.len() {
            Err(Malformed("a list has fewer items than it says"))
        } else {
            Ok(count)
        }
    }

    /// Whether all bytes have been read.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// A type whose values can be described.
pub trait Described: Sized {
    /// Writes the value.
    fn describe(&self, out: &mut Writer<'_>);
    /// Reads a value.
    ///
    /// # Errors
    /// If the bytes are not such a value.
    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed>;
}

/// Describes a record by its fields, all of which must be named. A field that a later version of the format has added
/// names that version: `described!(Record { number, name since 3 })`. From an older description, it gets its default.
///
/// An enum is described by a number for each variant, and the fields of that variant. If the number is unknown, the
/// description is malformed in the part with the given words: `described!(enum Order, "an order" { 0 => Idle, 1 =>
/// Move(from, to) })`. After a semicolon comes a variant of which only a number is written,
/// without its fields.
#[macro_export]
macro_rules! described {
    (@read $from:ident) => { $crate::description::Described::read($from) };
    (@read $from:ident $version:literal) => { $from.since($version) };
    ($type:ident { $($field:ident $(since $version:literal)?),* $(,)? }) => {
        impl $crate::description::Described for $type {
            fn describe(&self, out: &mut $crate::description::Writer<'_>) {
                let Self { $($field),* } = self;
                $($crate::description::Described::describe($field, out);)*
            }

            fn read(
                from: &mut $crate::description::Reader<'_>,
            ) -> Result<Self, $crate::description::Malformed> {
                $(let $field = $crate::described!(@read from $($version)?)?;)*
                Ok(Self { $($field),* })
            }
        }
    };
    (enum $type:ident $(<$rest:ident>)?, $words:literal {
        $($number:literal => $variant:ident $(($($field:ident),+))? $({ $($named:ident),+ })?),+
        $(; $other:ident as $written:literal)? $(,)?
    }) => {
        impl $(<$rest: $crate::description::Described>)? $crate::description::Described for $type $(<$rest>)? {
            fn describe(&self, out: &mut $crate::description::Writer<'_>) {
                match self {
                    $(Self::$variant $(($($field),+))? $({ $($named),+ })? => {
                        u8::describe(&$number, out);
                        $($($crate::description::Described::describe($field, out);)+)?
                        $($($crate::description::Described::describe($named, out);)+)?
                    })+
                    $(Self::$other { .. } => u8::describe(&$written, out),)?
                }
            }

            fn read(
                from: &mut $crate::description::Reader<'_>,
            ) -> Result<Self, $crate::description::Malformed> {
                match from.value::<u8>()? {
                    $($number => {
                        $($(let $field = from.value()?;)+)?
                        $($(let $named = from.value()?;)+)?
                        Ok(Self::$variant $(($($field),+))? $({ $($named),+ })?)
                    })+
                    _ => Err($crate::description::Malformed($words)),
                }
            }
        }
    };
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Described for $number {
            #[inline]
            fn describe(&self, out: &mut Writer<'_>) {
                out.raw(&self.to_le_bytes());
            }

            #[inline]
            fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
                let bytes = from.raw(size_of::<$number>())?;
                Ok(Self::from_le_bytes(bytes.try_into().map_err(|_| Malformed("a number"))?))
            }
        }
    )*};
}

numbers!(u8, u16, u32, u64, u128, i32, i64);

impl Described for usize {
    fn describe(&self, out: &mut Writer<'_>) {
        (*self as u64).describe(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Self::try_from(from.value::<u64>()?).map_err(|_| Malformed("a size is too large for this machine"))
    }
}

impl Described for bool {
    #[inline]
    fn describe(&self, out: &mut Writer<'_>) {
        u8::from(*self).describe(out);
    }

    #[inline]
    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        match from.value::<u8>()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("a boolean is neither 0 nor 1")),
        }
    }
}

macro_rules! texts {
    ($($text:ty),*) => {$(
        impl Described for $text {
            fn describe(&self, out: &mut Writer<'_>) {
                out.bytes(self.as_bytes());
            }

            fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
                from.text().map(Self::from)
            }
        }
    )*};
}

texts!(String, Box<str>);

impl Described for SocketAddr {
    fn describe(&self, out: &mut Writer<'_>) {
        self.to_string().describe(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        from.text()?.parse().map_err(|_| Malformed("an address"))
    }
}

impl<T: Described> Described for Box<T> {
    fn describe(&self, out: &mut Writer<'_>) {
        (**self).describe(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        from.value().map(Self::new)
    }
}

impl<T: Described> Described for Option<T> {
    fn describe(&self, out: &mut Writer<'_>) {
        self.is_some().describe(out);
        if let Some(value) = self {
            value.describe(out);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        if from.value()? { from.value().map(Some) } else { Ok(None) }
    }
}

impl<T: Described> Described for Vec<T> {
    fn describe(&self, out: &mut Writer<'_>) {
        out.count(self.len());
        self.iter().for_each(|one| one.describe(out));
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let count = from.count()?;
        let mut list = Self::new();
        for _ in 0..count {
            list.try_reserve(1).map_err(|_| Malformed("there is no memory for it"))?;
            list.push(from.value()?);
        }
        Ok(list)
    }
}

impl<T: Described + Copy + Default, const N: usize> Described for [T; N] {
    fn describe(&self, out: &mut Writer<'_>) {
        self.iter().for_each(|one| one.describe(out));
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut list = [T::default(); N];
        for one in &mut list {
            *one = from.value()?;
        }
        Ok(list)
    }
}

impl<A: Described, B: Described> Described for (A, B) {
    fn describe(&self, out: &mut Writer<'_>) {
        self.0.describe(out);
        self.1.describe(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok((from.value()?, from.value()?))
    }
}

macro_rules! wrapped_numbers {
    ($($type:ty),*) => {$(
        impl Described for $type {
            #[inline]
            fn describe(&self, out: &mut Writer<'_>) {
                self.0.describe(out);
            }

            #[inline]
            fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
                from.value().map(Self)
            }
        }
    )*};
}

wrapped_numbers!(Timestamp, Priority, JobId);

impl Described for Body {
    fn describe(&self, out: &mut Writer<'_>) {
        out.bytes(self.as_slice());
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Self::copy_of(from.bytes()?).map_err(|_| Malformed("out of memory for a body"))
    }
}

impl Described for Seconds {
    #[inline]
    fn describe(&self, out: &mut Writer<'_>) {
        self.whole().describe(out);
        self.thousandths().describe(out);
    }

    #[inline]
    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        match (from.value()?, from.value::<u16>()?) {
            (whole, thousandths @ 0..1000) => Ok(Self::new(whole, thousandths)),
            _ => Err(Malformed("the fraction of a second")),
        }
    }
}

described!(Counters { reserves, timeouts, releases, buries, kicks });

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Record {
        number: u32,
        name: String,
        list: Vec<(u64, Option<bool>)>,
        counts: [u16; 3],
    }

    described!(Record { number, name, list, counts });

    #[test]
    fn a_description_is_read_back_and_a_truncated_one_is_malformed() {
        let list = vec![(1, None), (2, Some(true)), (u64::MAX, Some(false))];
        let record = Record { number: 7, name: "a name".repeat(20_000), list, counts: [1, 2, 3] };
        let mut bytes = Vec::new();
        let mut sink = |piece: Vec<u8>| bytes.extend(piece);
        record.describe(&mut Writer::new(&mut sink));
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.value::<Record>().unwrap(), record);
        assert!(reader.is_at_end());
        for end in (0..bytes.len()).rev().take(200).chain(0..200) {
            assert!(Reader::new(&bytes[..end]).value::<Record>().is_err(), "{end} of its bytes");
        }
    }

    #[test]
    fn fields_are_written_in_order_and_no_piece_is_too_long() {
        let mut pieces: Vec<Vec<u8>> = Vec::new();
        let mut sink = |piece| pieces.push(piece);
        let mut out = Writer::new(&mut sink);
        for number in 0..50_000_u32 {
            *out.fields() = number.to_le_bytes();
            out.raw(&[7; 3][..number as usize % 4]);
        }
        drop(out);
        assert!(pieces.len() > 2 && pieces.iter().all(|piece| piece.len() <= PIECE_BYTES));
        let expected = (0..50_000_u32).flat_map(|number| {
            number.to_le_bytes().into_iter().chain([7; 3].into_iter().take(number as usize % 4))
        });
        assert!(pieces.concat().into_iter().eq(expected));
    }

    #[derive(Debug, PartialEq)]
    struct Grown {
        number: u32,
        name: String,
        list: Vec<(u64, Option<bool>)>,
        counts: [u16; 3],
        added: Option<u64>,
    }

    described!(Grown { number, name, list, counts, added since 7 });

    #[test]
    fn an_older_description_is_read_without_later_fields() {
        let record = Record { number: 7, name: "n".to_owned(), list: Vec::new(), counts: [1, 2, 3] };
        let mut bytes = Vec::new();
        let mut sink = |piece: Vec<u8>| bytes.extend(piece);
        record.describe(&mut Writer::new(&mut sink));
        let mut reader = Reader::new(&bytes);
        reader.set_version(6);
        let grown = reader.value::<Grown>().unwrap();
        assert_eq!((grown.number, grown.name.as_str(), grown.counts, grown.added), (7, "n", [1, 2, 3], None));
        assert!(reader.is_at_end());
        assert!(Reader::new(&bytes).value::<Grown>().is_err(), "it is not there");
    }

    #[derive(Debug, PartialEq)]
    enum Choice {
        Nothing,
        One(u16),
        Both { left: u8, right: bool },
        Unwritten(u8),
    }

    described!(enum Choice, "a choice" { 0 => Nothing, 1 => One(value), 2 => Both { left, right }; Unwritten as 9 });

    #[test]
    fn a_variant_is_read_by_its_number_and_another_number_is_malformed() {
        let described = |choice: &Choice| {
            let mut bytes = Vec::new();
            choice.describe(&mut Writer::new(&mut |piece| bytes.extend(piece)));
            bytes
        };
        let read = |bytes: &[u8]| Reader::new(bytes).value::<Choice>();
        for (choice, bytes) in [
            (Choice::Nothing, &[0][..]),
            (Choice::One(0x0302), &[1, 2, 3]),
            (Choice::Both { left: 7, right: true }, &[2, 7, 1]),
        ] {
            assert_eq!(described(&choice), bytes);
            assert_eq!(read(bytes), Ok(choice));
        }
        assert_eq!(described(&Choice::Unwritten(7)), [9]);
        for unknown in [3, 9, u8::MAX] {
            assert_eq!(read(&[unknown, 0, 0]), Err(Malformed("a choice")), "{unknown}");
        }
    }

    #[test]
    fn the_announced_length_of_a_list_takes_no_memory() {
        let mut bytes = u64::MAX.to_le_bytes().to_vec();
        bytes.extend([1; 100]);
        assert!(Reader::new(&bytes).value::<Vec<u64>>().is_err());
        assert!(Reader::new(&bytes).value::<String>().is_err());
    }
}
