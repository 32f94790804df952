//! What the commands share: their names, how their arguments are parsed, and what they print.
//!
//! A command's module has its arguments (a [`Parser`]; `explain` builds a command, as it takes flags of the
//! controller too) and what is done with them. Its result is an
//! [`Output`], which `main` prints; refused arguments and help are one as well. Each command has its own
//! exit code for wrong arguments, because small codes are its results.

use std::{
    ffi::{OsStr, OsString},
    iter,
};

use clap::{
    ArgAction, Args, Error, Parser,
    builder::{PossibleValuesParser, TypedValueParser},
};
use csi_provisioner::{flags::VERSION, plain_text::escaped};

/// The command that lists and releases claims with open calls.
pub const RELEASE_CLAIMS: &str = "release-claims";

/// The command that checks a manifest before the switch.
pub const CHECK: &str = "check";

/// The command that says why a claim has no volume.
pub const EXPLAIN: &str = "explain";

/// The command that runs shadow mode.
pub const SHADOW: &str = "shadow";

/// The command that prints the results of shadow mode.
pub const SHADOW_REPORT: &str = "shadow-report";

/// The command that shows what the leader works on.
pub const STATUS: &str = "status";

/// The exit code if no command of this name exists.
const NO_COMMAND: u8 = 2;

/// The commands with their lines of the usage.
const COMMANDS: [(&str, &str); 6] = [
    (CHECK, "Checks a manifest that runs external-provisioner before the switch"),
    (EXPLAIN, "Says why a claim has no volume, or why a volume is not deleted"),
    (STATUS, "Shows what the leader works on, what fails and what waits"),
    (RELEASE_CLAIMS, "Lists the claims with an open CreateVolume, and releases them"),
    (SHADOW, "Compares what external-provisioner does with what csi-provisioner would do"),
    (SHADOW_REPORT, "Prints what a process in shadow mode has found"),
];

/// The usage.
pub fn usage() -> Output {
    let lines = COMMANDS
        .iter()
        .fold(String::new(), |lines, (name, about)| lines + &format!("  {name:14}  {about}\n"));
    let text = format!(
        "For admins of csi-provisioner.\n\nUsage: kubectl csi-provisioner COMMAND\n\n{lines}\nkubectl csi-provisioner COMMAND --help says more.\n"
    );
    Output::printed(text, 0)
}

/// The version.
pub fn version() -> Output {
    Output::printed(format!("{VERSION}\n"), 0)
}

/// What is printed if no command has this name.
pub fn unknown(name: &OsStr) -> Output {
    let names = COMMANDS.map(|(name, _)| name).join(", ");
    let error = match name.to_string_lossy() {
        name if name.is_empty() => format!("a command is missing: use one of {names}"),
        name => format!("unknown command {:?}: use one of {names}", escaped(&name).to_string()),
    };
    Output::failure(error, NO_COMMAND)
}

/// What a command prints, and its exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// For stdout, with the end of its last line.
    pub text: String,
    /// For stderr, one a line.
    pub errors: Vec<String>,
    /// The exit code.
    pub exit_code: u8,
}

impl Output {
    /// The output if there is no error.
    pub fn printed(text: String, exit_code: u8) -> Self {
        Self { text, errors: Vec::new(), exit_code }
    }

    /// The output if there is nothing but an error.
    pub fn failure(why: String, exit_code: u8) -> Self {
        Self { text: String::new(), errors: vec![why], exit_code }
    }

    /// clap's help, or its error, which ends with this exit code.
    pub fn refusal(error: &Error, wrong: u8) -> Self {
        if error.use_stderr() {
            return Self::failure(error.to_string(), wrong);
        }
        Self::printed(format!("{error}\n"), 0)
    }
}

/// A table: a line of headings, and one for each row.
pub(crate) fn table<const N: usize>(headings: &[&str; N], rows: Vec<[String; N]>) -> String {
    let lines: Vec<_> = iter::once(headings.map(str::to_owned)).chain(rows).collect();
    let mut widths = [0; N];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    let line = |line: &[String; N]| {
        let cells = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    lines.iter().map(line).collect()
}

/// Parses the arguments after the command's name.
///
/// # Errors
/// Help, or why the arguments are refused, with the exit code `wrong`.
pub fn parse<R: Parser>(
    args: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    wrong: u8,
) -> Result<R, Output> {
    R::try_parse_from(args).map_err(|error| Output::refusal(&error, wrong))
}

/// `--output`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Args)]
pub struct Format {
    /// Whether the output is JSON.
    #[arg(
        long = "output",
        short = 'o',
        value_name = "format",
        default_value = "text",
        action = ArgAction::Set,
        value_parser = is_json(),
        hide_possible_values = true,
        help = "`text` or `json`"
    )]
    pub is_json: bool,
}

/// The value of `--output`: whether it is `json`, not `text`.
pub fn is_json() -> impl TypedValueParser<Value = bool> {
    PossibleValuesParser::new(["text", "json"]).map(|format| format == "json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Parser)]
    #[command(no_binary_name = true)]
    struct Request {
        #[command(flatten)]
        format: Format,
    }

    fn request(args: &[&str]) -> Result<Request, Output> {
        parse(args, 7)
    }

    #[test]
    fn arguments_are_parsed_or_end_with_the_commands_exit_code() {
        assert!(request(&["-o", "json"]).unwrap().format.is_json);
        assert!(!request(&[]).unwrap().format.is_json);
        let refused = request(&["-o", "yaml"]).unwrap_err();
        assert_eq!((&*refused.text, refused.errors.len(), refused.exit_code), ("", 1, 7));
    }

    #[test]
    fn usage_and_errors_name_all_commands() {
        assert!(COMMANDS.iter().all(|(name, _)| usage().text.contains(name)));
        for name in ["", "explian", "\u{1b}"] {
            let refused = unknown(OsStr::new(name));
            assert!(refused.exit_code == 2 && refused.errors[0].contains(EXPLAIN), "{refused:?}");
            assert!(!refused.errors[0].contains('\u{1b}'), "{refused:?}");
        }
    }

    #[test]
    fn help_is_no_error() {
        let help = request(&["--help"]).unwrap_err();
        assert!(help.text.contains("Usage:") && help.text.ends_with("\n\n"), "{help:?}");
        assert!(help.errors.is_empty() && help.exit_code == 0);
    }
}
