//! Which events are logged, and in what format.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::*;

struct Fixed;

impl Clock for Fixed {
    fn wall(&self) -> Timestamp {
        "2026-11-21T02:03:04.000567Z".parse().unwrap()
    }
    fn boot(&self) -> Duration {
        Duration::ZERO
    }
}

fn settings(verbosity: u32) -> Logging {
    Logging { verbosity, vmodule: vec![], format: "text".into() }
}

fn logged(settings: &Logging, log: impl FnOnce()) -> String {
    let written = testing::Log::default();
    let writer = written.clone();
    let subscriber = subscriber(settings, Arc::new(Fixed), 12, move || writer.clone());
    super::listen_for_ever();
    tracing::subscriber::with_default(subscriber, log);
    written.text()
}

/// The line without the number of its source line.
fn unnumbered(text: &str) -> String {
    let (before, after) = text.split_once(".rs:").unwrap();
    format!("{before}.rs:N{}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
}

#[test]
fn text_lines_have_klogs_format() {
    let text = logged(&settings(0), || {
        tracing::info!(claim = "ns/\"c\"", count = 3, on = true, r#type = "Normal", "it \"works\"");
    });
    assert_eq!(
        unnumbered(&text),
        "I1121 02:03:04.000567      12 tests.rs:N] \"it \\\"works\\\"\" claim=\"ns/\\\"c\\\"\" count=3 on=true type=\"Normal\"\n"
    );
}

#[test]
fn errors_and_warnings_have_klogs_letters_and_key() {
    let error = std::io::Error::other("broken");
    let text =
        logged(&settings(0), || tracing::error!(error = &error as &dyn std::error::Error, "no"));
    assert!(text.starts_with("E1121 ") && text.ends_with("] \"no\" err=\"broken\"\n"), "{text}");
    let text = logged(&settings(0), || tracing::warn!(error = %error, "no"));
    assert!(text.starts_with("W1121 ") && text.ends_with("] \"no\" err=\"broken\"\n"), "{text}");
}

#[test]
fn a_field_can_be_called_message_too() {
    let log = || tracing::info!(reason = "R", event_message = "it failed", "Event occurred");
    let text = logged(&settings(0), log);
    let expected = "] \"Event occurred\" reason=\"R\" message=\"it failed\"\n";
    assert!(text.ends_with(expected), "{text}");
    let text = logged(&Logging { format: "json".into(), ..settings(0) }, log);
    let line: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&line["msg"], &line["message"]), (&json!("Event occurred"), &json!("it failed")));
}

#[test]
fn multi_line_texts_are_indented() {
    let text = logged(&settings(0), || tracing::info!(what = "a\nb", after = 1, "m"));
    assert!(text.ends_with("] \"m\" what=<\n\ta\n\tb\n > after=1\n"), "{text}");
}

#[test]
fn a_long_field_or_message_is_truncated_with_a_note() {
    let long = "\u{e9}".repeat(50_000);
    let cut = |text: &str| {
        let shown = text.trim_end_matches("\u{2026} (cut, 100000 bytes)");
        assert!(text.len() <= 4096 && shown.len() > 4000, "{}", text.len());
        assert!(shown.len() < text.len() && shown.chars().all(|c| c == '\u{e9}'), "{text}");
    };
    let text = logged(&Logging { format: "json".into(), ..settings(10) }, || {
        let span = tracing::info_span!("work", around = &*long);
        span.in_scope(|| tracing::trace!(target: CALLS, body = &*long, what = ?long, "{long}"));
    });
    let line: serde_json::Value = serde_json::from_str(&text).unwrap();
    for name in ["body", "around", "msg"] {
        cut(line[name].as_str().unwrap());
    }
    assert!(line["what"].as_str().unwrap().ends_with("\u{2026} (cut, 100002 bytes)"));
    let whole = "x".repeat(4096);
    let text = logged(&settings(0), || tracing::info!(what = whole, "m"));
    assert!(text.ends_with(&format!("what=\"{whole}\"\n")), "{text}");
}

