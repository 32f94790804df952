//! The partition of a disk, which drivers represent as text.

use go_fmt::quote;

use crate::Untranslatable;

/// The volume attribute with the partition.
pub(crate) const PARTITION: &str = "partition";

/// Parses a partition. `lead` begins the message, which differs between plugins. A number that
/// overflows is truncated to its lower half, as in external-provisioner.
///
/// # Errors
/// It is not a number; with Go's text.
pub(crate) fn parse(partition: &str, lead: &'static str) -> Result<i32, Untranslatable> {
    let digits = partition.strip_prefix(['+', '-']).unwrap_or(partition);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    #[allow(clippy::cast_possible_truncation)] // meant: see above
    let lower_half = |number: i64| number as i32;
    partition.parse().map(lower_half).map_err(|_| {
        let why = if is_number { "value out of range" } else { "invalid syntax" };
        let quoted = quote(partition);
        Untranslatable::invalid(format!(
            "{lead} to convert partition {partition} to integer: strconv.Atoi: parsing {quoted}: {why}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_partition_is_reported_in_gos_words() {
        let read = |text| parse(text, "failed").map_err(|why| why.to_string());
        let refused = |text: &str, why: &str| {
            let quoted = quote(text);
            Err(format!(
                "failed to convert partition {text} to integer: strconv.Atoi: parsing {quoted}: {why}"
            ))
        };
        assert_eq!((read("3"), read("+0"), read("-1")), (Ok(3), Ok(0), Ok(-1)));
        for text in ["", "x", "1.5", " 1", "0x1", "+", "--1"] {
            assert_eq!(read(text), refused(text, "invalid syntax"));
        }
        let huge = "99999999999999999999";
        assert_eq!(read(huge), refused(huge, "value out of range"));
        assert_eq!(read("4294967297"), Ok(1));
    }
}
