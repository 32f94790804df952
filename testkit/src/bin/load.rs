//! The load bench: one line of JSON or a table in Markdown on stdout, everything else on stderr.

use std::process::ExitCode;

use clap::Parser as _;
use testkit::load::{self, LoadError, options::Options, pairs};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match line(Options::parse()).await {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("load: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn line(options: Options) -> Result<String, LoadError> {
    match (options.against.is_some(), options.markdown) {
        (false, _) => Ok(load::run(options).await?.to_string()),
        (true, false) => Ok(pairs::run(options).await?.to_string()),
        (true, true) => Ok(pairs::markdown(&pairs::run(options).await?)),
    }
}
