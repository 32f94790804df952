//! Every reason why a volume is not deleted.

use super::*;

fn deleted(phase: &'static str, finalizers: Value) -> Cluster {
    Cluster::with_volume(move |volume| {
        volume["status"]["phase"] = json!(phase);
        volume["metadata"]["finalizers"] = finalizers;
        volume["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:00Z");
    })
}

fn ours() -> Value {
    json!(["external-provisioner.volume.kubernetes.io/finalizer"])
}

#[tokio::test(start_paused = true)]
async fn deleted_volumes_that_finalizers_keep() {
    check(
        vec![
            case(
                "retained and deleted",
                deleted("Released", json!(["external-attacher/d"]))
                    .changed(|it| it["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain")),
                Waiting,
                "Its finalizers are: external-attacher/d",
                "",
            ),
            case(
                "deleted for nobody",
                deleted("Available", ours()).changed(|it| it["spec"]["claimRef"] = Value::Null),
                Wrong,
                "Somebody has deleted it",
                "",
            ),
        ],
        &["pv", "pv-1", "--driver", DRIVER],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn volumes() {
    let with = |path: &'static str, value: Value| {
        Cluster::with_volume(move |volume| *volume.pointer_mut(path).unwrap() = value)
    };
    let phase = |phase: &'static str| with("/status/phase", json!(phase));
    let attachment = json!({
        "kind": "VolumeAttachment", "metadata": {"name": "a"},
        "spec": {"attacher": DRIVER, "nodeName": "n1", "source": {"persistentVolumeName": "pv-1"}},
    });
    let mut failed = event("VolumeFailedDelete", "rpc error: code = Internal desc = no", 60);
    failed["metadata"]["namespace"] = json!("default");
    failed["involvedObject"]["uid"] = json!("uid-of-pv");
    let retained = |phase: &'static str, finalizers: Value| {
        Cluster::with_volume(move |volume| {
            volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
            volume["status"]["phase"] = json!(phase);
            volume["metadata"]["finalizers"] = finalizers;
        })
    };
    check(
        vec![
            case("released", phase("Released"), Waiting, "to be deleted at the driver", ""),
            case(
                "attached",
                phase("Released").and(attachment),
                Waiting,
                "still attached to node n1",
                "delete-attached",
            ),
            case(
                "failed",
                phase("Released").and(failed),
                Waiting,
                "code = Internal",
                "code-internal",
            ),
            case(
                "foreign handle",
                with("/spec/csi/driver", json!("other")),
                Wrong,
                "it is not deleted",
                "delete-foreign",
            ),
            case("bound", phase("Bound"), Served, "bound to the claim shop/data", ""),
            case(
                "bound and deleted",
                deleted("Bound", ours()),
                Waiting,
                "Somebody has deleted it",
                "",
            ),
            case(
                "deleted before it was bound",
                deleted("Available", ours()),
                Waiting,
                "the claim gets another PersistentVolume",
                "deleted-before-bound",
            ),
            case(
                "deleted without our finalizer",
                deleted("Released", json!(["x"])),
                Wrong,
                "its volume stays at the driver",
                "",
            ),
            case("retained", retained("Released", json!([])), Served, "Retain keeps it", ""),
            case(
                "retained with our finalizer",
                retained("Released", ours()),
                Waiting,
                "is removed next",
                "delete-finalizer",
            ),
            case("phase Failed", phase("Failed"), Wrong, "Its phase is Failed", ""),
            case("not bound yet", phase("Available"), Waiting, "is for the claim shop/data", ""),
            case(
                "for nobody",
                Cluster::with_volume(|it| {
                    it["status"]["phase"] = json!("Available");
                    it["spec"]["claimRef"] = Value::Null;
                }),
                Served,
                "for no claim yet",
                "",
            ),
        ],
        &["pv", "pv-1", "--driver", DRIVER],
    )
    .await;
    let foreign =
        vec![case("another's", phase("Released"), Unknown, "not a volume of this driver", "")];
    check(foreign, &["pv", "pv-1", "--driver", "x"]).await;
    let foreign_handle = with("/spec/csi/driver", json!("other"));
    let by_annotation =
        vec![case("no flag", foreign_handle, Wrong, "it is not deleted", "delete-foreign")];
    check(by_annotation, &["pv", "pv-1"]).await;
}
