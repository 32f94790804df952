//! The comparison of two programs as a table in Markdown, for documents.
//!
//! Owns the wording of the table. Promises that it has no figure that was not measured: such a cell has a
//! dash, and so has its ratio. Leaves the figures to [`super::pairs`].

use std::path::Path;

use super::{pairs::Summary, report::Setting};

/// A cell without a figure.
const NOT_MEASURED: &str = "-";

/// What was compared.
#[derive(Debug, Clone, Copy)]
pub struct Comparison<'a> {
    /// What was asked of the program and of the other one.
    pub settings: [&'a Setting; 2],
    /// Their figures.
    pub summaries: [&'a Summary; 2],
    /// How often both had their turn.
    pub rounds: usize,
}

/// A row of the table: a figure of both programs.
struct Row {
    what: &'static str,
    unit: &'static str,
    figure: fn(&Summary) -> Option<f64>,
}

/// All rows, in the order of the table.
const ROWS: [Row; 9] = [
    Row {
        what: "processor time of a claim",
        unit: " ms",
        figure: |it| Some(it.provision?.total_ms),
    },
    Row {
        what: "processor time of a deletion",
        unit: " ms",
        figure: |it| Some(it.delete?.total_ms),
    },
    Row { what: "volumes saved a second", unit: "", figure: |it| it.saved_per_second },
    Row { what: "volumes deleted a second", unit: "", figure: |it| it.gone_per_second },
    Row { what: "claim to volume, median", unit: " ms", figure: |it| it.claim_to_saved_p50_ms },
    Row { what: "claim to volume, 99 of 100", unit: " ms", figure: |it| it.claim_to_saved_p99_ms },
    Row { what: "first volume after the start", unit: " s", figure: |it| it.first_volume_seconds },
    Row { what: "memory before the claims", unit: " MiB", figure: |it| it.idle_rss_mib },
    Row { what: "memory, peak", unit: " MiB", figure: |it| it.peak_rss_mib },
];

impl Comparison<'_> {
    /// The table, and a line with the arguments of both programs; without a line feed at the end.
    pub fn table(&self) -> String {
        let [program, other] = self.settings;
        let mut lines = vec![
            format!("| {} | {} | {} | ratio |", self.title(), name(program), name(other)),
            "|---|---|---|---|".to_owned(),
        ];
        lines.extend(ROWS.iter().map(|row| row.line(self.summaries)));
        lines.push(String::new());
        lines.push(format!(
            "Arguments: {}; {}. {}",
            arguments(program),
            arguments(other),
            "Memory is resident. Ratio: the first program's figure divided by the second's."
        ));
        lines.join("\n")
    }

    /// What both did, and where.
    fn title(&self) -> String {
        let [Setting { claims, rate, server, .. }, _] = self.settings;
        let pace = rate.map_or_else(|| "at once".to_owned(), |rate| format!("{rate} a second"));
        let rounds = self.rounds;
        escaped(&format!("{claims} claims {pace}, rounds: {rounds}, server: {server}"))
    }
}

impl Row {
    fn line(&self, sides: [&Summary; 2]) -> String {
        let figures = sides.map(self.figure);
        let [program, other] = figures.map(|figure| {
            let text = figure.map(|figure| format!("{}{}", digits(figure), self.unit));
            text.unwrap_or_else(|| NOT_MEASURED.to_owned())
        });
        format!("| {} | {program} | {other} | {} |", self.what, ratio(figures))
    }
}

fn ratio([program, other]: [Option<f64>; 2]) -> String {
    match (program, other) {
        (Some(program), Some(other)) if other > 0.0 => format!("{:.2}", program / other),
        _ => NOT_MEASURED.to_owned(),
    }
}

