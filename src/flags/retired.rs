//! Flags that earlier releases had, from v0.2 to v6.2.
//!
//! Owns their names, what they take, and what to say about them. The original ends with "unknown
//! flag" on most; manifests that grew over years are spared that crash loop here. Promises one
//! clear warning for each that is given.

/// What a retired flag takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    /// A value.
    Value,
    /// Nothing, or `=true` or `=false`.
    Switch,
}

/// A flag of earlier releases.
#[derive(Debug)]
pub(super) struct Retired {
    pub(super) name: &'static str,
    pub(super) takes: Takes,
    /// What becomes of it: completes "flag --name is retired: ".
    pub(super) advice: &'static str,
}

const LOGGING: &str = "it is ignored; logs go to stderr, see --logging-format and -v";

const fn logging(name: &'static str, takes: Takes) -> Retired {
    Retired { name, takes, advice: LOGGING }
}

/// Turned on, it turns leader election on.
pub(super) const ENABLE_LEADER_ELECTION: &str = "enable-leader-election";
/// Said which object elections used.
pub(super) const LEADER_ELECTION_TYPE: &str = "leader-election-type";
/// `central` turns capacity on.
pub(super) const CAPACITY_MODE: &str = "capacity-controller-deployment-mode";

/// All retired flags.
pub(super) const RETIRED: [Retired; 16] = [
    Retired {
        name: "provisioner",
        takes: Takes::Value,
        advice: "it is ignored; the driver tells its name",
    },
    Retired {
        name: "connection-timeout",
        takes: Takes::Value,
        advice: "it is ignored; --timeout bounds the calls to the driver",
    },
    Retired { name: ENABLE_LEADER_ELECTION, takes: Takes::Switch, advice: "use --leader-election" },
    Retired {
        name: LEADER_ELECTION_TYPE,
        takes: Takes::Value,
        advice: "leader election always uses Leases; remove it",
    },
    Retired { name: CAPACITY_MODE, takes: Takes::Value, advice: "use --enable-capacity" },
    logging("logtostderr", Takes::Switch),
    logging("alsologtostderr", Takes::Switch),
    logging("add_dir_header", Takes::Switch),
    logging("skip_headers", Takes::Switch),
    logging("skip_log_headers", Takes::Switch),
    logging("one_output", Takes::Switch),
    logging("stderrthreshold", Takes::Value),
    logging("log_dir", Takes::Value),
    logging("log_file", Takes::Value),
    logging("log_file_max_size", Takes::Value),
    logging("log_backtrace_at", Takes::Value),
];

/// What to say to somebody who gives the flag `name`.
pub(super) fn warning(retired: &Retired) -> String {
    format!("flag --{} is retired: {}", retired.name, retired.advice)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_name_stands_once() {
        let names: BTreeSet<_> = RETIRED.iter().map(|r| r.name).collect();
        assert_eq!(names.len(), RETIRED.len());
    }
}
