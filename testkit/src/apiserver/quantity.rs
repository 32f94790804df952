//! Quantities as Go reads and writes them, exact for amounts of up to 38 digits; the server puts the canonical
//! spelling into every typed object it stores.

use std::cmp::Ordering;

use serde_json::Value;

use super::{resources::Kind, tree};

/// How a quantity is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Binary,
    Decimal,
    Exponent,
}

/// An amount in nanos, exactly, and how it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quantity {
    nanos: i128,
    format: Format,
}

const NANO: i128 = 1_000_000_000;
const MAX_BINARY: i128 = i64::MAX as i128 * NANO;
const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
const BINARY: [(&str, u32); 6] =
    [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

impl Quantity {
    /// Reads a quantity.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (format, nanos) = match unit(suffix)? {
            Unit::Binary(shift) => (Format::Binary, scaled(number, 0, 1 << shift)?.min(MAX_BINARY)),
            Unit::Decimal(exponent) => (Format::Decimal, scaled(number, exponent, 1)?),
            Unit::Exponent(exponent) => (Format::Exponent, scaled(number, exponent, 1)?),
        };
        Ok(Self { nanos: if negative { -nanos } else { nanos }, format })
    }

    /// Whether the amount is below, at or above zero.
    pub(crate) fn sign(self) -> Ordering {
        self.nanos.cmp(&0)
    }

    /// Whether the amount is a whole number.
    pub(super) fn is_whole(self) -> bool {
        self.nanos % NANO == 0
    }

    /// Compares the amounts, however they are written.
    pub(crate) fn compare(self, other: Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }

    /// The canonical spelling.
    pub(super) fn canonical(self) -> String {
        let whole = self.nanos / NANO;
        let binary =
            self.format == Format::Binary && self.is_whole() && whole.unsigned_abs() >= 1024;
        if self.nanos == 0 {
            "0".to_owned()
        } else if binary {
            binary_spelling(whole)
        } else {
            decimal_spelling(self.nanos, self.format == Format::Exponent)
        }
    }
}

enum Unit {
    Binary(u32),
    Decimal(i32),
    Exponent(i32),
}

fn unit(suffix: &str) -> Result<Unit, &'static str> {
    if let Some((_, exponent)) = DECIMAL.iter().find(|(unit, _)| *unit == suffix) {
        return Ok(Unit::Decimal(*exponent));
    }
    if let Some((_, shift)) = BINARY.iter().find(|(unit, _)| *unit == suffix) {
        return Ok(Unit::Binary(*shift));
    }
    let exponent = suffix.strip_prefix(['e', 'E']).and_then(|digits| digits.parse().ok());
    exponent.map(Unit::Exponent).ok_or("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
}

/// `number` times `10^exponent` times `factor`, in nanos, rounded up.
fn scaled(number: &str, exponent: i32, factor: i128) -> Result<i128, &'static str> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: String = [whole, fraction].concat();
    if digits.is_empty() || digits.contains('.') {
        return Err("unable to parse numeric part of quantity");
    }
    let shift = exponent + 9 - i32::try_from(fraction.len()).unwrap_or(i32::MAX);
    let amount = digits.parse::<i128>().unwrap_or(i128::MAX / 2).saturating_mul(factor);
    let power = 10_i128.checked_pow(shift.unsigned_abs());
    Ok(match (shift >= 0, power) {
        (true, Some(power)) => amount.saturating_mul(power),
        (true, None) => amount.saturating_mul(i128::MAX),
        (false, Some(power)) => amount / power + i128::from(amount % power != 0),
        (false, None) => i128::from(amount != 0),
    })
}

fn binary_spelling(mut whole: i128) -> String {
    let mut unit = "";
    for (suffix, _) in BINARY {
        if whole % 1024 != 0 {
            break;
        }
        whole /= 1024;
        unit = suffix;
    }
    format!("{whole}{unit}")
}

fn decimal_spelling(mut amount: i128, exponential: bool) -> String {
    let mut exponent = -9;
    while amount % 1000 == 0 && (exponential || exponent < 18) {
        amount /= 1000;
        exponent += 3;
    }
    if exponential {
        return if exponent == 0 { amount.to_string() } else { format!("{amount}e{exponent}") };
    }
    let unit = DECIMAL.iter().find(|(_, e)| *e == exponent).map_or("", |(unit, _)| unit);
    format!("{amount}{unit}")
}

// === The quantities of objects ===

/// Where the kind's quantities stand: a path to one, or to a list of resources.
fn places(kind: &Kind) -> &'static [&'static [&'static str]] {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "PersistentVolume") => &[&["spec", "capacity"]],
        ("", "PersistentVolumeClaim") => &[
            &["spec", "resources", "requests"],
            &["spec", "resources", "limits"],
            &["status", "capacity"],
            &["status", "allocatedResources"],
        ],
        ("", "Node") => &[&["status", "capacity"], &["status", "allocatable"]],
        ("storage.k8s.io", "CSIStorageCapacity") => &[&["capacity"], &["maximumVolumeSize"]],
        _ => &[],
    }
}

/// The quantities of an object, as they are written.
pub(crate) fn quantities<'a>(kind: &Kind, object: &'a Value) -> impl Iterator<Item = &'a Value> {
    places(kind).iter().map(|path| tree::at(object, path)).flat_map(|place| match place {
        Value::Object(list) => list.values().collect(),
        one => vec![one],
    })
}

/// Rewrites the quantities of an object canonically; what is none stays, to be refused.
pub(crate) fn canonicalize(kind: &Kind, object: &mut Value) {
    for path in places(kind) {
        match tree::at_mut(object, path) {
            Some(Value::Object(list)) => list.values_mut().for_each(respell),
            Some(one) => respell(one),
            None => {}
        }
    }
}

fn respell(field: &mut Value) {
    let text = match field {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => return,
    };
    if let Ok(quantity) = Quantity::parse(&text) {
        *field = Value::String(quantity.canonical());
    }
}
