//! Whether the checks find defects: each mutation of the program is to be caught by the seed that
//! stands beside it in `mutants.txt`.

use std::{
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
};

use csi_provisioner::mutations::{self, Mutation};

use super::run::{Report, play};

/// Lines of a mutation's name and the seed that catches it.
const CAUGHT_BY: &str = include_str!("mutants.txt");

/// What the command line asks for here, done; none when it asks for something else.
pub(crate) fn asked_for() -> Option<ExitCode> {
    let args: Vec<String> = std::env::args().collect();
    let at = |flag: &str| args.iter().position(|arg| arg == flag);
    if let Some(place) = at("--hunt") {
        let seeds = args.get(place + 1).and_then(|seeds| seeds.parse().ok()).unwrap_or(200);
        return Some(hunt(seeds, args.get(place + 2).map(String::as_str)));
    }
    at("--mutants").map(|_| check())
}

fn played(mutation: Mutation, seed: u64) -> Report {
    mutations::choose(Some(mutation));
    let report = play(seed);
    mutations::choose(None);
    report
}

/// Every seed must find its mutation, and nothing without it.
fn check() -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for line in CAUGHT_BY.lines().filter(|line| !line.starts_with('#')) {
        let (name, seed) = line.split_once(' ').unwrap();
        let mutation =
            Mutation::ALL.into_iter().find(|mutation| format!("{mutation:?}") == name).unwrap();
        let seed = seed.parse().unwrap();
        let (caught, sound) = (played(mutation, seed).wrong, play(seed).wrong);
        let found = caught.first().map_or("nothing; look for another seed with --hunt", |it| it);
        println!("{name}: seed {seed} finds {found}");
        if caught.is_empty() || !sound.is_empty() {
            println!("without it: {sound:?}");
            code = ExitCode::FAILURE;
        }
    }
    code
}

/// Looks for the first seed of so many that catches each mutation, or the named one.
fn hunt(seeds: u64, name: Option<&str>) -> ExitCode {
    let wanted = |mutation: &Mutation| name.is_none_or(|name| format!("{mutation:?}") == name);
    for mutation in Mutation::ALL.into_iter().filter(wanted) {
        let catches =
            |seed: &u64| !played(mutation, *seed).wrong.is_empty() && play(*seed).wrong.is_empty();
        match first(seeds, &catches) {
            Some(seed) => println!("{mutation:?} {seed}"),
            None => println!("# {mutation:?}: none of {seeds} seeds"),
        }
    }
    ExitCode::SUCCESS
}

/// The first of so many seeds that does, on as many threads as there are processors.
fn first(seeds: u64, catches: &(impl Fn(&u64) -> bool + Sync)) -> Option<u64> {
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
    let found = AtomicU64::new(u64::MAX);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let found = &found;
            scope.spawn(move || {
                let mut seeds = (1 + thread..=seeds).step_by(usize::try_from(threads).unwrap());
                let earlier = |seed: &u64| *seed < found.load(Ordering::Relaxed);
                if let Some(seed) = seeds.find(|seed| !earlier(seed) || catches(seed)) {
                    found.fetch_min(seed, Ordering::Relaxed);
                }
            });
        }
    });
    Some(found.into_inner()).filter(|seed| *seed <= seeds)
}
