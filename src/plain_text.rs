//! Truncates (`Cut`) and escapes ([`escaped`]) texts of others before they are shown, and prints errors with
//! their sources.
//!
//! A truncated text ends between two characters and says how long it was. An escaped text has no
//! control characters and none that change how others are displayed.

use std::{
    error::Error,
    fmt::{self, Display, Write},
};

/// Escapes odd characters of a text as Rust's `Debug` does.
pub fn escaped(text: &str) -> impl Display {
    Escaped(text)
}

struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut plain = 0;
        for (at, c) in self.0.char_indices().filter(|(_, c)| is_odd(*c)) {
            f.write_str(self.0.get(plain..at).unwrap_or_default())?;
            c.escape_debug().fmt(f)?;
            plain = at + c.len_utf8();
        }
        f.write_str(self.0.get(plain..).unwrap_or_default())
    }
}

/// Whether a character is not displayed as itself: line ends and other control characters, characters
/// that change the direction of text or hide it, and unassigned ones.
pub fn is_odd(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    // `Debug` escapes combining marks at the start of a text, but not after a letter.
    let after_letter = || ['x', c].iter().collect::<String>().escape_debug().count();
    c.escape_debug().len() > 1 && after_letter() > 2
}

/// Formats an error with its sources: connection errors give their cause only there.
pub(crate) fn with_sources(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    for source in std::iter::successors(error.source(), |error| (**error).source()) {
        let source = source.to_string();
        // Some errors print their source themselves.
        if !text.contains(&source) {
            text = format!("{text}: {source}");
        }
    }
    text
}

/// Appends to a string, up to a limit.
pub(crate) struct Cut<'a> {
    out: &'a mut String,
    start: usize,
    max: usize,
    /// The length of all that was written, without the limit.
    total: usize,
}

impl<'a> Cut<'a> {
    /// Appends at most `max` bytes to `out`.
    pub(crate) fn new(out: &'a mut String, max: usize) -> Self {
        Self { start: out.len(), out, max, total: 0 }
    }

    /// Adds a note if the text was truncated.
    pub(crate) fn finish(self) {
        if self.total > self.max {
            shorten(self.out, self.start, self.total, self.max);
        }
    }
}

impl Write for Cut<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.total += text.len();
        let free = (self.start + self.max).saturating_sub(self.out.len());
        self.out.push_str(text.get(..boundary(text, free)).unwrap_or_default());
        Ok(())
    }
}

/// Returns the text, truncated to `max` bytes.
pub fn cut(text: &str, max: usize) -> String {
    let mut out = String::new();
    let mut cut = Cut::new(&mut out, max);
    // Writing to a string cannot fail.
    let _ = cut.write_str(text);
    cut.finish();
    out
}

/// Truncates the part of `text` from `start` on to `max` bytes, including a note that it had `total`
/// bytes.
pub(crate) fn shorten(text: &mut String, start: usize, total: usize, max: usize) {
    let note = format!("… (cut, {total} bytes)");
    let end = boundary(text, start + max.saturating_sub(note.len())).max(start);
    text.truncate(end);
    text.push_str(&note);
}

/// The last character boundary at or before `at`.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn control_characters_are_escaped_and_others_are_not() {
        for (text, expected) in [
            ("", ""),
            ("it's \"so\"\\", "it's \"so\"\\"),
            ("a\nb\r\tc\0", r"a\nb\r\tc\0"),
            ("\u{1b}[2J\u{7f}\u{9b}2J", r"\u{1b}[2J\u{7f}\u{9b}2J"),
            (
                "\u{202e}\u{2066}\u{200b}\u{2028}\u{feff}",
                r"\u{202e}\u{2066}\u{200b}\u{2028}\u{feff}",
            ),
            (
                "\u{61c}\u{200c}\u{200d}\u{e0041}\u{e000}",
                r"\u{61c}\u{200c}\u{200d}\u{e0041}\u{e000}",
            ),
            (
                "gr\u{f6}\u{df}e \u{2603} e\u{301} हिन्दी 한글 \u{1f600}",
                "gr\u{f6}\u{df}e \u{2603} e\u{301} हिन्दी 한글 \u{1f600}",
            ),
        ] {
            assert_eq!(escaped(text).to_string(), expected, "{text:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn escaping_removes_all_odd_characters_and_is_idempotent(text in any::<String>()) {
            let shown = escaped(&text).to_string();
            prop_assert!(!shown.chars().any(is_odd), "{shown:?}");
            prop_assert_eq!(escaped(&shown).to_string(), shown);
        }

        #[test]
        fn a_text_fits_or_is_truncated_with_a_note(pieces in prop::collection::vec(".{0,20}", 0..12)) {
            let whole = pieces.concat();
            let mut out = "before".to_owned();
            let mut cut = Cut::new(&mut out, 64);
            for piece in &pieces {
                cut.write_str(piece).unwrap();
            }
            cut.finish();
            let out = out.strip_prefix("before").unwrap();
            let note = format!("\u{2026} (cut, {} bytes)", whole.len());
            prop_assert!(out.len() <= 64);
            match out.strip_suffix(&*note) {
                _ if whole.len() <= 64 => prop_assert_eq!(out, whole),
                Some(start) => prop_assert!(whole.starts_with(start) && out.len() > 60),
                None => prop_assert!(false, "{out}"),
            }
        }
    }
}
