//! Two programs in turn, each on a server of its own, and what one costs of the other. In every other round the other
//! one goes first. What the machine does beside the bench strikes both alike: only the ratios say something.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{LoadError, options::Options, report::rounded};

/// The figures of a program over all rounds: what they are called on the line and in the table, their unit, where they
/// stand in a run's report, and by how much they are divided. Those of `cpu` are means of claims, the others medians of
/// the rounds.
const FIGURES: [(&str, &str, &str, &str, f64); 9] = [
    ("provision_ms", "processor time of a claim", " ms", "/provision/cpu", 1.0),
    ("delete_ms", "processor time of a deletion", " ms", "/delete/cpu", 1.0),
    ("saved_per_second", "volumes saved a second", "", "/provision/saved/per_second", 1.0),
    ("gone_per_second", "volumes deleted a second", "", "/delete/gone/per_second", 1.0),
    (
        "claim_to_saved_p50_ms",
        "claim to volume, median",
        " ms",
        "/provision/claim_to_saved/p50_ms",
        1.0,
    ),
    (
        "claim_to_saved_p99_ms",
        "claim to volume, 99 of 100",
        " ms",
        "/provision/claim_to_saved/p99_ms",
        1.0,
    ),
    ("first_volume_seconds", "first volume after the start", " s", "/first_volume_seconds", 1.0),
    ("idle_rss_mib", "memory before the claims", " MiB", "/memory/idle/rss_kib", 1024.0),
    ("peak_rss_mib", "memory, peak", " MiB", "/memory/peak_rss_kib", 1024.0),
];

/// Runs both programs in turn; gives the summaries of the `program` and of the one `against` it, the `ratio` of their
/// figures, and all `rounds`.
pub async fn run(options: Options) -> Result<Value, LoadError> {
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
    let (mut program, mut against, mut ratio) = (Map::new(), Map::new(), Map::new());
    for (name, _, _, path, by) in FIGURES {
        let ours = figure(rounds.iter().map(|[ours, _]| ours), path, by);
        let theirs = figure(rounds.iter().map(|[_, theirs]| theirs), path, by);
        let both = ours.zip(theirs).filter(|it| it.1 > 0.0).map(|it| rounded(it.0 / it.1));
        program.insert(name.to_owned(), json!(ours));
        against.insert(name.to_owned(), json!(theirs));
        ratio.insert(name.to_owned(), json!(both));
    }
    Ok(json!({"program": program, "against": against, "ratio": ratio, "rounds": rounds}))
}

fn figure<'a>(runs: impl Iterator<Item = &'a Value>, path: &str, by: f64) -> Option<f64> {
    let number = |run: &Value, path: &str| run.pointer(path).and_then(Value::as_f64);
    if path.ends_with("/cpu") {
        let (mut claims, mut seconds) = (0.0, 0.0);
        for run in runs {
            claims += number(run, "/setting/claims")?;
            seconds += number(run, &format!("{path}/user_seconds"))?;
            seconds += number(run, &format!("{path}/system_seconds"))?;
        }
        return Some(rounded(1e3 * seconds / claims));
    }
    let mut values: Vec<f64> = runs.filter_map(|run| number(run, path)).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).map(|middle| rounded(middle / by))
}

/// The comparison as a table in Markdown, and a line with the arguments of both programs.
pub fn markdown(pairs: &Value) -> String {
    let text = |path: &str| {
        pairs.pointer(path).map(|it| it.to_string().replace('"', "")).unwrap_or_default()
    };
    let name = |side: usize| {
        let path = text(&format!("/rounds/0/{side}/setting/program"));
        Path::new(&path).file_name().unwrap_or_default().to_string_lossy().into_owned()
    };
    let rounds = pairs.get("rounds").and_then(Value::as_array).map_or(0, Vec::len);
    let (claims, server) = (text("/rounds/0/0/setting/claims"), text("/rounds/0/0/setting/server"));
    let title = format!("{claims} claims at once, rounds: {rounds}, server: {server}");
    let mut table = format!("| {title} | {} | {} | ratio |\n|---|---|---|---|\n", name(0), name(1));
    for (figure, what, unit, ..) in FIGURES {
        let cell = |side: &str, unit: &str| {
            let number = pairs.pointer(&format!("/{side}/{figure}")).and_then(Value::as_f64);
            number.map_or_else(|| "-".to_owned(), |number| format!("{number:.2}{unit}"))
        };
        let cells = [cell("program", unit), cell("against", unit), cell("ratio", "")];
        table.extend(["| ", what, " | ", &cells.join(" | "), " |\n"]);
    }
    let arguments = [0, 1].map(|side| text(&format!("/rounds/0/{side}/setting/arguments")));
    format!(
        "{table}\nArguments: {}. Memory is resident. Ratio: the first program's figure divided by the second's.",
        arguments.join("; ")
    )
}
