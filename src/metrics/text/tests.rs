use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGauge, Opts, Registry};

use super::*;

#[test]
fn numbers_are_spelled_as_gos() {
    for (value, text) in [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.0, "1"),
        (-2.5, "-2.5"),
        (0.25, "0.25"),
        (100_000.0, "100000"),
        (123_456.75, "123456.75"),
        (1_000_000.0, "1e+06"),
        (45_256_704.0, "4.5256704e+07"),
        (1.8e100, "1.8e+100"),
        (0.0001, "0.0001"),
        (0.000_01, "1e-05"),
        (1e-8, "1e-08"),
        (9.999_999_999_999_999e-6, "9.999999999999999e-06"),
        (f64::NAN, "NaN"),
        (f64::INFINITY, "+Inf"),
        (f64::NEG_INFINITY, "-Inf"),
    ] {
        assert_eq!(number(value), text);
    }
}

proptest::proptest! {
    #[test]
    fn every_number_reads_back_as_itself(value: f64) {
        let read: f64 = number(value).parse().unwrap();
        proptest::prop_assert!(read.to_bits() == value.to_bits() || value.is_nan());
    }
}

#[test]
fn families_stand_by_name_with_escapes_and_le_last() {
    let registry = Registry::new();
    let counter = IntCounterVec::new(Opts::new("b_total", "back\\slash\n\"two\""), &["z", "a"]);
    let counter = counter.unwrap();
    counter.with_label_values(&["q\"\\\n", "1"]).inc();
    registry.register(Box::new(counter)).unwrap();
    let gauge = IntGauge::new("a", "One.").unwrap();
    gauge.set(3_000_000);
    registry.register(Box::new(gauge)).unwrap();
    let options = HistogramOpts::new("c", "Hist.").buckets(vec![1e-8, 2.0]);
    let histogram = HistogramVec::new(options, &["zone"]).unwrap();
    histogram.with_label_values(&["x"]).observe(0.5);
    registry.register(Box::new(histogram)).unwrap();
    assert_eq!(
        encode(&registry.gather()),
        concat!(
            "# HELP a One.\n# TYPE a gauge\na 3e+06\n",
            "# HELP b_total back\\\\slash\\n\"two\"\n# TYPE b_total counter\n",
            "b_total{a=\"1\",z=\"q\\\"\\\\\\n\"} 1\n",
            "# HELP c Hist.\n# TYPE c histogram\n",
            "c_bucket{zone=\"x\",le=\"1e-08\"} 0\nc_bucket{zone=\"x\",le=\"2\"} 1\n",
            "c_bucket{zone=\"x\",le=\"+Inf\"} 1\nc_sum{zone=\"x\"} 0.5\nc_count{zone=\"x\"} 1\n",
        )
    );
}
