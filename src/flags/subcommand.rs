//! What the subcommands share: their names, how their arguments are parsed, and what they print.
//!
//! A subcommand's module has its arguments (a [`Parser`]; `explain` builds a command, as it takes flags of the
//! controller too) and what is done with them. Its result is an
//! [`Output`], which `main` prints; refused arguments and help are one as well. Each subcommand has its own
//! exit code for wrong arguments, because small codes are its results.

use std::ffi::OsString;

use clap::{
    Error, Parser,
    builder::{PossibleValuesParser, TypedValueParser},
};

/// The subcommand that lists and releases claims with open calls.
pub const RELEASE_CLAIMS: &str = "release-claims";

/// The subcommand that checks a manifest before the switch.
pub const CHECK: &str = "check";

/// The subcommand that says why a claim has no volume.
pub const EXPLAIN: &str = "explain";

/// The subcommand that prints the results of shadow mode.
pub const SHADOW_REPORT: &str = "shadow-report";

/// The subcommands with their lines of the usage. Each is the first argument.
pub(super) const SUBCOMMANDS: [(&str, &str); 4] = [
    (CHECK, "Checks a manifest that runs external-provisioner before the switch"),
    (EXPLAIN, "Says why a claim has no volume, or why a volume is not deleted"),
    (RELEASE_CLAIMS, "Lists the claims with an open CreateVolume, and releases them"),
    (SHADOW_REPORT, "Prints what a process with --shadow has found"),
];

/// What a subcommand prints, and its exit code.
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

/// Parses the arguments after the subcommand's name.
///
/// # Errors
/// Help, or why the arguments are refused, with the exit code `wrong`.
pub fn parse<R: Parser>(
    args: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    wrong: u8,
) -> Result<R, Output> {
    R::try_parse_from(args).map_err(|error| Output::refusal(&error, wrong))
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
        #[arg(short, value_parser = is_json(), action = clap::ArgAction::Set)]
        output: bool,
    }

    fn request(args: &[&str]) -> Result<Request, Output> {
        parse(args, 7)
    }

    #[test]
    fn arguments_are_parsed_or_end_with_the_subcommands_exit_code() {
        assert!(request(&["-o", "json"]).unwrap().output);
        assert!(!request(&["-o", "text"]).unwrap().output);
        let refused = request(&["-o", "yaml"]).unwrap_err();
        assert_eq!((&*refused.text, refused.errors.len(), refused.exit_code), ("", 1, 7));
    }

    #[test]
    fn help_is_no_error() {
        let help = request(&["--help"]).unwrap_err();
        assert!(help.text.contains("Usage:") && help.text.ends_with("\n\n"), "{help:?}");
        assert!(help.errors.is_empty() && help.exit_code == 0);
    }
}
