//! Attacks by a user of one namespace, who wants more than an ordinary claim gives. The user can write all
//! of a claim's text at any time, also while the claim is being deleted: spec, annotations, finalizers, and
//! so the record of an open call that the program reads after a restart.
//!
//! Each test runs the real binary beside a scripted driver, on the API server that the environment offers,
//! with each mode of `--claim-protection`.

mod tenant;

use serde_json::{Value, json};
use tenant::{
    CLONING, FINALIZER, HELD, PROVISIONER, Tenant, finalizers, in_each_mode, uid, volume_name,
};
use testkit::merged;

/// The driver's handle of a volume of another tenant.
const VICTIM: &str = "vol-of-another-tenant";

/// The metric that counts records which are not followed.
const UNFOLLOWED: &str = "provisioner_unfollowed_records_total";

/// A claim that is to be made from that claim.
fn copy_of(name: &str) -> Value {
    json!({"spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": name}}})
}

/// The source that a record of an earlier version names, with a handle of the user's choice.
fn recorded_source(namespace: &Value) -> Value {
    json!({
        "kind": "claim", "namespace": namespace, "name": "missing",
        "uid": "11111111-2222-4333-8444-555555555555", "handle": VICTIM,
    })
}

/// Another tenant's claim with its volume.
async fn create_victim(tenant: &Tenant<'_>) {
    let namespace = tenant.other_namespace("victim").await;
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": tenant.own("victim")},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "persistentVolumeReclaimPolicy": "Retain", "storageClassName": tenant.own("fast"),
            "csi": {"driver": tenant.driver_name(), "volumeHandle": VICTIM},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": "data"},
        },
    });
    tenant.apply(volume).await;
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": namespace},
        "spec": {"storageClassName": tenant.own("fast"), "accessModes": ["ReadWriteOnce"],
                 "resources": {"requests": {"storage": "1Gi"}}},
    });
    tenant.apply(claim).await;
}

/// Claim `b` is a clone of claim `a`, which is being deleted, and whose record names the victim's volume
/// as its source.
#[tokio::test(flavor = "multi_thread")]
async fn the_record_of_a_deleted_claim_gets_nobody_a_copy_of_anothers_volume() {
    in_each_mode(async |tenant| {
        create_victim(tenant).await;
        tenant.start(&[]);
        let held = finalizers(&[FINALIZER, CLONING, HELD]);
        let a = tenant.create("a", &merged(copy_of("missing"), &held)).await;
        tenant.create("b", &copy_of("a")).await;
        tenant.delete("a").await;
        let source = recorded_source(&a["metadata"]["namespace"]);
        let record = tenant.record(&a, &json!({"source": source})).await;
        tenant.forge("a", &record).await;
        for _ in 0..2 {
            tenant.settle().await;
            let copies: Vec<_> = tenant.requests();
            let is_copy = |request: &Value| !request["volume_content_source"].is_null();
            assert!(!copies.iter().any(is_copy), "{copies:?}");
            assert!(!tenant.is_bound("a").await && !tenant.is_bound("b").await);
            // A new process reads the record as well.
            tenant.stop().await;
            tenant.start(&[]);
        }
    })
    .await;
}

/// A class of another driver, whose parameters name a secret of a namespace of its own.
async fn create_foreign_class(tenant: &Tenant<'_>) -> String {
    let namespace = tenant.other_namespace("vault").await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key", "namespace": namespace},
        "stringData": {"key": "of the other driver"},
    });
    tenant.apply(secret).await;
    let class = json!({
        "provisioner": "other.example.com",
        "parameters": {
            "csi.storage.k8s.io/provisioner-secret-name": "key",
            "csi.storage.k8s.io/provisioner-secret-namespace": namespace,
        },
    });
    tenant.class("foreign", &class).await;
    namespace
}

/// A class of another driver is not used, whatever the claim's annotations say. kube-controller-manager
/// mends them, but not on a claim whose annotation says that it has been bound.
#[tokio::test(flavor = "multi_thread")]
async fn a_class_of_another_driver_leads_to_no_call_and_no_read_of_its_secret() {
    in_each_mode(async |tenant| {
        let vault = create_foreign_class(tenant).await;
        let ours = json!({
            "metadata": {
                "annotations": {
                    PROVISIONER: tenant.driver_name(),
                    "volume.beta.kubernetes.io/storage-provisioner": tenant.driver_name(),
                },
                "finalizers": [FINALIZER, HELD],
            },
            "spec": {"storageClassName": tenant.own("foreign")},
        });
        let lost = json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}});
        for (name, change) in [
            ("plain", ours.clone()),
            ("plain-deleted", ours.clone()),
            ("lost", merged(ours.clone(), &lost)),
            ("lost-deleted", merged(ours, &lost)),
        ] {
            let claim = tenant.create(name, &change).await;
            let record = tenant.record(&claim, &json!({})).await;
            tenant.forge(name, &record).await;
            if name.ends_with("deleted") {
                tenant.delete(name).await;
            }
        }
        tenant.start(&[]);
        tenant.settle().await;
        // kube-controller-manager has mended the annotations meanwhile.
        let again = json!({"metadata": {"annotations": {PROVISIONER: tenant.driver_name()}}});
        tenant.patch("plain", &again).await;
        tenant.patch("plain-deleted", &again).await;
        tenant.settle().await;
        assert_eq!(tenant.served(), Vec::<String>::new());
        assert_eq!(tenant.secrets_read(&vault), 0);
    })
    .await;
}

