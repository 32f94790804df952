//! `csi-provisioner shadow-report`: prints what a process in shadow mode has found.
//!
//! Contains the subcommand's arguments, output and exit codes. The results are read from the status page of
//! that process ([`shadow`](crate::shadow)).

use std::ffi::OsString;

use clap::{Arg, Command};

use crate::{
    flags::SHADOW_REPORT,
    plain_text::escaped,
    shadow::{Agreement, ShadowReport},
    status::Status,
};

/// The subcommand's name: the first argument.
pub const NAME: &str = SHADOW_REPORT;

/// The exit code if there are no results to print, or the arguments are wrong.
pub const FAILED: u8 = 2;

/// The parsed arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// `--status-endpoint` of the process in shadow mode.
    pub address: String,
    /// Whether the output is JSON.
    pub is_json: bool,
}

impl Request {
    /// Parses the arguments after the subcommand's name.
    ///
    /// # Errors
    /// The text to print and the exit code: 2, or 0 for help.
    pub fn parse(
        args: impl Iterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Self, (String, u8)> {
        let matches = command()
            .try_get_matches_from(args)
            .map_err(|error| (error.to_string(), if error.use_stderr() { FAILED } else { 0 }))?;
        let text = |name| matches.get_one::<String>(name).cloned().unwrap_or_default();
        let address = text("status-endpoint");
        let is_port = address.starts_with(':');
        Ok(Self {
            address: if is_port { format!("127.0.0.1{address}") } else { address },
            is_json: text("output") == "json",
        })
    }
}

fn command() -> Command {
    let flag = |name, value, help| Arg::new(name).long(name).value_name(value).help(help);
    let address = flag(
        "status-endpoint",
        "address",
        "Address of the status page of the process with --shadow",
    );
    let output = flag("output", "format", "`text` or `json`").short('o');
    Command::new(SHADOW_REPORT)
        .bin_name("csi-provisioner shadow-report")
        .no_binary_name(true)
        .disable_version_flag(true)
        .about("Prints what a process with --shadow has found")
        .after_help("Exit code: 0 nothing is unexplained, 1 something is, 2 no results")
        .arg(address.required(true))
        .arg(output.value_parser(["text", "json"]).hide_possible_values(true).default_value("text"))
}

/// Fetches the results. Returns their text and the exit code.
///
/// # Errors
/// Why there are none.
pub async fn run(request: &Request) -> Result<(String, u8), String> {
    let status = Status::fetch(&request.address, "").await;
    let status = status.map_err(|why| escaped(&why).to_string())?;
    let report = status.shadow.ok_or_else(|| {
        format!("{}: this process runs without --shadow", escaped(&request.address))
    })?;
    Ok((text(&report, request.is_json), exit_code(&report)))
}

fn text(report: &ShadowReport, is_json: bool) -> String {
    if is_json {
        // Cannot fail: all keys of maps are texts.
        return serde_json::to_string_pretty(report).unwrap_or_default() + "\n";
    }
    report.to_text()
}

fn exit_code(report: &ShadowReport) -> u8 {
    u8::from(report.count(Agreement::Unexplained) > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shadow::{Subject, Total};

    fn parse(args: &[&str]) -> Result<Request, (String, u8)> {
        Request::parse(args.iter().map(ToString::to_string))
    }

    #[test]
    fn an_address_without_a_host_is_of_this_pod() {
        let request = parse(&["--status-endpoint=:8090", "-o", "json"]).unwrap();
        assert_eq!((&*request.address, request.is_json), ("127.0.0.1:8090", true));
        assert_eq!(parse(&["--status-endpoint", "a:1"]).unwrap().address, "a:1");
    }

    #[test]
    fn wrong_arguments_end_with_2_and_help_with_0() {
        for args in [&[][..], &["--status-endpoint=a:1", "more"], &["-o", "yaml"]] {
            assert_eq!(parse(args).unwrap_err().1, 2, "{args:?}");
        }
        assert_eq!(parse(&["--help"]).unwrap_err().1, 0);
        command().debug_assert();
    }

    #[test]
    fn only_something_unexplained_ends_with_1() {
        for (agreement, code) in [
            (Agreement::Same, 0),
            (Agreement::Documented, 0),
            (Agreement::Unknown, 0),
            (Agreement::Unexplained, 1),
        ] {
            let totals = vec![Total { subject: Subject::Volume, agreement, count: 1 }];
            let report = ShadowReport { totals, ..ShadowReport::default() };
            assert_eq!(exit_code(&report), code, "{agreement:?}");
        }
    }
}
