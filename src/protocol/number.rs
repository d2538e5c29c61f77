//! Numbers as C beanstalkd reads them, digit for digit.

/// A decimal number at the start of `text`, after any spaces: its value and what follows it. `None` without a
/// digit, or above `u64::MAX`. A sign is not a digit.
pub fn leading_u64(text: &[u8]) -> Option<(u64, &[u8])> {
    let text = skip_spaces(text);
    let digits = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(digits);
    value(digits).map(|value| (value, rest))
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
/// then anything. A negative number wraps, so that -1 is the largest.
pub fn as_strtoul(text: &[u8]) -> Option<u64> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = text.iter().position(|byte| !is_space(byte)).unwrap_or(text.len());
    let (negative, text) = match &text[start..] {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if !text.first().is_some_and(u8::is_ascii_digit) {
        return None;
    }
    let (value, _) = leading_u64(text)?;
    Some(if negative { value.wrapping_neg() } else { value })
}

/// `text` without the spaces that it begins with.
pub fn skip_spaces(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|&byte| byte != b' ').unwrap_or(text.len());
    &text[start..]
}

fn value(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let mut value = 0u64;
    for digit in digits {
        value = value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
    }
    Some(value)
}
