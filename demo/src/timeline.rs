//! How a line of the timeline looks.
//!
//! Owns columns and colours. Promises that a line is written whole and at once, and that the same
//! line is only coloured on a terminal.

use std::{
    env,
    io::{self, IsTerminal as _, Write},
    time::Duration,
};

use crate::observations::Source;

/// How many bytes a UID has.
const UID: usize = 36;

/// Where the lines go.
pub struct Timeline {
    out: Box<dyn Write + Send>,
    colour: bool,
}

impl Timeline {
    /// Lines on standard output; coloured if that is a terminal and `NO_COLOR` is not set.
    pub fn on_stdout() -> Self {
        let colour = io::stdout().is_terminal() && env::var_os("NO_COLOR").is_none();
        Self { out: Box::new(io::stdout()), colour }
    }

    /// Plain lines to `out`.
    pub fn plain(out: impl Write + Send + 'static) -> Self {
        Self { out: Box::new(out), colour: false }
    }

    /// Writes one line.
    ///
    /// # Errors
    /// What `out` says, such as that nobody reads any more.
    pub fn line(&mut self, at: Duration, source: Source, text: &str) -> io::Result<()> {
        let mut line = line(at, source, text, self.colour);
        line.push('\n');
        self.out.write_all(line.as_bytes())?;
        self.out.flush()
    }

    /// Writes something that is no part of the table.
    ///
    /// # Errors
    /// As [`Timeline::line`].
    pub fn say(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{text}")?;
        self.out.flush()
    }
}

fn line(at: Duration, source: Source, text: &str, colour: bool) -> String {
    let (name, code) = look(source);
    let text = shortened(text);
    let seconds = at.as_secs_f64();
    if colour {
        format!("{seconds:8.3} s  \x1b[{code}m{name:<6}\x1b[0m  {text}")
    } else {
        format!("{seconds:8.3} s  {name:<6}  {text}")
    }
}

/// A source's name, and its colour (ECMA-48, "Select Graphic Rendition").
fn look(source: Source) -> (&'static str, u8) {
    match source {
        Source::Demo => ("demo", 1),
        Source::Class => ("class", 34),
        Source::Secret => ("secret", 34),
        Source::Snapshot => ("snap", 34),
        Source::Claim => ("claim", 36),
        Source::Volume => ("volume", 32),
        Source::Event => ("event", 33),
        Source::Driver => ("driver", 35),
        Source::Disk => ("disk", 31),
    }
}

/// The text with the UIDs in it cut to their first eight digits, so that a line fits the screen.
fn shortened(text: &str) -> String {
    let mut short = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let taken = if rest.get(..UID).is_some_and(is_uid) {
            short.extend(rest.chars().take(8));
            short.push_str("..");
            UID
        } else {
            short.push(first);
            first.len_utf8()
        };
        rest = rest.get(taken..).unwrap_or_default();
    }
    short
}

/// Whether a text of [`UID`] bytes is one: five groups of hexadecimal digits.
fn is_uid(text: &str) -> bool {
    text.bytes().enumerate().all(|(place, byte)| match place {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "0b34a6c8-1111-2222-3333-444455556666";

    #[test]
    fn columns_are_aligned_and_colour_is_only_where_it_is_wanted() {
        let at = Duration::from_millis(1234);
        assert_eq!(line(at, Source::Disk, "x", false), "   1.234 s  disk    x");
        assert_eq!(line(at, Source::Driver, "y", false), "   1.234 s  driver  y");
        assert_eq!(line(at, Source::Claim, "z", true), "   1.234 s  \x1b[36mclaim \x1b[0m  z");
    }

    #[test]
    fn uids_are_cut_wherever_they_stand_and_nothing_else_is() {
        for (text, expected) in [
            (format!("pvc-{ONE}"), "pvc-0b34a6c8..".to_owned()),
            (format!("é vol-pvc-{ONE}, {ONE}."), "é vol-pvc-0b34a6c8.., 0b34a6c8...".to_owned()),
            (ONE[..35].to_owned(), ONE[..35].to_owned()),
            (ONE.replace('-', "_"), ONE.replace('-', "_")),
            (String::new(), String::new()),
        ] {
            assert_eq!(shortened(&text), expected, "{text}");
        }
    }
}
