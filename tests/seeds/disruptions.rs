//! Disruptions around the program: of watches, rights, the Lease, quota and the driver's process.

use std::sync::Arc;

use tokio::time::sleep;

use super::{admins, core::Core, dice::Dice};

const KINDS: [&str; 4] =
    ["persistentvolumes", "persistentvolumeclaims", "persistentvolumeclaims", "storageclasses"];

const RIGHTS: [(&str, &str); 8] = [
    ("create", "persistentvolumes"),
    ("patch", "persistentvolumes"),
    ("delete", "persistentvolumes"),
    ("get", "persistentvolumes"),
    ("get", "persistentvolumeclaims"),
    ("get", "secrets"),
    ("create", "events"),
    ("list", "persistentvolumes"),
];

/// Holds up and cuts watches, and takes rights, until all is healed.
pub(crate) async fn run(core: Arc<Core>) {
    let dice = Dice::new(core.seed, "weather");
    while core.troubles_after(dice.stretch(500..20_000)).await {
        let kind = if core.plan.restless && dice.percent(60) {
            "persistentvolumeclaims"
        } else {
            *dice.pick(&KINDS)
        };
        match dice.within(0..5) {
            0 | 1 => core.hold_up(kind, dice.stretch(200..300_000)),
            2 => {
                core.ledger.log(&format!("disruption: the watches of {kind} are cut"));
                core.api.watches().cut(Some(kind));
            }
            3 => {
                core.ledger.log("disruption: all watches are cut, and history is forgotten");
                core.ledger.watching.cut();
                core.api.watches().cut(None);
                core.api.compact();
            }
            _ => {
                let (verb, resource) = *dice.pick(&RIGHTS);
                core.forbid(verb, resource, dice.stretch(500..60_000));
            }
        }
    }
}

/// Holds up the watches of the Lease, takes rights on it, and writes on it by hand, until all is healed.
pub(crate) async fn of_lease(core: Arc<Core>) {
    let dice = Dice::new(core.seed, "lease");
    while core.troubles_after(dice.stretch(500..30_000)).await {
        match dice.within(0..5) {
            0 => core.hold_up("leases", dice.stretch(200..60_000)),
            1 => admins::write_on_lease(&core, &dice),
            _ => {
                let verb = *dice.pick(&["get", "update", "watch"]);
                core.forbid(verb, "leases", dice.stretch(500..60_000));
            }
        }
    }
}

/// Uses the quota up now and then, until all is healed.
pub(crate) async fn quota(core: Arc<Core>) {
    let dice = Dice::new(core.seed, "quota");
    while core.troubles_after(dice.stretch(500..20_000)).await {
        core.use_up(dice.stretch(200..60_000));
    }
}

/// Takes the driver's process on `host` down now and then, until all is healed.
pub(crate) async fn outages(core: Arc<Core>, host: String, down: impl Fn(), up: impl Fn()) {
    let dice = Dice::new(core.seed, &format!("outages {host}"));
    while core.troubles_after(dice.stretch(2_000..60_000)).await {
        core.ledger.log(&format!("disruption: the driver on {host} goes down"));
        down();
        sleep(dice.stretch(10..10_000)).await;
        core.ledger.log(&format!("disruption: the driver on {host} comes back"));
        up();
    }
}
