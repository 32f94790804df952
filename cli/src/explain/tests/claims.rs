//! Reasons why a claim has no volume.

use super::*;

/// A claim that names the PersistentVolume pvc-u, which nobody has bound.
fn naming() -> Cluster {
    Cluster::with_claim(|claim| claim["spec"]["volumeName"] = json!("pvc-u"))
}

#[tokio::test(start_paused = true)]
async fn claims_with_a_volume() {
    let mut terminating = volume("pvc-u", "u");
    terminating["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:00Z");
    let mut mismatch = by_the_controller("Cannot bind: storageClassName does not match", 5);
    mismatch["reason"] = json!("VolumeMismatch");
    let mut reserved = volume("pvc-u", "");
    reserved["spec"]["claimRef"]["namespace"] = json!("other");
    let mismatched = naming().and(volume("pvc-u", "u")).and(mismatch);
    let another = claim().and(volume("pvc-u", "x"));
    let cases = [
        (claim().and(terminating), Waiting, "somebody deleted it", "claim-volume-terminating"),
        (another, Wrong, "exists already and is for the claim shop/data", "claim-name-taken"),
        (mismatched, Wrong, "storageClassName does not match", ""),
        (naming().and(reserved), Wrong, "is for the claim other/data", ""),
    ];
    check(cases, &CLAIM).await;
}

/// A claim with this driver's record of an open call.
fn recorded(driver: &str) -> Cluster {
    let record = json!({"driver": driver, "volume": "pvc-u"}).to_string();
    Cluster::with_claim(|claim| {
        claim["metadata"]["finalizers"] = json!([FINALIZER]);
        claim["metadata"]["annotations"][RECORD] = json!(record);
    })
}

#[tokio::test(start_paused = true)]
async fn claims_that_are_deleted_or_nobodys() {
    let deleted = |cluster: Cluster| {
        let time = json!("1969-12-31T23:59:00Z");
        cluster.changed(|claim| claim["metadata"]["deletionTimestamp"] = time)
    };
    let protected = |cluster: Cluster| {
        let finalizers = json!(["kubernetes.io/pvc-protection"]);
        deleted(cluster).changed(|claim| claim["metadata"]["finalizers"] = finalizers)
    };
    let restored = claim().changed(|claim| {
        claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = json!("yes");
    });
    // Without the annotation of kube-controller-manager.
    let unassigned = || claim().changed(|claim| claim["metadata"]["annotations"] = json!({}));
    let classless = unassigned().changed(|claim| claim["spec"]["storageClassName"] = json!(""));
    let with_volume = protected(naming().and(volume("pvc-u", "u")));
    let says =
        "storage-provisioner. An event of \"persistentvolume-controller\" says, 5s ago: \"no";
    let said = unassigned().and(by_the_controller("no volume plugin matched", 5));
    let missing = "storageclass.storage.k8s.io \"fast\" not found";
    let foreign = deleted(recorded("other.example.com"));
    let holds = "of the CSI driver \"other.example.com\" holds it";
    let open_of_lost_class = recorded(DRIVER).without("StorageClass");
    let cases = [
        (protected(claim()), Waiting, "began 1m00s ago, so it gets no volume", ""),
        (with_volume, Waiting, "ago. Its finalizers are: kubernetes.io/pvc-protection", ""),
        (deleted(recorded(DRIVER)), Waiting, "may still run", "still-provisioning"),
        (foreign, Waiting, holds, "record-foreign-holds"),
        (restored, Wrong, "takes it for lost", ""),
        (unassigned().without("StorageClass"), Wrong, missing, "class-missing"),
        (classless, Waiting, "It names no class", ""),
        (said, Waiting, says, ""),
        (open_of_lost_class, Wrong, "is gone: restore the class", "class-of-open-call"),
    ];
    check(cases, &CLAIM).await;
    let other = ["pvc", "data", "-n", "shop", "--driver", "other.example.com"];
    check([(claim(), Unknown, "names the provisioner \"d.example.com\"", "")], &other).await;
}

