//! What is shown, and how.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::flags::LogFormat;

struct Fixed;

impl Clock for Fixed {
    fn wall(&self) -> Timestamp {
        "2026-11-21T02:03:04.000567Z".parse().unwrap()
    }
    fn boot(&self) -> Duration {
        Duration::ZERO
    }
}

/// A writer whose text can be read.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn settings(verbosity: u32) -> Logging {
    Logging { verbosity, vmodule: vec![], format: LogFormat::Text }
}

fn logged(settings: &Logging, tell: impl FnOnce()) -> String {
    let written = Written::default();
    let logger = Logger { process: 12, ..Logger::new(settings, Arc::new(Fixed), written.clone()) };
    tracing::subscriber::with_default(logger, tell);
    let bytes = written.0.lock().clone();
    String::from_utf8(bytes).unwrap()
}

/// The line without the number of its source line.
fn unnumbered(text: &str) -> String {
    let (before, after) = text.split_once(".rs:").unwrap();
    format!("{before}.rs:N{}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
}

#[test]
fn text_lines_have_klogs_shape() {
    let text = logged(&settings(0), || {
        tracing::info!(claim = "ns/\"c\"", count = 3, on = true, r#type = "Normal", "it \"works\"");
    });
    assert_eq!(
        unnumbered(&text),
        "I1121 02:03:04.000567      12 tests.rs:N] \"it \\\"works\\\"\" claim=\"ns/\\\"c\\\"\" count=3 on=true type=\"Normal\"\n"
    );
}

#[test]
fn errors_and_warnings_have_their_letters_and_klogs_key() {
    let error = std::io::Error::other("broken");
    let text =
        logged(&settings(0), || tracing::error!(error = &error as &dyn std::error::Error, "no"));
    assert!(text.starts_with("E1121 ") && text.ends_with("] \"no\" err=\"broken\"\n"), "{text}");
    let text = logged(&settings(0), || tracing::warn!(error = %error, "no"));
    assert!(text.starts_with("W1121 ") && text.ends_with("] \"no\" err=\"broken\"\n"), "{text}");
}

#[test]
fn texts_of_many_lines_are_indented() {
    let text = logged(&settings(0), || tracing::info!(what = "a\nb", after = 1, "m"));
    assert!(text.ends_with("] \"m\" what=<\n\ta\n\tb\n > after=1\n"), "{text}");
}

#[test]
fn json_lines_have_component_bases_names() {
    let settings = Logging { format: LogFormat::Json, ..settings(3) };
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
        json!({"ts": 1_795_226_584_000.567, "caller": caller, "msg": "m", "v": 3, "count": 3})
    );
    let text = logged(&settings, || tracing::error!(error = "broken", "m"));
    assert_eq!(
        line(text),
        json!({"ts": 1_795_226_584_000.567, "caller": caller, "msg": "m", "err": "broken"})
    );
}

fn tell_all() {
    tracing::error!("own error");
    tracing::info!("own info");
    tracing::debug!("own debug");
    tracing::trace!("own trace");
    tracing::error!(target: "kube_client::client", "kube error");
    tracing::warn!(target: "hyper::proto", "library warn");
    tracing::info!(target: "hyper::proto", "library info");
    tracing::trace!(target: "hyper::proto", "library trace");
}

#[test]
fn verbosity_decides_what_is_shown() {
    for (verbosity, shown) in [
        (0, &["own error", "own info", "library warn"][..]),
        (2, &["own error", "own info", "library warn"]),
        (4, &["own error", "own info", "own debug", "library warn"]),
        (5, &["own error", "own info", "own debug", "own trace", "library warn", "library info"]),
        (
            10,
            &[
                "own error",
                "own info",
                "own debug",
                "own trace",
                "library warn",
                "library info",
                "library trace",
            ],
        ),
    ] {
        let text = logged(&settings(verbosity), tell_all);
        let messages: Vec<&str> = text.lines().filter_map(|line| line.split('"').nth(1)).collect();
        assert_eq!(messages, shown, "-v {verbosity}");
    }
}

#[test]
fn vmodule_decides_for_single_files() {
    let vmodule = |pattern: &str, verbosity| Logging {
        vmodule: vec![(pattern.to_owned(), verbosity)],
        ..settings(0)
    };
    assert!(logged(&vmodule("tes*", 5), tell_all).contains("own trace"));
    assert!(!logged(&vmodule("other", 5), tell_all).contains("own trace"));
}

#[test]
fn patterns() {
    for (pattern, text, matched) in [
        ("claims", "claims", true),
        ("claims", "claim", false),
        ("claim", "claims", false),
        ("cl*", "claims", true),
        ("*s", "claims", true),
        ("*a*s*", "claims", true),
        ("c?aims", "claims", true),
        ("c?", "c", false),
        ("*", "", true),
        ("", "", true),
    ] {
        assert_eq!(matches(pattern, text), matched, "{pattern} {text}");
    }
}

#[test]
fn spans_cost_and_show_nothing() {
    let text = logged(&settings(10), || {
        let span = tracing::info_span!("span", secret = "x");
        let _inside = span.enter();
        tracing::info!("m");
    });
    assert!(!text.contains("secret"));
}
