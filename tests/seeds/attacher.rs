//! Who attaches volumes to nodes: this driver's attacher or another's.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    core::{Core, DRIVER},
    dice::Dice,
    ledger::text,
};

/// Attaches bound volumes and detaches them again, some of them late, until all is healed; then
/// detaches what is attached.
pub(crate) async fn run(core: Arc<Core>) {
    let dice = Dice::new(core.seed, "attacher");
    loop {
        sleep(dice.stretch(100..5_000)).await;
        for attachment in core.api.list("VolumeAttachment", "") {
            if core.is_healed() || dice.percent(3) {
                detach(&core, &attachment);
            }
        }
        if !core.is_healed() {
            attach(&core, &dice);
        }
        core.observe();
    }
}

fn attach(core: &Core, dice: &Dice) {
    let mut volumes = core.api.list("PersistentVolume", "");
    volumes.retain(|volume| text(volume, "/status/phase") == "Bound");
    if volumes.is_empty() || dice.percent(50) {
        return;
    }
    let volume = text(dice.pick(&volumes), "/metadata/name").to_owned();
    let attacher = *dice.pick(&[DRIVER, "attacher.example.com"]);
    let attachment = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
        "metadata": {"name": format!("csi-{volume}-{}", attacher.len())},
        "spec": {"attacher": attacher, "nodeName": "node", "source": {"persistentVolumeName": volume}},
        "status": {"attached": true},
    });
    if core.api.create(&attachment).is_ok() {
        core.ledger.log(&format!("{attacher}: attaches {volume}"));
    }
}

fn detach(core: &Core, attachment: &Value) {
    let name = text(attachment, "/metadata/name");
    if core.api.delete("VolumeAttachment", "", name).is_ok() {
        core.ledger.log(&format!("attacher: {name} is no more"));
    }
}
