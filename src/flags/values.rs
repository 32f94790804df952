//! Parsers of the flags' values, as Go parses them.
//!
//! Contains booleans, numbers and lists, and the error texts of Go's `strconv` and `flag` packages,
//! which manifests and users of external-provisioner know. Durations are in
//! [`duration`](super::duration), feature gates in [`gates`](super::gates).

use std::{collections::BTreeMap, time::Duration};

use super::{
    ClaimProtection,
    duration::{self, DurationError},
};
use go_fmt::{parse_bool, quote};

/// Why a value was refused, in Go's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    /// `strconv`'s error about a number or a bool.
    #[error("strconv.{function}: parsing {}: {fault}", quote(.text))]
    Number { function: &'static str, text: String, fault: Fault },
    #[error(transparent)]
    Duration(#[from] DurationError),
    #[error("{0}")]
    Other(String),
    /// The short form of Go's own `flag` package.
    #[error("{0}")]
    Short(&'static str),
}

/// What is wrong with a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("invalid syntax")]
    Syntax,
    #[error("value out of range")]
    Range,
}

impl Fault {
    fn of(self, function: &'static str, text: &str) -> Refused {
        Refused::Number { function, text: text.to_owned(), fault: self }
    }
}

/// Shortens the errors of `parse`: external-provisioner registers some flags with Go's own `flag`
/// package instead of pflag.
pub(super) fn goflag<T>(
    parse: impl Fn(&str) -> Result<T, Refused> + Clone,
) -> impl Fn(&str) -> Result<T, Refused> + Clone {
    move |text: &str| {
        parse(text).map_err(|refused| match refused {
            Refused::Number { fault: Fault::Range, .. } => Refused::Short("value out of range"),
            _ => Refused::Short("parse error"),
        })
    }
}

/// `strconv.ParseBool`.
pub(super) fn boolean(text: &str) -> Result<bool, Refused> {
    parse_bool(text).map_err(|_| Fault::Syntax.of("ParseBool", text))
}

/// `strconv.ParseInt(text, 0, 64)`.
pub(super) fn int(text: &str) -> Result<i64, Refused> {
    let (negative, magnitude) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let signed = magnitude_of(magnitude).and_then(|n| {
        let n = if negative { -i128::from(n) } else { i128::from(n) };
        i64::try_from(n).map_err(|_| Fault::Range)
    });
    signed.map_err(|fault| fault.of("ParseInt", text))
}

/// `strconv.ParseUint(text, 0, 64)`.
pub(super) fn uint(text: &str) -> Result<usize, Refused> {
    let parsed = magnitude_of(text).map_err(|fault| fault.of("ParseUint", text))?;
    Ok(usize::try_from(parsed).unwrap_or(usize::MAX))
}

/// `strconv.ParseUint(text, 10, 31)`: klog's verbosity.
pub(super) fn level(text: &str) -> Result<u32, Refused> {
    let parsed = decimal(text).and_then(|n| u32::try_from(n).map_err(|_| Fault::Range));
    let parsed = parsed.and_then(|n| if n < 1 << 31 { Ok(n) } else { Err(Fault::Range) });
    parsed.map_err(|fault| fault.of("ParseUint", text))
}

/// `strconv.ParseFloat(text, 64)`, but for hexadecimal floats.
pub(super) fn float(text: &str) -> Result<f64, Refused> {
    let parsed: f64 = text.parse().map_err(|_| Fault::Syntax.of("ParseFloat", text))?;
    // Rust reads a number that is too large as infinite, which Go refuses.
    if parsed.is_infinite() && text.contains(|c: char| c.is_ascii_digit()) {
        return Err(Fault::Range.of("ParseFloat", text));
    }
    Ok(parsed)
}

/// A duration that code can wait for: a negative one becomes zero.
pub(super) fn duration(text: &str) -> Result<Duration, Refused> {
    Ok(duration::clamped(nanos(text)?))
}

/// A duration; none if it is zero or negative.
pub(super) fn optional_duration(text: &str) -> Result<Option<Duration>, Refused> {
    Ok(Some(duration(text)?).filter(|duration| !duration.is_zero()))
}

/// A duration in nanoseconds, also a negative one.
pub(super) fn nanos(text: &str) -> Result<i64, Refused> {
    Ok(duration::parse(text)?)
}

/// `--enable-capacity`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CapacitySwitch {
    Off,
    On,
    /// On, in the spelling of a release candidate's manifests.
    Central,
}

