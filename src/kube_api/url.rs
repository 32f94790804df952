//! Escapes texts for URLs.
//!
//! Promises that a text stays within the segment or the value it is put in. Leaves to `name` which
//! texts may be segments at all: `.` and `..` cannot be escaped.

use std::fmt::Write as _;

/// One segment of a path, escaped as Go's `net/url` escapes paths.
pub(crate) fn segment(text: &str) -> String {
    escape(text, b"-_.~$&+,:;=@")
}

/// One value of a query.
pub(crate) fn query(text: &str) -> String {
    escape(text, b"-_.~")
}

/// Escapes all but letters, digits and the `plain` signs.
fn escape(text: &str, plain: &[u8]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || plain.contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_end_a_segment_or_a_value_is_escaped() {
        for (text, as_segment, as_query) in [
            ("data-1.x_y~", "data-1.x_y~", "data-1.x_y~"),
            ("snap?pretty=1", "snap%3Fpretty=1", "snap%3Fpretty%3D1"),
            ("a&b#c", "a&b%23c", "a%26b%23c"),
            ("A b+c", "A%20b+c", "A%20b%2Bc"),
            ("schnäppchen", "schn%C3%A4ppchen", "schn%C3%A4ppchen"),
            ("a/b%c\r\n", "a%2Fb%25c%0D%0A", "a%2Fb%25c%0D%0A"),
        ] {
            assert_eq!((segment(text).as_str(), query(text).as_str()), (as_segment, as_query));
        }
    }
}
