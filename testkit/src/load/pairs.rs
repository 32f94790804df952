//! Two programs in turn, each on a server of its own, and what one costs of the other. In every other round the other
//! one goes first. What the machine does beside the bench strikes both alike: only the ratios say something.

use std::path::Path;

use serde::Serialize;

use super::{
    LoadError,
    options::Options,
    report::{Cost, Latency, Report, Setting, rounded},
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

/// One program over all rounds: the mean of processor times, the median of everything else.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Processor time of a claim from its creation to its volume.
    pub provision: PerClaim,
    /// Processor time of a claim's deletion.
    pub delete: PerClaim,
    /// From a claim's creation to its PersistentVolume, what half of the claims stay below.
    pub claim_to_saved_p50_ms: Option<f64>,
    /// The same for 99 of 100.
    pub claim_to_saved_p99_ms: Option<f64>,
    /// Claims a second.
    pub saved_per_second: Option<f64>,
    /// Deletions a second.
    pub gone_per_second: Option<f64>,
    /// Seconds from the program's start until its first volume was saved.
    pub first_volume_seconds: Option<f64>,
    /// Resident memory with nothing to do, before the claims, in MiB.
    pub idle_rss_mib: Option<f64>,
    /// The most that was ever resident.
    pub peak_rss_mib: Option<f64>,
}

/// The program's processor times over the other one's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    /// Of a claim.
    pub provision: Option<f64>,
    /// Of a deletion.
    pub delete: Option<f64>,
}

/// Runs both programs in turn.
pub async fn run(options: Options) -> Result<Pairs, LoadError> {
    let arguments = [&options.arguments[..], &options.against_arguments].concat();
    let other = Options { program: options.against.clone(), arguments, ..options.clone() };
    let mut rounds = Vec::new();
    for round in 1..=options.rounds {
        let run = |side: &Options| super::run(side.clone());
        rounds.push(if round % 2 == 1 {
            let first = run(&options).await?;
            [first, run(&other).await?]
        } else {
            let first = run(&other).await?;
            [run(&options).await?, first]
        });
        eprintln!("load: round {round} of {} is over", options.rounds);
    }
    let summary = |side: fn(&[Report; 2]) -> &Report| {
        Summary::of(&rounds.iter().map(side).collect::<Vec<_>>())
    };
    let (program, against) = (summary(|[program, _]| program), summary(|[_, other]| other));
    let ratio = |of: PerClaim, to: PerClaim| {
        (to.total_ms > 0.0).then(|| rounded(of.total_ms / to.total_ms))
    };
    let ratio = Ratio {
        provision: ratio(program.provision, against.provision),
        delete: ratio(program.delete, against.delete),
    };
    Ok(Pairs { program, against, ratio, rounds })
}

impl Summary {
    fn of(runs: &[&Report]) -> Self {
        // The one in the middle.
        let over = |figure: &dyn Fn(&Report) -> Option<f64>| {
            let mut values: Vec<f64> = runs.iter().filter_map(|run| figure(run)).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied()
        };
        let latency = |of: fn(Latency) -> f64| over(&|run| run.provision.claim_to_saved.map(of));
        let mib = |kib: u64| Some(rounded(f64::from(u32::try_from(kib).ok()?) / 1024.0));
        Self {
            provision: PerClaim::of(runs, |run| &run.provision.cost),
            delete: PerClaim::of(runs, |run| &run.delete.cost),
            claim_to_saved_p50_ms: latency(|latency| latency.p50_ms),
            claim_to_saved_p99_ms: latency(|latency| latency.p99_ms),
            saved_per_second: over(&|run| Some(run.provision.saved?.per_second)),
            gone_per_second: over(&|run| Some(run.delete.gone?.per_second)),
            first_volume_seconds: over(&|run| run.first_volume_seconds),
            idle_rss_mib: over(&|run| mib(run.memory.idle.rss_kib)),
            peak_rss_mib: over(&|run| mib(run.memory.peak_rss_kib)),
        }
    }
}

impl PerClaim {
    /// The mean of the runs.
    fn of(runs: &[&Report], cost: fn(&Report) -> &Cost) -> Self {
        let claims: usize = runs.iter().map(|run| run.setting.claims).sum();
        let claims = f64::from(u32::try_from(claims.max(1)).unwrap_or(u32::MAX));
        let each = |seconds: f64| rounded(1e3 * seconds / claims);
        let user = runs.iter().map(|run| cost(run).cpu.user_seconds).sum();
        let system: f64 = runs.iter().map(|run| cost(run).cpu.system_seconds).sum();
        Self { user_ms: each(user), system_ms: each(system), total_ms: each(user + system) }
    }
}

// === Markdown ===

/// A row of the table: what it shows, its unit, and the figure of a program.
type Row = (&'static str, &'static str, fn(&Summary) -> Option<f64>);

const ROWS: [Row; 9] = [
    ("processor time of a claim", " ms", |it| Some(it.provision.total_ms)),
    ("processor time of a deletion", " ms", |it| Some(it.delete.total_ms)),
    ("volumes saved a second", "", |it| it.saved_per_second),
    ("volumes deleted a second", "", |it| it.gone_per_second),
    ("claim to volume, median", " ms", |it| it.claim_to_saved_p50_ms),
    ("claim to volume, 99 of 100", " ms", |it| it.claim_to_saved_p99_ms),
    ("first volume after the start", " s", |it| it.first_volume_seconds),
    ("memory before the claims", " MiB", |it| it.idle_rss_mib),
    ("memory, peak", " MiB", |it| it.peak_rss_mib),
];

impl Pairs {
    /// The comparison as a table in Markdown, and a line with the arguments of both programs; none where there was
    /// no round.
    pub fn markdown(&self) -> Option<String> {
        let [Report { setting: program, .. }, Report { setting: other, .. }] =
            self.rounds.first()?;
        let Setting { claims, rate, server, .. } = program;
        let pace = rate.map_or_else(|| "at once".to_owned(), |rate| format!("{rate} a second"));
        let rounds = self.rounds.len();
        let title = format!("{claims} claims {pace}, rounds: {rounds}, server: {server}");
        let name = |setting: &Setting| {
            Path::new(&setting.program)
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned()
        };
        let mut lines = vec![
            format!("| {title} | {} | {} | ratio |", name(program), name(other)),
            "|---|---|---|---|".to_owned(),
        ];
        for (what, unit, figure) in ROWS {
            let sides = [figure(&self.program), figure(&self.against)];
            let cell = |side: Option<f64>| side.map(|it| format!("{it:.2}{unit}"));
            let ratio = match sides {
                [Some(one), Some(two)] if two > 0.0 => Some(format!("{:.2}", one / two)),
                _ => None,
            };
            let cells =
                [cell(sides[0]), cell(sides[1]), ratio].map(|it| it.unwrap_or("-".to_owned()));
            lines.push(format!("| {what} | {} |", cells.join(" | ")));
        }
        let arguments = [program, other].map(|it| format!("`{}`", it.arguments.join(" ")));
        lines.push(format!(
            "\nArguments: {}. Memory is resident. Ratio: the first program's figure divided by the second's.",
            arguments.join("; ")
        ));
        Some(lines.join("\n"))
    }
}
