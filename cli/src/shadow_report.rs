//! `kubectl csi-provisioner shadow-report`: prints what a process in shadow mode has found.
//!
//! Contains the subcommand's arguments, output and exit codes. The results are read from the status of
//! that process ([`shadow`](crate::shadow)).

use clap::{
    Args,
    builder::{StringValueParser, TypedValueParser as _},
};

use serde::Deserialize;

use crate::{
    fetch::{fetch, with_host},
    shadow::{Agreement, ShadowReport},
    subcommand::{Format, Output},
};

/// The exit code if there are no results to print.
pub const FAILED: u8 = 2;

/// The parsed arguments.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = "Exit code: 0 nothing is unexplained, 1 something is, 2 no results")]
pub struct Request {
    /// `--status-endpoint` of the process in shadow mode.
    #[arg(
        long = "status-endpoint",
        value_name = "address",
        value_parser = StringValueParser::new().map(with_host),
        help = "Address of the status of the process in shadow mode"
    )]
    pub address: String,
    /// `--output`.
    #[command(flatten)]
    pub format: Format,
}

/// Fetches the results and returns what to print.
pub async fn run(request: &Request) -> Result<Output, String> {
    let report = report(request).await?;
    Ok(Output::printed(text(&report, request.format.is_json), exit_code(&report)))
}

/// What a process in shadow mode serves.
#[derive(Deserialize)]
struct Results {
    /// `None` in another process's status.
    shadow: Option<ShadowReport>,
}

async fn report(request: &Request) -> Result<ShadowReport, String> {
    let results: Results = fetch(&request.address, "").await?;
    let other = || format!("{}: this process is not in shadow mode", request.address);
    results.shadow.ok_or_else(other)
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
