//! The users whom the adversary attacks: their claims and their snapshot in a namespace that he cannot
//! read, from which they let him copy at times.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    core::{Core, TENANT, VAULT},
    dice::Dice,
    users,
};

/// Their claims.
pub(crate) const TREASURES: [&str; 2] = ["treasure", "relic"];

/// Their snapshot.
pub(crate) const SEAL: &str = "seal";

const GRANT: &str = "ReferenceGrant";

const GRANTS: &str = "gateway.networking.k8s.io";

/// Their namespace and his, and what is theirs.
pub(crate) fn provide(core: &Core) {
    for namespace in [TENANT, VAULT] {
        core.api.namespace(namespace);
    }
    for name in TREASURES {
        let mut claim = users::claim(name, "plain");
        claim["metadata"]["namespace"] = json!(VAULT);
        core.api.create(&claim).unwrap();
    }
    if core.plan.copies {
        core.api.create(&snapshot(VAULT, SEAL, TREASURES[0])).unwrap();
    }
    if core.plan.grants {
        core.api.create(&definition()).unwrap();
    }
}

pub(crate) fn snapshot(namespace: &str, name: &str, of: &str) -> Value {
    json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"source": {"persistentVolumeClaimName": of}},
    })
}

/// The kind of grants, as the manifests of the gateway API bring it.
fn definition() -> Value {
    let names = json!({"plural": "referencegrants", "singular": "referencegrant", "kind": GRANT,
                       "listKind": "ReferenceGrantList"});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("referencegrants.{GRANTS}")},
        "spec": {"group": GRANTS, "scope": "Namespaced", "names": names,
                 "versions": [{"name": "v1beta1", "served": true, "storage": true}]},
    })
}

/// They grant and take back, until all is healed.
pub(crate) async fn run(core: Arc<Core>) {
    let dice = Dice::new(core.seed, "victims");
    while !core.is_healed() {
        sleep(dice.stretch(1_000..60_000)).await;
        if !core.is_healed() {
            grant(&core, &dice);
            sleep(dice.stretch(500..60_000)).await;
        }
        take_back(&core);
    }
}

fn grant(core: &Core, dice: &Dice) {
    let snapshots = json!({"group": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot"});
    let claims = json!({"group": "", "kind": "PersistentVolumeClaim"});
    let to = dice.pick(&[json!([claims]), json!([snapshots]), json!([claims, snapshots])]).clone();
    let from = json!([{"group": "", "kind": "PersistentVolumeClaim", "namespace": TENANT}]);
    let grant = json!({
        "apiVersion": format!("{GRANTS}/v1beta1"), "kind": GRANT,
        "metadata": {"name": "grant", "namespace": VAULT}, "spec": {"from": from, "to": to},
    });
    core.api.create(&grant).unwrap();
    core.ledger.log(&format!("victims: grant {to}"));
    core.observe();
}

/// What they have granted counts no more.
pub(crate) fn take_back(core: &Core) {
    if core.api.delete(GRANT, VAULT, "grant").is_ok() {
        core.ledger.log("victims: take their grant back");
        core.observe();
    }
}
