//! What becomes of the flags and feature gates of a manifest that runs external-provisioner.
//!
//! [`review`] looks at each one by itself, where [`Flags::parse`](csi_provisioner::flags::Flags::parse) stops
//! at the first error. Whether they contradict each other is left to that.

use super::releases::since;
use csi_provisioner::flags::{
    command::{Given, NoFlags, given, matches},
    gates::{self, Judgement, RetiredGate},
    retired::RETIRED,
};

/// A flag or a feature gate with what becomes of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReviewedFlag {
    /// As on the command line: `--name=value`; an error has no flag.
    pub(super) spelled: String,
    /// What becomes of it.
    pub(super) fate: Fate,
}

/// What becomes of a flag or a feature gate.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It has its meaning. With external-provisioner's first release that knows it, for flags.
    Kept(Option<&'static str>),
    /// It is a flag of this program only.
    Own,
    /// It is accepted with a warning.
    Retired {
        /// external-provisioner's releases with it; others end. `none` if no release has it.
        releases: &'static str,
        /// What to do about it.
        advice: &'static str,
    },
    /// The program ends with this error.
    Refused(String),
}

/// Reviews `args`, which do not include the program's name: each flag in order, each feature gate by itself,
/// then what is no flag.
pub(super) fn review(args: &[String]) -> Vec<ReviewedFlag> {
    let (mut flags, mut errors) = (Vec::new(), Vec::new());
    let mut rest = args;
    while let Some(first) = rest.first().filter(|first| *first != "--") {
        let mut taken = 1;
        let mut parsed = matches(std::slice::from_ref(first));
        if let (Err(NoFlags::NoValue(_)), Some(with_value)) = (&parsed, rest.get(..2)) {
            (taken, parsed) = (2, matches(with_value));
        }
        let refused = |spelled, error| ReviewedFlag { spelled, fate: Fate::Refused(error) };
        match parsed {
            Ok(matches) => flags.extend(given(&matches).iter().flat_map(reviewed)),
            Err(NoFlags::Value(error)) => {
                let spelled = rest.get(..taken).unwrap_or_default().join("=");
                flags.push(refused(spelled, error));
            }
            Err(NoFlags::Unknown(error) | NoFlags::NoValue(error)) => {
                errors.push(refused(String::new(), error));
            }
            Err(NoFlags::Help) => {
                let error = "help requested: the program would end".to_owned();
                errors.push(refused(String::new(), error));
            }
        }
        rest = rest.get(taken..).unwrap_or_default();
    }
    flags.extend(errors);
    flags
}

/// The flag, or its feature gates.
fn reviewed(Given { name, value }: &Given) -> Vec<ReviewedFlag> {
    if let ("feature-gates", Ok(gates)) = (name.as_str(), gates::parse(value)) {
        return gates.iter().map(|(gate, value)| reviewed_gate(gate, *value)).collect();
    }
    let fate = match (RETIRED.iter().find(|flag| flag.name == name), since(name)) {
        (Some(flag), _) => Fate::Retired { releases: flag.releases, advice: flag.advice },
        (None, Some(since)) => Fate::Kept(Some(since)),
        (None, None) => Fate::Own,
    };
    vec![ReviewedFlag { spelled: format!("--{name}={value}"), fate }]
}

fn reviewed_gate(gate: &str, value: bool) -> ReviewedFlag {
    let fate = match (gates::find_retired(gate), gates::judge(gate, value)) {
        (Some(RetiredGate { releases, fate, .. }), _) => Fate::Retired { releases, advice: fate },
        (None, Judgement::Refuse(error)) => Fate::Refused(error),
        (None, Judgement::Fine | Judgement::Warn(_)) => Fate::Kept(None),
    };
    ReviewedFlag { spelled: format!("--feature-gates={gate}={value}"), fate }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fate(arg: &str) -> Fate {
        let mut review = review(&[arg.to_owned()]);
        assert_eq!(review.len(), 1, "{arg}");
        review.remove(0).fate
    }

    #[test]
    fn each_flag_and_gate_is_kept_retired_or_refused() {
        for (arg, kept) in [
            ("--timeout=5s", Some("v1.1")),
            ("-v5", Some("v0.2")),
            ("--feature-gates=Topology=true", None),
        ] {
            assert_eq!(fate(arg), Fate::Kept(kept), "{arg}");
        }
        assert_eq!(fate("--shutdown-timeout=5s"), Fate::Own);
        for (arg, from) in [
            ("--provisioner=a", "v0.2 to v1.6"),
            ("--logtostderr", "v0.2 to v5.1"),
            ("--feature-gates=HonorPVReclaimPolicy=true", "v3.1 to v6.1"),
            ("--feature-gates=CSINodeInfo=true", "none"),
        ] {
            let found = fate(arg);
            assert!(matches!(found, Fate::Retired { releases, .. } if releases == from), "{arg}");
        }
        for (arg, text) in [
            ("--nosuch=1", "unknown flag: --nosuch"),
            ("--timeout=5", "invalid argument \"5\" for \"--timeout\" flag: "),
            ("--feature-gates=NoSuch=true", "unrecognized feature gate: NoSuch"),
            ("--feature-gates=Topology", "invalid argument \"Topology\" for \"--feature-gates\""),
        ] {
            let found = fate(arg);
            assert!(matches!(&found, Fate::Refused(e) if e.starts_with(text)), "{found:?}");
        }
    }

    #[test]
    fn all_flags_are_reviewed_also_after_an_error() {
        let args = ["--nosuch", "--feature-gates=Topology=true,CSINodeInfo=true", "--timeout", "x"];
        let flags = review(&args.map(str::to_owned));
        let spelled: Vec<&str> = flags.iter().map(|flag| flag.spelled.as_str()).collect();
        assert_eq!(
            spelled,
            [
                "--feature-gates=CSINodeInfo=true",
                "--feature-gates=Topology=true",
                "--timeout=x",
                ""
            ]
        );
    }
}
