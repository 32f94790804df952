//! What becomes of the flags and feature gates of a manifest that runs external-provisioner.
//!
//! [`review`] looks at each one by itself, where [`Flags::parse`](csi_provisioner::flags::Flags::parse) stops
//! at the first error. Whether they contradict each other is left to that.

use super::{
    finding::{Finding, Severity},
    flags::{HONORED, finding},
    releases::since,
};
use csi_provisioner::flags::{
    command::{Given, NoFlags, given, matches},
    gates::{self, Judgement, RetiredGate},
    retired::RETIRED,
};

/// What becomes of all of them.
#[derive(Debug, Default)]
pub(super) struct Review {
    /// A finding each. The subject is as on the command line, `--name=value`.
    pub(super) findings: Vec<Finding>,
    /// Whether a flag or gate is retired.
    pub(super) has_retired: bool,
}

/// Reviews `args`, which do not include the program's name: each flag in order, each feature gate by itself,
/// then what is no flag.
pub(super) fn review(args: &[String]) -> Review {
    let (mut review, mut errors) = (Review::default(), Vec::new());
    let mut rest = args;
    while let Some(first) = rest.first().filter(|first| *first != "--") {
        let mut taken = 1;
        let mut parsed = matches(std::slice::from_ref(first));
        if let (Err(NoFlags::NoValue(_)), Some(with_value)) = (&parsed, rest.get(..2)) {
            (taken, parsed) = (2, matches(with_value));
        }
        match parsed {
            Ok(matches) => {
                for flag in given(&matches) {
                    review.add(&flag);
                }
            }
            Err(NoFlags::Value(error)) => {
                let spelled = rest.get(..taken).unwrap_or_default().join("=");
                review.findings.push(refused(&spelled, &error));
            }
            Err(NoFlags::Unknown(error) | NoFlags::NoValue(error)) => {
                errors.push(refused(first, &error));
            }
            Err(NoFlags::Help) => {
                errors.push(refused(first, "help requested: the program would end"));
            }
        }
        rest = rest.get(taken..).unwrap_or_default();
    }
    review.findings.extend(errors);
    review
}

impl Review {
    /// Adds the flag, or its feature gates.
    fn add(&mut self, Given { name, value }: &Given) {
        if let ("feature-gates", Ok(gates)) = (name.as_str(), gates::parse(value)) {
            for (gate, value) in &gates {
                self.add_gate(gate, *value);
            }
            return;
        }
        let spelled = format!("--{name}={value}");
        let found = match (RETIRED.iter().find(|flag| flag.name == name), since(name)) {
            (Some(flag), _) => self.retired(&spelled, flag.releases, flag.advice),
            (None, Some(since)) => {
                let text =
                    format!("kept; in external-provisioner since {since}, earlier releases end");
                finding(Severity::Ok, &spelled, &text)
            }
            (None, None) => {
                let text = "only here: external-provisioner ends, so remove it on the way back";
                finding(Severity::Note, &spelled, text)
            }
        };
        self.findings.push(found);
    }

    fn add_gate(&mut self, gate: &str, value: bool) {
        let spelled = format!("--feature-gates={gate}={value}");
        let found = match (gates::find_retired(gate), gates::judge(gate, value)) {
            (Some(_), _) if gate == "HonorPVReclaimPolicy" && !value => {
                self.has_retired = true;
                finding(Severity::ToDo, &spelled, &format!("accepted with a warning: {HONORED}"))
            }
            (Some(RetiredGate { releases, fate, .. }), _) => self.retired(&spelled, releases, fate),
            (None, Judgement::Refuse(error)) => refused(&spelled, &error),
            (None, Judgement::Fine | Judgement::Warn(_)) => finding(Severity::Ok, &spelled, "kept"),
        };
        self.findings.push(found);
    }

    /// `releases`: those of external-provisioner with it, `none` if no release has it.
    fn retired(&mut self, spelled: &str, releases: &str, advice: &str) -> Finding {
        self.has_retired = true;
        let others = match releases {
            "none" => "every release of external-provisioner ends".to_owned(),
            known => format!("external-provisioner knows it from {known}, later releases end"),
        };
        finding(Severity::Note, spelled, &format!("accepted with a warning: {advice}; {others}"))
    }
}

fn refused(spelled: &str, error: &str) -> Finding {
    let text = format!("the program ends: {error}; correct or remove it");
    finding(Severity::Fatal, spelled, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flag_and_gate_is_kept_retired_or_refused() {
        for (arg, severity, text) in [
            ("--timeout=5s", Severity::Ok, "kept; in external-provisioner since v1.1,"),
            ("-v5", Severity::Ok, "since v0.2,"),
            ("--feature-gates=Topology=true", Severity::Ok, "kept"),
            ("--shutdown-timeout=5s", Severity::Note, "only here"),
            ("--provisioner=a", Severity::Note, "knows it from v0.2 to v1.6,"),
            ("--logtostderr", Severity::Note, "v0.2 to v5.1,"),
            ("--feature-gates=HonorPVReclaimPolicy=true", Severity::Note, "v3.1 to v6.1,"),
            (
                "--feature-gates=HonorPVReclaimPolicy=false",
                Severity::ToDo,
                "accepted with a warning",
            ),
            ("--feature-gates=CSINodeInfo=true", Severity::Note, "; every release of"),
            ("--nosuch=1", Severity::Fatal, "ends: unknown flag: --nosuch"),
            (
                "--timeout=5",
                Severity::Fatal,
                "ends: invalid argument \"5\" for \"--timeout\" flag: ",
            ),
            ("--feature-gates=NoSuch=true", Severity::Fatal, "unrecognized feature gate: NoSuch"),
            (
                "--feature-gates=Topology",
                Severity::Fatal,
                "invalid argument \"Topology\" for \"--feature-gates\"",
            ),
        ] {
            let Review { findings, has_retired } = review(&[arg.to_owned()]);
            let [found] = &findings[..] else { panic!("{arg}: {findings:?}") };
            assert!(found.severity == severity && found.text.contains(text), "{arg}: {found:?}");
            assert_eq!(has_retired, found.text.starts_with("accepted"), "{arg}");
        }
    }

    #[test]
    fn all_flags_are_reviewed_also_after_an_error() {
        let args = ["--nosuch", "--feature-gates=Topology=true,CSINodeInfo=true", "--timeout", "x"];
        let review = review(&args.map(str::to_owned));
        let spelled: Vec<&str> = review.findings.iter().map(|it| it.subject.as_str()).collect();
        assert_eq!(
            spelled,
            [
                "--feature-gates=CSINodeInfo=true",
                "--feature-gates=Topology=true",
                "--timeout=x",
                "--nosuch"
            ]
        );
    }
}
