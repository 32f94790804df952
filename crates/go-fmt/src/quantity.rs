//! Kubernetes quantities, such as `5Gi`, `1.5G`, `100m` and `12e6`.
//!
//! They are parsed as by apimachinery's `resource.ParseQuantity` (syntax, suffixes, rounding away from
//! zero to nanos, the limit of binary ones at 2^63-1, error texts) and formatted as by its `String()`.
//! Arithmetic is exact for up to 38 significant digits.
//!
//! There are differences where Go overflows silently: [`Quantity::value`] saturates (in Go `100E` has
//! the value 0), multiples of more than exa are formatted with `E` (Go omits the suffix), and exponents
//! of more than 32 bits (Go wraps) and more than 38 digits, without trailing zeros, are errors.

#[cfg(any(test, feature = "fuzzing"))]
#[path = "../../../fuzz/bodies/quantity.rs"]
pub mod fuzz;

use std::{cmp::Ordering, fmt};

/// The most digits of a mantissa, without trailing zeros: an `i128` holds any number of so many digits.
const DIGITS: u32 = 38;
/// The exponent of the smallest unit, a nano.
const NANO: i64 = -9;
/// The exponent of the largest decimal suffix, exa.
const EXA: i64 = 18;

/// A quantity: a number with its format.
#[derive(Debug, Clone)]
pub struct Quantity {
    amount: Amount,
    format: Format,
    /// The original text, if Go keeps it instead of formatting the number.
    verbatim: Option<Box<str>>,
}

/// Why a text is no quantity, with Kubernetes' messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// It is not a number and a suffix.
    #[error(
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    Format,
    /// The number has too many digits.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// The suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// How a quantity is formatted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// `12e6`
    DecimalExponent,
    /// `12Mi`
    BinarySi,
    /// `12M`
    DecimalSi,
}

/// `mantissa * 10^exponent`. The mantissa has no trailing zeros; zero's exponent is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Amount {
    mantissa: i128,
    exponent: i64,
}

impl Quantity {
    /// Parses a quantity.
    ///
    /// # Errors
    /// If the text is no quantity.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let parts = Parts::split(text)?;
        let suffix = Suffix::parse(parts.suffix)?;
        let amount = parts.number()?.times(suffix)?;
        let amount = amount.rounded_to_nanos();
        let format = suffix.format();
        let amount = if format == Format::BinarySi { amount.capped() } else { amount };
        let below_one = amount.mantissa > 0 && amount.cmp(&Amount::new(1, 0)) == Ordering::Less;
        Ok(Self {
            amount,
            // Binary suffixes cannot express fractions.
            format: if format == Format::BinarySi && below_one {
                Format::DecimalSi
            } else {
                format
            },
            verbatim: parts.is_kept_verbatim(suffix).then(|| text.into()),
        })
    }

    /// A quantity of bytes, formatted with binary suffixes.
    pub fn from_bytes(bytes: i64) -> Self {
        Self { amount: Amount::new(bytes.into(), 0), format: Format::BinarySi, verbatim: None }
    }

    /// The number in whole units, rounded away from zero; saturates at the limits of `i64`.
    pub fn value(&self) -> i64 {
        let limit = if self.amount.mantissa < 0 { i64::MIN } else { i64::MAX };
        self.checked_value().unwrap_or(limit)
    }

    /// The number in whole units, rounded away from zero; `None` if it does not fit an `i64`.
    pub fn checked_value(&self) -> Option<i64> {
        let Amount { mantissa, exponent } = self.amount;
        let whole = match u32::try_from(exponent) {
            Ok(exponent) => {
                10_i128.checked_pow(exponent).and_then(|power| mantissa.checked_mul(power))
            }
            Err(_) => Some(shift_down(mantissa, exponent.unsigned_abs())),
        };
        whole.and_then(|whole| i64::try_from(whole).ok())
    }

    /// The original text, if Go keeps it.
    pub fn verbatim(&self) -> Option<&str> {
        self.verbatim.as_deref()
    }

    /// Whether it is zero.
    pub fn is_zero(&self) -> bool {
        self.amount.mantissa == 0
    }
}

// === Parsing ===

