//! Decimal numbers as C beanstalkd reads them, digit for digit, in commands and in the arguments of flags.

/// A decimal number at the start of `text`, after any spaces: its value and the text after it. `None` without a digit,
/// or above `u64::MAX`. A sign is not a digit.
#[inline(always)]
pub fn leading_u64(text: &[u8]) -> Option<(u64, &[u8])> {
    let (value, rest) = digits(skip_spaces(text))?;
    value.map(|value| (value, rest))
}

/// As [`leading_u64`], up to `u32::MAX`.
#[inline]
pub fn leading_u32(text: &[u8]) -> Option<(u32, &[u8])> {
    let (value, rest) = leading_u64(text)?;
    u32::try_from(value).ok().map(|value| (value, rest))
}

/// All of `text` as one number, with leading spaces allowed and nothing after it.
pub fn whole_u64(text: &[u8]) -> Option<u64> {
    match leading_u64(text)? {
        (value, []) => Some(value),
        _ => None,
    }
}

/// As [`whole_u64`], up to `u32::MAX`.
pub fn whole_u32(text: &[u8]) -> Option<u32> {
    whole_u64(text).and_then(|value| u32::try_from(value).ok())
}

/// All of `text` as one number: digits alone, without a sign or a space.
pub fn plain_u64(text: impl AsRef<[u8]>) -> Option<u64> {
    match digits(text.as_ref())? {
        (value, []) => value,
        _ => None,
    }
}

/// A number as the C library's `strtoul` reads it, which `kick` uses: any white space, a sign, digits, then anything. A
/// negative number wraps, so -1 is the largest. `None` above `u64::MAX`.
pub fn as_strtoul(text: &[u8]) -> Option<u64> {
    signed(text)?.0
}

/// A number as the C library's `sscanf("%zu")` reads it, which the flags use, with nothing after it: any white space, a
/// sign, digits. A negative number wraps, and a number above `u64::MAX` becomes `u64::MAX`.
pub fn as_sscanf(text: &[u8]) -> Option<u64> {
    match signed(text)? {
        (value, []) => Some(value.unwrap_or(u64::MAX)),
        _ => None,
    }
}

/// `text` without its leading spaces.
#[inline]
pub fn skip_spaces(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|&byte| byte != b' ').unwrap_or(text.len());
    &text[start..]
}

/// White space, a sign and digits, as the C library takes them: the value, if it fits, and the text after it.
fn signed(text: &[u8]) -> Option<(Option<u64>, &[u8])> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = text.iter().position(|byte| !is_space(byte)).unwrap_or(text.len());
    let (is_negative, text) = match &text[start..] {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] | rest => (false, rest),
    };
    let (value, rest) = digits(text)?;
    Some((value.map(|value| if is_negative { value.wrapping_neg() } else { value }), rest))
}

/// The digits at the start of `text`: their value, if it fits, and the text after them. `None` without a digit.
fn digits(text: &[u8]) -> Option<(Option<u64>, &[u8])> {
    // Every number of this many digits fits; most have far fewer.
    const FITTING: usize = u64::MAX.ilog10() as usize;
    let (mut value, mut end) = (0, 0);
    while let Some(digit) = digit(text, end) {
        value = value * 10 + digit;
        end += 1;
        if end == FITTING {
            return Some(more_digits(text, value, end));
        }
    }
    (end > 0).then(|| (Some(value), &text[end..]))
}

/// Continues a number whose first digits, up to `end`, have been read, and which may become too large.
#[cold]
fn more_digits(text: &[u8], value: u64, mut end: usize) -> (Option<u64>, &[u8]) {
    let mut value = Some(value);
    while let Some(digit) = digit(text, end) {
        value = value.and_then(|value| value.checked_mul(10)?.checked_add(digit));
        end += 1;
    }
    (value, &text[end..])
}

/// The digit at this index, if there is a digit.
#[inline]
fn digit(text: &[u8], index: usize) -> Option<u64> {
    let digit = text.get(index)?.wrapping_sub(b'0');
    (digit < 10).then_some(u64::from(digit))
}

/// A number of bytes, optionally with one of the suffixes k, m and g (powers of 1024).
pub fn number_of_bytes(text: &str) -> Option<u64> {
    let (digits, unit) = match text.char_indices().last()? {
        (end, 'k' | 'K') => (&text[..end], 1 << 10),
        (end, 'm' | 'M') => (&text[..end], 1 << 20),
        (end, 'g' | 'G') => (&text[..end], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}
