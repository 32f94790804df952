//! The panic hook: prints panics to stderr.
//!
//! The message, which may quote users, is truncated and has no control characters. The hook does not
//! use the logger, because the panic may be in it. [`runtime`](crate::runtime) catches panics.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    io::Write as _,
    panic::{self, PanicHookInfo},
    thread,
};

use crate::plain_text::{Cut, escaped};

/// The longest message, in bytes before it is escaped.
const LONGEST: usize = 4096;

/// Sets the panic hook. Like the standard hook it prints a backtrace if `RUST_BACKTRACE` is set.
pub fn escape_panics() {
    panic::set_hook(Box::new(|info| {
        let _ = writeln!(std::io::stderr(), "{}", describe(info));
    }));
}

fn describe(info: &PanicHookInfo<'_>) -> String {
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let thread = thread::current();
    let (thread, message) = (thread.name().unwrap_or_default(), message(info));
    let text = format!("thread {thread:?} panicked at {place}: {}", printable(message));
    let backtrace = Backtrace::capture();
    match backtrace.status() {
        BacktraceStatus::Captured => format!("{text}\n{backtrace}"),
        _ => text,
    }
}

fn message<'a>(info: &'a PanicHookInfo<'_>) -> &'a str {
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a value that is no text")
}

fn printable(message: &str) -> String {
    use std::fmt::Write as _;
    let mut truncated = String::new();
    let mut cut = Cut::new(&mut truncated, LONGEST);
    let _ = cut.write_str(message);
    cut.finish();
    escaped(&truncated).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_truncated_and_has_no_control_characters() {
        let text = printable(&format!("\u{1b}[31m\r\n{}", "x".repeat(10_000)));
        assert!(text.starts_with("\\u{1b}[31m\\r\\nxxx"), "{text}");
        assert!(!text.chars().any(char::is_control), "{text}");
        assert!(text.len() < LONGEST + 100, "{}", text.len());
    }
}
