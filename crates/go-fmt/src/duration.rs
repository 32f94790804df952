//! Go's durations, parsed as by `time.ParseDuration`.
//!
//! Syntax (`1h15m30.918s`, units ns, us, µs, ms, s, m, h), error texts and limits (a 64-bit count of
//! nanoseconds) are Go's. Never panics.

use std::fmt::Write as _;

/// Why a text is no duration, in Go's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Not a duration at all, or one that 64 bits cannot count.
    #[error("time: invalid duration {}", quote(.0))]
    Invalid(String),
    /// A number without its unit.
    #[error("time: missing unit in duration {}", quote(.0))]
    MissingUnit(String),
    /// A number with an unknown unit.
    #[error("time: unknown unit {} in duration {}", quote(.unit), quote(.text))]
    UnknownUnit {
        /// The unit.
        unit: String,
        /// The whole text.
        text: String,
    },
}

/// The largest magnitude: that of the most negative duration.
const LIMIT: u64 = 1 << 63;

/// Reads a duration, in nanoseconds.
///
/// # Errors
/// What Go says about the text.
pub fn parse_duration(text: &str) -> Result<i64, DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total = 0_u64;
    while !rest.is_empty() {
        let (nanos, left) = component(rest, text)?;
        total = total.checked_add(nanos).filter(|t| *t <= LIMIT).ok_or_else(invalid)?;
        rest = left;
    }
    if negative {
        // The one magnitude that has no positive counterpart is its own negation.
        return Ok((total.cast_signed()).wrapping_neg());
    }
    i64::try_from(total).map_err(|_| invalid())
}

/// Reads one number with its unit from the start of `rest`; its nanoseconds and what follows.
fn component<'a>(rest: &'a str, text: &str) -> Result<(u64, &'a str), DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let (whole, after) = digits(rest);
    let (fraction, after) = match after.strip_prefix('.') {
        Some(after) => digits(after),
        None => ("", after),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(invalid());
    }
    let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
    let (unit, left) = after.split_at_checked(end).unwrap_or((after, ""));
    if unit.is_empty() {
        return Err(DurationError::MissingUnit(text.to_owned()));
    }
    let scale = unit_nanos(unit).ok_or_else(|| DurationError::UnknownUnit {
        unit: unit.to_owned(),
        text: text.to_owned(),
    })?;
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().map_err(|_| invalid())? };
    let nanos = whole.checked_mul(scale).filter(|n| *n <= LIMIT).ok_or_else(invalid)?;
    let nanos = nanos
        .checked_add(fraction_nanos(fraction, scale))
        .filter(|n| *n <= LIMIT)
        .ok_or_else(invalid)?;
    Ok((nanos, left))
}

/// Quotes as Go's `time` does, which writes whatever is not plain ASCII byte by byte.
fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..=b'~' | 0x7f => quoted.push(char::from(byte)),
            _ => _ = write!(quoted, "\\x{byte:02x}"),
        }
    }
    quoted + "\""
}

fn digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

fn unit_nanos(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        // U+00B5 is the micro sign, U+03BC the Greek letter mu.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// `0.<fraction>` of `scale` nanoseconds, rounded down; in floating point, as Go does, and digits
/// past what 63 bits hold are of no account.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn fraction_nanos(fraction: &str, scale: u64) -> u64 {
    let (mut value, mut power) = (0_u64, 1.0_f64);
    for digit in fraction.bytes() {
        let more =
            value.checked_mul(10).and_then(|v| v.checked_add(u64::from(digit.wrapping_sub(b'0'))));
        let Some(more) = more.filter(|v| *v <= LIMIT) else { break };
        value = more;
        power *= 10.0;
    }
    (value as f64 * (scale as f64 / power)) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn reads_what_go_reads() {
        for (text, nanos) in [
            ("0", 0),
            ("-0", 0),
            ("5.6s", 5_600_000_000),
            ("5.s", 5 * SECOND),
            (".5s", 500_000_000),
            ("100.00100s", 100_001_000_000),
            ("12\u{b5}s", 12_000),
            ("12\u{3bc}s", 12_000),
            ("3h30m", 12_600 * SECOND),
            ("10.5s4m", 250 * SECOND + SECOND / 2),
            ("-2m3.4s", -123_400_000_000),
            ("1h2m3s4ms5us6ns", 3_723_004_005_006),
            ("0.3333333333333333333h", 1_200 * SECOND),
            ("9223372036854775807ns", i64::MAX),
            ("9223372036854775.807us", i64::MAX),
            ("-9223372036854775808ns", i64::MIN),
            ("-2562047h47m16.854775808s", i64::MIN),
            ("0.100000000000000000000h", 360 * SECOND),
            ("0.830103483285477580700h", 2_988_372_539_827),
        ] {
            assert_eq!(parse_duration(text), Ok(nanos), "{text}");
        }
    }

    #[test]
    fn refuses_what_go_refuses_in_its_words() {
        for (text, error) in [
            ("", "time: invalid duration \"\""),
            ("3", "time: missing unit in duration \"3\""),
            (".", "time: invalid duration \".\""),
            ("+.s", "time: invalid duration \"+.s\""),
            ("1d", "time: unknown unit \"d\" in duration \"1d\""),
            ("1 s", "time: unknown unit \" s\" in duration \"1 s\""),
            ("1h-5m", "time: unknown unit \"h-\" in duration \"1h-5m\""),
            ("\u{85}\u{85}", "time: invalid duration \"\\xc2\\x85\\xc2\\x85\""),
            ("hello \u{fffd}", "time: invalid duration \"hello \\xef\\xbf\\xbd\""),
            ("9223372036854775808ns", "time: invalid duration \"9223372036854775808ns\""),
            ("-9223372036854775809ns", "time: invalid duration \"-9223372036854775809ns\""),
            ("9223372036854776us", "time: invalid duration \"9223372036854776us\""),
            ("3000000h", "time: invalid duration \"3000000h\""),
            ("99999999999999999999s", "time: invalid duration \"99999999999999999999s\""),
        ] {
            assert_eq!(parse_duration(text).unwrap_err().to_string(), error, "{text}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "[-+]?[0-9.hmsnuµd ]{0,30}") {
            let _ = parse_duration(&text);
        }
    }
}