/// Creates a claim with the program's finalizer and a record, and deletes it where its name says so; it
/// stays, by a finalizer of the tenant's.
async fn forged(tenant: &Tenant<'_>, name: &str, change: &Value, record: &Value) -> Value {
    let change = merged(finalizers(&[FINALIZER, HELD]), change);
    let claim = tenant.create(name, &change).await;
    let record = tenant.record(&claim, record).await;
    tenant.forge(name, &record).await;
    if name.ends_with("deleted") {
        tenant.delete(name).await;
    }
    claim
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reclaim_policy_is_that_of_the_class() {
    in_each_mode(async |tenant| {
        let slow = json!({"create_volume": [{"delay_ms": 500}]});
        tenant.driver.backend().amend(serde_json::from_value(slow).unwrap());
        let retain = json!({"retain": true});
        for name in ["live", "deleted"] {
            forged(tenant, name, &json!({}), &retain).await;
        }
        tenant.start(&[]);
        tenant.until("the live claim is served", async |it| it.is_bound("live").await).await;
        // This one is deleted while its volume is being made.
        let leaving = tenant.create("leaving", &finalizers(&[FINALIZER, HELD])).await;
        let asked = async |it: &Tenant<'_>| it.names().contains(&volume_name(&leaving));
        tenant.until("the driver is asked", asked).await;
        tenant.forge("leaving", &tenant.record(&leaving, &retain).await).await;
        tenant.delete("leaving").await;
        tenant.settle().await;
        let mut kept = tenant.volumes().await;
        kept.retain(|volume| volume["spec"]["persistentVolumeReclaimPolicy"] != "Delete");
        let kept: Vec<_> = kept.iter().map(|volume| &volume["spec"]["claimRef"]["name"]).collect();
        assert_eq!(kept, Vec::<&Value>::new());
    })
    .await;
}

/// A record with a name that is made of the claim's UID as well.
async fn renamed(tenant: &Tenant<'_>, claim: &Value, prefix: &str) -> Value {
    let volume = format!("{prefix}-{}", uid(claim));
    tenant.record(claim, &json!({"volume": volume})).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_has_the_name_that_follows_from_the_flags() {
    in_each_mode(async |tenant| {
        let mut claims = Vec::new();
        for name in ["live", "live-too", "deleted"] {
            let claim = tenant.create(name, &finalizers(&[FINALIZER, HELD])).await;
            let prefix = if name == "live-too" { "pvc-2" } else { "x" };
            tenant.forge(name, &renamed(tenant, &claim, prefix).await).await;
            claims.push(claim);
        }
        tenant.delete("deleted").await;
        tenant.start(&[]);
        for name in ["live", "live-too"] {
            tenant.until("the claim is served", async |it| it.is_bound(name).await).await;
        }
        tenant.settle().await;
        let mut asked = tenant.names();
        asked.sort_unstable();
        let mut derived = [volume_name(&claims[0]), volume_name(&claims[1])];
        derived.sort_unstable();
        assert_eq!(asked, derived);
        assert_eq!(tenant.get("deleted").await.unwrap()["spec"]["volumeName"], Value::Null);
    })
    .await;
}

/// A claim that asks for a free volume by name. Its class has no claims that would take any free volume.
async fn create_static(tenant: &Tenant<'_>, name: &str) -> Value {
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": tenant.own(name)},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "persistentVolumeReclaimPolicy": "Retain", "storageClassName": tenant.own("static"),
            "csi": {"driver": tenant.driver_name(), "volumeHandle": format!("by-hand-{name}")},
        },
    });
    tenant.apply(volume).await;
    let spec = json!({"storageClassName": tenant.own("static"), "volumeName": tenant.own(name)});
    tenant.create(name, &json!({"spec": spec})).await
}

