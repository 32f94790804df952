//! Every reason why a claim has no volume.

use super::*;

fn bound_claim(phase: &'static str) -> Cluster {
    Cluster::with_claim(|claim| {
        claim["spec"]["volumeName"] = json!("pvc-u");
        claim["status"]["phase"] = json!(phase);
    })
}

#[tokio::test(start_paused = true)]
async fn claims_with_a_volume() {
    let terminating = |mut volume: Value| {
        volume["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:00Z");
        volume
    };
    let mut mismatch = by_the_controller("Cannot bind: storageClassName does not match", 5);
    mismatch["reason"] = json!("VolumeMismatch");
    let mut reserved = volume("pvc-u", "");
    reserved["spec"]["claimRef"]["namespace"] = json!("other");
    check(
        vec![
            case(
                "bound",
                bound_claim("Bound").and(volume("pvc-u", "u")),
                Served,
                "Its volume is the PersistentVolume pvc-u, \"h\" at the driver",
                "",
            ),
            case(
                "saved",
                claim().and(volume("pvc-u", "u")),
                Waiting,
                "has not bound the two yet",
                "provisioned",
            ),
            case(
                "PV deleted",
                claim().and(terminating(volume("pvc-u", "u"))),
                Waiting,
                "somebody deleted it",
                "claim-volume-terminating",
            ),
            case(
                "name taken",
                claim().and(volume("pvc-u", "x")),
                Wrong,
                "exists already and is for the claim shop/data",
                "claim-name-taken",
            ),
            case(
                "does not fit",
                bound_claim("Pending").and(volume("pvc-u", "u")).and(mismatch),
                Wrong,
                "storageClassName does not match",
                "",
            ),
            case(
                "reserved for another claim",
                bound_claim("Pending").and(reserved),
                Wrong,
                "is for the claim other/data",
                "",
            ),
        ],
        &CLAIM,
    )
    .await;
}

