//! What the commands share: the command line, and what they print.
//!
//! A command's module has its arguments and what is done with them. Its result is an [`Output`], which `main`
//! prints; refused arguments and help are one as well.

use std::{ffi::OsString, iter};

use clap::{
    ArgAction, Args, Parser,
    builder::{PossibleValuesParser, TypedValueParser},
};
use csi_provisioner::{flags::VERSION, plain_text::escaped};

use crate::{check, explain, release_claims, shadow_report, status};

/// A command with its arguments.
#[derive(Debug, Parser)]
#[command(
    name = "csi-provisioner",
    bin_name = "kubectl csi-provisioner",
    version = VERSION,
    about = "For admins of csi-provisioner"
)]
pub enum Command {
    /// Checks a manifest that runs external-provisioner before the switch.
    Check(check::Request),
    /// Says why a claim has no volume, or why a volume is not deleted; reads only.
    Explain(Box<explain::Request>),
    /// Shows what the leader works on, what fails first, then what waits.
    Status(status::Request),
    /// Lists the claims with the record of an open CreateVolume, and releases them.
    ReleaseClaims(release_claims::Request),
    /// Compares what external-provisioner does with what csi-provisioner would do.
    #[command(disable_help_flag = true)]
    Shadow {
        /// For [`shadow`](crate::shadow), which parses them as the sidecar does.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Prints what a process in shadow mode has found.
    ShadowReport(shadow_report::Request),
}

/// Parses the command line, which begins with the program's name.
///
/// # Errors
/// Help, or why the arguments are refused. Each command has its own exit code for that, because small codes
/// are results of some.
pub fn parse(
    args: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Result<Command, Output> {
    let args: Vec<OsString> = args.into_iter().map(Into::into).collect();
    let wrong = match args.get(1).and_then(|name| name.to_str()) {
        Some("check") => check::NOT_CHECKED,
        Some("explain") => explain::UNKNOWN,
        _ => WRONG_ARGUMENTS,
    };
    Command::try_parse_from(args).map_err(|error| {
        let text = error.to_string();
        let lines: Vec<_> = text.lines().map(|line| escaped(line).to_string()).collect();
        let text = lines.join("\n") + "\n";
        if !error.use_stderr() {
            return Output::printed(text, 0);
        }
        Output { text: String::new(), errors: vec![text], exit_code: wrong }
    })
}

/// The exit code if the arguments are wrong, for commands without a code of their own.
const WRONG_ARGUMENTS: u8 = 2;

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

    /// The output if there is nothing but an error, which may quote texts of others.
    pub fn failure(why: &str, exit_code: u8) -> Self {
        Self { text: String::new(), errors: vec![escaped(why).to_string()], exit_code }
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
        value_parser = PossibleValuesParser::new(["text", "json"]).map(|format| format == "json"),
        hide_possible_values = true,
        help = "`text` or `json`"
    )]
    pub is_json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn refused(args: &[&str]) -> Output {
        parse(iter::once(&"kubectl-csi_provisioner").chain(args)).unwrap_err()
    }

    #[test]
    fn the_commands_are_sound_and_help_names_them_all() {
        let command = Command::command();
        command.clone().debug_assert();
        let help = refused(&["--help"]);
        assert!(help.errors.is_empty() && help.exit_code == 0, "{help:?}");
        for command in command.get_subcommands() {
            assert!(help.text.contains(&format!("\n  {}  ", command.get_name())), "{help:?}");
        }
        let version = refused(&["--version"]);
        assert_eq!(
            (version.exit_code, &*version.text),
            (0, &*format!("csi-provisioner {VERSION}\n"))
        );
    }

    #[test]
    fn wrong_arguments_end_with_the_commands_exit_code() {
        for (args, exit_code) in [
            (&[][..], 2),
            (&["explian\u{1b}"], 2),
            (&["status"], 2),
            (&["release-claims", "--relaese"], 2),
            (&["status", "--driver=d", "-o", "yaml"], 2),
            (&["shadow-report"], 2),
            (&["check", "-o", "yaml"], 3),
            (&["explain"], 3),
            (&["explain", "pod", "x"], 3),
            (&["explain", "pvc", "x", "--volume-name-uuid-length=40"], 3),
            (&["explain", "pvc", "x", "--feature-gates=NoSuch=true"], 3),
        ] {
            let refused = refused(args);
            assert_eq!((&*refused.text, refused.exit_code), ("", exit_code), "{refused:?}");
            assert!(refused.errors[0].contains("--help"), "{refused:?}");
            assert!(!refused.errors[0].contains('\u{1b}'), "{refused:?}");
        }
    }
}