#[tokio::test(start_paused = true)]
async fn what_can_never_be_copied_is_named_with_its_cause() {
    let source =
        json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "src"});
    let snapshot = json!({
        "kind": "VolumeSnapshot", "metadata": {"namespace": "shop", "name": "src", "uid": "s"},
        "status": {"boundVolumeSnapshotContentName": "gone", "readyToUse": true},
    });
    let restored = Cluster::with_claim(|claim| claim["spec"]["dataSource"] = source).and(snapshot);
    let says = "The VolumeSnapshotContent gone of the snapshot cannot be read";
    check([(restored, Wrong, says, "snapshot-content-unread")], &CLAIM).await;
}

/// Without the driver's own word its topology keys show whether it has a topology.
#[tokio::test(start_paused = true)]
async fn claims_with_a_node() {
    let on_node = |node: &str, keys: Value| {
        let drivers = json!([{"name": DRIVER, "topologyKeys": keys}]);
        let labels = json!({"zone": "a"});
        Cluster::with_claim(|claim| claim["metadata"]["annotations"][NODE] = json!(node))
            .and(json!({"kind": "CSINode", "metadata": {"name": "n1"}, "spec": {"drivers": drivers}}))
            .and(json!({"kind": "Node", "metadata": {"name": "n1", "labels": labels}}))
    };
    let zoned = json!(["zone"]);
    let unknown = on_node("n2", zoned.clone());
    let in_order = "All that can be checked is in order";
    let cases = [
        (unknown, Waiting, "failed to get selected CSINode", "topology-csinode"),
        (on_node("n2", Value::Null), Waiting, in_order, "provisioning-begun"),
        (on_node("n1", zoned), Waiting, in_order, "provisioning-begun"),
    ];
    check(cases, &CLAIM).await;
}

