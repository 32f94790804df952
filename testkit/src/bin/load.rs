//! The load bench: one line of JSON on stdout, everything else on stderr.

use std::process::ExitCode;

use clap::Parser as _;
use testkit::load::{self, options::Options};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let outcome = load::run(Options::parse()).await;
    let line = outcome.map(|report| serde_json::to_string(&report));
    match line {
        Ok(Ok(line)) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Ok(Err(error)) => {
            eprintln!("load: can't write the report: {error}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("load: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
