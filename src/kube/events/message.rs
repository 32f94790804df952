//! The message of an event, truncated to two kibibytes.
//!
//! Messages have texts of drivers, servers and users. The API server keeps hundreds of events per
//! namespace, and `kubectl describe` prints them all.

use crate::plain_text::shorten;

/// The longest message, in bytes; some drivers' statuses have 1,500.
const MAX_LEN: usize = 2048;

/// client-go's prefix of combined events.
const COMBINED: &str = "(combined from similar events): ";

/// A text that is truncated if it is too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    text: String,
    /// The length of the original text's part; what follows is a note about the truncation.
    kept: usize,
    /// The length of the original text.
    original_len: usize,
}

impl Message {
    /// Truncates `text`.
    pub(super) fn new(text: String) -> Self {
        let original_len = text.len();
        Self::truncate(text, original_len)
    }

    /// Truncates `text`, the beginning of a text of `original_len` bytes.
    fn truncate(mut text: String, original_len: usize) -> Self {
        let kept = if original_len > MAX_LEN {
            shorten(&mut text, 0, original_len, MAX_LEN)
        } else {
            text.len()
        };
        text.shrink_to_fit();
        Self { text, kept, original_len }
    }

    /// The message of the event that combines this one with similar ones.
    pub(super) fn combined(&self) -> Self {
        let kept = self.text.get(..self.kept).unwrap_or_default();
        Self::truncate([COMBINED, kept].concat(), COMBINED.len() + self.original_len)
    }

    /// The truncated text.
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_above_two_kibibytes_are_truncated_between_characters() {
        let of = |length: usize| Message::new("x".repeat(length));
        assert_eq!(of(MAX_LEN).as_str(), "x".repeat(MAX_LEN));
        let cut = of(2049);
        assert_eq!(cut.as_str(), ["x".repeat(2027), "\u{2026} (cut, 2049 bytes)".into()].concat());
        let odd = Message::new(format!("x{}", "\u{2603}".repeat(1000)));
        assert!((MAX_LEN - 2..=MAX_LEN).contains(&odd.as_str().len()), "{}", odd.as_str());
    }

    #[test]
    fn a_combined_message_is_not_longer_and_has_one_note() {
        let combined = |text: &str| Message::new(text.to_owned()).combined().as_str().to_owned();
        assert_eq!(combined("no"), "(combined from similar events): no");
        for length in [2017, 2048, 2049, 5000] {
            let text = combined(&"x".repeat(length));
            let note = format!("x\u{2026} (cut, {} bytes)", length + COMBINED.len());
            assert!(text.ends_with(&note) && text.len() == MAX_LEN, "{text}");
        }
        assert_eq!(combined(&"x".repeat(MAX_LEN - COMBINED.len())).len(), MAX_LEN);
    }
}
