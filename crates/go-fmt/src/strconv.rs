//! Go's `strconv`: booleans and numbers, with its error texts.

use super::quote;

/// Why a text is no number or boolean, in Go's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("strconv.{function}: parsing {}: {fault}", quote(.text))]
pub struct NumError {
    /// Go's function.
    function: &'static str,
    text: String,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What is wrong with a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is none.
    #[error("invalid syntax")]
    Syntax,
    /// It is too large.
    #[error("value out of range")]
    Range,
}

impl Fault {
    fn of(self, function: &'static str, text: &str) -> NumError {
        NumError { function, text: text.to_owned(), fault: self }
    }
}

/// `strconv.ParseBool`.
///
/// # Errors
/// If the text is no boolean.
pub fn parse_bool(text: &str) -> Result<bool, NumError> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(Fault::Syntax.of("ParseBool", text)),
    }
}

/// `strconv.ParseInt(text, 0, 64)`.
///
/// # Errors
/// If the text is no number of 64 bits.
pub fn parse_int(text: &str) -> Result<i64, NumError> {
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
///
/// # Errors
/// If the text is no number without a sign, of 64 bits.
pub fn parse_uint(text: &str) -> Result<u64, NumError> {
    magnitude_of(text).map_err(|fault| fault.of("ParseUint", text))
}

/// `strconv.ParseUint(text, 10, 31)`.
///
/// # Errors
/// If the text is no decimal number without a sign, of 31 bits.
pub fn parse_decimal(text: &str) -> Result<u32, NumError> {
    let digits = if text.contains('_') { Err(Fault::Syntax) } else { radix_digits(text, 10) };
    let number = digits.and_then(|n| u32::try_from(n).map_err(|_| Fault::Range));
    let number = number.and_then(|n| if n < 1 << 31 { Ok(n) } else { Err(Fault::Range) });
    number.map_err(|fault| fault.of("ParseUint", text))
}

/// `strconv.ParseFloat(text, 64)`, but for hexadecimal floats.
///
/// # Errors
/// If the text is no number, or a larger one than 64 bits hold.
pub fn parse_float(text: &str) -> Result<f64, NumError> {
    let parsed: f64 = text.parse().map_err(|_| Fault::Syntax.of("ParseFloat", text))?;
    // Rust reads a number that is too large as infinite, which Go refuses.
    if parsed.is_infinite() && text.contains(|c: char| c.is_ascii_digit()) {
        return Err(Fault::Range.of("ParseFloat", text));
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
            assert_eq!(parse_int(text), Ok(number), "{text}");
        }
        assert_eq!((parse_decimal("5"), parse_decimal("2147483647")), (Ok(5), Ok(2_147_483_647)));
        assert_eq!(
            (parse_float("5.5"), parse_float("-1"), parse_float("inf")),
            (Ok(5.5), Ok(-1.0), Ok(f64::INFINITY))
        );
    }

    #[test]
    fn what_is_no_number_is_refused_in_gos_words() {
        let int = |text: &str| parse_int(text).map(drop);
        let uint = |text: &str| parse_uint(text).map(drop);
        let decimal = |text: &str| parse_decimal(text).map(drop);
        let float = |text: &str| parse_float(text).map(drop);
        for (result, error) in [
            (int(""), "ParseInt: parsing \"\": invalid syntax"),
            (int("a"), "ParseInt: parsing \"a\": invalid syntax"),
            (int("08"), "ParseInt: parsing \"08\": invalid syntax"),
            (int("1__0"), "ParseInt: parsing \"1__0\": invalid syntax"),
            (int("--1"), "ParseInt: parsing \"--1\": invalid syntax"),
            (
                int("9223372036854775808"),
                "ParseInt: parsing \"9223372036854775808\": value out of range",
            ),
            (uint("-1"), "ParseUint: parsing \"-1\": invalid syntax"),
            (decimal("0x5"), "ParseUint: parsing \"0x5\": invalid syntax"),
            (decimal("1_0"), "ParseUint: parsing \"1_0\": invalid syntax"),
            (decimal("2147483648"), "ParseUint: parsing \"2147483648\": value out of range"),
            (float("x"), "ParseFloat: parsing \"x\": invalid syntax"),
            (float("1e999"), "ParseFloat: parsing \"1e999\": value out of range"),
        ] {
            assert_eq!(result.unwrap_err().to_string(), format!("strconv.{error}"));
        }
    }

    #[test]
    fn booleans_in_every_spelling() {
        for text in ["1", "t", "T", "TRUE", "true", "True"] {
            assert_eq!(parse_bool(text), Ok(true));
        }
        for text in ["0", "f", "F", "FALSE", "false", "False"] {
            assert_eq!(parse_bool(text), Ok(false));
        }
        let error = "strconv.ParseBool: parsing \"yes\": invalid syntax";
        assert_eq!(parse_bool("yes").unwrap_err().to_string(), error);
    }
}
