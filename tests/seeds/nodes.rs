//! Nodes, each a zone of its own: they and what is registered on them are removed and added.

use std::sync::Arc;

use serde_json::{Value, json};
use testkit::apiserver::ApiServer;
use tokio::time::sleep;

use super::{
    core::{Core, DRIVER},
    dice::Dice,
    plan::Plan,
};

/// Their names; the last is there only where each has storage of its own.
pub(crate) const NODES: [&str; 3] = ["north", "south", "west"];

/// The label that names the zone.
pub(crate) const ZONE: &str = "topology.example.com/zone";

/// Those of a seed.
pub(crate) fn all(plan: &Plan) -> &'static [&'static str] {
    if plan.local { &NODES } else { &NODES[..2] }
}

/// All of them are there, with what belongs to them.
pub(crate) fn provide(api: &ApiServer, plan: &Plan) {
    for node in all(plan) {
        provide_one(api, node);
    }
}

/// This one is.
pub(crate) fn provide_one(api: &ApiServer, node: &str) {
    put(api, node, "v1", "Node", &json!({"metadata": {"labels": {ZONE: node}}}));
    let drivers = json!([{"name": DRIVER, "nodeID": node, "topologyKeys": [ZONE]}]);
    put(api, node, "storage.k8s.io/v1", "CSINode", &json!({"spec": {"drivers": drivers}}));
}

/// This one leaves.
pub(crate) fn remove(api: &ApiServer, node: &str) {
    let _ = api.delete("CSINode", "", node);
    let _ = api.delete("Node", "", node);
}

/// The affinity of a volume that only this node has.
pub(crate) fn affinity(node: &str) -> Value {
    let term = json!({"matchExpressions": [{"key": ZONE, "operator": "In", "values": [node]}]});
    json!({"required": {"nodeSelectorTerms": [term]}})
}

fn put(api: &ApiServer, node: &str, version: &str, kind: &str, content: &Value) {
    if api.get(kind, "", node).is_none() {
        let bare = json!({"apiVersion": version, "kind": kind, "metadata": {"name": node},
                          "spec": if kind == "CSINode" { json!({"drivers": []}) } else { json!({}) }});
        api.create(&bare).unwrap();
    }
    api.merge(kind, "", node, content).unwrap();
}

/// Those that there are, for a scheduler to choose from.
pub(crate) fn standing(api: &ApiServer) -> Vec<&'static str> {
    NODES.into_iter().filter(|node| api.get("Node", "", node).is_some()).collect()
}

/// Now and then one lacks something for a while, until all is healed.
pub(crate) async fn run(core: Arc<Core>) {
    let dice = Dice::new(core.seed, "nodes");
    while core.troubles_after(dice.stretch(1_000..60_000)).await {
        let node = *dice.pick(all(&core.plan));
        take(&core, &dice, node);
        if dice.percent(30) {
            core.hold_up(dice.pick::<&str>(&["nodes", "csinodes"]), dice.stretch(200..60_000));
        }
        sleep(dice.stretch(500..60_000)).await;
        provide(&core.api, &core.plan);
        core.ledger.log("nodes: all is there again");
    }
}

fn take(core: &Core, dice: &Dice, node: &str) {
    let api = &core.api;
    let (what, taken) = match dice.within(0..3) {
        // Its driver's Pod starts anew.
        0 => (
            "its driver",
            api.merge("CSINode", "", node, &json!({"spec": {"drivers": []}})).map(drop),
        ),
        // It is new, and nobody has said yet where it is.
        1 => {
            let unlabelled = json!({"metadata": {"labels": {ZONE: null}}});
            ("its zone", api.merge("Node", "", node, &unlabelled).map(drop))
        }
        // The cluster gets smaller.
        _ => {
            let gone = api.delete("CSINode", "", node);
            ("everything", gone.and_then(|()| api.delete("Node", "", node)))
        }
    };
    taken.unwrap();
    core.ledger.log(&format!("nodes: {node} lacks {what}"));
}