/// The pieces of a quantity's text.
struct Parts<'a> {
    negative: bool,
    /// Digits before the point, without leading zeros; `0` if there are none.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Parts<'a> {
    /// Splits a text as apimachinery does: of the suffix only the characters are checked.
    fn split(text: &'a str) -> Result<Self, QuantityError> {
        let negative = text.starts_with('-');
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (whole, rest) = digits(unsigned.trim_start_matches('0'));
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), digits);
        let tail = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
        let tail = tail.strip_prefix(['-', '+']).unwrap_or(tail);
        if !digits(tail).1.is_empty() {
            return Err(QuantityError::Format);
        }
        Ok(Self { negative, whole: if whole.is_empty() { "0" } else { whole }, fraction, suffix })
    }

    /// The number without its suffix.
    fn number(&self) -> Result<Amount, QuantityError> {
        let all = format!("{}{}", self.whole, self.fraction);
        let digits = all.trim_end_matches('0');
        let zeros = i64::try_from(all.len() - digits.len()).unwrap_or(i64::MAX);
        let digits = digits.trim_start_matches('0');
        if digits.len() > DIGITS as usize {
            return Err(QuantityError::Numeric);
        }
        let magnitude: i128 = if digits.is_empty() {
            0
        } else {
            digits.parse().map_err(|_| QuantityError::Numeric)?
        };
        let mantissa = if self.negative { -magnitude } else { magnitude };
        Ok(Amount::new(mantissa, zeros.saturating_sub(self.places())))
    }

    /// The number of digits after the point.
    fn places(&self) -> i64 {
        i64::try_from(self.fraction.len()).unwrap_or(i64::MAX)
    }

    /// Whether Go keeps the text for `String()`: it does for small numbers that look canonical, although
    /// some are not (`1.500G`, `+1Mi`).
    fn is_kept_verbatim(&self, suffix: Suffix) -> bool {
        let digits = self.whole.len() + self.fraction.len();
        match suffix {
            Suffix::Binary(exponent) => {
                // 2^exponent has about 3/10 as many decimal digits.
                let spare = 14_usize.checked_sub(self.whole.len() + (exponent as usize * 3) / 10);
                let last = self.whole.bytes().rev().take(3).rev();
                let last =
                    last.fold(0_u32, |n, digit| n * 10 + u32::from(digit.wrapping_sub(b'0')));
                // Thousands are multiples of eight, so the last three digits suffice.
                self.fraction.is_empty() && spare.is_some() && last % 8 != 0
            }
            Suffix::Decimal(exponent) | Suffix::Exponent(exponent) => {
                let scale = exponent.saturating_sub(self.places());
                let ends_in_thousands = format!("{}{}", self.whole, self.fraction).ends_with("000");
                digits <= 18
                    && scale >= NANO
                    && scale % 3 == 0
                    && !ends_in_thousands
                    && !self.whole.starts_with('0')
            }
        }
    }
}

fn digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

/// A factor: 2 or 10 to a power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Suffix {
    Binary(u32),
    Decimal(i64),
    Exponent(i64),
}

