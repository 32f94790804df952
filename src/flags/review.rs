//! What becomes of the flags and feature gates of a manifest that runs external-provisioner.
//!
//! [`review`] looks at each one by itself, where [`Flags::parse`](super::Flags::parse) stops at the first
//! error. Whether they contradict each other is left to that.

use super::{
    check,
    command::{self, CommandLine},
    gates::{self, Judgement, RetiredGate},
    releases::since,
    retired::RETIRED,
    syntax::Given,
};

/// What a command line means here.
#[derive(Debug, PartialEq, Eq)]
pub struct Review {
    /// Its flags, in order; each feature gate by itself.
    pub flags: Vec<ReviewedFlag>,
    /// Whether external-provisioner v1 with this command line locks an Endpoints object, not a Lease.
    pub locks_endpoints: bool,
}

/// A flag or a feature gate with what becomes of it.
#[derive(Debug, PartialEq, Eq)]
pub struct ReviewedFlag {
    /// As on the command line: `--name=value`; an error has no flag.
    pub spelled: String,
    /// What becomes of it.
    pub fate: Fate,
}

/// What becomes of a flag or a feature gate.
#[derive(Debug, PartialEq, Eq)]
pub enum Fate {
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

/// Reviews `args`, which do not include the program's name.
pub fn review(args: &[String]) -> Review {
    let (given, errors) = command::parse_each(args);
    let flags = given.into_iter().flat_map(|(given, error)| reviewed(&given, error));
    let errors = errors
        .into_iter()
        .map(|error| ReviewedFlag { spelled: String::new(), fate: Fate::Refused(error) });
    Review { flags: flags.chain(errors).collect(), locks_endpoints: locks_endpoints(args) }
}

fn locks_endpoints(args: &[String]) -> bool {
    let Ok(CommandLine { arguments, retired }) = command::parse(args) else { return false };
    retired.iter().any(|flag| check::locks_endpoints(flag.name, &arguments.retired))
}

/// The flag, or its feature gates.
fn reviewed(given: &Given, error: Option<String>) -> Vec<ReviewedFlag> {
    let Given { name, value } = given;
    let spelled = format!("--{name}={value}");
    let fate = match (error, gates::parse(value)) {
        (Some(error), _) => Fate::Refused(error),
        (None, Ok(gates)) if name == "feature-gates" => {
            return gates.iter().map(|(gate, value)| reviewed_gate(gate, *value)).collect();
        }
        (None, _) => match (RETIRED.iter().find(|flag| flag.name == name), since(name)) {
            (Some(flag), _) => Fate::Retired { releases: flag.releases, advice: flag.advice },
            (None, Some(since)) => Fate::Kept(Some(since)),
            (None, None) => Fate::Own,
        },
    };
    vec![ReviewedFlag { spelled, fate }]
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
        assert_eq!(review.flags.len(), 1, "{arg}");
        review.flags.remove(0).fate
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
        let flags = review(&args.map(str::to_owned)).flags;
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

    #[test]
    fn the_lock_of_v1_is_an_endpoints_object_unless_leases_are_asked_for() {
        for (args, expected) in [
            (&["--enable-leader-election"][..], true),
            (&["--enable-leader-election", "--leader-election-type=leases"], false),
            (&["--leader-election"], false),
        ] {
            let args: Vec<String> = args.iter().map(ToString::to_string).collect();
            assert_eq!(review(&args).locks_endpoints, expected, "{args:?}");
        }
    }
}
