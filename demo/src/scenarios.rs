//! The scenarios: what happens, and what must be observed then.
//!
//! Owns the table of scenarios, as data. An act is followed by its signs: lines that must appear on the
//! screen before the next act. Leaves acting and waiting to `play`, the end to `balance`.

use crate::{
    driver::Ability,
    observations::{Observation, Source},
};

/// A scenario.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows, as a line above the others.
    pub title: &'static str,
    /// Flags of the provisioner beside those for the connections.
    pub flags: &'static [&'static str],
    /// What the driver can do.
    pub ability: Ability,
    /// The objects that are there before the program starts.
    pub cluster: Option<&'static str>,
    /// The objects that [`Act::Create`] creates.
    pub objects: &'static str,
    /// What happens, in this order.
    pub parts: &'static [Part],
    /// The volumes that are there at the end.
    pub volumes: usize,
}

/// An act, and what must be observed before the next one.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// What the demo does.
    pub act: Act,
    /// What must be observed then.
    pub signs: &'static [Sign],
}

/// What the demo does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Starts the provisioner, for the first time or again.
    StartProgram,
    /// Kills the provisioner with SIGKILL.
    KillProgram,
    /// Starts the driver again.
    StartDriver,
    /// Cuts the driver's connections and calls, and removes its socket.
    KillDriver,
    /// From now on the driver makes volumes and does not answer.
    Silence,
    /// The driver answers again.
    Answer,
    /// Creates the scenario's objects.
    Create,
    /// Deletes the claim.
    DeleteClaim,
    /// Deletes the snapshot.
    DeleteSnapshot,
    /// Chooses another node for the claim, as the scheduler does.
    ChooseNode(&'static str),
    /// Only waits, for this.
    WaitFor(&'static str),
}

impl Act {
    /// What the screen says about it.
    pub fn says(self) -> String {
        match self {
            Self::StartProgram => "starts the program".to_owned(),
            Self::KillProgram => "kills the program (SIGKILL)".to_owned(),
            Self::StartDriver => "starts the driver again".to_owned(),
            Self::KillDriver => "kills the driver in mid-call".to_owned(),
            Self::Silence => "lets the driver make volumes without an answer".to_owned(),
            Self::Answer => "lets the driver answer again".to_owned(),
            Self::Create => "creates class and claim, and what they need".to_owned(),
            Self::DeleteClaim => "deletes the claim".to_owned(),
            Self::DeleteSnapshot => "deletes the snapshot".to_owned(),
            Self::ChooseNode(node) => format!("chooses {node} for the claim, as the scheduler"),
            Self::WaitFor(what) => format!("waits for {what}"),
        }
    }
}

/// A line that must appear: where it comes from, and what it contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sign(pub Source, pub &'static str);

impl Sign {
    /// Whether this observation is the sign.
    pub fn is_shown_by(self, observation: &Observation) -> bool {
        self.0 == observation.source && observation.to_string().contains(self.1)
    }
}

/// The scenario of that name.
pub fn find(name: &str) -> Option<&'static Scenario> {
    ALL.iter().find(|scenario| scenario.name == name)
}

/// The objects of most scenarios: a class, a secret and a claim.
const CLAIM: &str = include_str!("../objects/claim.yaml");
const RESTORE: &str = include_str!("../objects/restore.yaml");
const SNAPSHOT: &str = include_str!("../objects/snapshot.yaml");
const ZONES: &str = include_str!("../objects/zones.yaml");
const LATE_CLAIM: &str = include_str!("../objects/late-claim.yaml");

/// The driver's calls time out after this time, where a scenario needs it.
const SHORT_CALLS: &[&str] = &["--timeout=1s"];

const fn part(act: Act, signs: &'static [Sign]) -> Part {
    Part { act, signs }
}

const STARTED: &[Sign] = &[Sign(Source::Driver, "GetPluginInfo")];
const CALLED: &[Sign] = &[Sign(Source::Driver, "CreateVolume")];
const MADE: &[Sign] = &[Sign(Source::Driver, "CreateVolume"), Sign(Source::Disk, ": holds")];
const BOUND: &[Sign] =
    &[Sign(Source::Claim, ": Bound"), Sign(Source::Event, "ProvisioningSucceeded")];
const CALLED_AND_BOUND: &[Sign] =
    &[Sign(Source::Driver, "CreateVolume"), Sign(Source::Claim, ": Bound")];

/// A claim's life: what is played without `--scenario`.
pub static LIFE: Scenario = Scenario {
    name: "demo",
    title: "A claim gets a volume, and both are deleted.",
    flags: &[],
    ability: Ability::None,
    cluster: None,
    objects: CLAIM,
    parts: &[
        part(Act::StartProgram, STARTED),
        part(
            Act::Create,
            &[
                Sign(Source::Event, "Provisioning (Normal)"),
                Sign(Source::Driver, "with secret password + user"),
                Sign(Source::Disk, ": holds"),
                Sign(Source::Volume, ": Bound"),
                Sign(Source::Claim, ": Bound"),
                Sign(Source::Event, "ProvisioningSucceeded"),
            ],
        ),
        part(
            Act::DeleteClaim,
            &[
                Sign(Source::Claim, ": gone"),
                Sign(Source::Volume, ": Released"),
                Sign(Source::Driver, "DeleteVolume"),
                Sign(Source::Disk, ": gone"),
                Sign(Source::Volume, "being deleted, held by"),
                Sign(Source::Volume, ": gone"),
            ],
        ),
    ],
    volumes: 0,
};