/// Writes a record with a name of this prefix on bound claims, and deletes those of this state.
async fn mark_bound(tenant: &Tenant<'_>, claims: &[Value], prefix: &str, deleted: &str) {
    for claim in claims {
        let name = claim["metadata"]["name"].as_str().unwrap();
        let live = &tenant.get(name).await.unwrap()["metadata"]["deletionTimestamp"];
        if live.is_null() {
            tenant.patch(name, &finalizers(&[FINALIZER, HELD])).await;
        }
        tenant.forge(name, &renamed(tenant, claim, prefix).await).await;
        if name.ends_with(deleted) {
            tenant.delete(name).await;
        }
    }
}

/// Claims that the program has served, and claims that are bound to a volume made by hand. They stay, are
/// deleted while the program runs, or are deleted while it does not run.
#[tokio::test(flavor = "multi_thread")]
async fn a_bound_claim_gets_no_other_volume() {
    in_each_mode(async |tenant| {
        tenant.class("static", &json!({})).await;
        tenant.start(&[]);
        let mut claims = Vec::new();
        for state in ["live", "deleted", "gone"] {
            claims.push(tenant.create(&format!("made-{state}"), &json!({})).await);
            claims.push(create_static(tenant, &format!("by-hand-{state}")).await);
        }
        for claim in &claims {
            let name = claim["metadata"]["name"].as_str().unwrap();
            tenant.until("the claim is bound", async |it| it.is_bound(name).await).await;
        }
        let mut served = tenant.served();
        served.sort_unstable();
        assert_eq!(served, ["made-deleted", "made-gone", "made-live"]);
        mark_bound(tenant, &claims, "x", "deleted").await;
        tenant.settle().await;
        tenant.stop().await;
        mark_bound(tenant, &claims, "pvc", "gone").await;
        tenant.start(&[]);
        tenant.settle().await;
        assert_eq!(tenant.served()[3..], <[String; 0]>::default());
    })
    .await;
}

/// Texts that mean something to a shell, a terminal, a file system or a log.
const ODD: [&str; 4] = ["$(reboot)", "\u{1b}[31m", "../../up", "a\nb"];

/// Live and deleted claims whose records hold such texts in all fields but the driver's name.
async fn create_odd_claims(tenant: &Tenant<'_>) {
    for (number, odd) in ODD.iter().enumerate() {
        for name in [format!("a{number}-live"), format!("a{number}-deleted")] {
            let claim = tenant.create(&name, &finalizers(&[FINALIZER, HELD])).await;
            let odd_name = json!({"volume": format!("{odd}-{}", uid(&claim))});
            let record = tenant.record(&claim, &odd_name).await;
            tenant.forge(&name, &record).await;
        }
        for name in [format!("b{number}-live"), format!("b{number}-deleted")] {
            let texts = ["node", "class", "classUid", "digest", "since"];
            let odd_texts: Value =
                texts.map(|field| (field.to_owned(), json!(odd))).into_iter().collect();
            forged(tenant, &name, &json!({}), &odd_texts).await;
        }
        tenant.delete(&format!("a{number}-deleted")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_text_of_a_record_reaches_the_driver_the_events_or_the_log() {
    in_each_mode(async |tenant| {
        create_odd_claims(tenant).await;
        // After the time-out the program reports the volume's name.
        tenant.start(&["--claim-protection-timeout=1s"]);
        let reported = async |it: &Tenant<'_>| {
            it.is_warned_of("a0-deleted").await && it.is_warned_of("b0-deleted").await
        };
        tenant.until("the records are reported", reported).await;
        tenant.settle().await;
        tenant.settle().await;
        let (asked, log) = (tenant.names(), tenant.log());
        assert!(!asked.iter().any(|name| ODD.iter().any(|odd| name.contains(odd))), "{asked:?}");
        assert!(!log.contains('\u{1b}'), "{log:?}");
        for event in tenant.events().await {
            let message = event["message"].as_str().unwrap_or_default();
            assert!(!ODD.iter().any(|odd| message.contains(odd)), "{message:?}");
        }
        for odd in ODD {
            let from = log.find(odd).map(|at| log[at..].lines().next());
            assert_eq!(from, None, "{odd:?}");
        }
    })
    .await;
}

/// `release-claims` lists the records on an admin's terminal.
#[tokio::test(flavor = "multi_thread")]
async fn no_text_of_a_record_reaches_the_terminal() {
    in_each_mode(async |tenant| {
        create_odd_claims(tenant).await;
        for driver in ODD {
            let name = format!("driver-{}", ODD.iter().position(|odd| *odd == driver).unwrap());
            forged(tenant, &name, &json!({}), &json!({"driver": driver})).await;
        }
        let printed = tenant.list_records().await;
        assert!(printed.contains("a0-live"), "{printed:?}");
        assert!(!ODD.iter().any(|odd| printed.contains(odd)), "{printed:?}");
    })
    .await;
}

/// Two nodes in the zones `a` and `b`, of which the class `zoned` allows only the first.
async fn create_zones(tenant: &Tenant<'_>) -> String {
    let script =
        json!({"plugin_capabilities": ["CONTROLLER_SERVICE", "VOLUME_ACCESSIBILITY_CONSTRAINTS"]});
    tenant.driver.backend().amend(serde_json::from_value(script).unwrap());
    let key = format!("{}/zone", tenant.driver_name());
    for zone in ["a", "b"] {
        let name = tenant.own(zone);
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {&key: zone}}});
        tenant.apply(node).await;
        let drivers =
            json!([{"name": tenant.driver_name(), "nodeID": name, "topologyKeys": [key]}]);
        let csi_node = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name},
            "spec": {"drivers": drivers},
        });
        tenant.apply(csi_node).await;
    }
    let allowed = json!([{"matchLabelExpressions": [{"key": key, "values": ["a"]}]}]);
    tenant.class("zoned", &json!({"allowedTopologies": allowed})).await;
    key
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_the_class_does_not_allow_or_no_node_has_is_not_asked_for() {
    in_each_mode(async |tenant| {
        let key = create_zones(tenant).await;
        let mut barred = Vec::new();
        for (class, place) in [("zoned", "b"), ("zoned", "nowhere"), ("fast", "nowhere")] {
            for state in ["live", "deleted"] {
                let name = format!("{class}-{place}-{state}");
                let of_class = json!({"spec": {"storageClassName": tenant.own(class)}});
                let topology = json!({"topology": {"terms": [{&key: place}], "first": 0}});
                let claim = forged(tenant, &name, &of_class, &topology).await;
                barred.push((name, volume_name(&claim), place));
            }
        }
        tenant.start(&[]);
        tenant.settle().await;
        tenant.settle().await;
        let requests = tenant.requests();
        let is_asked_for = |volume: &String, place: &str| {
            requests.iter().any(|request| {
                let places = request["accessibility_requirements"].to_string();
                request["name"] == *volume && places.contains(&format!("{place:?}"))
            })
        };
        barred.retain(|(_, volume, place)| is_asked_for(volume, place));
        let asked: Vec<_> = barred.iter().map(|(claim, ..)| claim).collect();
        assert_eq!(asked, Vec::<&String>::new());
    })
    .await;
}

