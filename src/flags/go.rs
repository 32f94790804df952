//! Values as Go's `strconv` reads and words them.
//!
//! Owns booleans and numbers. Promises the accepted spellings and the error texts of Go,
//! because manifests and the people who read the last line of a log know those.

use crate::go_fmt::{parse_bool, quote};

/// Why a value was refused: Go's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Refused(pub(super) String);

/// What is wrong with a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Syntax,
    Range,
}

/// Who words an error: pflag passes on what `strconv` says, Go's own `flag` package shortens it.
/// The original registers some flags with the one and some with the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Voice {
    /// `strconv.ParseBool: parsing "x": invalid syntax`
    Pflag,
    /// `parse error`
    Goflag,
}

impl Voice {
    fn refuse(self, function: &str, text: &str, fault: Fault) -> Refused {
        let long = match fault {
            Fault::Syntax => "invalid syntax",
            Fault::Range => "value out of range",
        };
        Refused(match (self, fault) {
            (Self::Pflag, _) => format!("strconv.{function}: parsing {}: {long}", quote(text)),
            (Self::Goflag, Fault::Syntax) => "parse error".to_owned(),
            (Self::Goflag, Fault::Range) => long.to_owned(),
        })
    }
}

/// `strconv.ParseBool`.
pub(super) fn boolean(text: &str, voice: Voice) -> Result<bool, Refused> {
    parse_bool(text).map_err(|_| voice.refuse("ParseBool", text, Fault::Syntax))
}

/// `strconv.ParseInt(text, 0, 64)`.
pub(super) fn int(text: &str, voice: Voice) -> Result<i64, Refused> {
    let (negative, magnitude) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let signed = magnitude_of(magnitude).and_then(|n| {
        let n = if negative { -i128::from(n) } else { i128::from(n) };
        i64::try_from(n).map_err(|_| Fault::Range)
    });
    signed.map_err(|fault| voice.refuse("ParseInt", text, fault))
}

/// `strconv.ParseUint(text, 0, 64)`.
pub(super) fn uint(text: &str) -> Result<u64, Refused> {
    magnitude_of(text).map_err(|fault| Voice::Pflag.refuse("ParseUint", text, fault))
}

/// `strconv.ParseUint(text, 10, 31)`: klog's verbosity.
pub(super) fn level(text: &str) -> Result<u32, Refused> {
    let parsed = decimal(text).and_then(|n| u32::try_from(n).map_err(|_| Fault::Range));
    let parsed = parsed.and_then(|n| if n < 1 << 31 { Ok(n) } else { Err(Fault::Range) });
    parsed.map_err(|fault| Voice::Pflag.refuse("ParseUint", text, fault))
}

/// `strconv.ParseFloat(text, 64)`, but for hexadecimal floats.
pub(super) fn float(text: &str, voice: Voice) -> Result<f64, Refused> {
    let parsed: f64 = text.parse().map_err(|_| voice.refuse("ParseFloat", text, Fault::Syntax))?;
    // Rust reads a number that is too large as infinite, which Go refuses.
    if parsed.is_infinite() && text.contains(|c: char| c.is_ascii_digit()) {
        return Err(voice.refuse("ParseFloat", text, Fault::Range));
    }
    Ok(parsed)
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
            assert_eq!(int(text, Voice::Pflag), Ok(number), "{text}");
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
            assert_eq!(int(text, Voice::Pflag).unwrap_err().to_string(), error, "{text}");
        }
        assert_eq!(int("x", Voice::Goflag).unwrap_err().to_string(), "parse error");
        assert_eq!(
            int("9223372036854775808", Voice::Goflag).unwrap_err().to_string(),
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
        assert_eq!(float("5.5", Voice::Goflag), Ok(5.5));
        assert_eq!(float("-1", Voice::Goflag), Ok(-1.0));
        assert_eq!(float("inf", Voice::Goflag), Ok(f64::INFINITY));
        assert_eq!(float("x", Voice::Goflag).unwrap_err().to_string(), "parse error");
        let range = "strconv.ParseFloat: parsing \"1e999\": value out of range";
        assert_eq!(float("1e999", Voice::Pflag).unwrap_err().to_string(), range);
    }

    #[test]
    fn booleans_in_every_spelling() {
        for text in ["1", "t", "T", "TRUE", "true", "True"] {
            assert_eq!(boolean(text, Voice::Pflag), Ok(true));
        }
        assert_eq!(boolean("F", Voice::Pflag), Ok(false));
        let error = "strconv.ParseBool: parsing \"yes\": invalid syntax";
        assert_eq!(boolean("yes", Voice::Pflag).unwrap_err().to_string(), error);
        assert_eq!(boolean("yes", Voice::Goflag).unwrap_err().to_string(), "parse error");
    }
}
