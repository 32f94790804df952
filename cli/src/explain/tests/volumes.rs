//! Every reason why a volume is not deleted.

use super::*;

/// The volume in this phase, with these finalizers.
fn in_phase(phase: &str, finalizers: &Value) -> Cluster {
    Cluster::with_volume(|volume| {
        volume["status"]["phase"] = json!(phase);
        volume["metadata"]["finalizers"] = finalizers.clone();
    })
}

#[tokio::test(start_paused = true)]
async fn volumes() {
    let ours = json!(["external-provisioner.volume.kubernetes.io/finalizer"]);
    let attachers = json!(["external-attacher/d"]);
    let phase = |phase: &str| in_phase(phase, &ours);
    let deleted = |cluster: Cluster| {
        let time = json!("1970-01-01T00:00:00Z");
        cluster.changed(|it| it["metadata"]["deletionTimestamp"] = time)
    };
    let retained = |cluster: Cluster| {
        cluster.changed(|it| it["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain"))
    };
    let for_nobody = || phase("Available").changed(|it| it["spec"]["claimRef"] = Value::Null);
    let foreign = || phase("Released").changed(|it| it["spec"]["csi"]["driver"] = json!("other"));
    let attachment = json!({
        "kind": "VolumeAttachment", "metadata": {"name": "a"},
        "spec": {"attacher": DRIVER, "nodeName": "n1", "source": {"persistentVolumeName": "pv-1"}},
    });
    let attached = phase("Released").and(attachment);
    let mut failure = event("VolumeFailedDelete", "rpc error: code = Internal desc = no", 60);
    failure["metadata"]["namespace"] = json!("default");
    failure["involvedObject"]["uid"] = json!("uid-of-pv");
    let failed = phase("Released").and(failure);
    let early = deleted(phase("Available"));
    let unprotected = deleted(in_phase("Released", &json!(["x"])));
    let kept = retained(in_phase("Released", &json!([])));
    let kept_by_others = deleted(retained(in_phase("Released", &attachers)));
    let somebody = "Somebody has deleted it";
    let cases = [
        (phase("Released"), Waiting, "to be deleted at the driver", ""),
        (attached, Waiting, "still attached to node n1", "delete-attached"),
        (failed, Waiting, "code = Internal", "code-internal"),
        (foreign(), Wrong, "it is not deleted", "delete-foreign"),
        (phase("Bound"), Served, "bound to the claim shop/data", ""),
        (deleted(phase("Bound")), Waiting, somebody, ""),
        (early, Waiting, "the claim gets another PersistentVolume", "deleted-before-bound"),
        (unprotected, Wrong, "its volume stays at the driver", ""),
        (kept, Served, "Retain keeps it", ""),
        (retained(phase("Released")), Waiting, "is removed next", "delete-finalizer"),
        (kept_by_others, Waiting, "Its finalizers are: external-attacher/d", ""),
        (phase("Failed"), Wrong, "Its phase is Failed", ""),
        (phase("Available"), Waiting, "is for the claim shop/data", ""),
        (for_nobody(), Served, "for no claim yet", ""),
        (deleted(for_nobody()), Wrong, somebody, ""),
    ];
    check(cases, &["pv", "pv-1", "--driver", DRIVER]).await;
    let others = [(phase("Released"), Unknown, "not a volume of this driver", "")];
    check(others, &["pv", "pv-1", "--driver", "x"]).await;
    // The annotation names the driver where no flag does.
    check([(foreign(), Wrong, "it is not deleted", "delete-foreign")], &VOLUME).await;
}
