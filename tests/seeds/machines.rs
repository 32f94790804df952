//! Machines with storage of their own, on each of which a driver and the program run: they leave for a
//! while or for ever, and their Nodes with them; or only the Node is missing for a while.

use std::sync::Arc;

use tokio::time::sleep;

use super::{core::Core, dice::Dice, nodes, replica::Replica};

/// One after the other, until all is healed.
pub(crate) async fn run(core: Arc<Core>, replicas: Vec<Arc<Replica>>) {
    let dice = Dice::new(core.seed, "machines");
    while !core.is_healed() {
        sleep(dice.stretch(2_000..60_000)).await;
        let replica = dice.pick(&replicas);
        if core.is_healed() {
            return;
        }
        if is_lost(&core, &replica.host) {
            continue;
        }
        match dice.within(0..5) {
            0 => lacks_its_node(&core, &dice, &replica.host).await,
            // Somebody must be left.
            1 if core.lost.lock().len() + 2 < replicas.len() => {
                leaves(&core, &dice, replica).await;
                loses(&core, &replica.host);
            }
            _ => {
                leaves(&core, &dice, replica).await;
                sleep(dice.stretch(500..300_000)).await;
                returns(&core, replica);
            }
        }
    }
}

/// All that have not left for ever are there again.
pub(crate) fn heal(core: &Core, replicas: &[Arc<Replica>]) {
    for replica in replicas.iter().filter(|replica| !is_lost(core, &replica.host)) {
        returns(core, replica);
    }
}

fn is_lost(core: &Core, node: &str) -> bool {
    core.lost.lock().contains(node)
}

/// Somebody deletes the Node, and the kubelet makes it again.
async fn lacks_its_node(core: &Core, dice: &Dice, node: &str) {
    core.ledger.log(&format!("machines: the Node {node} is deleted"));
    nodes::remove(&core.api, node);
    sleep(dice.stretch(500..30_000)).await;
    core.ledger.log(&format!("machines: the Node {node} is there again"));
    nodes::provide_one(&core.api, node);
}

/// The machine stops, and some time later its Node goes.
async fn leaves(core: &Core, dice: &Dice, replica: &Replica) {
    core.ledger.log(&format!("machines: {} stops", replica.host));
    replica.leaves();
    sleep(dice.stretch(20..30_000)).await;
    if !core.is_healed() {
        core.ledger.log(&format!("machines: the Node {} goes", replica.host));
        nodes::remove(&core.api, &replica.host);
    }
}

/// The machine does not come back, and what was on it is gone.
fn loses(core: &Core, node: &str) {
    if !core.is_healed() {
        core.ledger.log(&format!("machines: {node} is gone for ever"));
        core.lost.lock().insert(node.to_owned());
        core.storage.lose(node);
    }
}

fn returns(core: &Core, replica: &Replica) {
    nodes::provide_one(&core.api, &replica.host);
    if replica.is_away() {
        core.ledger.log(&format!("machines: {} is there again", replica.host));
        replica.returns();
    }
}
