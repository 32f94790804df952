//! Another driver's provisioner, as far as it concerns ours: it clones, under the finalizer that all
//! provisioners share, and any of them may free a source once it is deleted.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::{copying::CLONED, core::Core, dice::Dice, ledger::text};

/// Where its claims are: none of our users' meddling.
const NAMESPACE: &str = "elsewhere";

const DRIVER: &str = "other.example.com";

/// Clones again and again until all is healed.
pub(crate) async fn run(core: Arc<Core>) {
    let dice = Dice::new(core.seed, "neighbour");
    core.api.namespace(NAMESPACE);
    while !core.is_healed() {
        sleep(dice.stretch(500..20_000)).await;
        clone(&core, &dice).await;
        for name in ["source", "clone"] {
            delete(&core, name);
        }
        // Where nobody else has freed it.
        sleep(dice.stretch(500..20_000)).await;
        write(&core, "source", &json!({"metadata": {"finalizers": null}}));
    }
}

/// One clone, whose source may be deleted while it is made.
async fn clone(core: &Core, dice: &Dice) {
    let Some(source) = create(core, "source", &Value::Null) else { return };
    bind(core, "source");
    let named = json!({"kind": "PersistentVolumeClaim", "name": "source"});
    create(core, "clone", &named);
    sleep(dice.stretch(20..2_000)).await;
    write(core, "source", &json!({"metadata": {"finalizers": [CLONED]}}));
    let uid = text(&source, "/metadata/uid");
    let copied = core.copying.begins(DRIVER, uid, "elsewhere", "the neighbour's clone");
    sleep(dice.stretch(20..5_000)).await;
    delete(core, "source");
    sleep(dice.stretch(500..20_000)).await;
    drop(copied);
    bind(core, "clone");
}

fn create(core: &Core, name: &str, source: &Value) -> Option<Value> {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": NAMESPACE,
                     "annotations": {"volume.kubernetes.io/storage-provisioner": DRIVER}},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "other", "dataSource": source,
                 "resources": {"requests": {"storage": "1Gi"}}},
    });
    let made = core.api.create(&claim).ok();
    core.ledger.log(&format!("neighbour: creates {name}: {}", made.is_some()));
    core.observe();
    made
}

fn bind(core: &Core, name: &str) {
    write(core, name, &json!({"spec": {"volumeName": name}}));
    write(core, name, &json!({"status": {"phase": "Bound"}}));
}

fn write(core: &Core, name: &str, patch: &Value) {
    let _ = core.api.merge("PersistentVolumeClaim", NAMESPACE, name, patch);
    core.observe();
}

fn delete(core: &Core, name: &str) {
    if core.api.delete("PersistentVolumeClaim", NAMESPACE, name).is_ok() {
        core.ledger.log(&format!("neighbour: deletes {name}"));
    }
    core.observe();
}
