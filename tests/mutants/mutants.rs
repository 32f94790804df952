//! Whether the checks find defects: each mutation of the program is to be caught by one of the
//! seeds that stand beside it in `seeds.txt`.

use std::{
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
};

use clap::ValueEnum as _;
use csi_provisioner::mutations::{self, Mutation};
use parking_lot::Mutex;

use crate::run::{Report, play};

/// Lines of a mutation's name and seeds that catch it. Several, as a change of the program changes
/// what a seed leads to.
const CAUGHT_BY: &str = include_str!("seeds.txt");

/// How many seeds a hunt looks for.
const ENOUGH: usize = 3;

/// Among so many seeds one is looked for that catches a mutation whose listed seeds no longer do.
const HUNTED: u64 = 3_000;

/// What the command line asks for here, done; none when it asks for something else.
pub(crate) fn asked_for() -> Option<ExitCode> {
    let args: Vec<String> = std::env::args().collect();
    let at = |flag: &str| args.iter().position(|arg| arg == flag);
    if let Some(place) = at("--hunt") {
        let seeds = args.get(place + 1).and_then(|seeds| seeds.parse().ok()).unwrap_or(200);
        return Some(hunt(seeds, args.get(place + 2).map(String::as_str)));
    }
    if let Some(place) = at("--mutant") {
        let seed = args.get(place + 2).and_then(|seed| seed.parse().ok()).unwrap_or(1);
        return Some(show(args.get(place + 1).map_or("", String::as_str), seed));
    }
    at("--mutants").map(|_| check())
}

/// One seed with the defect, and its trace.
fn show(name: &str, seed: u64) -> ExitCode {
    for mutation in all().filter(|it| format!("{it:?}") == name) {
        let report = played(mutation, seed);
        println!("{}{:#?}", report.trace, report.wrong);
    }
    ExitCode::SUCCESS
}

fn all() -> impl Iterator<Item = Mutation> {
    Mutation::value_variants().iter().copied()
}

fn played(mutation: Mutation, seed: u64) -> Report {
    mutations::choose(Some(mutation));
    let report = play(seed);
    mutations::choose(None);
    report
}

/// Whether the seed finds the defect, and nothing without it.
fn catches(mutation: Mutation, seed: u64) -> Option<String> {
    let found = played(mutation, seed).wrong.into_iter().next()?;
    play(seed).wrong.is_empty().then_some(found)
}

/// Each mutation must be caught: by a seed that is listed, or by one that is looked for now.
fn check() -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for mutation in all() {
        let caught =
            seeds_of(mutation).into_iter().find_map(|seed| Some((seed, catches(mutation, seed)?)));
        if let Some((seed, what)) = caught {
            println!("{mutation:?}: seed {seed} finds {what}");
        } else if let Some(seed) = some(mutation, HUNTED, 1).first() {
            println!("{mutation:?}: seed {seed} finds it, which seeds.txt does not list");
        } else {
            println!("{mutation:?}: none of {HUNTED} seeds finds it");
            code = ExitCode::FAILURE;
        }
    }
    code
}

fn seeds_of(mutation: Mutation) -> Vec<u64> {
    let name = format!("{mutation:?}");
    let line = CAUGHT_BY.lines().find_map(|line| line.strip_prefix(&name)?.strip_prefix(' '));
    let seeds = line.unwrap_or_default().split(' ');
    seeds.filter_map(|seed| seed.parse().ok()).collect()
}

/// Looks among so many seeds for some that catch each mutation, or the named one.
fn hunt(seeds: u64, name: Option<&str>) -> ExitCode {
    let wanted = |mutation: &Mutation| name.is_none_or(|name| format!("{mutation:?}") == name);
    for mutation in all().filter(wanted) {
        let found: Vec<String> = some(mutation, seeds, ENOUGH).iter().map(u64::to_string).collect();
        println!("{mutation:?} {}", found.join(" "));
    }
    ExitCode::SUCCESS
}

/// Enough of so many seeds that catch it, looked for on as many threads as there are processors.
fn some(mutation: Mutation, seeds: u64, enough: usize) -> Vec<u64> {
    let (next, found) = (AtomicU64::new(1), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > seeds || found.lock().len() >= enough {
                        return;
                    }
                    if catches(mutation, seed).is_some() {
                        found.lock().push(seed);
                    }
                }
            });
        }
    });
    let mut found = found.into_inner();
    found.sort_unstable();
    found
}
