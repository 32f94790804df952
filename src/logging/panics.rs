//! The panic hook: prints panics to stderr.
//!
//! The text, which may quote users, is truncated and has no control characters. The hook does not
//! use the logger, because the panic may be in it. [`runtime`](crate::runtime) catches panics.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    fmt::{Display, Write as _},
    io::{Write as _, stderr},
    panic,
};

use crate::plain_text::{Cut, escaped};

/// The longest text, in bytes before it is escaped.
const LONGEST: usize = 4096;

/// Sets the panic hook. Like the standard hook it prints a backtrace if `RUST_BACKTRACE` is set.
pub fn escape_panics() {
    panic::set_hook(Box::new(|info| {
        let (text, backtrace) = (printable(info), Backtrace::capture());
        let _ = match backtrace.status() {
            BacktraceStatus::Captured => writeln!(stderr(), "{text}\n{backtrace}"),
            _ => writeln!(stderr(), "{text}"),
        };
    }));
}

fn printable(panic: impl Display) -> String {
    let mut truncated = String::new();
    let mut cut = Cut::new(&mut truncated, LONGEST);
    let _ = write!(cut, "{panic}");
    cut.finish();
    escaped(&truncated).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_truncated_and_has_no_control_characters() {
        let text = printable(format!("\u{1b}[31m\r\n{}", "x".repeat(10_000)));
        assert!(text.starts_with("\\u{1b}[31m\\r\\nxxx"), "{text}");
        assert!(!text.chars().any(char::is_control), "{text}");
        assert!(text.len() < LONGEST + 100, "{}", text.len());
    }
}