pub(super) fn capacity_switch(text: &str) -> Result<CapacitySwitch, Refused> {
    if text == "central" {
        return Ok(CapacitySwitch::Central);
    }
    Ok(if boolean(text)? { CapacitySwitch::On } else { CapacitySwitch::Off })
}

/// Log levels by file pattern, as one `--vmodule` gives them.
pub(super) type Vmodule = Vec<(String, u32)>;

pub(super) fn vmodule(text: &str) -> Result<Vmodule, Refused> {
    text.split(',').filter(|item| !item.is_empty()).map(vmodule_item).collect()
}

fn vmodule_item(item: &str) -> Result<(String, u32), Refused> {
    let parts = item
        .split_once('=')
        .filter(|(file, level)| !file.is_empty() && !level.is_empty() && !level.contains('='));
    let (file, level_text) = parts.ok_or_else(|| {
        Refused::Other(format!("{} does not have the pattern=N format", quote(item)))
    })?;
    let level = level(level_text)
        .map_err(|why| Refused::Other(format!("parsing verbosity in {}: {why}", quote(item))))?;
    Ok((file.to_owned(), level))
}

/// Whether a quantity of bytes is more than zero, which is all that matters: such a buffer is refused.
pub(super) fn bytes(text: &str) -> Result<bool, Refused> {
    let number = text.trim_start_matches(['+', '-']);
    if !number.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        let pattern = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$";
        return Err(Refused::Other(format!(
            "quantities must match the regular expression '{pattern}'"
        )));
    }
    let end = number.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(number.len());
    Ok(number.chars().take(end).any(|c| ('1'..='9').contains(&c)))
}

/// Labels, as one `--leader-election-labels` gives them.
pub(super) type Labels = BTreeMap<String, String>;

pub(super) fn labels(text: &str) -> Result<Labels, Refused> {
    let pair = |item: &str| {
        let pair = item.split_once(':').filter(|(_, value)| !value.contains(':'));
        pair.map(|(key, value)| (key.to_owned(), value.to_owned()))
            .ok_or_else(|| Refused::Other(format!("malformed item in list of labels: {item}")))
    };
    text.split(',').map(pair).collect()
}

pub(super) fn claim_protection(text: &str) -> Result<ClaimProtection, Refused> {
    match text {
        "auto" => Ok(ClaimProtection::Auto),
        "always" => Ok(ClaimProtection::Always),
        "off" => Ok(ClaimProtection::Off),
        _ => Err(Refused::Other("must be auto, always or off".to_owned())),
    }
}

/// A number without sign: decimal, or in the base its prefix names, with underscores between
/// digits where Go allows them.
fn magnitude_of(text: &str) -> Result<u64, Fault> {
    let lower = text.to_ascii_lowercase();
    let based = [("0x", 16), ("0o", 8), ("0b", 2)]
        .iter()
        .find_map(|(prefix, radix)| lower.strip_prefix(prefix).map(|digits| (digits, *radix)));
    // A plain leading zero is octal; an underscore may follow any of the prefixes.
    let octal =
        || lower.strip_prefix('0').filter(|rest| !rest.is_empty()).map(|digits| (digits, 8));
    match based.or_else(octal) {
        Some((digits, radix)) => radix_digits(digits.strip_prefix('_').unwrap_or(digits), radix),
        None => radix_digits(&lower, 10),
    }
}

