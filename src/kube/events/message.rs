//! What an event says.
//!
//! Promises that no event says more than two kibibytes, whoever wrote the text: a driver's status, a
//! server's answer, a claim's own words. A shorter text stays as it is. The API server has hundreds
//! of events of each namespace to keep, and `kubectl describe` prints them all.

use crate::plain_text::shorten;

/// The most that one event says, in bytes: the original tells some drivers' statuses of 1,500 whole.
const MOST: usize = 2048;

/// How client-go marks an event that stands for many.
const COMBINED: &str = "(combined from similar events): ";

/// A text that is cut where it is too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    text: String,
    /// So much of the text was told; the rest says that it was cut.
    told: usize,
    /// How long what was told is as a whole.
    whole: usize,
}

impl Message {
    /// The text, or as much of it as may be said.
    pub(super) fn new(text: String) -> Self {
        let whole = text.len();
        Self::of(text, whole)
    }

    /// The start of a text of `whole` bytes.
    fn of(mut text: String, whole: usize) -> Self {
        let told = if whole > MOST { shorten(&mut text, 0, whole, MOST) } else { text.len() };
        text.shrink_to_fit();
        Self { text, told, whole }
    }

    /// The message of the event that stands for this one and similar ones.
    pub(super) fn combined(&self) -> Self {
        let told = self.text.get(..self.told).unwrap_or_default();
        Self::of([COMBINED, told].concat(), COMBINED.len() + self.whole)
    }

    /// What is written.
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_kibibytes_are_said_whole_and_more_is_cut_between_characters() {
        let of = |length: usize| Message::new("x".repeat(length));
        assert_eq!(of(MOST).as_str(), "x".repeat(MOST));
        let cut = of(2049);
        assert_eq!(cut.as_str(), ["x".repeat(2027), "\u{2026} (cut, 2049 bytes)".into()].concat());
        let odd = Message::new(format!("x{}", "\u{2603}".repeat(1000)));
        assert!((MOST - 2..=MOST).contains(&odd.as_str().len()), "{}", odd.as_str());
    }

    #[test]
    fn a_combined_event_is_no_longer_and_is_cut_once() {
        let combined = |text: &str| Message::new(text.to_owned()).combined().as_str().to_owned();
        assert_eq!(combined("no"), "(combined from similar events): no");
        for length in [2017, 2048, 2049, 5000] {
            let text = combined(&"x".repeat(length));
            let note = format!("x\u{2026} (cut, {} bytes)", length + COMBINED.len());
            assert!(text.ends_with(&note) && text.len() == MOST, "{text}");
        }
        assert_eq!(combined(&"x".repeat(MOST - COMBINED.len())).len(), MOST);
    }
}
