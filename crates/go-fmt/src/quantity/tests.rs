//! Tests with tables of apimachinery's behaviour, and of spellings; the fuzz target compares numbers with a model.

use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Quantity {
    Quantity::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Checks the text's formatted form, and its value against the model's.
fn assert_formats(text: &str, written: &str) {
    assert_eq!(parse(text).to_string(), written, "{text}");
    fuzz::quantity(text.as_bytes());
}

#[test]
fn texts_have_canonical_forms() {
    let kept = "5 -5 1Ki 8Ki 7Ti 7Pi 7Ei -3Gi 10Gi 1000Gi 1025Mi 1k 1500 1023 1024 1048576 5368709120 \
                5G 100M 1T 1P 1E 9E 1001m -1001m 1u 1n 1e3 1E3 1e-3 1e+3 5e9 1.5e1 1e0 1234567890123456789 1000E 1e30 \
                5. 00005 1.500G +1Mi +5";
    for text in kept.split(' ') {
        assert_formats(text, text);
    }
    for (texts, written) in [
        // Lone signs and points are zero, as in Go.
        ("0n 0Ki -0 + - .", "0"),
        ("1024Ki 1Mi", "1Mi"),
        ("1.5Gi 1536Mi", "1536Mi"),
        ("0.5Mi 512Ki", "512Ki"),
        ("0.25Ti 256Gi", "256Gi"),
        ("2048Mi 2Gi", "2Gi"),
        ("1024Gi 1Ti", "1Ti"),
        ("1.25Ti", "1280Gi"),
        ("0.5Ki", "512"),
        ("1.1Ki", "1126400m"),
        ("0.1Gi", "107374182400m"),
        ("1000", "1k"),
        ("10000", "10k"),
        ("1.5G", "1500M"),
        ("10000M", "10G"),
        ("1000000M", "1T"),
        ("2.5k", "2500"),
        ("1000m 1000e-3", "1"),
        ("128974848000m", "128974848"),
        (".5", "500m"),
        ("0.001", "1m"),
        ("0.1n 0.0000000001", "1n"),
        ("1.1n", "2n"),
        ("-0.1n", "-1n"),
        ("1e4", "10e3"),
        ("12000e3 12e6", "12e6"),
        ("50e8 0.5e10", "5e9"),
        ("5e10", "50e9"),
        ("1e-10", "1e-9"),
        // A binary quantity without a fitting binary suffix; parsed again it is a decimal one.
        ("23156.25Ki", "23712000"),
        ("23712000", "23712k"),
        // Binary quantities are limited.
        (
            "8Ei 9223372036854775808Ki 99999999999999999999999999999999999999Ki 8.0000001Ei",
            "9223372036854775807",
        ),
    ] {
        for text in texts.split(' ') {
            assert_formats(text, written);
        }
    }
    assert_eq!(Quantity::from_bytes(i64::MIN).to_string(), "-8Ei");
}

#[test]
fn a_value_that_does_not_fit_is_none_and_saturates() {
    for (text, value) in [
        ("1500m", Some(2)),
        ("16Ei", Some(i64::MAX)),
        ("9223372036854775807", Some(i64::MAX)),
        ("9.2E", Some(9_200_000_000_000_000_000)),
        ("9223372036854775808", None),
        ("9223372036854775807.1", None),
        ("20E", None),
        ("1e2000000000", None),
        ("-9223372036854775808", Some(i64::MIN)),
        ("-9223372036854775809", None),
    ] {
        assert_eq!(parse(text).checked_value(), value, "{text}");
        let limit = if text.starts_with('-') { i64::MIN } else { i64::MAX };
        assert_eq!(parse(text).value(), value.unwrap_or(limit), "{text}");
    }
    assert_eq!(parse("1e-2000000000").value(), 1);
    assert!(parse("1e2000000000") > parse("1e30") && parse("1e30") > parse("8Ei"));
}

#[test]
fn errors_have_kubernetes_messages() {
    use QuantityError::{Format, Numeric, Suffix};
    for (texts, error) in [
        ("| 1|1 |1.1.M|1+1.0M|aoeu|0.1am|1e1e1|1g|1\u{e9}", Format),
        ("1+1|--1|0.1mi|.5i|1i|-3.01e-|1e|1ee|1K|1Ki3|1e9999999999", Suffix),
        ("999999999999999999999999999999999999999", Numeric),
    ] {
        for text in texts.split('|') {
            assert_eq!(Quantity::parse(text).unwrap_err(), error, "{text}");
        }
    }
    assert_eq!(
        Format.to_string(),
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    );
}

/// Formatting may add up to two zeros.
#[test]
fn zeros_at_the_end_are_not_counted_as_digits() {
    let longest = parse("5392236862193302288790003773025288066.1");
    let written = Quantity { verbatim: None, ..longest }.to_string();
    assert_eq!(written, "5392236862193302288790003773025288066100m");
    assert_eq!(parse(&written), longest);
    let huge = format!("1{}", "0".repeat(45));
    assert_eq!(parse(&format!("-{huge}.000n")), parse("-1e36"));
    assert_eq!(parse(&format!("{huge}Mi")).to_string(), parse("8Ei").to_string());
}

/// Texts of quantities.
fn texts() -> impl Strategy<Value = String> {
    "-?[0-9]{1,5}(\\.[0-9]{0,11})?(n|u|m|k|G|Ki|Mi|Gi|e2|E-5)?"
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    /// A binary quantity that is formatted without a suffix is parsed as a decimal one.
    #[test]
    fn formatting_is_idempotent(text in texts()) {
        let quantity = Quantity { verbatim: None, ..parse(&text) };
        let canonical = quantity.to_string();
        let read = parse(&canonical);
        let is_suffixed = canonical.ends_with(|last: char| !last.is_ascii_digit());
        let again = if is_suffixed || quantity.format != Format::BinarySi {
            canonical
        } else {
            Quantity { format: Format::DecimalSi, ..quantity }.to_string()
        };
        prop_assert_eq!(read.to_string(), again);
    }

    #[test]
    fn bytes_are_formatted_exactly_and_with_the_largest_possible_suffix(
        bytes in prop_oneof![any::<i64>(), (1_i64..4096, 0_u32..51).prop_map(|(n, power)| n << power)],
    ) {
        let written = Quantity::from_bytes(bytes).to_string();
        prop_assert_eq!(parse(&written).value(), bytes, "{}", written);
        if let Some(number) = written.strip_suffix('i') {
            let (number, suffix) = number.split_at(number.len() - 1);
            let number: i64 = number.parse().unwrap();
            prop_assert!(number % 1024 != 0 || suffix == "E", "{}", written);
        } else {
            prop_assert!(bytes % 1024 != 0 || bytes == 0, "{}", written);
        }
    }
}
