//! What docs/troubleshooting.md quotes is what the code writes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use csi_provisioner::metrics::Metrics;

use crate::{here, links::anchors, shipped};

const PAGE: &str = include_str!("../../docs/troubleshooting.md");
const RULES: &str = include_str!("../../deploy/monitoring/rules.yaml");

/// Where the texts that the page quotes are made.
const SOURCES: [&str; 2] = ["crates/csi-translation/src", "src"];

// === Texts in sources ===

/// The string literals of a source, without those of comments and log macros.
fn literals(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = source;
    // The depth of parentheses in a log macro; 0 outside.
    let mut logged = 0;
    while let Some(next) = rest.chars().next() {
        rest = if rest.starts_with("//") {
            rest.split_once('\n').map_or("", |(_, after)| after)
        } else if let Some(after) = rest.strip_prefix("'\"'") {
            after
        } else if let Some(after) = rest.strip_prefix('"') {
            let (text, after) = literal(after);
            if logged == 0 {
                found.push(text);
            }
            after
        } else if let Some(after) = log_macro(rest) {
            logged += 1;
            after
        } else {
            match next {
                '(' if logged > 0 => logged += 1,
                ')' if logged > 0 => logged -= 1,
                _ => {}
            }
            &rest[next.len_utf8()..]
        };
    }
    found
}

/// What follows the opening parenthesis of a log macro.
fn log_macro(rest: &str) -> Option<&str> {
    let (name, after) = rest.strip_prefix("tracing::")?.split_once("!(")?;
    name.chars().all(|c| c.is_ascii_lowercase() || c == '_').then_some(after)
}

/// The literal that begins here, and what follows it.
fn literal(rest: &str) -> (String, &str) {
    let mut text = String::new();
    let mut chars = rest.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (text, &rest[at + 1..]),
            '\\' => text.extend(chars.next().map(|(_, escaped)| escaped)),
            c => text.push(c),
        }
    }
    (text, "")
}

/// The text with `…` for each placeholder, and with single spaces.
fn pattern(text: &str) -> String {
    let text = text.replace("{{", "\u{1}").replace("}}", "\u{2}");
    let mut parts = text.split('{');
    let mut pattern = parts.next().unwrap().to_owned();
    for part in parts {
        pattern.push('…');
        pattern.push_str(part.split_once('}').map_or("", |(_, after)| after));
    }
    let pattern = pattern.replace('\u{1}', "{").replace('\u{2}', "}");
    pattern.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The patterns of all literals of the sources.
fn patterns() -> BTreeSet<String> {
    let sources = SOURCES.iter().flat_map(|folder| shipped(folder));
    let literals: Vec<_> = sources.flat_map(|source| literals(&source)).collect();
    literals.iter().map(|text| pattern(text)).collect()
}

/// Whether the text on the page is that of the code, or its beginning.
fn explains(documented: &str, text: &str) -> bool {
    let begin = documented.trim_end_matches('…').trim_end();
    documented == text
        || begin == text.trim_end_matches('…').trim_end()
        || text.starts_with(begin) && begin.len() >= 30
}

// === The page ===

/// A row: its anchor, and the texts that it explains.
struct Row {
    anchor: &'static str,
    texts: Vec<&'static str>,
}

fn rows() -> Vec<Row> {
    PAGE.lines().filter_map(row).collect()
}

fn row(line: &'static str) -> Option<Row> {
    let (anchor, rest) = line.strip_prefix("| <a id=\"")?.split_once("\"></a>[§](#")?;
    let (target, rest) = rest.split_once(") | ")?;
    assert_eq!(anchor, target, "the row's sign leads to the row");
    let cell = rest.split(" | ").next()?;
    Some(Row { anchor, texts: cell.split('`').skip(1).step_by(2).collect() })
}

/// The headings of the page, of any level.
fn headings() -> BTreeSet<&'static str> {
    PAGE.lines().filter_map(|line| line.strip_prefix("###")).map(str::trim).collect()
}

#[test]
fn each_row_has_a_text_of_the_code() {
    let patterns = patterns();
    let status = fs::read_to_string(here("src/csi/status.rs")).unwrap();
    assert!(rows().len() >= 60, "the rows were not found");
    for Row { anchor, texts: documented } in rows() {
        assert!(!documented.is_empty(), "{anchor} has no text");
        for text in documented {
            let is_code = anchor.starts_with("code-") && status.contains(&format!("\"{text}\""));
            assert!(is_code || patterns.iter().any(|it| explains(text, it)), "{anchor}: {text}");
        }
    }
}

#[test]
fn each_reason_of_an_event_has_a_section() {
    let sources = shipped("src");
    let severities = ["Severity::Normal, \"", "Severity::Warning, \""];
    let reasons: BTreeSet<_> = severities
        .iter()
        .flat_map(|severity| sources.iter().flat_map(move |source| source.split(*severity).skip(1)))
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    assert!(reasons.len() >= 8, "the reasons were not found: {reasons:?}");
    let missing: Vec<_> = reasons.iter().filter(|reason| !headings().contains(*reason)).collect();
    assert!(missing.is_empty(), "docs/troubleshooting.md lacks {missing:?}");
}

#[test]
fn each_alert_has_a_section_and_each_such_section_an_alert() {
    let rules = RULES.split("- alert: ").skip(1).filter_map(|rule| rule.lines().next());
    let rules: BTreeSet<_> = rules.collect();
    let headings = headings();
    let sections: BTreeSet<_> =
        headings.iter().filter_map(|it| it.strip_prefix("Alert ")).collect();
    assert!(rules.len() >= 8, "the rules were not found: {rules:?}");
    assert_eq!(rules.difference(&sections).collect::<Vec<_>>(), Vec::<&&str>::new());
    assert_eq!(sections.difference(&rules).collect::<Vec<_>>(), Vec::<&&str>::new());
}

#[test]
fn each_reason_of_a_suspected_leak_is_explained() {
    let section = PAGE.split("<a id=\"leaks\"></a>").nth(1).unwrap();
    let section = section.split("\n## Alerts").next().unwrap();
    let served = Metrics::new().text();
    let series = "provisioner_suspected_leaks_total{reason=\"";
    let reasons: Vec<_> = served
        .lines()
        .filter_map(|line| line.strip_prefix(series)?.strip_suffix("\"} 0"))
        .collect();
    assert!(reasons.len() >= 7, "{reasons:?}");
    for reason in reasons {
        assert!(section.contains(&format!("`{reason}`")), "{reason}");
    }
}

#[test]
fn anchors_are_unique() {
    let mut count = BTreeMap::new();
    for anchor in anchors(PAGE) {
        *count.entry(anchor).or_insert(0) += 1;
    }
    let doubled: Vec<_> = count.iter().filter(|(_, count)| **count > 1).collect();
    assert!(count.len() >= 60 && doubled.is_empty(), "{doubled:?}");
}
