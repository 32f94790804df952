//! The flags of earlier releases, from v0.2 to v6.2.
//!
//! Contains their names, and what to do instead. external-provisioner ends with "unknown flag" on most
//! of them; this program accepts them with one warning each, for manifests that grew over years.

/// What a flag takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// A value.
    Value,
    /// Nothing, or a bool after `=`.
    Switch,
}

/// A flag of earlier releases.
#[derive(Debug)]
pub struct Retired {
    /// Its name.
    pub name: &'static str,
    /// external-provisioner's first and last release with it.
    pub releases: &'static str,
    /// What the flag takes if it is ignored. The others are fields of `groups::RetiredFlags`.
    pub ignored: Option<Takes>,
    /// What to do about it: completes "flag --name is retired: ".
    pub advice: &'static str,
}

const fn flag(
    name: &'static str,
    releases: &'static str,
    ignored: Option<Takes>,
    advice: &'static str,
) -> Retired {
    Retired { name, releases, ignored, advice }
}

const LOGGING: &str = "it is ignored; logs go to stderr, see --logging-format and -v";

/// What v1 locks by default.
pub const ENDPOINTS: &str = "a replica of v1 locks an Endpoints object, which this program does not look at: scale it to 0 before this one starts, or give it --leader-election-type=leases first";

pub(super) const ENABLE_LEADER_ELECTION: &str = "enable-leader-election";
pub(super) const LEADER_ELECTION_TYPE: &str = "leader-election-type";
pub(super) const CAPACITY_MODE: &str = "capacity-controller-deployment-mode";

const VALUE: Option<Takes> = Some(Takes::Value);
const SWITCH: Option<Takes> = Some(Takes::Switch);

/// All of them.
#[rustfmt::skip] // one line a flag: it is a table
pub const RETIRED: [Retired; 16] = [
    flag("provisioner", "v0.2 to v1.6", VALUE, "it is ignored; the driver reports its name"),
    flag("connection-timeout", "v0.2 to v1.6", VALUE, "it is ignored; --timeout bounds the calls to the driver"),
    flag(ENABLE_LEADER_ELECTION, "v0.4 to v1.6", None, "use --leader-election"),
    flag(LEADER_ELECTION_TYPE, "v1.1 to v1.6", None, "leader election always uses Leases; remove it"),
    flag(CAPACITY_MODE, "v2.0", None, "use --enable-capacity"),
    flag("logtostderr", "v0.2 to v5.1", SWITCH, LOGGING),
    flag("alsologtostderr", "v0.2 to v5.1", SWITCH, LOGGING),
    flag("add_dir_header", "v1.5 to v5.1", SWITCH, LOGGING),
    flag("skip_headers", "v1.0 to v5.1", SWITCH, LOGGING),
    flag("skip_log_headers", "v1.5 to v5.1", SWITCH, LOGGING),
    flag("one_output", "v2.1 to v5.1", SWITCH, LOGGING),
    flag("stderrthreshold", "v0.2 to v5.1", VALUE, LOGGING),
    flag("log_dir", "v0.2 to v5.1", VALUE, LOGGING),
    flag("log_file", "v1.0 to v5.1", VALUE, LOGGING),
    flag("log_file_max_size", "v1.5 to v5.1", VALUE, LOGGING),
    flag("log_backtrace_at", "v0.2 to v5.1", VALUE, LOGGING),
];

/// The warning about the flag; `more` is added to it.
pub(super) fn warning(retired: &Retired, more: &str) -> String {
    let Retired { name, releases, advice, .. } = retired;
    let more = if more.is_empty() { String::new() } else { format!("; {more}") };
    format!("flag --{name} ({releases}) is retired: {advice}{more}")
}
