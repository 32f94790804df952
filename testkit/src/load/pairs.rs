//! Two programs in turn on one server, and what one costs of the other.
//!
//! Owns the rounds and the comparison. Promises that both get the same work on the same server,
//! that in every other round the other one goes first, and that each finds the server as empty as
//! the other did. What the machine does beside the bench strikes both alike: only the ratios say
//! something.

use std::sync::Arc;

use serde::Serialize;

use super::{
    Interrupts,
    error::LoadError,
    latency::{Latency, rounded},
    markdown::Comparison,
    options::Options,
    report::{Cost, Report},
    run_on,
    server::Server,
};

/// What came of it, as one line of JSON.
#[derive(Debug, Serialize)]
pub struct Pairs {
    /// The measured program, over all rounds.
    pub program: Summary,
    /// The other one.
    pub against: Summary,
    /// What the program needs of what the other one needs.
    pub ratio: Ratio,
    /// All runs: the program's and the other one's.
    pub rounds: Vec<[Report; 2]>,
}

/// Processor time, in milliseconds a claim.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PerClaim {
    /// In the program's own code.
    pub user_ms: f64,
    /// In the kernel on its behalf.
    pub system_ms: f64,
    /// Both.
    pub total_ms: f64,
}

/// One program over all rounds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Processor time of a claim from its creation to its volume.
    pub provision: Option<PerClaim>,
    /// Processor time of a claim's deletion.
    pub delete: Option<PerClaim>,
    /// Milliseconds from a claim's creation to its PersistentVolume: the median over the rounds of
    /// what half of the claims, and what 99 of 100, stay below.
    pub claim_to_saved_p50_ms: Option<f64>,
    /// The same for 99 of 100.
    pub claim_to_saved_p99_ms: Option<f64>,
    /// Claims a second: the median over the rounds.
    pub saved_per_second: Option<f64>,
    /// Deletions a second, in the same way.
    pub gone_per_second: Option<f64>,
    /// Seconds from the program's start until its first volume was saved, in the same way.
    pub first_volume_seconds: Option<f64>,
    /// Resident memory with nothing to do, before the claims: the median over the rounds, in MiB.
    pub idle_rss_mib: Option<f64>,
    /// The most that was ever resident, in the same way.
    pub peak_rss_mib: Option<f64>,
}

/// The program's figures over the other one's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    /// Processor time of a claim.
    pub provision: Option<f64>,
    /// Processor time of a deletion.
    pub delete: Option<f64>,
}

/// Runs both programs in turn.
///
/// # Errors
/// Why one of the runs came to nothing.
pub async fn run(options: Options) -> Result<Pairs, LoadError> {
    let mut interrupts = Interrupts::new()?;
    let server = Arc::new(interrupts.or(Server::open(&options)).await?);
    let both = [program(&options), other(&options)];
    let mut rounds = Vec::new();
    for round in 0..options.rounds {
        let mut run =
            async |side: &Options| run_on(side.clone(), &server, true, &mut interrupts).await;
        let [program, other] = &both;
        rounds.push(if round % 2 == 0 {
            let first = run(program).await?;
            [first, run(other).await?]
        } else {
            let first = run(other).await?;
            [run(program).await?, first]
        });
        eprintln!("load: round {} of {} is over", round + 1, options.rounds);
    }
    Ok(Pairs::of(rounds))
}

/// The measured program's run.
fn program(options: &Options) -> Options {
    Options { against: None, ..options.clone() }
}

/// The other one's.
fn other(options: &Options) -> Options {
    let mut arguments = options.arguments.clone();
    arguments.extend(options.against_arguments.clone());
    Options { program: options.against.clone(), against: None, arguments, ..options.clone() }
}

impl Pairs {
    fn of(rounds: Vec<[Report; 2]>) -> Self {
        let summary = |side: fn(&[Report; 2]) -> &Report| {
            Summary::of(&rounds.iter().map(side).collect::<Vec<_>>())
        };
        let (program, against) = (summary(|[program, _]| program), summary(|[_, other]| other));
        let ratio = Ratio {
            provision: PerClaim::ratio(program.provision, against.provision),
            delete: PerClaim::ratio(program.delete, against.delete),
        };
        Self { program, against, ratio, rounds }
    }

