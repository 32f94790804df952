//! What an unquoted scalar is by the rules of YAML 1.1.
//!
//! Owns the spellings of null, booleans, integers (octal, sexagesimal and so on) and fractions, as
//! `PyYAML` takes them; pure.

use serde_json::Number;

use super::Node;

/// An unquoted scalar by the rules of YAML 1.1, as `PyYAML` applies them.
pub(super) fn plain(text: &str) -> Result<Node, String> {
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Node::Null,
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Node::Bool(true),
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Node::Bool(false)
        }
        "=" | "<<" => return Err(format!("{text} has a meaning of its own in YAML 1.1")),
        _ if is_date(text) => return Err(format!("{text} is a date")),
        _ => match number(text)? {
            Some(number) => Node::Number(number),
            None => Node::Text(text.to_owned()),
        },
    })
}

/// `2001-12-14`, alone or before a time of day.
fn is_date(text: &str) -> bool {
    let mut parts = text.splitn(3, '-');
    let digits = |part: Option<&str>, sizes: &[usize]| {
        part.is_some_and(|part| {
            sizes.contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit())
        })
    };
    let (year, month, rest) = (parts.next(), parts.next(), parts.next().unwrap_or_default());
    if !digits(year, &[4]) {
        return false;
    }
    let (day, time) = rest.split_once(['T', 't', ' ', '\t']).unwrap_or((rest, "date only"));
    let date_only = time == "date only";
    let sizes: &[usize] = if date_only { &[2] } else { &[1, 2] };
    digits(month, sizes)
        && digits(Some(day), sizes)
        && (date_only || time.trim_start().as_bytes().get(1..3).is_some_and(|t| t.contains(&b':')))
}

/// `text` as a number, if YAML 1.1 takes it for one.
fn number(text: &str) -> Result<Option<Number>, String> {
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, text.get(1..).unwrap_or_default()),
        Some(b'+') => (false, text.get(1..).unwrap_or_default()),
        _ => (false, text),
    };
    if matches!(digits, ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN") {
        return Err(format!("{text} is a number that JSON cannot hold"));
    }
    if let Some(magnitude) = integer(digits) {
        let value = magnitude.ok().map(|m| if negative { -m } else { m });
        let fits = value.and_then(|value| {
            i64::try_from(value)
                .map(Number::from)
                .or_else(|_| u64::try_from(value).map(Number::from))
                .ok()
        });
        return fits.map(Some).ok_or_else(|| format!("{text} does not fit 64 bits"));
    }
    fraction(text, digits)
}

/// The magnitude does not even fit 128 bits.
struct TooLarge;

/// An integer without its sign, or `None` when it is none.
fn integer(digits: &str) -> Option<Result<i128, TooLarge>> {
    let in_base = |text: &str, base: u32, allowed: fn(&u8) -> bool| {
        let well_formed =
            !text.is_empty() && text.as_bytes().iter().all(|b| *b == b'_' || allowed(b));
        well_formed
            .then(|| i128::from_str_radix(&text.replace('_', ""), base).map_err(|_| TooLarge))
    };
    if let Some(bits) = digits.strip_prefix("0b") {
        return in_base(bits, 2, |b| matches!(b, b'0' | b'1'));
    }
    if let Some(hex) = digits.strip_prefix("0x") {
        return in_base(hex, 16, u8::is_ascii_hexdigit);
    }
    if digits == "0" {
        return Some(Ok(0));
    }
    if let Some(octal) = digits.strip_prefix('0') {
        return in_base(octal, 8, |b| matches!(b, b'0'..=b'7'));
    }
    if !digits.as_bytes().first().is_some_and(u8::is_ascii_digit) {
        return None;
    }
    if digits.contains(':') { sexagesimal(digits) } else { in_base(digits, 10, u8::is_ascii_digit) }
}

/// `1:30:00`: each part after the first is below sixty.
fn sexagesimal(digits: &str) -> Option<Result<i128, TooLarge>> {
    let (first, rest) = digits.split_once(':')?;
    let decimal = |part: &str| part.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    let minute = |part: &str| {
        let bytes = part.as_bytes();
        (1..=2).contains(&bytes.len())
            && bytes.iter().all(u8::is_ascii_digit)
            && (bytes.len() == 1 || bytes.first() <= Some(&b'5'))
    };
    if !decimal(first) || !rest.split(':').all(minute) {
        return None;
    }
    let mut total = first.replace('_', "").parse::<i128>().ok();
    for part in rest.split(':') {
        let part = part.parse::<i128>().ok();
        total = total.and_then(|t| t.checked_mul(60)).zip(part).and_then(|(t, p)| t.checked_add(p));
    }
    Some(total.ok_or(TooLarge))
}

/// A number with a point: an exponent needs its sign, and digits before or after the point.
fn fraction(text: &str, digits: &str) -> Result<Option<Number>, String> {
    let Some((whole, rest)) = digits.split_once('.') else { return Ok(None) };
    if whole.contains(':') && whole.bytes().all(|b| b.is_ascii_digit() || b":_".contains(&b)) {
        return Err(format!("{text} may be a sexagesimal fraction"));
    }
    let (decimals, exponent) = match rest.split_once(['e', 'E']) {
        Some((decimals, exponent)) => (decimals, Some(exponent)),
        None => (rest, None),
    };
    let starts_with_digit = |part: &str| part.as_bytes().first().is_some_and(u8::is_ascii_digit);
    let digits_only = |part: &str| part.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    let mantissa = digits_only(whole)
        && digits_only(decimals)
        // PyYAML allows no sign before a bare point.
        && (starts_with_digit(whole)
            || whole.is_empty() && starts_with_digit(decimals) && text.starts_with('.'));
    let exponent_fits = exponent.is_none_or(|exponent| {
        exponent
            .strip_prefix(['+', '-'])
            .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
    });
    if !mantissa || !exponent_fits {
        return Ok(None);
    }
    let value: Option<f64> = text.replace('_', "").parse().ok();
    value.and_then(Number::from_f64).map(Some).ok_or_else(|| format!("{text} is no finite number"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn plain_scalars_are_what_pyyaml_takes_them_for() {
        // Each right side is what `yaml.safe_load` of PyYAML 6.0.3 answers.
        for (text, expected) in [
            ("yes", json!(true)),
            ("Off", json!(false)),
            ("y", json!("y")),
            ("tRue", json!("tRue")),
            ("~", Value::Null),
            ("NULL", Value::Null),
            ("nULL", json!("nULL")),
            ("0", json!(0)),
            ("-0", json!(0)),
            ("010", json!(8)),
            ("0o10", json!("0o10")),
            ("08", json!("08")),
            ("0x1F", json!(31)),
            ("-0b101", json!(-5)),
            ("1_000", json!(1000)),
            ("1:30", json!(90)),
            ("1:30:00", json!(5400)),
            ("1:60", json!("1:60")),
            ("01:30", json!("01:30")),
            ("+12", json!(12)),
            ("9223372036854775808", json!(9_223_372_036_854_775_808_u64)),
            ("1.5", json!(1.5)),
            ("1.", json!(1.0)),
            (".5", json!(0.5)),
            ("-.5", json!("-.5")),
            ("1e3", json!("1e3")),
            ("1.0e3", json!("1.0e3")),
            ("1.0e+3", json!(1000.0)),
            ("1.2.3", json!("1.2.3")),
            ("2026-11-2", json!("2026-11-2")),
            ("10Gi", json!("10Gi")),
        ] {
            assert_eq!(plain(text).map(Value::from), Ok(expected), "{text}");
        }
    }
}
