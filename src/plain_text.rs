//! Texts that others have written, made fit to be shown.
//!
//! Owns what a text becomes that is too long (`Cut`) or holds what a terminal does not show as it
//! is ([`escaped`]). Promises that a cut text ends between two characters and says how long it
//! was, and that an escaped one holds no control character and none that directs how others are
//! shown. Leaves to others how long is too long, and where a text is shown.

use std::fmt::{self, Display, Write};

/// A text with its odd characters escaped as Rust's `Debug` does, and all else as it is.
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

/// Whether a character is not shown as itself: line ends and other control characters, those that
/// turn or hide the text around them, and those that nobody has given a shape.
pub(crate) fn is_odd(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    // `Debug` escapes combining marks alone, but not behind the letter that they change.
    let behind_another = || ['x', c].iter().collect::<String>().escape_debug().count();
    c.escape_debug().len() > 1 && behind_another() > 2
}

/// Writes to the end of a text as much as has room there.
pub(crate) struct Cut<'a> {
    out: &'a mut String,
    start: usize,
    most: usize,
    whole: usize,
}

impl<'a> Cut<'a> {
    /// Adds at most `most` bytes to `out`.
    pub(crate) fn new(out: &'a mut String, most: usize) -> Self {
        Self { start: out.len(), out, most, whole: 0 }
    }

    /// Says that it was cut, where it was.
    pub(crate) fn finish(self) {
        if self.whole > self.most {
            shorten(self.out, self.start, self.whole, self.most);
        }
    }
}

impl Write for Cut<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.whole += text.len();
        let room = (self.start + self.most).saturating_sub(self.out.len());
        self.out.push_str(text.get(..boundary(text, room)).unwrap_or_default());
        Ok(())
    }
}

/// Shortens what stands in `text` from `start` on to `most` bytes, with a note that it had `whole`.
/// Where the note begins.
pub(crate) fn shorten(text: &mut String, start: usize, whole: usize, most: usize) -> usize {
    let note = format!("\u{2026} (cut, {whole} bytes)");
    let end = boundary(text, start + most.saturating_sub(note.len())).max(start);
    text.truncate(end);
    text.push_str(&note);
    end
}

/// The last place at or before `at` between two characters.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped_and_all_else_stays() {
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
        fn nothing_odd_is_left_and_what_is_escaped_stays_so(text in any::<String>()) {
            let shown = escaped(&text).to_string();
            prop_assert!(!shown.chars().any(is_odd), "{shown:?}");
            prop_assert_eq!(escaped(&shown).to_string(), shown);
        }

        #[test]
        fn a_text_has_room_or_is_cut_and_says_so(pieces in prop::collection::vec(".{0,20}", 0..12)) {
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
