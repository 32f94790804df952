//! The fuzz target for quantities: compares them with a model that computes on digits of any number.

use std::cmp::Ordering;

use super::{Quantity, QuantityError};
use crate::fuzzing::{lines, text};

/// The largest exponent of the model.
const MAX_EXPONENT: i32 = 60;

/// Checks values and order of quantities against the model, and that a formatted quantity parses as the
/// same number.
///
/// # Panics
/// If that does not hold.
pub fn quantity(data: &[u8]) {
    let text = text(data);
    let both: [&str; 2] = lines(&text);
    let [one, other] = both.map(|text| {
        let read = Quantity::parse(text);
        let model = Model::parse(text);
        if let Ok(quantity) = &read {
            check_round_trip(quantity, text.len());
        }
        check(text, &read, model.as_ref());
        read.ok().zip(model)
    });
    if let (Some((one, a)), Some((other, b))) = (one, other) {
        assert_eq!(one.cmp(&other), a.cmp(&b), "{text:?}");
        assert_eq!(other.cmp(&one), b.cmp(&a), "{text:?}");
    }
}

fn check(text: &str, read: &Result<Quantity, QuantityError>, model: Option<&Model>) {
    match (read, model) {
        (Ok(quantity), Some(model)) => {
            assert_eq!(quantity.value(), model.value(), "{text:?}");
            assert_eq!(quantity.is_zero(), model.nanos.is_empty(), "{text:?}");
        }
        (Err(why), Some(model)) => {
            assert!(model.digits > 18, "{text:?} is refused: {why}");
        }
        // The model refuses only quantities with large exponents.
        (Ok(_), None) => assert!(text.contains(['e', 'E']), "{text:?} is a quantity"),
        (Err(_), None) => {}
    }
}

fn check_round_trip(quantity: &Quantity, length: usize) {
    let bare = Quantity { verbatim: None, ..quantity.clone() };
    for written in [quantity.to_string(), bare.to_string()] {
        assert!(written.len() <= length + 40, "{length} bytes became {written}");
        assert_eq!(Quantity::parse(&written).as_ref(), Ok(quantity), "{written}");
    }
}

/// A number of nanos, digit by digit, the lowest first; zero has none.
struct Model {
    is_negative: bool,
    nanos: Vec<u8>,
    /// The number of digits in its text.
    digits: usize,
}

impl Model {
    /// Parses a text; `None` if it is no quantity or its exponent is too large.
    fn parse(text: &str) -> Option<Self> {
        let is_negative = text.starts_with('-');
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (number, suffix) = unsigned.split_at(end.unwrap_or(unsigned.len()));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if text.is_empty() || fraction.contains('.') {
            return None;
        }
        let (twos, tens) = factor(suffix)?;
        let mut digits: Vec<u8> =
            [whole, fraction].concat().bytes().rev().map(|digit| digit - b'0').collect();
        let count = digits.len();
        (0..twos).for_each(|_| double(&mut digits));
        let shift = tens + 9 - i32::try_from(fraction.len()).ok()?;
        let mut nanos = shifted(digits, shift);
        if twos > 0 {
            cap(&mut nanos);
        }
        Some(Self { is_negative, nanos, digits: count })
    }

    /// The number in whole units, rounded away from zero; saturates.
    fn value(&self) -> i64 {
        let units = shifted(self.nanos.clone(), -9);
        let add = |sum: i128, digit: &u8| sum.saturating_mul(10).saturating_add((*digit).into());
        let units = units.iter().rev().fold(0, add);
        let signed = if self.is_negative { -units } else { units };
        i64::try_from(signed).unwrap_or(if self.is_negative { i64::MIN } else { i64::MAX })
    }

    fn cmp(&self, other: &Self) -> Ordering {
        let sign = |it: &Self| match (it.nanos.is_empty(), it.is_negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        };
        let sizes = compare(&self.nanos, &other.nanos);
        let sizes = if self.is_negative { sizes.reverse() } else { sizes };
        sign(self).cmp(&sign(other)).then(sizes)
    }
}

/// The exponents of two and of ten that a suffix means.
fn factor(suffix: &str) -> Option<(u32, i32)> {
    let tens = |tens| Some((0, tens));
    match suffix {
        "n" => tens(-9),
        "u" => tens(-6),
        "m" => tens(-3),
        "" => tens(0),
        "k" => tens(3),
        "M" => tens(6),
        "G" => tens(9),
        "T" => tens(12),
        "P" => tens(15),
        "E" => tens(18),
        "Ki" => Some((10, 0)),
        "Mi" => Some((20, 0)),
        "Gi" => Some((30, 0)),
        "Ti" => Some((40, 0)),
        "Pi" => Some((50, 0)),
        "Ei" => Some((60, 0)),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            tens(exponent).filter(|_| exponent.abs() <= MAX_EXPONENT)
        }
    }
}

/// Twice the number.
fn double(digits: &mut Vec<u8>) {
    let mut carry = 0;
    for digit in digits.iter_mut() {
        let twice = *digit * 2 + carry;
        (*digit, carry) = (twice % 10, twice / 10);
    }
    digits.extend((carry > 0).then_some(carry));
}

/// The number times a power of ten, rounded away from zero.
fn shifted(mut digits: Vec<u8>, tens: i32) -> Vec<u8> {
    let places = usize::try_from(tens.unsigned_abs()).unwrap_or(usize::MAX);
    if tens >= 0 {
        digits.splice(0..0, std::iter::repeat_n(0, places));
    } else {
        let is_rounded = digits.drain(..places.min(digits.len())).any(|digit| digit > 0);
        let mut carry = u8::from(is_rounded);
        for digit in &mut digits {
            let next = *digit + carry;
            (*digit, carry) = (next % 10, next / 10);
        }
        digits.extend((carry > 0).then_some(carry));
    }
    while digits.last() == Some(&0) {
        digits.pop();
    }
    digits
}

/// Limits the number to 2^63-1, as for binary suffixes.
fn cap(nanos: &mut Vec<u8>) {
    let max = i64::MAX.to_string().bytes().rev().map(|digit| digit - b'0').collect();
    let max = shifted(max, 9);
    if compare(nanos, &max) == Ordering::Greater {
        *nanos = max;
    }
}

fn compare(a: &[u8], b: &[u8]) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.iter().rev().cmp(b.iter().rev()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn quantities_agree_with_exact_arithmetic() {
        crate::fuzzing::run("quantity", 4000, super::quantity);
    }
}