#[test]
fn json_lines_have_component_bases_names() {
    let settings = Logging { format: "json".into(), ..settings(3) };
    let line = |text: String| -> serde_json::Value {
        let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let caller = value["caller"].as_str().unwrap().to_owned();
        value["caller"] = json!(unnumbered(&caller));
        value
    };
    let text = logged(&settings, || tracing::debug!(count = 3, "m"));
    let caller = "logging/tests.rs:N";
    assert_eq!(
        line(text),
        json!({"ts": 1_795_226_584_000.567, "caller": caller, "msg": "m", "v": 2, "count": 3})
    );
    let text = logged(&settings, || tracing::error!(error = "broken", "m"));
    assert_eq!(
        line(text),
        json!({"ts": 1_795_226_584_000.567, "caller": caller, "msg": "m", "err": "broken"})
    );
}

fn log_all() {
    tracing::error!("own error");
    tracing::info!("own info");
    tracing::debug!("own debug");
    tracing::trace!("own trace");
    tracing::trace!(target: CALLS, "call");
    tracing::trace!(target: REQUESTS, "request");
    tracing::error!(target: "kube_client::client", "kube error");
    tracing::warn!(target: "hyper::proto", "library warn");
    tracing::info!(target: "hyper::proto", "library info");
    tracing::debug!(target: "hyper::proto", "library debug");
    tracing::trace!(target: "hyper::proto", "library trace");
}

/// At each verbosity the events of lower ones are logged, and these.
#[test]
fn verbosity_decides_what_is_logged() {
    let steps: [&[&str]; 11] = [
        &["own error", "own info", "library warn"],
        &[],
        &["own debug"],
        &[],
        &["own trace"],
        &["call", "library info"],
        &["request"],
        &[],
        &["library debug"],
        &[],
        &["library trace"],
    ];
    let mut expected = Vec::new();
    for (verbosity, more) in (0..).zip(steps) {
        expected.extend_from_slice(more);
        let text = logged(&settings(verbosity), log_all);
        let mut shown: Vec<&str> = text.lines().filter_map(|line| line.split('"').nth(1)).collect();
        shown.sort_unstable();
        expected.sort_unstable();
        assert_eq!(shown, expected, "-v {verbosity}");
    }
}

#[test]
fn vmodule_decides_for_single_files() {
    let vmodule = |pattern: &str, verbosity| Logging {
        vmodule: vec![vec![(pattern.to_owned(), verbosity)]],
        ..settings(0)
    };
    assert!(logged(&vmodule("tes*", 5), log_all).contains("own trace"));
    assert!(!logged(&vmodule("other", 5), log_all).contains("own trace"));
}

#[test]
fn lines_have_the_fields_of_their_spans() {
    let text = logged(&settings(0), || {
        let outer = tracing::info_span!("work", attempt = 3, what = "outer");
        let _outer = outer.enter();
        let inner = tracing::info_span!(
            "claim",
            claim = "ns/c",
            what = "inner",
            code = tracing::field::Empty
        );
        let _inner = inner.enter();
        tracing::info!("before");
        tracing::Span::current().record("code", "Aborted");
        tracing::info!(what = "own", "after");
    });
    let (before, after) = text.split_once('\n').unwrap();
    assert!(before.ends_with("] \"before\" claim=\"ns/c\" what=\"inner\" attempt=3"), "{before}");
    assert!(
        after.ends_with("] \"after\" what=\"own\" claim=\"ns/c\" code=\"Aborted\" attempt=3\n"),
        "{after}"
    );
}

#[test]
fn a_value_recorded_again_replaces_the_first() {
    let text = logged(&settings(0), || {
        let span =
            tracing::info_span!("work", code = "Aborted", none = "", count = 1, claim = "ns/c");
        for code in ["Unavailable", "", "OK"] {
            span.record("code", code);
        }
        span.record("count", "two");
        span.in_scope(|| tracing::info!("m"));
    });
    let expected = "] \"m\" code=\"OK\" none=\"\" count=\"two\" claim=\"ns/c\"\n";
    assert!(text.ends_with(expected), "{text}");
}

#[test]
fn hidden_events_are_not_formatted() {
    struct Costly<'a>(&'a std::cell::Cell<u32>);
    impl std::fmt::Debug for Costly<'_> {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.0.set(self.0.get() + 1);
            Ok(())
        }
    }
    let formatted = std::cell::Cell::new(0);
    let log = |verbosity| {
        logged(&settings(verbosity), || {
            tracing::trace!(target: CALLS, costly = ?Costly(&formatted), "call");
        })
    };
    assert_eq!((log(4), formatted.get()), (String::new(), 0));
    assert_eq!((log(5).lines().count(), formatted.get()), (1, 1));
}