/// The scenarios of `--scenario`.
pub const ALL: [Scenario; 6] = [
    Scenario {
        name: "slow-driver",
        title: "The driver takes longer than a call may take (--timeout). The call is repeated, and \
                the driver has one volume.",
        flags: SHORT_CALLS,
        ability: Ability::None,
        cluster: None,
        objects: CLAIM,
        parts: &[
            part(Act::StartProgram, STARTED),
            part(Act::Silence, &[]),
            part(Act::Create, MADE),
            part(Act::WaitFor("the next call: the first one times out"), CALLED),
            part(Act::Answer, BOUND),
        ],
        volumes: 1,
    },
    Scenario {
        name: "driver-killed",
        title: "The driver is killed after it made the volume and before it answered. The call is \
                repeated, and the driver has one volume.",
        flags: &[],
        ability: Ability::None,
        cluster: None,
        objects: CLAIM,
        parts: &[
            part(Act::StartProgram, STARTED),
            part(Act::Silence, &[]),
            part(Act::Create, MADE),
            part(Act::KillDriver, &[]),
            part(Act::StartDriver, CALLED_AND_BOUND),
        ],
        volumes: 1,
    },
    Scenario {
        name: "provisioner-killed",
        title: "The provisioner is killed while the driver makes the volume. The next process asks for \
                the same volume.",
        flags: &[],
        ability: Ability::None,
        cluster: None,
        objects: CLAIM,
        parts: &[
            part(Act::StartProgram, STARTED),
            part(Act::Silence, &[]),
            part(Act::Create, MADE),
            part(Act::KillProgram, &[]),
            part(Act::Answer, &[]),
            part(Act::StartProgram, CALLED_AND_BOUND),
        ],
        volumes: 1,
    },
    Scenario {
        name: "claim-deleted",
        title: "The claim is deleted while the end of its call is unknown. A finalizer keeps it until \
                the driver answers, and then its volume is deleted.",
        flags: SHORT_CALLS,
        ability: Ability::None,
        cluster: None,
        objects: CLAIM,
        parts: &[
            part(Act::StartProgram, STARTED),
            part(Act::Silence, &[]),
            part(Act::Create, MADE),
            part(
                Act::WaitFor("the record of the open call: the call times out"),
                &[Sign(Source::Claim, "held by provisioner.storage.kubernetes.io")],
            ),
            part(Act::DeleteClaim, &[Sign(Source::Claim, "being deleted, held by")]),
            part(
                Act::Answer,
                &[
                    Sign(Source::Claim, ": gone"),
                    Sign(Source::Driver, "DeleteVolume"),
                    Sign(Source::Disk, ": gone"),
                    Sign(Source::Volume, ": gone"),
                ],
            ),
        ],
        volumes: 0,
    },
    Scenario {
        name: "restore",
        title: "A claim is restored from a snapshot that is deleted meanwhile. A finalizer keeps the \
                snapshot until the volume is there.",
        flags: &[],
        ability: Ability::Snapshots,
        cluster: Some(SNAPSHOT),
        objects: RESTORE,
        parts: &[
            part(Act::StartProgram, STARTED),
            part(Act::Silence, &[]),
            part(
                Act::Create,
                &[Sign(Source::Driver, "from snapshot snap-1"), Sign(Source::Disk, ": holds")],
            ),
            part(Act::DeleteSnapshot, &[Sign(Source::Snapshot, "being deleted, held by")]),
            part(Act::Answer, &[Sign(Source::Claim, ": Bound"), Sign(Source::Snapshot, ": gone")]),
        ],
        volumes: 1,
    },
    Scenario {
        name: "zones",
        title: "The zone of the selected node has no space. The claim goes back to the scheduler, which \
                chooses a node in another zone.",
        flags: &["--strict-topology"],
        ability: Ability::Zones,
        cluster: Some(ZONES),
        objects: LATE_CLAIM,
        parts: &[
            part(Act::StartProgram, STARTED),
            part(
                Act::Create,
                &[
                    Sign(Source::Driver, "in zone-a"),
                    Sign(Source::Claim, "for node-a"),
                    Sign(Source::Claim, "Pending, given to"),
                ],
            ),
            part(
                Act::ChooseNode("node-b"),
                &[
                    Sign(Source::Driver, "in zone-b"),
                    Sign(Source::Volume, "in zone-b"),
                    Sign(Source::Claim, ": Bound"),
                ],
            ),
        ],
        volumes: 1,
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_scenario_is_found_by_its_own_name() {
        let names: BTreeSet<_> = ALL.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), ALL.len());
        for scenario in &ALL {
            assert_eq!(find(scenario.name).map(|found| found.title), Some(scenario.title));
        }
        assert!(find("none").is_none());
    }

    #[test]
    fn each_scenario_starts_the_program_first_and_waits_for_signs_last() {
        for Scenario { name, parts, .. } in &ALL {
            assert_eq!(parts[0].act, Act::StartProgram, "{name}");
            assert!(!parts.last().unwrap().signs.is_empty(), "{name}");
        }
    }

    #[test]
    fn a_sign_is_a_line_of_its_source_that_contains_its_text() {
        let observation = |source, text: &str| Observation {
            source,
            subject: "default/data".to_owned(),
            text: text.to_owned(),
        };
        let sign = Sign(Source::Claim, ": Bound");
        for (source, text, expected) in [
            (Source::Claim, "Bound, its volume is pv", true),
            (Source::Claim, "Pending", false),
            (Source::Volume, "Bound", false),
        ] {
            assert_eq!(sign.is_shown_by(&observation(source, text)), expected, "{text}");
        }
    }
}
