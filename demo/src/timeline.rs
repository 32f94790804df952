//! How a line of the timeline looks.

use std::{
    env,
    io::{self, IsTerminal as _, Write},
    sync::LazyLock,
    time::Duration,
};

use regex::Regex;

/// Where the lines go. A line is written whole and at once.
pub struct Timeline {
    out: Box<dyn Write + Send>,
    colour: bool,
}

/// A UID's first eight digits, and the rest of it.
static UID: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new("([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").ok()
});

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

    /// Writes one line, with UIDs cut to their first eight digits, so that it fits the screen.
    pub fn line(&mut self, at: Duration, source: &str, text: &str) -> io::Result<()> {
        let text = UID.as_ref().map(|uid| uid.replace_all(text, "$1.."));
        let (seconds, text) = (at.as_secs_f64(), text.unwrap_or_default());
        // ECMA-48, "Select Graphic Rendition".
        let code = match source {
            "demo" => 1,
            "claim" => 36,
            "volume" => 32,
            "event" => 33,
            "driver" => 35,
            "disk" => 31,
            _ => 34,
        };
        if self.colour {
            self.say(&format!("{seconds:8.3} s  \x1b[{code}m{source:<6}\x1b[0m  {text}"))
        } else {
            self.say(&format!("{seconds:8.3} s  {source:<6}  {text}"))
        }
    }

    /// Writes something that is no part of the table.
    pub fn say(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(format!("{text}\n").as_bytes())?;
        self.out.flush()
    }
}
