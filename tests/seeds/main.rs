//! The program in a simulated cluster in which everything goes wrong that can, by a seed.
//!
//! `cargo test --test seeds -- --seeds 2000` plays so many seeds, `--from N` from another one on,
//! and `--seed N` one of them with its trace. What is checked, and what is not simulated, stands
//! in CONTRIBUTING.md. `tests/mutants/run` plays them on a copy of the program with defects.

// Helpers panic, as tests do.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod admins;
mod adversary;
mod asking;
mod attacher;
mod calls;
mod cluster;
mod coincidences;
mod copiers;
mod copying;
mod core;
mod dice;
mod disruptions;
mod driver;
mod external_provisioner;
mod ledger;
mod looks;
mod machines;
mod naming;
mod neighbour;
mod nodes;
mod plan;
mod process;
mod replica;
mod rest;
mod run;
mod shadow;
mod sizes;
mod snapshotter;
mod storage;
mod suspects;
mod users;
mod victims;
mod watching;
mod wire;

use std::{
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;

use self::run::{Report, play};

/// How many seeds are played twice, to see that a seed repeats itself.
const TWICE: u64 = 10;

/// What the command line asks for.
struct Options {
    /// One seed, with its trace.
    one: Option<u64>,
    from: u64,
    seeds: u64,
}

impl Options {
    fn read() -> Self {
        let mut options = Self { one: None, from: 1, seeds: 300 };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut number = || {
                let value = args.next().and_then(|value| value.parse().ok());
                value.unwrap_or_else(|| panic!("{arg} takes a number"))
            };
            match arg.as_str() {
                "--seed" => options.one = Some(number()),
                "--seeds" => options.seeds = number(),
                "--from" => options.from = number(),
                // Other test programs' options, which `cargo test` hands to all.
                _ => {}
            }
        }
        options
    }
}

fn main() -> ExitCode {
    let options = Options::read();
    if let Some(seed) = options.one {
        return play_one(seed);
    }
    let (failed, took) = play_all(options.from..options.from + options.seeds);
    #[allow(clippy::cast_precision_loss)] // of a rate in words
    let rate = options.seeds as f64 / took.as_secs_f64();
    println!("{} seeds in {took:.1?}: {rate:.1} a second", options.seeds);
    let differing = (options.from..options.from + TWICE.min(options.seeds))
        .filter(|seed| play(*seed) != play(*seed));
    let differing: Vec<u64> = differing.collect();
    if !differing.is_empty() {
        println!("these seeds do not repeat themselves: {differing:?}");
    }
    if failed == 0 && differing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn play_one(seed: u64) -> ExitCode {
    let report = play(seed);
    println!("{}", report.trace);
    print(seed, &report);
    if report.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// How many seeds failed, and how long all took.
#[allow(clippy::disallowed_methods)] // how fast seeds are is a matter of the machine's own time
fn play_all(seeds: std::ops::Range<u64>) -> (usize, Duration) {
    let start = std::time::Instant::now();
    let (next, failed) = (AtomicU64::new(seeds.start), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let report = play(seed);
                    if !report.wrong.is_empty() {
                        failed.lock().push((seed, report));
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner();
    failed.sort_by_key(|(seed, _)| *seed);
    for (seed, report) in &failed {
        print(*seed, report);
    }
    if let Some((_, report)) = failed.first() {
        println!("{}", report.trace);
    }
    (failed.len(), start.elapsed())
}

fn print(seed: u64, report: &Report) {
    for what in &report.wrong {
        println!("seed {seed}: {what}");
    }
}
