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
    /// The original's first and last release with it.
    pub(super) releases: &'static str,
    pub(super) takes: Takes,
    /// What becomes of it: completes "flag --name is retired: ".
    pub(super) advice: &'static str,
}

const LOGGING: &str = "it is ignored; logs go to stderr, see --logging-format and -v";

const fn logging(name: &'static str, releases: &'static str, takes: Takes) -> Retired {
    Retired { name, releases, takes, advice: LOGGING }
}

/// Turned on, it turns leader election on.
pub(super) const ENABLE_LEADER_ELECTION: &str = "enable-leader-election";
/// Said which object elections used.
pub(super) const LEADER_ELECTION_TYPE: &str = "leader-election-type";
/// `central` turns capacity on.
pub(super) const CAPACITY_MODE: &str = "capacity-controller-deployment-mode";

/// What v1 locked unless it was told otherwise.
pub(super) const ENDPOINTS: &str = "a replica of v1 locks an Endpoints object, which this program does not look at: scale it to 0 before this one starts, or give it --leader-election-type=leases first";

/// All retired flags.
pub(super) const RETIRED: [Retired; 16] = [
    Retired {
        name: "provisioner",
        releases: "v0.2 to v1.6",
        takes: Takes::Value,
        advice: "it is ignored; the driver tells its name",
    },
    Retired {
        name: "connection-timeout",
        releases: "v0.2 to v1.6",
        takes: Takes::Value,
        advice: "it is ignored; --timeout bounds the calls to the driver",
    },
    Retired {
        name: ENABLE_LEADER_ELECTION,
        releases: "v0.4 to v1.6",
        takes: Takes::Switch,
        advice: "use --leader-election",
    },
    Retired {
        name: LEADER_ELECTION_TYPE,
        releases: "v1.1 to v1.6",
        takes: Takes::Value,
        advice: "leader election always uses Leases; remove it",
    },
    Retired {
        name: CAPACITY_MODE,
        releases: "v2.0",
        takes: Takes::Value,
        advice: "use --enable-capacity",
    },
    logging("logtostderr", "v0.2 to v5.1", Takes::Switch),
    logging("alsologtostderr", "v0.2 to v5.1", Takes::Switch),
    logging("add_dir_header", "v1.5 to v5.1", Takes::Switch),
    logging("skip_headers", "v1.0 to v5.1", Takes::Switch),
    logging("skip_log_headers", "v1.5 to v5.1", Takes::Switch),
    logging("one_output", "v2.1 to v5.1", Takes::Switch),
    logging("stderrthreshold", "v0.2 to v5.1", Takes::Value),
    logging("log_dir", "v0.2 to v5.1", Takes::Value),
    logging("log_file", "v1.0 to v5.1", Takes::Value),
    logging("log_file_max_size", "v1.5 to v5.1", Takes::Value),
    logging("log_backtrace_at", "v0.2 to v5.1", Takes::Value),
];

/// What to say to somebody who gives the flag; `more` may add something to it.
pub(super) fn warning(retired: &Retired, more: &str) -> String {
    let Retired { name, releases, advice, .. } = retired;
    let more = if more.is_empty() { String::new() } else { format!("; {more}") };
    format!("flag --{name} ({releases}) is retired: {advice}{more}")
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