fn decimal(text: &str) -> Result<u64, Fault> {
    if text.contains('_') {
        return Err(Fault::Syntax);
    }
    radix_digits(text, 10)
}

fn radix_digits(digits: &str, radix: u32) -> Result<u64, Fault> {
    let groups_whole = digits.split('_').all(|group| !group.is_empty());
    if !groups_whole || !digits.chars().all(|c| c == '_' || c.is_digit(radix)) {
        return Err(Fault::Syntax);
    }
    u64::from_str_radix(&digits.replace('_', ""), radix).map_err(|_| Fault::Range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_in_all_of_gos_bases() {
        for (text, number) in [
            ("0", 0),
            ("10", 10),
            ("-1", -1),
            ("+7", 7),
            ("0x1f", 31),
            ("0X1F", 31),
            ("-0b101", -5),
            ("0o17", 15),
            ("017", 15),
            ("1_000", 1000),
            ("0x_ff", 255),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(int(text), Ok(number), "{text}");
        }
    }

    #[test]
    fn integers_refused_in_gos_words() {
        for (text, error) in [
            ("", "strconv.ParseInt: parsing \"\": invalid syntax"),
            ("a", "strconv.ParseInt: parsing \"a\": invalid syntax"),
            ("08", "strconv.ParseInt: parsing \"08\": invalid syntax"),
            ("1__0", "strconv.ParseInt: parsing \"1__0\": invalid syntax"),
            ("--1", "strconv.ParseInt: parsing \"--1\": invalid syntax"),
            (
                "9223372036854775808",
                "strconv.ParseInt: parsing \"9223372036854775808\": value out of range",
            ),
        ] {
            assert_eq!(int(text).unwrap_err().to_string(), error, "{text}");
        }
        assert_eq!(goflag(int)("x").unwrap_err().to_string(), "parse error");
        assert_eq!(
            goflag(int)("9223372036854775808").unwrap_err().to_string(),
            "value out of range"
        );
        assert_eq!(
            uint("-1").unwrap_err().to_string(),
            "strconv.ParseUint: parsing \"-1\": invalid syntax"
        );
    }

    #[test]
    fn levels_are_decimal_and_positive() {
        assert_eq!((level("5"), level("2147483647")), (Ok(5), Ok(2_147_483_647)));
        for (text, error) in [
            ("0x5", "strconv.ParseUint: parsing \"0x5\": invalid syntax"),
            ("1_0", "strconv.ParseUint: parsing \"1_0\": invalid syntax"),
            ("2147483648", "strconv.ParseUint: parsing \"2147483648\": value out of range"),
        ] {
            assert_eq!(level(text).unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn floats_and_their_limits() {
        assert_eq!(goflag(float)("5.5"), Ok(5.5));
        assert_eq!(goflag(float)("-1"), Ok(-1.0));
        assert_eq!(goflag(float)("inf"), Ok(f64::INFINITY));
        assert_eq!(goflag(float)("x").unwrap_err().to_string(), "parse error");
        let range = "strconv.ParseFloat: parsing \"1e999\": value out of range";
        assert_eq!(float("1e999").unwrap_err().to_string(), range);
    }

    #[test]
    fn booleans_in_every_spelling() {
        for text in ["1", "t", "T", "TRUE", "true", "True"] {
            assert_eq!(boolean(text), Ok(true));
        }
        assert_eq!(boolean("F"), Ok(false));
        let error = "strconv.ParseBool: parsing \"yes\": invalid syntax";
        assert_eq!(boolean("yes").unwrap_err().to_string(), error);
        assert_eq!(goflag(boolean)("yes").unwrap_err().to_string(), "parse error");
    }

    #[test]
    fn quantities_of_nothing() {
        for (text, some) in
            [("0", false), ("0Ki", false), ("-0.0", false), ("1Ki", true), ("0.5", true)]
        {
            assert_eq!(bytes(text), Ok(some), "{text}");
        }
        assert!(bytes("lots").is_err());
    }
}