/// The volume's name in a record of another claim, such as one restored from a backup.
fn void() -> Value {
    json!({"volume": "pvc-11111111-2222-4333-8444-555555555555"})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_void_record_is_no_obstacle_and_is_reported() {
    in_each_mode(async |tenant| {
        let marked = finalizers(&[FINALIZER]);
        for name in ["live", "gone"] {
            let claim = tenant.create(name, &marked).await;
            let record = tenant.record(&claim, &void()).await;
            tenant.forge(name, &record).await;
        }
        tenant.delete("gone").await;
        forged(tenant, "deleted", &json!({}), &void()).await;
        tenant.start(&[]);
        let live = async |it: &Tenant<'_>| it.is_bound("live").await && !it.is_marked("live").await;
        tenant.until("the live claim is served, and bare", live).await;
        tenant.until("the deleted claim goes", async |it| it.get("gone").await.is_none()).await;
        let bare = async |it: &Tenant<'_>| !it.is_marked("deleted").await;
        tenant.until("the held claim is bare", bare).await;
        let claim = tenant.get("live").await.unwrap();
        assert_eq!(tenant.names(), [volume_name(&claim)]);
        let counted = async |it: &Tenant<'_>| it.metric(UNFOLLOWED).await >= 3.0;
        tenant.until("all are counted", counted).await;
        for name in ["live", "gone", "deleted"] {
            let warned = async |it: &Tenant<'_>| it.is_warned_of(name).await;
            tenant.until("it is reported", warned).await;
        }
    })
    .await;
}

/// The finalizer alone does not say that a call is open.
#[tokio::test(flavor = "multi_thread")]
async fn a_finalizer_without_a_record_leads_to_no_call() {
    in_each_mode(async |tenant| {
        tenant.create("gone", &finalizers(&[FINALIZER])).await;
        tenant.create("deleted", &finalizers(&[FINALIZER, HELD])).await;
        tenant.delete("gone").await;
        tenant.delete("deleted").await;
        tenant.start(&[]);
        tenant.until("the deleted claim goes", async |it| it.get("gone").await.is_none()).await;
        let bare = async |it: &Tenant<'_>| !it.is_marked("deleted").await;
        tenant.until("the held claim is bare", bare).await;
        tenant.settle().await;
        assert_eq!(tenant.served(), Vec::<String>::new());
    })
    .await;
}