    /// The comparison as a table in Markdown; none where there was no round.
    pub fn markdown(&self) -> Option<String> {
        let [program, other] = self.rounds.first()?;
        let comparison = Comparison {
            settings: [&program.setting, &other.setting],
            summaries: [&self.program, &self.against],
            rounds: self.rounds.len(),
        };
        Some(comparison.table())
    }
}

impl Summary {
    fn of(runs: &[&Report]) -> Self {
        let over = |figure: &dyn Fn(&Report) -> Option<f64>| {
            median(runs.iter().filter_map(|run| figure(run)))
        };
        let latency = |of: fn(Latency) -> f64| over(&|run| run.provision.claim_to_saved.map(of));
        Self {
            provision: PerClaim::of(runs, |run| &run.provision.cost),
            delete: PerClaim::of(runs, |run| &run.delete.cost),
            claim_to_saved_p50_ms: latency(|latency| latency.p50_ms),
            claim_to_saved_p99_ms: latency(|latency| latency.p99_ms),
            saved_per_second: over(&|run| Some(run.provision.saved?.per_second)),
            gone_per_second: over(&|run| Some(run.delete.gone?.per_second)),
            first_volume_seconds: over(&|run| run.first_volume_seconds),
            idle_rss_mib: over(&|run| mib(run.memory?.idle.rss_kib)),
            peak_rss_mib: over(&|run| mib(run.memory?.peak_rss_kib)),
        }
    }
}

impl PerClaim {
    /// The mean of the runs; none where one of them could not be measured.
    fn of(runs: &[&Report], cost: fn(&Report) -> &Cost) -> Option<Self> {
        let (mut claims, mut user, mut system) = (0, 0.0, 0.0);
        for run in runs {
            let cpu = cost(run).cpu?;
            claims += u32::try_from(run.setting.claims).ok()?;
            user += cpu.user_seconds;
            system += cpu.system_seconds;
        }
        let each = |seconds: f64| rounded(1e3 * seconds / f64::from(claims.max(1)));
        Some(Self { user_ms: each(user), system_ms: each(system), total_ms: each(user + system) })
    }

    fn ratio(of: Option<Self>, to: Option<Self>) -> Option<f64> {
        let (of, to) = (of?.total_ms, to?.total_ms);
        (to > 0.0).then(|| rounded(of / to))
    }
}

fn mib(kib: u64) -> Option<f64> {
    Some(rounded(f64::from(u32::try_from(kib).ok()?) / 1024.0))
}

/// The one in the middle.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_one_of_the_values() {
        assert_eq!(median([].into_iter()), None);
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
    }

    #[test]
    fn the_ratio_is_of_user_and_system_together() {
        let cost = |user_ms, system_ms| {
            Some(PerClaim { user_ms, system_ms, total_ms: user_ms + system_ms })
        };
        assert_eq!(PerClaim::ratio(cost(0.25, 0.25), cost(0.75, 0.25)), Some(0.5));
        assert_eq!(PerClaim::ratio(cost(0.25, 0.25), cost(0.0, 0.0)), None);
        assert_eq!(PerClaim::ratio(None, cost(1.0, 1.0)), None);
    }

    #[test]
    fn the_other_program_gets_the_common_arguments_and_its_own() {
        use clap::Parser as _;
        let words =
            ["load", "--program", "a", "--against", "b", "--against-argument", "--x", "--", "-v=1"];
        let options = Options::try_parse_from(words).unwrap();
        let (program, other) = (program(&options), other(&options));
        assert_eq!(program.program.unwrap().to_str(), Some("a"));
        assert_eq!(program.arguments, ["-v=1"]);
        assert_eq!(other.program.unwrap().to_str(), Some("b"));
        assert_eq!(other.arguments, ["-v=1", "--x"]);
    }
}
