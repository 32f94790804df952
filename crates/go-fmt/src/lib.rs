//! Texts as Go reads and writes them, for flags and messages that users know from external-provisioner:
//! `%q`, the numbers and booleans of `strconv`, durations, and Kubernetes' quantities.

mod duration;
#[cfg(any(test, feature = "fuzzing"))]
#[path = "../../../fuzz/bodies/fuzzing.rs"]
mod fuzzing;
pub mod quantity;
mod strconv;

use std::fmt::Write as _;

pub use self::{
    duration::{DurationError, parse_duration},
    strconv::{Fault, NumError, parse_bool, parse_decimal, parse_float, parse_int, parse_uint},
};

/// Go's `%q`: the text in double quotes, with Go's escapes.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if c.is_control() && u32::from(c) < 0x80 => push_escape(&mut out, "\\x", 2, c),
            c if is_printable(c) => out.push(c),
            c if u32::from(c) < 0x1_0000 => push_escape(&mut out, "\\u", 4, c),
            c => push_escape(&mut out, "\\U", 8, c),
        }
    }
    out.push('"');
    out
}

fn push_escape(out: &mut String, prefix: &str, digits: usize, c: char) {
    // Writing to a String cannot fail.
    let _ = write!(out, "{prefix}{:0digits$x}", u32::from(c));
}

/// Go's `strconv.IsPrint`, by Rust's tables: characters that `Debug` does not escape, and no white space
/// but U+0020.
fn is_printable(c: char) -> bool {
    // After another character, because at the start of a text Rust escapes combining marks and Go does not.
    let printed = ['x', c].iter().collect::<String>().escape_debug().count();
    c == ' ' || (!c.is_whitespace() && (c == '\'' || printed == 2))
}

/// Go's `%q` of a list of strings.
pub fn quote_list<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = texts.into_iter().map(quote).collect();
    format!("[{}]", quoted.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quote_follows_percent_q() {
        let table = [
            ("", r#""""#),
            ("it's \"so\"\\", r#""it's \"so\"\\""#),
            ("\n\t\r\u{7}\u{8}\u{b}\u{c}", r#""\n\t\r\a\b\v\f""#),
            ("\u{0}\u{1b}\u{7f}", r#""\x00\x1b\x7f""#),
            ("e\u{301} \u{301}", "\"e\u{301} \u{301}\""),
            ("\u{a0}\u{feff}\u{85}", r#""\u00a0\ufeff\u0085""#),
            ("\u{e0001}", r#""\U000e0001""#),
            // White space other than U+0020, and format characters.
            ("\u{200b}\u{202e}\u{2028}\u{2029}", r#""\u200b\u202e\u2028\u2029""#),
            ("\u{3000}\u{1680}\u{2003}\u{205f}", r#""\u3000\u1680\u2003\u205f""#),
            ("\u{ad}\u{61c}\u{2060}\u{180e}", r#""\u00ad\u061c\u2060\u180e""#),
            ("\u{80}\u{9f}\u{1}\u{1f}", r#""\u0080\u009f\x01\x1f""#),
            // Unassigned and private use.
            ("\u{e000}\u{f8ff}\u{fffe}\u{ffff}", r#""\ue000\uf8ff\ufffe\uffff""#),
            ("\u{f0000}\u{10ffff}", r#""\U000f0000\U0010ffff""#),
            // Letters, marks, numbers, symbols and emoji of all planes.
            ("αβγ жщ אב عربي हिन्दी ไทย 한글 かな", "\"αβγ жщ אב عربي हिन्दी ไทย 한글 かな\""),
            ("\u{300}\u{20dd}\u{fe0f}\u{e0100}", "\"\u{300}\u{20dd}\u{fe0f}\u{e0100}\""),
            ("½Ⅷ²€←∞■☃✓", "\"½Ⅷ²€←∞■☃✓\""),
            ("😀🏳𝒳𠀀", "\"😀🏳𝒳𠀀\""),
            ("'`$\u{7e}", "\"'`$~\""),
        ];
        for (text, expected) in table {
            assert_eq!(quote(text), expected, "{text:?}");
        }
    }

    #[test]
    fn lists_are_quoted_one_by_one() {
        assert_eq!(quote_list(["a", "b c"]), r#"["a" "b c"]"#);
        assert_eq!(quote_list([]), "[]");
    }

    /// Go's `strconv.Unquote` for double quotes.
    fn unquote(quoted: &str) -> Option<String> {
        let mut rest = quoted.strip_prefix('"')?.strip_suffix('"')?.chars();
        let mut text = String::new();
        while let Some(c) = rest.next() {
            if c != '\\' {
                text.push(c);
                continue;
            }
            let escape = rest.next()?;
            let digits = match escape {
                'x' => 2,
                'u' => 4,
                'U' => 8,
                plain => {
                    let at = "abfnrtv\"\\".find(plain)?;
                    text.push(char::from(*b"\x07\x08\x0c\n\r\t\x0b\"\\".get(at)?));
                    continue;
                }
            };
            let code: String = rest.by_ref().take(digits).collect();
            text.push(char::from_u32(u32::from_str_radix(&code, 16).ok()?)?);
        }
        Some(text)
    }

    proptest::proptest! {
        #[test]
        fn a_quoted_text_unquotes_to_itself_and_has_no_control_characters(text in proptest::prelude::any::<String>()) {
            let quoted = quote(&text);
            proptest::prop_assert_eq!(unquote(&quoted), Some(text));
            proptest::prop_assert!(quoted.chars().all(|c| c == ' ' || !(c.is_whitespace() || c.is_control())));
        }
    }
}
