use std::slice;

use serde_json::json;
use tokio::time::Instant;

use super::*;

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// `base` with what `more` says on top.
fn with(mut base: Value, more: &Value) -> Value {
    for (key, value) in more.as_object().unwrap() {
        match base.get_mut(key) {
            Some(old) if old.is_object() => *old = with(old.take(), value),
            _ => base[key] = value.clone(),
        }
    }
    base
}

fn line(observation: &Observation) -> (String, &[Step]) {
    (observation.to_string(), &observation.steps)
}

fn owned(text: &str) -> String {
    text.to_owned()
}

#[test]
fn a_class_shows_its_driver_and_the_template_of_its_secret() {
    let bare = json!({"metadata": {"name": "disk"}, "provisioner": "d"});
    let template =
        json!({"parameters": {"csi.storage.k8s.io/provisioner-secret-name": "${pvc.name}"}});
    for (class, expected) in [
        (bare.clone(), "disk: volumes of d"),
        (with(bare, &template), "disk: volumes of d, secret ${pvc.name}"),
    ] {
        let shown = super::class(&read(class), Fate::Present);
        assert_eq!(line(&shown), (owned(expected), &[][..]));
    }
}

#[test]
fn a_claim_shows_how_far_it_is() {
    let new = json!({"metadata": {"name": "c", "namespace": "ns"}});
    let pending = with(new.clone(), &json!({"status": {"phase": "Pending"}}));
    let given = with(pending.clone(), &json!({"metadata": {"annotations": {PROVISIONER: "d"}}}));
    let pointed = with(given.clone(), &json!({"spec": {"volumeName": "pv"}}));
    let bound = with(pointed.clone(), &json!({"status": {"phase": "Bound"}}));
    let deleting =
        with(bound.clone(), &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    let chosen = with(given.clone(), &json!({"metadata": {"annotations": {SELECTED_NODE: "n"}}}));
    let kept = with(given.clone(), &json!({"metadata": {"finalizers": ["f", "g"]}}));
    let both = [Step::ClaimPending, Step::ClaimHandedOver];
    let last = [Step::ClaimHandedOver, Step::ClaimBound];
    for (claim, expected, steps) in [
        (new, "ns/c: new", &[][..]),
        (pending, "ns/c: Pending", &[Step::ClaimPending]),
        (given, "ns/c: Pending, given to d", &both),
        (chosen, "ns/c: Pending, for n, given to d", &both),
        (kept, "ns/c: Pending, given to d, held by f g", &both),
        (pointed, "ns/c: Pending, its volume is pv", &both),
        (bound, "ns/c: Bound, its volume is pv", &last),
        (deleting, "ns/c: Bound, its volume is pv, being deleted", &last),
    ] {
        let claim = read(claim);
        assert_eq!(line(&super::claim(&claim, Fate::Present)), (owned(expected), steps));
        let gone = super::claim(&claim, Fate::Gone);
        assert_eq!(line(&gone), (owned("ns/c: gone"), &[Step::ClaimGone][..]));
    }
}

#[test]
fn a_snapshot_shows_what_keeps_it() {
    let ready = json!({"metadata": {"name": "s", "namespace": "ns"}});
    let kept = with(ready.clone(), &json!({"metadata": {"finalizers": ["f"]}}));
    let deleting =
        with(kept.clone(), &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    for (snapshot, expected) in [
        (ready, "ns/s: ready"),
        (kept, "ns/s: ready, held by f"),
        (deleting, "ns/s: ready, being deleted, held by f"),
    ] {
        let snapshot = read(snapshot);
        assert_eq!(super::snapshot(&snapshot, Fate::Present).to_string(), expected);
        assert_eq!(super::snapshot(&snapshot, Fate::Gone).to_string(), "ns/s: gone");
    }
}

#[test]
fn a_volume_shows_how_far_it_is() {
    let spec = json!({"capacity": {"storage": "1Gi"}, "csi": {"driver": "d", "volumeHandle": "h"}});
    let new = json!({"metadata": {"name": "pv", "finalizers": ["f"]}, "spec": spec});
    let phase = |phase| with(new.clone(), &json!({"status": {"phase": phase}}));
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let terms =
        json!([{"matchExpressions": [{"key": ZONE_KEY, "operator": "In", "values": ["z"]}]}]);
    let zone = json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}});
    let saved = Step::VolumeSaved;
    for (volume, expected, steps) in [
        (new.clone(), "pv: new, 1Gi at h", &[saved][..]),
        (with(new.clone(), &zone), "pv: new, 1Gi at h, in z", &[saved]),
        (phase("Pending"), "pv: Pending, 1Gi at h", &[saved]),
        (phase("Bound"), "pv: Bound", &[saved, Step::VolumeBound]),
        (phase("Released"), "pv: Released", &[saved, Step::VolumeReleased]),
        (
            with(phase("Released"), &deleting),
            "pv: Released, being deleted, held by f",
            &[saved, Step::VolumeReleased, Step::VolumeDeleting],
        ),
    ] {
        let volume = read(volume);
        assert_eq!(line(&super::volume(&volume, Fate::Present)), (owned(expected), steps));
        let gone = super::volume(&volume, Fate::Gone);
        assert_eq!(line(&gone), (owned("pv: gone"), &[Step::VolumeGone][..]));
    }
}

