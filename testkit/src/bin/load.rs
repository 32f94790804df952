//! The load bench: one line of JSON on stdout, everything else on stderr.

use std::process::ExitCode;

use clap::Parser as _;
use serde::Serialize;
use testkit::load::{self, LoadError, options::Options, pairs};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let options = Options::parse();
    if options.against.is_some() {
        print(pairs::run(options).await)
    } else {
        print(load::run(options).await)
    }
}

fn print(outcome: Result<impl Serialize, LoadError>) -> ExitCode {
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
