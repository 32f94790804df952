//! Text as Go's `%q` prints it.
//!
//! Owns the quoting that stands in messages users know: of flags, names and templates. Promises
//! Go's escapes to the letter; the table below comes from Go's documented behaviour.

use std::fmt::Write as _;

/// Go's `%q`: the text between double quotes, with Go's escapes.
pub(crate) fn quote(text: &str) -> String {
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

/// Go's `strconv.IsPrint` as far as Rust's own tables tell: what Debug would print as it is, and
/// no space but the plain one.
fn is_printable(c: char) -> bool {
    // Behind another character: at the start of a text Rust escapes combining marks, Go does not.
    let printed = ['x', c].iter().collect::<String>().escape_debug().count();
    c == ' ' || (!c.is_whitespace() && (c == '\'' || printed == 2))
}

/// Go's `%q` of a list of strings.
pub(crate) fn quote_list<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
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
            ("plain text", r#""plain text""#),
            ("it's \"so\"\\", r#""it's \"so\"\\""#),
            ("\n\t\r\u{7}\u{8}\u{b}\u{c}", r#""\n\t\r\a\b\v\f""#),
            ("\u{0}\u{1b}\u{7f}", r#""\x00\x1b\x7f""#),
            ("höhe 漢", r#""höhe 漢""#),
            ("e\u{301} \u{301}", "\"e\u{301} \u{301}\""),
            ("\u{a0}\u{feff}\u{85}", r#""\u00a0\ufeff\u0085""#),
            ("\u{e0001}", r#""\U000e0001""#),
        ];
        for (text, expected) in table {
            assert_eq!(quote(text), expected, "{text:?}");
        }
    }

    #[test]
    fn lists_are_quoted_one_by_one() {
        assert_eq!(quote_list(["a", "b c"]), r#"["a" "b c"]"#);
    }
}