#[test]
fn an_event_shows_its_reason_and_how_often_it_came() {
    let event = |reason, count| {
        read(json!({
            "metadata": {}, "type": "Normal", "reason": reason, "message": "m", "count": count,
            "involvedObject": {"namespace": "ns", "name": "c"},
        }))
    };
    for (reason, count, expected, steps) in [
        ("Provisioning", 1, "ns/c: Provisioning (Normal): m", &[Step::BeginningTold][..]),
        (
            "ProvisioningSucceeded",
            1,
            "ns/c: ProvisioningSucceeded (Normal): m",
            &[Step::SuccessTold],
        ),
        ("Other", 3, "ns/c: Other (Normal, 3 times): m", &[]),
    ] {
        let shown = super::event(&event(reason, count), Fate::Present);
        assert_eq!(line(&shown), (owned(expected), steps));
    }
}

#[test]
fn a_call_shows_the_keys_of_its_secrets_and_never_their_content() {
    let secret = BTreeMap::from([(owned("key"), owned("hidden"))]);
    let sent = json!({"key": "hidden"});
    let create = json!({"name": "v", "capacity_range": {"required_bytes": "7"}});
    for (method, request, expected, steps) in [
        ("Probe", json!({}), "Probe", &[][..]),
        ("GetPluginInfo", json!({}), "GetPluginInfo", &[Step::DriverNamed]),
        ("CreateVolume", create.clone(), "CreateVolume: v, 7 bytes", &[Step::CreateCalled]),
        (
            "CreateVolume",
            with(create.clone(), &json!({"secrets": sent})),
            "CreateVolume: v, 7 bytes, with secret key",
            &[Step::CreateCalled, Step::SecretPassed],
        ),
        (
            "CreateVolume",
            with(create, &json!({"parameters": {"p": "q"}, "secrets": {"key": "wrong"}})),
            "CreateVolume: v, 7 bytes, parameters {\"p\":\"q\"}, with secret key",
            &[Step::CreateCalled],
        ),
        (
            "CreateVolume",
            json!({
                "name": "v",
                "volume_content_source": {"snapshot": {"snapshot_id": "s"}},
                "accessibility_requirements": {"preferred": [{"segments": {ZONE_KEY: "z"}}]},
            }),
            "CreateVolume: v, from snapshot s, in z",
            &[Step::CreateCalled],
        ),
        (
            "DeleteVolume",
            json!({"volume_id": "h", "secrets": sent}),
            "DeleteVolume: h, with secret key",
            &[Step::DeleteCalled],
        ),
    ] {
        let shown = call(&Record { method, request, at: Instant::now() }, &secret);
        assert_eq!(line(&shown), (owned(expected), steps));
        assert!(!format!("{shown:?}").contains("hidden"));
    }
}

#[test]
fn the_disk_shows_what_came_changed_and_went() {
    let listing = |volumes: &[(&str, &[&str])]| -> Listing {
        let files = |files: &[&str]| files.iter().map(|file| owned(file)).collect();
        volumes.iter().map(|(name, of)| (owned(name), files(of))).collect()
    };
    let (none, one) = (listing(&[]), listing(&[("a", &["data", "volume.json"])]));
    let other = listing(&[("a", &["data"])]);
    let made = ("a: holds data, volume.json", Step::DirectoryMade);
    for (before, now, expected) in [
        (&none, &one, Some(made)),
        (&one, &one, None),
        (&one, &other, Some(("a: holds data", Step::DirectoryMade))),
        (&one, &none, Some(("a: gone", Step::DirectoryGone))),
    ] {
        let observed = disk(before, now);
        let observed: Vec<_> = observed.iter().map(line).collect();
        let expected: Vec<_> =
            expected.iter().map(|(text, step)| (owned(text), slice::from_ref(step))).collect();
        assert_eq!(observed, expected);
    }
}