const BINARY: [(&str, u32); 6] =
    [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
const DECIMAL: [(&str, i64); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", EXA),
];

impl Suffix {
    fn parse(text: &str) -> Result<Self, QuantityError> {
        let decimal =
            DECIMAL.iter().find(|(suffix, _)| *suffix == text).map(|(_, n)| Self::Decimal(*n));
        let binary =
            || BINARY.iter().find(|(suffix, _)| *suffix == text).map(|(_, n)| Self::Binary(*n));
        let exponent = || {
            let number = text.strip_prefix(['e', 'E'])?;
            number.parse::<i32>().ok().map(|n| Self::Exponent(n.into()))
        };
        decimal.or_else(binary).or_else(exponent).ok_or(QuantityError::Suffix)
    }

    fn format(self) -> Format {
        match self {
            Self::Binary(_) => Format::BinarySi,
            Self::Decimal(_) => Format::DecimalSi,
            Self::Exponent(_) => Format::DecimalExponent,
        }
    }
}

// === Amounts ===

impl Amount {
    fn new(mut mantissa: i128, mut exponent: i64) -> Self {
        if mantissa == 0 {
            return Self { mantissa: 0, exponent: 0 };
        }
        while mantissa % 10 == 0 {
            mantissa /= 10;
            exponent += 1;
        }
        Self { mantissa, exponent }
    }

    fn times(self, suffix: Suffix) -> Result<Self, QuantityError> {
        match suffix {
            Suffix::Decimal(exponent) | Suffix::Exponent(exponent) => {
                Ok(Self::new(self.mantissa, self.exponent.saturating_add(exponent)))
            }
            Suffix::Binary(power) => match self.mantissa.checked_mul(1 << power) {
                Some(mantissa) => Ok(Self::new(mantissa, self.exponent)),
                // Such a mantissa with few places is far above the limit of binary quantities.
                None if self.exponent > -18 => {
                    Ok(Self::new(i128::from(i64::MAX) * self.mantissa.signum(), 0))
                }
                None => Err(QuantityError::Numeric),
            },
        }
    }

    /// Rounds away from zero, so that a request never becomes zero.
    fn rounded_to_nanos(self) -> Self {
        if self.exponent >= NANO {
            return self;
        }
        Self::new(shift_down(self.mantissa, NANO.abs_diff(self.exponent)), NANO)
    }

    /// Clamps to plus and minus 2^63-1.
    fn capped(self) -> Self {
        let max = Self::new(i64::MAX.into(), 0);
        let min = Self::new(-i128::from(i64::MAX), 0);
        self.min(max).max(min)
    }

    /// The number of digits before the decimal point; negative for zeros after it.
    fn magnitude(self) -> i64 {
        let digits =
            self.mantissa.unsigned_abs().checked_ilog10().map_or(0, |log| i64::from(log) + 1);
        digits.saturating_add(self.exponent)
    }

    fn compare_sizes(self, other: Self) -> Ordering {
        let by_magnitude = self.magnitude().cmp(&other.magnitude());
        by_magnitude.then_with(|| {
            let low = self.exponent.min(other.exponent);
            // With equal magnitudes both get as many digits as the longer one has.
            let aligned = |a: Self| {
                let up = u32::try_from(a.exponent - low).unwrap_or(0);
                a.mantissa.unsigned_abs().saturating_mul(10_u128.saturating_pow(up))
            };
            aligned(self).cmp(&aligned(other))
        })
    }
}

impl Ord for Amount {
    fn cmp(&self, other: &Self) -> Ordering {
        self.mantissa.signum().cmp(&other.mantissa.signum()).then_with(|| {
            match self.mantissa.signum() {
                1 => self.compare_sizes(*other),
                -1 => other.compare_sizes(*self),
                _ => Ordering::Equal,
            }
        })
    }
}

impl PartialOrd for Amount {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// `mantissa / 10^places`, rounded away from zero.
fn shift_down(mantissa: i128, places: u64) -> i128 {
    let Some(divisor) = u32::try_from(places).ok().and_then(|places| 10_i128.checked_pow(places))
    else {
        return mantissa.signum();
    };
    let (quotient, rest) = (mantissa / divisor, mantissa % divisor);
    quotient + rest.signum()
}

// === Comparison ===

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.amount.cmp(&other.amount)
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Quantities are equal if their numbers are, whatever their format.
impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.amount == other.amount
    }
}

impl Eq for Quantity {}

// === Formatting ===

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.verbatim {
            return f.write_str(text);
        }
        if self.is_zero() {
            return f.write_str("0");
        }
        match (self.format, self.in_binary()) {
            (Format::BinarySi, Some((number, suffix))) => write!(f, "{number}{suffix}"),
            (Format::DecimalExponent, _) => match self.in_thousands(i64::MAX) {
                (number, 0) => write!(f, "{number}"),
                (number, exponent) => write!(f, "{number}e{exponent}"),
            },
            (Format::BinarySi | Format::DecimalSi, _) => {
                let (number, exponent) = self.in_thousands(EXA);
                let suffix =
                    DECIMAL.iter().find(|(_, n)| *n == exponent).map_or("", |(suffix, _)| suffix);
                write!(f, "{number}{suffix}")
            }
        }
    }
}

impl Quantity {
    /// The number as a multiple of the largest power of 1024 that divides it; `None` for fractions and
    /// numbers below 1024, which are formatted as decimal.
    fn in_binary(&self) -> Option<(i128, &'static str)> {
        let power = 10_i128.checked_pow(u32::try_from(self.amount.exponent).ok()?)?;
        let whole = self.amount.mantissa.checked_mul(power)?;
        if whole.unsigned_abs() < 1024 {
            return None;
        }
        let largest = BINARY.iter().rev().find(|(_, n)| whole % (1 << n) == 0);
        Some(largest.map_or((whole, ""), |(suffix, n)| (whole / (1 << n), suffix)))
    }

    /// The digits of the number and their exponent, which is a multiple of three and at most `max`.
    fn in_thousands(&self, max: i64) -> (String, i64) {
        let Amount { mantissa, exponent } = self.amount;
        let target = (exponent - exponent.rem_euclid(3)).min(max);
        let zeros = usize::try_from(exponent - target).unwrap_or(0);
        (format!("{mantissa}{}", "0".repeat(zeros)), target)
    }
}

#[cfg(test)]
mod tests;