#[tokio::test(start_paused = true)]
async fn the_last_event_of_the_provisioner_about_an_end_counts() {
    let failed = |code: &str, ago| {
        event("ProvisioningFailed", &format!("rpc error: code = {code} desc = no"), ago)
    };
    let said = |message: &str| event("ProvisioningFailed", message, 5);
    let infeasible = failed("InvalidArgument", 60);
    let begun = event("Provisioning", "External provisioner is provisioning volume", 5);
    let open = "Still provisioning volume for claim \"shop/data\": the driver still works on it; it is asked again until it is done";
    let open = event("Provisioning", open, 5);
    let missing = "storageclass.storage.k8s.io \"fast\" not found";
    let forbidden = "persistentvolumes is forbidden: User \"u\" cannot create resource \"persistentvolumes\" in API group \"\" at the cluster scope";
    let invalid = "PersistentVolume \"pvc-u\" is invalid: spec: Invalid value: \"x\": no";
    let leak = "a volume that was made for the claim may be left at the driver, and no other is made while this provisioner runs: see its log for the volume, then delete the claim and create it again";
    let conflict = "Operation cannot be fulfilled on persistentvolumeclaims \"data\": the object has been modified";
    let conflict = by_the_controller(conflict, 5);
    let quoted = "An event of \"persistentvolume-controller\" says, 5s ago: \"Operation cannot";
    let foreign = by_the_controller("rpc error: code = InvalidArgument desc = no", 5);
    let table = [
        (vec![infeasible], Wrong, "says (1m00s ago, 3 times): rpc error", "code-invalidargument"),
        (vec![failed("Internal", 60), failed("Aborted", 30)], Waiting, "= Aborted", "code-aborted"),
        (vec![open], Waiting, "Still provisioning", "still-provisioning"),
        (vec![said(missing)], Waiting, "checked here is in order now", "class-missing"),
        (vec![said(forbidden)], Wrong, "is forbidden", "api-refused"),
        (vec![said(invalid)], Wrong, "is invalid", "api-refused"),
        (vec![said(leak)], Wrong, "may be left at the driver", "after-suspected-leak"),
        (vec![said("the moon is full")], Waiting, "the moon is full", ""),
        (vec![failed("Internal", 60), begun], Waiting, "code = Internal", "code-internal"),
        // Another's event is only quoted, also with a code.
        (vec![conflict], Waiting, quoted, ""),
        (vec![foreign, failed("Aborted", 60)], Waiting, "code = Aborted", "code-aborted"),
    ];
    let cases = table.map(|(events, state, says, see)| {
        (events.into_iter().fold(claim(), Cluster::and), state, says, see)
    });
    check(cases, &CLAIM).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_leader_nothing_goes_on() {
    let containers = json!([{"name": "csi-provisioner", "ready": false, "restartCount": 7}]);
    let pod = json!({
        "kind": "Pod", "metadata": {"namespace": "csi", "name": "pod-1"},
        "status": {"phase": "Running", "containerStatuses": containers},
    });
    let led_by = |lease: Value| claim().without("Lease").and(lease);
    let expired = || led_by(lease("pod-1_uid", -60));
    let gone = "the last holder was pod-1_uid; there is no pod csi/pod-1 any more, or it uses the host's network";
    for (cluster, says) in [
        (expired(), gone),
        (expired().and(pod), "is Running; container csi-provisioner is not ready, 7 restarts"),
        (led_by(lease("", 5)), "it names no holder"),
    ] {
        let explained = explained(&cluster.server(), &CLAIM).await;
        assert_eq!(explained.state, Wrong, "{explained:?}");
        let text = explained.to_text();
        assert!(text.contains(says) && text.contains("#no-leader"), "{text}");
        let is_by_clock = text.contains("No replica leads by this machine's clock");
        assert_eq!(is_by_clock, text.contains("the last holder was"), "{text}");
    }
    let led = explained(&claim().server(), &CLAIM).await.to_text();
    let command = "kubectl --namespace csi exec pod-1 --container csi-provisioner -- /kubectl-csi_provisioner explain pvc data --namespace shop";
    assert!(led.contains(command), "{led}");
}

/// Whoever may write Leases in a namespace can write one of the driver's name.
#[tokio::test(start_paused = true)]
async fn none_of_several_leases_is_preferred_and_no_odd_holder_is_in_a_command() {
    let mut others = lease("x_1", -60);
    others["metadata"]["namespace"] = json!("apps");
    let several = Cluster([vec![others], claim().0].concat());
    let unknown = explained(&several.clone().server(), &CLAIM).await;
    assert_eq!(unknown.state, Waiting, "{unknown:?}");
    let text = unknown.to_text();
    assert!(text.contains("apps, csi; give --leader-election-namespace"), "{text}");
    assert!(!text.contains("exec"), "{text}");
    let named = run(&client(&several.server()), &Epoch, &request(&CLAIM), "csi").await.to_text();
    assert!(named.contains("pod-1_uid leads, by the Lease csi/d-example-com."), "{named}");

    let odd = claim().without("Lease").and(lease("x;reboot_uid", 15));
    let odd = explained(&odd.server(), &CLAIM).await.to_text();
    assert!(odd.contains("x;reboot_uid leads") && !odd.contains("exec"), "{odd}");
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_is_named_beside_what_the_provisioner_has_said() {
    let message = "secrets \"admin\" not found";
    for (resource, state) in [
        ("persistentvolumeclaims", Unknown),
        ("storageclasses", Unknown),
        ("persistentvolumes", Unknown),
        ("csinodes", Unknown),
        ("leases", Waiting),
        ("events", Waiting),
    ] {
        let cluster = claim().and(event("ProvisioningFailed", message, 5));
        let forbidden = format!("{resource} is forbidden: User \"u\" cannot get it");
        let refusal = Answer::refusal(403, "Forbidden", &forbidden);
        let server = Server::new(move |request| {
            let is_refused = request.url.split('?').next().unwrap().contains(resource);
            if is_refused { refusal.clone() } else { cluster.answer(request) }
        });
        let explained = explained(&server, &CLAIM).await;
        let text = explained.to_text();
        assert_eq!(explained.state, state, "{text}");
        assert!(text.contains(&forbidden), "{text}");
        let said = format!("The last event says (5s ago, 3 times): {message}.");
        let can_be_said = !["persistentvolumeclaims", "events"].contains(&resource);
        assert_eq!(text.contains(&said), can_be_said, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_does_not_exist_is_unknown() {
    for (arguments, says) in
        [(&VOLUME[..], "It does not exist."), (&["pvc", "a/b", "-n", "shop"], "cannot be read")]
    {
        let explained = explained(&claim().server(), arguments).await;
        assert_eq!(explained.state, Unknown);
        assert!(explained.to_text().contains(says), "{explained:?}");
    }
}
