//! The page of the safety rules names decisions and tests that exist.

use std::fs;

use crate::here;

const PAGE: &str = include_str!("../../docs/safety.md");

/// A rule's row: its text, where it is decided, and what holds it.
struct Row {
    rule: &'static str,
    decisions: Vec<&'static str>,
    tests: Vec<&'static str>,
}

/// The rows of the page's table, without its head.
fn rows() -> impl Iterator<Item = Row> {
    PAGE.lines().filter_map(row).skip(1)
}

fn row(line: &'static str) -> Option<Row> {
    let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
    let (rule, decisions, tests) = (cells.next()?, cells.next()?, cells.next()?);
    Some(Row { rule, decisions: in_backticks(decisions), tests: in_backticks(tests) })
}

fn in_backticks(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// A file of the project; `None`: there is none.
fn source(path: &str) -> Option<String> {
    fs::read_to_string(here(path)).ok()
}

/// The text of a module of the library.
fn module(segments: &[&str]) -> Option<String> {
    let path = segments.join("/");
    source(&format!("src/{path}.rs")).or_else(|| source(&format!("src/{path}/mod.rs")))
}

/// Whether the library has this module, or a module with this type or function.
fn is_decided_at(place: &str) -> bool {
    let segments: Vec<_> = place.split("::").collect();
    let modules = (1..=segments.len()).rev();
    let found = modules.map(|count| segments.split_at(count)).find_map(|(path, within)| {
        let text = module(path)?;
        Some(within.iter().all(|name| defines(&text, name)))
    });
    found == Some(true)
}

/// Whether the text has this function, or the type or a block of its methods.
fn defines(text: &str, name: &str) -> bool {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut places =
        code.flat_map(|line| line.match_indices(name).map(move |(at, _)| line.split_at(at)));
    places.any(|(before, after)| {
        let next = after[name.len()..].chars().next();
        let is_whole = !next.is_some_and(|next| next.is_alphanumeric() || next == '_');
        let begins = ["fn ", "struct ", "enum "].iter().any(|start| before.ends_with(start));
        let is_block = before.starts_with("impl") && before.ends_with(' ');
        is_whole && (begins || is_block)
    })
}

/// Whether the file has a test of this name.
fn is_test(text: &str, name: &str) -> bool {
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let head = format!("fn {name}(");
    let attribute = ["#[test]", "#[tokio::test"];
    lines.windows(2).any(|pair| {
        attribute.iter().any(|start| pair[0].starts_with(start)) && pair[1].contains(&head)
    })
}

#[test]
fn the_fourteen_rules_stand_in_order_each_with_a_decision_and_a_test() {
    let numbers: Vec<_> = rows().map(|row| row.rule.split_once(". ").unwrap().0).collect();
    assert_eq!(numbers, (1..=14).map(|number| number.to_string()).collect::<Vec<_>>());
    for Row { rule, decisions, tests } in rows() {
        assert!(!decisions.is_empty() && !tests.is_empty(), "{rule}");
    }
}

#[test]
fn what_decides_is_in_the_library() {
    for row in rows() {
        for place in row.decisions {
            assert!(is_decided_at(place), "there is no {place}: {}", row.rule);
        }
    }
}

#[test]
fn what_holds_a_rule_is_a_test() {
    for row in rows() {
        for test in row.tests {
            let (file, name) = test.rsplit_once("::").unwrap();
            let found = source(file).is_some_and(|text| is_test(&text, name));
            assert!(found, "there is no test {test}: {}", row.rule);
        }
    }
}
