//! Tests with tables of apimachinery's behaviour, and of spellings; the fuzz target compares numbers with a model.

use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Quantity {
    Quantity::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn texts_have_values_and_canonical_forms() {
    for (text, value, written) in [
        ("0", 0, "0"),
        ("0n", 0, "0"),
        ("0Ki", 0, "0"),
        ("-0", 0, "0"),
        // Lone signs and points are zero, as in Go.
        ("+", 0, "0"),
        ("-", 0, "0"),
        (".", 0, "0"),
        ("5", 5, "5"),
        ("-5", -5, "-5"),
        ("1Ki", 1024, "1Ki"),
        ("8Ki", 8192, "8Ki"),
        ("1Mi", 1 << 20, "1Mi"),
        ("1Gi", 1 << 30, "1Gi"),
        ("7Ti", 7 << 40, "7Ti"),
        ("7Pi", 7 << 50, "7Pi"),
        ("7Ei", 7 << 60, "7Ei"),
        ("-3Gi", -(3 << 30), "-3Gi"),
        ("1024Ki", 1 << 20, "1Mi"),
        ("1536Mi", 1536 << 20, "1536Mi"),
        ("1.5Gi", 1536 << 20, "1536Mi"),
        ("0.5Ki", 512, "512"),
        ("1.1Ki", 1127, "1126400m"),
        ("0.5Mi", 512 << 10, "512Ki"),
        ("1k", 1000, "1k"),
        ("1000", 1000, "1k"),
        ("1500", 1500, "1500"),
        ("10000", 10_000, "10k"),
        ("1M", 1_000_000, "1M"),
        ("5G", 5_000_000_000, "5G"),
        ("1.5G", 1_500_000_000, "1500M"),
        ("1T", 1_000_000_000_000, "1T"),
        ("1P", 1_000_000_000_000_000, "1P"),
        ("1E", 1_000_000_000_000_000_000, "1E"),
        ("100m", 1, "100m"),
        ("1000m", 1, "1"),
        ("1001m", 2, "1001m"),
        ("-1001m", -2, "-1001m"),
        ("1u", 1, "1u"),
        ("1n", 1, "1n"),
        ("0.1n", 1, "1n"),
        ("1.1n", 1, "2n"),
        ("-0.1n", -1, "-1n"),
        ("0.0000000001", 1, "1n"),
        ("1e3", 1000, "1e3"),
        ("1E3", 1000, "1E3"),
        ("1e4", 10_000, "10e3"),
        ("12e6", 12_000_000, "12e6"),
        ("12000e3", 12_000_000, "12e6"),
        ("1e-3", 1, "1e-3"),
        ("1e-9", 1, "1e-9"),
        ("1e-10", 1, "1e-9"),
        ("1000e-3", 1, "1"),
        ("1e+3", 1000, "1e+3"),
        ("5.", 5, "5."),
        (".5", 1, "500m"),
        ("00005", 5, "00005"),
        ("0.001", 1, "1m"),
        // Texts that Go keeps although they are not canonical.
        ("1.500G", 1_500_000_000, "1.500G"),
        ("+1Mi", 1 << 20, "+1Mi"),
        ("+5", 5, "+5"),
    ] {
        assert_reads_as(text, value, written);
    }
}

/// Checks the text's value and its formatted form.
fn assert_reads_as(text: &str, value: i64, written: &str) {
    let quantity = parse(text);
    assert_eq!((quantity.value(), quantity.to_string().as_str()), (value, written), "{text}");
}

#[test]
fn usual_sizes_have_values_and_canonical_forms() {
    for (text, value, written) in [
        ("10Gi", 10 << 30, "10Gi"),
        ("100Gi", 100 << 30, "100Gi"),
        ("1000Gi", 1000 << 30, "1000Gi"),
        ("1024Gi", 1 << 40, "1Ti"),
        ("1025Mi", 1025 << 20, "1025Mi"),
        ("2048Mi", 2 << 30, "2Gi"),
        ("0.1Gi", 107_374_183, "107374182400m"),
        ("0.25Ti", 256 << 30, "256Gi"),
        ("1.25Ti", 1280 << 30, "1280Gi"),
        ("3.5Pi", 3584 << 40, "3584Ti"),
        ("1023", 1023, "1023"),
        ("1024", 1024, "1024"),
        ("1048576", 1 << 20, "1048576"),
        ("1073741824", 1 << 30, "1073741824"),
        ("5368709120", 5 << 30, "5368709120"),
        ("100M", 100_000_000, "100M"),
        ("1500M", 1_500_000_000, "1500M"),
        ("10000M", 10_000_000_000, "10G"),
        ("1000000M", 1_000_000_000_000, "1T"),
        ("0.5T", 500_000_000_000, "500G"),
        ("2.5k", 2500, "2500"),
        ("10800M", 10_800_000_000, "10800M"),
        // A binary quantity without a fitting binary suffix; parsed again it is a decimal one.
        ("23156.25Ki", 23_712_000, "23712000"),
        ("23712000", 23_712_000, "23712k"),
        ("1080", 1080, "1080"),
        ("80", 80, "80"),
        ("5e9", 5_000_000_000, "5e9"),
        ("50e8", 5_000_000_000, "5e9"),
        ("5e10", 50_000_000_000, "50e9"),
        ("0.5e10", 5_000_000_000, "5e9"),
        ("1.5e1", 15, "1.5e1"),
        ("1e0", 1, "1e0"),
        ("128974848", 128_974_848, "128974848"),
        ("129e6", 129_000_000, "129e6"),
        ("128974848000m", 128_974_848, "128974848"),
        ("123Mi", 123 << 20, "123Mi"),
        ("500m", 1, "500m"),
        ("1234567890123456789", 1_234_567_890_123_456_789, "1234567890123456789"),
        ("9223372036854775807", i64::MAX, "9223372036854775807"),
        ("9E", 9_000_000_000_000_000_000, "9E"),
    ] {
        assert_reads_as(text, value, written);
    }
}

#[test]
fn binary_quantities_are_limited_to_the_largest_i64() {
    for text in
        ["8Ei", "9223372036854775808Ki", "99999999999999999999999999999999999999Ki", "8.0000001Ei"]
    {
        assert_eq!(parse(text).value(), i64::MAX, "{text}");
        assert_eq!(parse(text).to_string(), "9223372036854775807");
    }
    assert_eq!(parse("-9Ei").value(), -i64::MAX);
}

#[test]
fn a_value_that_does_not_fit_is_none() {
    for (text, value) in [
        ("0", Some(0)),
        ("1500m", Some(2)),
        ("8Ei", Some(i64::MAX)),
        ("16Ei", Some(i64::MAX)),
        ("9223372036854775807", Some(i64::MAX)),
        ("9.2E", Some(9_200_000_000_000_000_000)),
        ("9223372036854775808", None),
        ("9223372036854775807.1", None),
        ("9.3E", None),
        ("20E", None),
        ("1e19", None),
        ("1e2000000000", None),
        ("-9223372036854775808", Some(i64::MIN)),
        ("-9223372036854775809", None),
        ("-1e19", None),
    ] {
        assert_eq!(parse(text).checked_value(), value, "{text}");
    }
}

#[test]
fn decimal_quantities_are_not_limited_but_their_values_are() {
    for text in ["100E", "9223372036854775808", "1e30", "1e2000000000"] {
        assert_eq!(parse(text).value(), i64::MAX, "{text}");
    }
    assert_eq!(parse("9223372036854775807").value(), i64::MAX);
    assert_eq!(parse("-1e30").value(), i64::MIN);
    assert_eq!(parse("1000E").to_string(), "1000E");
    assert_eq!(parse("1e30").to_string(), "1e30");
    assert_eq!(parse("1e-2000000000").value(), 1);
    assert!(parse("1e31") > parse("1e30") && parse("1e30") > parse("8Ei"));
}

#[test]
fn errors_have_kubernetes_messages() {
    use QuantityError::{Format, Numeric, Suffix};
    for (text, error) in [
        ("", Format),
        (" 1", Format),
        ("1 ", Format),
        ("1.1.M", Format),
        ("1+1.0M", Format),
        ("1+1", Suffix),
        ("--1", Suffix),
        ("aoeu", Format),
        ("0.1mi", Suffix),
        ("0.1am", Format),
        (".5i", Suffix),
        ("1i", Suffix),
        ("-3.01e-", Suffix),
        ("1e", Suffix),
        ("1ee", Suffix),
        ("1e1e1", Format),
        ("1K", Suffix),
        ("1g", Format),
        ("1Ki3", Suffix),
        ("1e9999999999", Suffix),
        ("1\u{e9}", Format),
        ("999999999999999999999999999999999999999", Numeric),
    ] {
        assert_eq!(Quantity::parse(text).unwrap_err(), error, "{text}");
    }
    assert_eq!(
        Format.to_string(),
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    );
}

#[test]
fn bytes_are_formatted_with_binary_suffixes() {
    for (bytes, text) in [
        (0, "0"),
        (5, "5"),
        (1000, "1k"),
        (1023, "1023"),
        (1024, "1Ki"),
        (1025, "1025"),
        (6 << 10, "6Ki"),
        (300 << 20, "300Mi"),
        (1 << 30, "1Gi"),
        (1001 << 30, "1001Gi"),
        (1 << 40, "1Ti"),
        (5_000_000_000, "5000000000"),
        (i64::MAX, "9223372036854775807"),
        (i64::MIN, "-8Ei"),
    ] {
        assert_eq!(Quantity::from_bytes(bytes).to_string(), text);
    }
}

/// Formatting may add up to two zeros.
#[test]
fn zeros_at_the_end_are_not_counted_as_digits() {
    let longest = parse("5392236862193302288790003773025288066.1");
    let written = Quantity { verbatim: None, ..longest }.to_string();
    assert_eq!(written, "5392236862193302288790003773025288066100m");
    assert_eq!(parse(&written), parse("5392236862193302288790003773025288066.1"));
    let huge = format!("1{}", "0".repeat(45));
    assert_eq!(parse(&huge), parse("1e45"));
    assert_eq!(parse(&format!("-{huge}.000n")), parse("-1e36"));
    assert_eq!(parse(&format!("{huge}Mi")).to_string(), parse("8Ei").to_string());
}

#[test]
fn quantities_compare_by_number() {
    for (less, more) in
        [("1M", "1Mi"), ("-1", "0"), ("999m", "1"), ("-2", "-1"), ("1n", "1u"), ("1Gi", "1.1G")]
    {
        assert!(parse(less) < parse(more), "{less} < {more}");
    }
    for (one, other) in [("1024", "1Ki"), ("1000m", "1"), ("1e3", "1k"), ("0.5Gi", "512Mi")] {
        assert_eq!(parse(one), parse(other));
    }
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
        }
    }

    #[test]
    fn a_value_is_the_checked_value_if_there_is_one(text in texts()) {
        let quantity = parse(&text);
        if let Some(value) = quantity.checked_value() {
            prop_assert_eq!(quantity.value(), value, "{}", text);
        }
    }
}
