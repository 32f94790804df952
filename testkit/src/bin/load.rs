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
    if options.against.is_none() {
        return Ok(serde_json::to_string(&load::run(options).await?)?);
    }
    let markdown = options.markdown;
    let pairs = pairs::run(options).await?;
    match pairs.markdown().filter(|_| markdown) {
        Some(table) => Ok(table),
        None => Ok(serde_json::to_string(&pairs)?),
    }
}
