//! The load bench: one line of JSON or a table in Markdown on stdout, everything else on stderr.

use std::process::ExitCode;

use clap::Parser as _;
use testkit::load::{self, LoadError, options::Options, pairs};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let options = Options::parse();
    let markdown = options.markdown;
    let text = if options.against.is_some() {
        let pairs = pairs::run(options).await;
        pairs.map(|pairs| match pairs.markdown().filter(|_| markdown) {
            Some(table) => Ok(table),
            None => serde_json::to_string(&pairs),
        })
    } else {
        load::run(options).await.map(|report| serde_json::to_string(&report))
    };
    print(text)
}

fn print(text: Result<serde_json::Result<String>, LoadError>) -> ExitCode {
    match text {
        Ok(Ok(text)) => {
            println!("{text}");
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