/// Three digits or more: what is behind them differs from run to run.
fn digits(figure: f64) -> String {
    match figure {
        _ if figure >= 100.0 => format!("{figure:.0}"),
        _ if figure >= 10.0 => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}

/// The program's file name.
fn name(setting: &Setting) -> String {
    let path = setting.program.as_deref().map(Path::new);
    let name = path.and_then(Path::file_name).map(|name| name.to_string_lossy());
    escaped(&name.unwrap_or_else(|| NOT_MEASURED.into()))
}

fn arguments(setting: &Setting) -> String {
    if setting.arguments.is_empty() {
        return "none".to_owned();
    }
    format!("`{}`", setting.arguments.join(" "))
}

/// A cell's text.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::{
        super::{options::Options, pairs::PerClaim, report::Setting},
        *,
    };

    fn setting(program: &str, words: &[&str]) -> Setting {
        let options = Options::try_parse_from([&["load"], words].concat()).unwrap();
        Setting::new(&options, "v1.36.2 (started)".to_owned(), Some(program.to_owned()))
    }

    fn milliseconds(total_ms: f64) -> PerClaim {
        PerClaim { user_ms: total_ms, system_ms: 0.0, total_ms }
    }

    fn measured(scale: f64) -> Summary {
        Summary {
            provision: Some(milliseconds(0.66 * scale)),
            delete: Some(milliseconds(0.46 * scale)),
            claim_to_saved_p50_ms: Some(5.7 * scale),
            claim_to_saved_p99_ms: Some(17.2 * scale),
            saved_per_second: Some(384.6 * scale),
            gone_per_second: Some(100.0 * scale),
            first_volume_seconds: None,
            idle_rss_mib: Some(10.0 * scale),
            peak_rss_mib: Some(12.0 * scale),
        }
    }

    #[test]
    fn the_table_has_each_figure_of_both_and_their_ratio() {
        let one = setting("/opt/csi-provisioner", &["--claims", "600"]);
        let other = setting("./other", &["--claims", "600", "--", "--kube-api-qps=500", "-v=1"]);
        let comparison = Comparison {
            settings: [&one, &other],
            summaries: [&measured(1.0), &measured(2.0)],
            rounds: 2,
        };
        let expected = "\
| 600 claims at once, rounds: 2, server: v1.36.2 (started) | csi-provisioner | other | ratio |
|---|---|---|---|
| processor time of a claim | 0.66 ms | 1.32 ms | 0.50 |
| processor time of a deletion | 0.46 ms | 0.92 ms | 0.50 |
| volumes saved a second | 385 | 769 | 0.50 |
| volumes deleted a second | 100 | 200 | 0.50 |
| claim to volume, median | 5.70 ms | 11.4 ms | 0.50 |
| claim to volume, 99 of 100 | 17.2 ms | 34.4 ms | 0.50 |
| first volume after the start | - | - | - |
| memory before the claims | 10.0 MiB | 20.0 MiB | 0.50 |
| memory, peak | 12.0 MiB | 24.0 MiB | 0.50 |

Arguments: none; `--kube-api-qps=500 -v=1`. Memory is resident. Ratio: the first program's figure divided by the second's.";
        assert_eq!(comparison.table(), expected);
    }

    #[test]
    fn a_figure_that_one_program_lacks_has_no_ratio() {
        for (figures, expected) in [
            ([Some(1.0), Some(3.0)], "0.33"),
            ([Some(0.0), Some(3.0)], "0.00"),
            ([Some(1.0), Some(0.0)], "-"),
            ([Some(1.0), None], "-"),
            ([None, Some(1.0)], "-"),
        ] {
            assert_eq!(ratio(figures), expected, "{figures:?}");
        }
    }

    #[test]
    fn the_pace_of_the_claims_is_named_and_a_cell_stays_one_cell() {
        let one = setting("a|b", &["--rate", "50"]);
        let comparison = Comparison {
            settings: [&one, &one],
            summaries: [&measured(1.0), &measured(1.0)],
            rounds: 3,
        };
        let table = comparison.table();
        let heading = "| 1000 claims 50 a second, rounds: 3, server: v1.36.2 (started) | a\\|b | a\\|b | ratio |";
        assert_eq!(table.lines().next(), Some(heading));
    }
}
