//! What the check found: findings with a severity, as text and as JSON, and the exit code.
//!
//! All texts are escaped, because manifests and clusters hold what others wrote.

use std::fmt::Write as _;

use serde::Serialize;

use csi_provisioner::plain_text::escaped;

use super::differences::SECTION;
use crate::subcommand::Output;

/// What a finding means for the switch, from the least to the most urgent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// It stays as it is.
    Ok,
    /// Something to know; nothing to do.
    Note,
    /// Something to do before the switch.
    #[serde(rename = "to do")]
    ToDo,
    /// It could not be checked.
    Unchecked,
    /// The switch would fail.
    Fatal,
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::ToDo => "to do",
            Self::Unchecked => "unchecked",
            Self::Fatal => "fatal",
        }
    }

    /// The exit code of a check whose most urgent finding is this one.
    fn exit_code(self) -> u8 {
        match self {
            Self::Ok | Self::Note => 0,
            Self::ToDo => 1,
            Self::Fatal => 2,
            Self::Unchecked => NOT_CHECKED,
        }
    }
}

/// The exit code of a check that could not be made.
pub const NOT_CHECKED: u8 = 3;

/// One thing that the check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// What was checked.
    pub(super) section: &'static str,
    pub(super) severity: Severity,
    /// What it is about, such as a flag or a resource.
    pub(super) subject: String,
    /// What there is to say about it.
    pub(super) text: String,
    /// The rule to add to a role, in YAML.
    pub(super) rule: Option<String>,
}

impl Finding {
    pub(super) fn new(
        section: &'static str,
        severity: Severity,
        subject: &str,
        text: &str,
    ) -> Self {
        let [subject, text] = [subject, text].map(printable);
        Self { section, severity, subject, text, rule: None }
    }

    pub(super) fn with_rule(self, rule: String) -> Self {
        Self { rule: Some(rule), ..self }
    }

    fn text(&self) -> String {
        let Self { severity, subject, text, rule, .. } = self;
        let rule = rule.as_ref().map(|rule| format!("\n             {rule}")).unwrap_or_default();
        let colon = if text.is_empty() { "" } else { ": " };
        format!("  {:<9}  {subject}{colon}{text}{rule}\n", severity.name())
    }
}

/// Text for a terminal: one line, with control characters escaped.
fn printable(text: &str) -> String {
    escaped(text).to_string()
}

/// The findings about one workload.
#[derive(Debug, Serialize)]
pub(super) struct Checked {
    /// Kind, namespace and name, container and image.
    #[serde(rename = "workload")]
    title: String,
    findings: Vec<Finding>,
}

/// The JSON of a check.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    exit_code: u8,
    workloads: &'a [Checked],
}

impl Checked {
    pub(super) fn new(title: &str, findings: Vec<Finding>) -> Self {
        Self { title: printable(title), findings }
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n", self.title);
        let mut section = None;
        for finding in &self.findings {
            if section.replace(finding.section) != Some(finding.section) {
                // Writing to a text cannot fail.
                let _ = writeln!(text, "\n{}", heading(finding.section));
            }
            text += &finding.text();
        }
        text
    }
}

/// What stands above a section's findings.
fn heading(section: &str) -> &str {
    match section {
        SECTION => "differences: rows of docs/differences.md that this workload will show",
        other => other,
    }
}

/// The output of a check.
pub(super) fn output(checked: &[Checked], json: bool) -> Output {
    let findings = checked.iter().flat_map(|checked| &checked.findings);
    let worst = findings.clone().map(|it| it.severity).max().unwrap_or(Severity::Ok);
    let exit_code = worst.exit_code();
    let text = if json {
        let report = Report { exit_code, workloads: checked };
        // Cannot fail: there are no maps.
        serde_json::to_string(&report).unwrap_or_default() + "\n"
    } else {
        let workloads: Vec<String> = checked.iter().map(Checked::text).collect();
        let to_do = findings.filter(|it| it.severity > Severity::Note).count();
        format!("{}\n{}\n", workloads.join("\n"), verdict(worst, to_do))
    };
    Output::printed(text, exit_code)
}

/// The last line of the text.
fn verdict(worst: Severity, to_do: usize) -> String {
    let about = match worst {
        Severity::Ok | Severity::Note => return "Nothing to do before the switch.".to_owned(),
        Severity::ToDo => "Before the switch",
        Severity::Unchecked => "Not everything could be checked",
        Severity::Fatal => "The switch would fail",
    };
    format!("{about}: {to_do} of the lines above say what to do.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(severities: &[Severity], json: bool) -> Output {
        let finding = |severity: &Severity| {
            Finding::new("rights", *severity, "sub\u{1b}ject", "text").with_rule("- {}".to_owned())
        };
        let findings = severities.iter().map(finding).collect();
        output(&[Checked::new("Deployment a/b", findings)], json)
    }

    #[test]
    fn the_most_urgent_finding_decides_the_exit_code() {
        use Severity::{Fatal, Note, Ok, ToDo, Unchecked};
        for (severities, code) in [
            (&[][..], 0),
            (&[Ok, Note], 0),
            (&[ToDo, Note], 1),
            (&[Unchecked, ToDo], 3),
            (&[Fatal, Unchecked, ToDo], 2),
        ] {
            assert_eq!(report(severities, false).exit_code, code, "{severities:?}");
        }
    }

    #[test]
    fn differences_are_said_to_be_rows_of_the_page() {
        let finding = Finding::new(SECTION, Severity::Note, "SIGTERM", "");
        let text = Checked::new("Pod a/b", vec![finding]).text();
        assert!(text.contains("\ndifferences: rows of docs/differences.md"), "{text}");
    }

    #[test]
    fn the_text_has_a_line_for_each_finding_below_its_section() {
        let text = report(&[Severity::Ok, Severity::ToDo], false).text;
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "Deployment a/b",
                "",
                "rights",
                "  ok         sub\\u{1b}ject: text",
                "             - {}",
                "  to do      sub\\u{1b}ject: text",
                "             - {}",
                "",
                "Before the switch: 1 of the lines above say what to do.",
            ]
        );
        let json = report(&[Severity::ToDo], true).text;
        assert!(!json.contains('\u{1b}') && json.contains("- {}"), "{json}");
    }
}