/// A claim that is being deleted, with these finalizers.
fn deleted_claim(finalizers: &[&'static str]) -> Cluster {
    let finalizers = json!(finalizers);
    Cluster::with_claim(move |claim| {
        claim["metadata"]["deletionTimestamp"] = json!("1969-12-31T23:59:00Z");
        claim["metadata"]["finalizers"] = finalizers;
        let record = json!({"driver": DRIVER, "volume": "pvc-u"});
        claim["metadata"]["annotations"][RECORD] = json!(record.to_string());
    })
}

/// A claim without the annotation of kube-controller-manager.
fn unassigned() -> Cluster {
    Cluster::with_claim(|claim| claim["metadata"]["annotations"] = json!({}))
}

fn late(cluster: Cluster) -> Cluster {
    cluster.without("StorageClass").and(json!({
        "kind": "StorageClass", "metadata": {"name": "fast"}, "provisioner": DRIVER,
        "volumeBindingMode": "WaitForFirstConsumer",
    }))
}

#[tokio::test(start_paused = true)]
async fn claims_that_are_deleted_or_nobodys() {
    check(
        vec![
            case(
                "deleted",
                deleted_claim(&["kubernetes.io/pvc-protection"]),
                Waiting,
                "began 1m00s ago, so it gets no volume",
                "",
            ),
            case(
                "deleted with its volume",
                deleted_claim(&["kubernetes.io/pvc-protection"])
                    .changed(|claim| claim["spec"]["volumeName"] = json!("pvc-u"))
                    .and(volume("pvc-u", "u")),
                Waiting,
                "began 1m00s ago. Its finalizers are: kubernetes.io/pvc-protection",
                "",
            ),
            case(
                "restored without its volume",
                claim().changed(|claim| {
                    claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] =
                        json!("yes");
                }),
                Wrong,
                "takes it for lost",
                "",
            ),
            case(
                "deleted with an open call",
                deleted_claim(&[FINALIZER]),
                Waiting,
                "may still run",
                "still-provisioning",
            ),
            case(
                "no class",
                unassigned().without("StorageClass"),
                Wrong,
                "storageclass.storage.k8s.io \"fast\" not found",
                "class-missing",
            ),
            case(
                "for a volume made by hand",
                unassigned().changed(|claim| claim["spec"]["storageClassName"] = json!("")),
                Waiting,
                "It names no class",
                "",
            ),
            case(
                "not asked for, with the reason",
                unassigned().and(by_the_controller("no volume plugin matched", 5)),
                Waiting,
                "storage-provisioner. An event of \"persistentvolume-controller\" says, 5s ago: \"no volume plugin",
                "",
            ),
            case(
                "deleted with another driver's record",
                deleted_claim(&[FINALIZER]).changed(|claim| {
                    let record = json!({"driver": "other.example.com", "volume": "pvc-u"});
                    claim["metadata"]["annotations"][RECORD] = json!(record.to_string());
                }),
                Waiting,
                "of the CSI driver \"other.example.com\" holds it",
                "record-foreign-holds",
            ),
            case("no pod", late(unassigned()), Waiting, "no pod uses the claim", ""),
        ],
        &CLAIM,
    )
    .await;
    let other = ["pvc", "data", "-n", "shop", "--driver", "other.example.com"];
    check(
        vec![case(
            "another driver's",
            claim(),
            Unknown,
            "names the provisioner \"d.example.com\"",
            "",
        )],
        &other,
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn claims_whose_plan_stops_them() {
    let recorded = |cluster: Cluster| {
        let mut cluster = cluster;
        cluster.0[0]["metadata"]["finalizers"] = json!([FINALIZER]);
        let record = json!({"driver": DRIVER, "volume": "pvc-u"});
        cluster.0[0]["metadata"]["annotations"][RECORD] = json!(record.to_string());
        cluster
    };
    check(
        vec![case(
            "class of an open call",
            recorded(claim()).without("StorageClass"),
            Wrong,
            "is gone: restore the class",
            "class-of-open-call",
        )],
        &CLAIM,
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn claims_that_fail_a_check() {
    let spec = |field: &'static str, value: Value| {
        Cluster::with_claim(move |claim| claim["spec"][field] = value)
    };
    check(
        vec![
            case(
                "size",
                spec("resources", json!({"requests": {"storage": "much"}})),
                Wrong,
                "which is no quantity",
                "claim-size",
            ),
            case(
                "mode",
                spec("accessModes", json!(["Odd"])),
                Wrong,
                "unsupported AccessMode",
                "claim-mode",
            ),
        ],
        &CLAIM,
    )
    .await;
}

/// What the source lacks can never come.
#[tokio::test(start_paused = true)]
async fn claims_whose_source_can_never_be_copied() {
    let source = |group: &str, kind: &str| {
        let source = json!({"apiGroup": group, "kind": kind, "name": "src"});
        Cluster::with_claim(move |claim| claim["spec"]["dataSource"] = source)
    };
    let origin = json!({
        "kind": "PersistentVolumeClaim", "metadata": {"namespace": "shop", "name": "src", "uid": "s"},
        "spec": {
            "storageClassName": "fast", "volumeName": "by-hand",
            "resources": {"requests": {"storage": "1Gi"}},
        },
        "status": {"phase": "Bound"},
    });
    let by_hand = json!({
        "kind": "PersistentVolume", "metadata": {"name": "by-hand"},
        "spec": {
            "hostPath": {"path": "/srv"},
            "claimRef": {"namespace": "shop", "name": "src", "uid": "s"},
        },
        "status": {"phase": "Bound"},
    });
    let snapshot = json!({
        "kind": "VolumeSnapshot", "metadata": {"namespace": "shop", "name": "src", "uid": "s"},
        "status": {"boundVolumeSnapshotContentName": "gone", "readyToUse": true},
    });
    check(
        vec![
            case(
                "clone of a claim with another's volume",
                source("", "PersistentVolumeClaim").and(origin).and(by_hand),
                Wrong,
                "The PersistentVolume by-hand of the source cannot be used: it is not this driver's",
                "clone-volume",
            ),
            case(
                "snapshot without its content",
                source("snapshot.storage.k8s.io", "VolumeSnapshot").and(snapshot),
                Wrong,
                "The VolumeSnapshotContent gone of the snapshot cannot be read",
                "snapshot-content-unread",
            ),
        ],
        &CLAIM,
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn claims_whose_node_does_not_fit() {
    let on_node = |node: &'static str| {
        Cluster::with_claim(move |claim| claim["metadata"]["annotations"][NODE] = json!(node))
    };
    let csi_node = |keys: Value| {
        json!({
            "kind": "CSINode", "metadata": {"name": "n1"},
            "spec": {"drivers": [{"name": DRIVER, "topologyKeys": keys}]},
        })
    };
    let node =
        |labels: Value| json!({"kind": "Node", "metadata": {"name": "n1", "labels": labels}});
    let zoned = || csi_node(json!(["zone"]));
    check(
        vec![
            case(
                "no CSINode",
                on_node("n2").and(zoned()).and(node(json!({"zone": "a"}))),
                Waiting,
                "failed to get selected CSINode",
                "topology-csinode",
            ),
            case(
                "no topology",
                on_node("n1").and(csi_node(Value::Null)),
                Waiting,
                "All that can be checked is in order",
                "provisioning-begun",
            ),
            case(
                "fits",
                on_node("n1").and(zoned()).and(node(json!({"zone": "a"}))),
                Waiting,
                "All that can be checked is in order",
                "provisioning-begun",
            ),
        ],
        &CLAIM,
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn claims_that_were_tried() {
    let failed = |code: &str, ago| {
        event("ProvisioningFailed", &format!("rpc error: code = {code} desc = no"), ago)
    };
    check(
        vec![
            case("infeasible", claim().and(failed("InvalidArgument", 60)), Wrong, "The last event says (1m00s ago, 3 times): rpc error", "code-invalidargument"),
            case("full", claim().and(failed("ResourceExhausted", 60)), Waiting, "code = ResourceExhausted", "code-resourceexhausted"),
            case("the newest counts", claim().and(failed("Internal", 60)).and(failed("Aborted", 30)), Waiting, "code = Aborted", "code-aborted"),
            case("still open", claim().and(event("Provisioning", "Still provisioning volume for claim \"shop/data\": the driver still works on it; it is asked again until it is done", 5)), Waiting, "Still provisioning", "still-provisioning"),
            case("no longer so", claim().and(event("ProvisioningFailed", "storageclass.storage.k8s.io \"fast\" not found", 5)), Waiting, "All that can be checked here is in order now", "class-missing"),
            case("PersistentVolume forbidden", claim().and(event("ProvisioningFailed", "persistentvolumes is forbidden: User \"u\" cannot create resource \"persistentvolumes\" in API group \"\" at the cluster scope", 5)), Wrong, "is forbidden", "api-refused"),
            case("PersistentVolume invalid", claim().and(event("ProvisioningFailed", "PersistentVolume \"pvc-u\" is invalid: spec: Invalid value: \"x\": no", 5)), Wrong, "is invalid", "api-refused"),
            case("suspected leak", claim().and(event("ProvisioningFailed", "a volume that was made for the claim may be left at the driver, and no other is made while this provisioner runs: see its log for the volume, then delete the claim and create it again", 5)), Wrong, "may be left at the driver", "after-suspected-leak"),
            case("not known", claim().and(event("ProvisioningFailed", "the moon is full", 5)), Waiting, "the moon is full", ""),
            case("a beginning does not count", claim().and(failed("Internal", 60)).and(event("Provisioning", "External provisioner is provisioning volume", 5)), Waiting, "code = Internal", "code-internal"),
            case("another's event is only quoted", claim().and(by_the_controller("Operation cannot be fulfilled on persistentvolumeclaims \"data\": the object has been modified", 5)), Waiting, "An event of \"persistentvolume-controller\" says, 5s ago: \"Operation cannot", ""),
            case("nor does it count with a code", claim().and(by_the_controller("rpc error: code = InvalidArgument desc = no", 5)).and(failed("Aborted", 60)), Waiting, "code = Aborted", "code-aborted"),
            case("nothing", claim(), Waiting, "All that can be checked is in order", "provisioning-begun"),
        ],
        &CLAIM,
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn without_a_leader_nothing_goes_on() {
    let pod = json!({
        "kind": "Pod", "metadata": {"namespace": "csi", "name": "pod-1"},
        "status": {"phase": "Running", "containerStatuses": [{"name": "csi-provisioner", "ready": false, "restartCount": 7}]},
    });
    let expired = || claim().without("Lease").and(lease("pod-1_uid", -60));
    for (cluster, says) in [
        (
            expired(),
            "the last holder was pod-1_uid; there is no pod csi/pod-1 any more, or it uses the host's network",
        ),
        (expired().and(pod), "is Running; container csi-provisioner is not ready, 7 restarts"),
        (claim().without("Lease").and(lease("", 5)), "it names no holder"),
    ] {
        let explained = explained(&cluster.server(), &CLAIM).await;
        assert_eq!(explained.state, Wrong, "{explained:?}");
        let text = explained.to_text();
        assert!(text.contains(says) && text.contains("#no-leader"), "{text}");
        let is_by_clock = text.contains("No replica leads by this machine's clock");
        assert_eq!(is_by_clock, text.contains("the last holder was"), "{text}");
    }
    let none = explained(&claim().without("Lease").server(), &CLAIM).await;
    assert_eq!(none.state, Waiting);
    assert!(none.to_text().contains("There is no Lease d-example-com"), "{}", none.to_text());
    let led = explained(&claim().server(), &CLAIM).await.to_text();
    assert!(led.contains("pod-1_uid leads, by the Lease csi/d-example-com."), "{led}");
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
async fn a_missing_right_is_named() {
    for (resource, state) in [
        ("persistentvolumeclaims", Unknown),
        ("storageclasses", Unknown),
        ("persistentvolumes", Unknown),
        ("csinodes", Unknown),
        ("leases", Waiting),
        ("events", Waiting),
    ] {
        let cluster = claim();
        let server = Server::new(move |request| {
            let message = format!("{resource} is forbidden: User \"u\" cannot get it");
            if request.url.split('?').next().unwrap().contains(resource) {
                Answer::refusal(403, "Forbidden", &message)
            } else {
                cluster.answer(request)
            }
        });
        let explained = explained(&server, &CLAIM).await;
        let text = explained.to_text();
        assert_eq!(explained.state, state, "{text}");
        assert!(text.contains(&format!("{resource} is forbidden")), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn beside_a_missing_right_stands_what_the_provisioner_has_said() {
    let message = "secrets \"admin\" not found";
    let cluster = claim().and(event("ProvisioningFailed", message, 5));
    let server = Server::new(move |request| {
        if request.url.contains("/csinodes") {
            return Answer::refusal(
                403,
                "Forbidden",
                "csinodes is forbidden: User \"u\" cannot list",
            );
        }
        cluster.answer(request)
    });
    let explained = explained(&server, &CLAIM).await;
    assert_eq!(explained.state, Unknown);
    let text = explained.to_text();
    assert!(text.contains(&format!("The last event says (5s ago, 3 times): {message}.")), "{text}");
}

#[tokio::test(start_paused = true)]
async fn what_does_not_exist_is_unknown() {
    for arguments in [&CLAIM[..], &VOLUME] {
        let explained = explained(&Cluster(Vec::new()).server(), arguments).await;
        assert_eq!(explained.state, Unknown);
        assert!(explained.to_text().contains("It does not exist."), "{}", explained.to_text());
    }
    let odd = explained(&claim().server(), &["pvc", "a/b", "-n", "shop"]).await;
    assert_eq!(odd.state, Unknown, "{odd:?}");
}

/// A hostile user's texts reach neither terminal nor JSON as they are.
#[tokio::test(start_paused = true)]
async fn texts_of_the_claim_are_escaped() {
    let cluster = Cluster::with_claim(|claim| {
        claim["spec"]["resources"] = json!({"requests": {"storage": "\u{1b}[2J\n1"}});
        claim["metadata"]["annotations"][NODE] = json!("\u{202e}n\n");
    });
    let explained = explained(&cluster.server(), &CLAIM).await;
    for text in [explained.to_text(), explained.to_json()] {
        assert!(
            !text.chars().any(|c| c != '\n' && csi_provisioner::plain_text::is_odd(c)),
            "{text}"
        );
    }
}
