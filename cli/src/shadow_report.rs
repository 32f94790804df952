//! `kubectl csi-provisioner shadow-report`: prints what a process in shadow mode has found.
//!
//! Contains the subcommand's arguments, output and exit codes. The results are read from the status of
//! that process ([`shadow`](crate::shadow)).

use clap::{
    Args,
    builder::{StringValueParser, TypedValueParser as _},
};

use csi_provisioner::plain_text::escaped;
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
pub async fn run(request: &Request) -> Output {
    match report(request).await {
        Ok(report) => Output::printed(text(&report, request.format.is_json), exit_code(&report)),
        Err(why) => Output::failure(why, FAILED),
    }
}

/// What a process in shadow mode serves.
#[derive(Deserialize)]
struct Results {
    /// `None` in another process's status.
    shadow: Option<ShadowReport>,
}

async fn report(request: &Request) -> Result<ShadowReport, String> {
    let results: Results =
        fetch(&request.address, "").await.map_err(|why| escaped(&why).to_string())?;
    results
        .shadow
        .ok_or_else(|| format!("{}: this process is not in shadow mode", escaped(&request.address)))
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
    use crate::{
        shadow::{Subject, Total},
        subcommand::Command,
        testing,
    };

    fn parse(args: &[&str]) -> Result<Request, Output> {
        let parsed = testing::parse("shadow-report", args)?;
        let Command::ShadowReport(request) = parsed else { panic!("{args:?}") };
        Ok(request)
    }

    #[test]
    fn an_address_without_a_host_is_of_this_pod() {
        let request = parse(&["--status-endpoint=:8090", "-o", "json"]).unwrap();
        assert_eq!((&*request.address, request.format.is_json), ("127.0.0.1:8090", true));
        assert_eq!(parse(&["--status-endpoint", "a:1"]).unwrap().address, "a:1");
    }

    #[test]
    fn wrong_arguments_end_with_2_and_help_with_0() {
        for args in [&[][..], &["--status-endpoint=a:1", "more"], &["-o", "yaml"]] {
            assert_eq!(parse(args).unwrap_err().exit_code, 2, "{args:?}");
        }
        assert_eq!(parse(&["--help"]).unwrap_err().exit_code, 0);
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
