//! What docs/troubleshooting.md says about a text of an event.
//!
//! The page is part of the program, so that it gives the same advice as the page does, and names its
//! anchors. A row of the page begins with its anchor; then come the texts that it explains, with `…` for
//! what differs each time, and what to do.

const PAGE: &str = include_str!("../../../docs/troubleshooting.md");

/// The shortest text of a row that can be recognised, in bytes without its `…`.
const MIN_LITERAL: usize = 12;

/// A text of a row must be at least one of so many parts of the whole text, or of fewer if it begins with `…`:
/// a short text could be anywhere in a long one.
const PARTS: usize = 12;
const PARTS_ANYWHERE: usize = 6;

/// A row of the page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) anchor: &'static str,
    texts: Vec<&'static str>,
    what_to_do: &'static str,
}

impl Row {
    /// What to do, without links.
    pub(super) fn what_to_do(&self) -> String {
        without_links(self.what_to_do)
    }
}

/// Looks up what the page says about the text. A code of the driver comes first, then the row that
/// recognises most of the text.
pub(super) fn look_up(text: &str) -> Option<Row> {
    grpc_code(text).and_then(of_code).or_else(|| of_text(text))
}

/// The row with this anchor.
pub(super) fn at(anchor: &str) -> Option<Row> {
    rows().find(|row| row.anchor == anchor)
}

/// The name of the gRPC code in the text of a failed call.
pub(super) fn grpc_code(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("rpc error: code = ")?;
    rest.split_once(" desc = ").map(|(code, _)| code)
}

fn of_code(code: &str) -> Option<Row> {
    rows().find(|row| row.anchor.starts_with("code-") && row.texts.contains(&code))
}

fn of_text(text: &str) -> Option<Row> {
    // The page has single spaces.
    let text = &text.split_whitespace().collect::<Vec<_>>().join(" ");
    let recognised = rows().filter_map(|row| {
        let texts = row.texts.iter().filter_map(|pattern| recognise(pattern, text));
        Some((texts.max()?, row))
    });
    recognised.max_by_key(|(length, _)| *length).map(|(_, row)| row)
}

/// How many bytes of the text are those of the pattern, whose parts between `…` must be in it in order.
fn recognise(pattern: &str, text: &str) -> Option<usize> {
    let mut rest = text;
    let mut length = 0;
    for part in pattern.split('\u{2026}') {
        let (_, after) = rest.split_once(part)?;
        rest = after;
        length += part.len();
    }
    let parts = if pattern.starts_with('\u{2026}') { PARTS_ANYWHERE } else { PARTS };
    (length >= MIN_LITERAL && length * parts >= text.len()).then_some(length)
}

fn rows() -> impl Iterator<Item = Row> {
    PAGE.lines().filter_map(row)
}

fn row(line: &'static str) -> Option<Row> {
    let (anchor, rest) = line.strip_prefix("| <a id=\"")?.split_once("\"></a>")?;
    let (_, rest) = rest.split_once(" | ")?;
    let (texts, what_to_do) = rest.split_once(" | ")?;
    let texts = texts.split('`').skip(1).step_by(2).collect();
    Some(Row { anchor, texts, what_to_do: what_to_do.trim_end_matches(" |") })
}

/// The text with the words of each link instead of the link.
fn without_links(markdown: &str) -> String {
    let mut parts = markdown.split("](");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        if let Some(at) = text.rfind('[') {
            text.remove(at);
        }
        text += part.split_once(')').map_or(part, |(_, after)| after);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_is_found_by_its_own_text() {
        let mut count = 0;
        for row in rows().filter(|row| !row.anchor.starts_with("code-")) {
            for pattern in &row.texts {
                let text = pattern.replace('\u{2026}', "x");
                let long = pattern.replace('\u{2026}', "").len() >= MIN_LITERAL;
                let found = of_text(&text).map(|found| found.texts.join(" "));
                // Rows of several sections may have the same text.
                assert!(!long || found.is_some_and(|it| it.contains(pattern)), "{pattern}");
                count += 1;
            }
        }
        assert!(count > 100, "{count}");
    }

    #[test]
    fn texts_of_events_are_found() {
        for (text, anchor) in [
            ("error getting PVC s (namespace \"shop\") from api server: no", "clone-unread"),
            ("the PVC DataSource x must have a status of Bound.  Got Pending", "clone-unbound"),
            (
                "failed to provision volume: rpc error: code = ResourceExhausted desc = full",
                "code-resourceexhausted",
            ),
            (
                "Volume provisioning failed with infeasible error. Retries will be delayed. rpc error: code = InvalidArgument desc = no",
                "code-invalidargument",
            ),
            ("rpc error: code = Sundry desc = odd", "driver-rpc"),
        ] {
            assert_eq!(look_up(text).map(|it| it.anchor), Some(anchor), "{text}");
        }
        assert_eq!(look_up("the moon is full"), None);
        let long =
            format!("PersistentVolume x is invalid: a: Invalid value: {}: b", "x".repeat(300));
        assert_eq!(look_up(&long), None);
    }

    #[test]
    fn anchors_that_are_named_exist() {
        let sources =
            [include_str!("claim.rs"), include_str!("volume.rs"), include_str!("leader.rs")];
        let named = sources.iter().flat_map(|source| source.split(".see(\"").skip(1));
        let named: Vec<_> = named.filter_map(|rest| rest.split('"').next()).collect();
        assert!(named.len() > 8, "{named:?}");
        for anchor in named {
            assert!(PAGE.contains(&format!("<a id=\"{anchor}\"></a>")), "{anchor}");
        }
    }

    #[test]
    fn links_become_words() {
        let text = "See [the driver](#driver), `[a]` and [a right](#rights).";
        assert_eq!(without_links(text), "See the driver, `[a]` and a right.");
    }
}
