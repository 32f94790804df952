//! Go's `os.Expand`, which expands the templates in secrets' names.
//!
//! It follows Go exactly, because classes rely on its details. The test table follows Go's
//! documented behaviour.

/// Go's `os.Expand`: replaces `${name}` and `$name` by `lookup(name)`.
///
/// `$` followed by one of `*#$@!?-` or a digit refers to that one character; `${}` is dropped with
/// its braces, an unclosed `${` loses its two characters, a `$` before anything else stays.
pub(super) fn expand(template: &str, mut lookup: impl FnMut(&str) -> String) -> String {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        if after.is_empty() {
            out.push('$');
        }
        let (variable, length) = variable(after);
        match variable {
            Variable::Named(name) => out.push_str(&lookup(name)),
            Variable::Literal if !after.is_empty() => out.push('$'),
            Variable::Literal | Variable::BadSyntax => {}
        }
        rest = after.get(length..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

/// What follows a `$`.
enum Variable<'a> {
    /// A name to look up.
    Named(&'a str),
    /// No name: the `$` stays.
    Literal,
    /// `${` without a name or an end: dropped.
    BadSyntax,
}

/// Parses the variable at the start of `text`, after a `$`; also returns its length in bytes.
fn variable(text: &str) -> (Variable<'_>, usize) {
    if let Some(braced) = text.strip_prefix('{') {
        return braced_variable(braced);
    }
    if text.starts_with(is_special) {
        return (Variable::Named(text.get(..1).unwrap_or_default()), 1);
    }
    let length = text.find(|c: char| !is_alphanumeric(c)).unwrap_or(text.len());
    match text.get(..length) {
        Some(name) if !name.is_empty() => (Variable::Named(name), length),
        _ => (Variable::Literal, 0),
    }
}

/// Parses what follows `${`; the length counts the opening brace.
fn braced_variable(text: &str) -> (Variable<'_>, usize) {
    match text.find('}') {
        // `${$}` refers to `$`, `${}` to nothing.
        Some(0) => (Variable::BadSyntax, 2),
        Some(end) => (Variable::Named(text.get(..end).unwrap_or_default()), end + 2),
        None => (Variable::BadSyntax, 1),
    }
}

/// The one-character names of the shell.
fn is_special(c: char) -> bool {
    matches!(c, '*' | '#' | '$' | '@' | '!' | '?' | '-' | '0'..='9')
}

fn is_alphanumeric(c: char) -> bool {
    c == '_' || c.is_ascii_alphanumeric()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn expand_follows_os_expand() {
        let table = [
            ("", ""),
            ("${pv.name}", "<pv.name>"),
            ("$x.y", "<x>.y"),
            ("$x_1-z", "<x_1>-z"),
            ("$12", "<1>2"),
            ("$*$#$@$!$?$-", "<*><#><@><!><?><->"),
            ("${}x", "x"),
            ("$", "$"),
            ("$.x", "$.x"),
            ("${pvc.annotations['a/b']}", "<pvc.annotations['a/b']>"),
            // One or more special characters between braces are a name.
            ("${1}", "<1>"),
            ("${$x}", "<$x>"),
            ("${{x}}", "<{x>}"),
            ("${a${b}c", "<a${b>c"),
            ("${a}${b", "<a>b"),
            ("${\"}", "<\">"),
            ("$}", "$}"),
            ("${}}", "}"),
            ("${", ""),
            ("$$$", "<$>$"),
            ("$${x}", "<$>{x}"),
            ("\\$x", "\\<x>"),
            ("$_a9-$B", "<_a9>-<B>"),
            ("$é$é", "$é$é"),
            ("$/$:$,$=$+$%$&$(", "$/$:$,$=$+$%$&$("),
            ("$x${y}$z.", "<x><y><z>."),
        ];
        for (template, expected) in table {
            assert_eq!(expand(template, |name| format!("<{name}>")), expected, "{template}");
        }
    }

    /// A piece of a template with its expansion, which is independent of its neighbours.
    fn pieces() -> impl Strategy<Value = (String, String)> {
        prop_oneof![
            "[ -#%-z|~äß漢]{0,5}".prop_map(|text| (format!("{text} "), format!("{text} "))),
            "[^}*#$@!?0-9-][^}]{0,6}"
                .prop_map(|name| (format!("${{{name}}}"), format!("<{name}>"))),
            "[*#$@!?0-9-]".prop_map(|name| (format!("${name}"), format!("<{name}>"))),
            "[A-Za-z_][A-Za-z_0-9]{0,5}"
                .prop_map(|name| (format!("${name} "), format!("<{name}> "))),
            Just(("${}".to_owned(), String::new())),
            "[.,:/ äß漢]".prop_map(|text| (format!("${text}"), format!("${text}"))),
        ]
    }

    proptest! {
        #[test]
        fn a_template_expands_piece_by_piece(pieces in prop::collection::vec(pieces(), 0..8)) {
            let (template, expected): (String, String) = pieces.into_iter().unzip();
            prop_assert_eq!(expand(&template, |name| format!("<{name}>")), expected, "{}", template);
        }
    }
}
