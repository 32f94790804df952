//! What a panic prints.
//!
//! Owns the process's panic hook. Promises that the message, which may quote what users wrote, comes
//! to stderr cut and without control characters. Does not use the logger: the panic may have come
//! from there. Leaves the catching of panics to [`runtime`](crate::runtime).

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    io::Write as _,
    panic::{self, PanicHookInfo},
    thread,
};

use crate::plain_text::{Cut, escaped};

/// The longest message, in bytes before it is escaped.
const LONGEST: usize = 4096;

/// Prints panics of this process as this module promises from now on. Like the standard hook, it
/// adds a backtrace where `RUST_BACKTRACE` asks for one.
pub fn escape_panics() {
    panic::set_hook(Box::new(|info| {
        let _ = writeln!(std::io::stderr(), "{}", described(info));
    }));
}

fn described(info: &PanicHookInfo<'_>) -> String {
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let thread = thread::current();
    let (thread, message) = (thread.name().unwrap_or_default(), message(info));
    let mut text = format!("thread {thread:?} panicked at {place}: {}", printable(message));
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        text.push_str(&format!("\n{backtrace}"));
    }
    text
}

fn message<'a>(info: &'a PanicHookInfo<'_>) -> &'a str {
    info.payload_as_str().unwrap_or("a value that is no text")
}

fn printable(message: &str) -> String {
    use std::fmt::Write as _;
    let mut cut = String::new();
    let mut room = Cut::new(&mut cut, LONGEST);
    let _ = room.write_str(message);
    room.finish();
    escaped(&cut).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_cut_and_without_control_characters() {
        let text = printable(&format!("\u{1b}[31m\r\n{}", "x".repeat(10_000)));
        assert!(text.starts_with("\\u{1b}[31m\\r\\nxxx"), "{text}");
        assert!(!text.chars().any(char::is_control), "{text}");
        assert!(text.len() < LONGEST + 100, "{}", text.len());
    }
}
