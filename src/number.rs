//! Decimal numbers as C beanstalkd reads them, digit for digit, in commands and in the arguments of flags.

/// A decimal number at the start of `text`, after any spaces: its value and what follows it. `None` without a
/// digit, or above `u64::MAX`. A sign is not a digit.
pub fn leading_u64(text: &[u8]) -> Option<(u64, &[u8])> {
    let (value, rest) = digits(skip_spaces(text))?;
    value.map(|value| (value, rest))
}

/// As [`leading_u64`], up to `u32::MAX`.
pub fn leading_u32(text: &[u8]) -> Option<(u32, &[u8])> {
    let (value, rest) = leading_u64(text)?;
    u32::try_from(value).ok().map(|value| (value, rest))
}

/// The whole of `text` as one number, with leading spaces but nothing behind it.
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

/// A number as the C library's `strtoul` reads it, which `kick` uses: any white space, a sign, digits,
/// then anything. A negative number wraps, so that -1 is the largest. `None` where it is above `u64::MAX`.
pub fn as_strtoul(text: &[u8]) -> Option<u64> {
    signed(text)?.0
}

/// A number as the C library's `sscanf("%zu")` reads it, which the flags use, with nothing behind it: any white space,
/// a sign, digits. A negative number wraps, and what is above `u64::MAX` is `u64::MAX`.
pub fn as_sscanf(text: &[u8]) -> Option<u64> {
    match signed(text)? {
        (value, []) => Some(value.unwrap_or(u64::MAX)),
        _ => None,
    }
}

/// `text` without the spaces that it begins with.
pub fn skip_spaces(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|&byte| byte != b' ').unwrap_or(text.len());
    &text[start..]
}

/// White space, a sign and digits, as the C library takes them: the value, if it fits, and what follows.
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

/// The digits that `text` begins with: their value, if it fits, and what follows. `None` without a digit.
fn digits(text: &[u8]) -> Option<(Option<u64>, &[u8])> {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let add = |value: u64, digit: &u8| value.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    (!digits.is_empty()).then(|| (digits.iter().try_fold(0, add), rest))
}
