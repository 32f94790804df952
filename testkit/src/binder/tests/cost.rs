//! What a claim of a burst costs: requests, and looks at it.

use super::*;

/// How many claims come at once.
const BURST: usize = 300;

/// A waiting claim of a burst.
pub(super) fn one_of_many(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": format!("a-{number}"), "namespace": "default"},
        "spec": {
            "storageClassName": "c", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    })
}

/// The volume that a provisioner makes for it.
pub(super) fn volume_for(claim: &Value) -> Value {
    let metadata = &claim["metadata"];
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": format!("v-{}", metadata["name"].as_str().unwrap())},
        "spec": {
            "claimRef": {"namespace": "default", "name": metadata["name"], "uid": metadata["uid"]},
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "csi": {"driver": "d", "volumeHandle": metadata["name"]}, "storageClassName": "c",
        },
    })
}

/// Waits until all objects of a kind are of this phase.
async fn all_reach(server: &ApiServer, kind: &str, wanted: &str) {
    for _ in 0..600 {
        if server.list(kind, "").iter().all(|object| object["status"]["phase"] == wanted) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("not all of {kind} became {wanted}");
}

/// On a server whose watches are behind: each event is under way for longer than the one before.
#[tokio::test(start_paused = true)]
async fn a_claim_of_a_burst_costs_as_many_requests_as_one_alone() {
    let server = ApiServer::new(Options::default());
    let drag = StreamFault::Drag { after: 0, by: Duration::from_millis(1) };
    for resource in ["persistentvolumeclaims", "persistentvolumes"] {
        server.faults().add(Rule::on("watch", resource, Effect::Stream(drag)));
    }
    let mut class = class("d", "Immediate");
    merge(&mut class, json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"}));
    server.create(&class).unwrap();
    let burst = async {
        let claims: Vec<_> =
            (0..BURST).map(|number| server.create(&one_of_many(number)).unwrap()).collect();
        tokio::time::sleep(Duration::from_secs(10)).await;
        for claim in &claims {
            server.create(&volume_for(claim)).unwrap();
        }
        all_reach(&server, "PersistentVolumeClaim", "Bound").await;
        all_reach(&server, "PersistentVolume", "Bound").await;
        for number in 0..BURST {
            server.delete("PersistentVolumeClaim", "default", &format!("a-{number}")).unwrap();
        }
        all_reach(&server, "PersistentVolume", "Released").await;
    };
    tokio::select! {
        () = run(server.client(User::new("binder")), Settings::default()) => {}
        () = burst => {}
    }
    let mut requests = BTreeMap::new();
    for request in server.requests().all().iter().filter(|request| request.info.verb != "watch") {
        *requests.entry(request.what()).or_insert(0) += 1;
    }
    // The provisioner's annotations, the volume's name, and its phase; a live look before the release.
    let expected = [
        ("get persistentvolumeclaims", BURST),
        ("list persistentvolumeclaims", 1),
        ("list persistentvolumes", 1),
        ("list storageclasses", 1),
        ("patch persistentvolumeclaims", 2 * BURST),
        ("patch persistentvolumeclaims/status", BURST),
        ("patch persistentvolumes/status", 2 * BURST),
    ];
    assert_eq!(requests, expected.map(|(what, count)| (what.to_owned(), count)).into());
}

/// Objects as a server would have them, which shows each change to the desk at once.
struct Shows {
    desk: Desk,
    claims: BTreeMap<String, Value>,
    volumes: BTreeMap<String, Value>,
    version: u64,
    looks: usize,
}

impl Shows {
    fn claim(&mut self, name: &str, change: Value) {
        let claim = changed(&mut self.claims, &mut self.version, name, change);
        self.desk.shown(Shown::Claim(Box::new(Event::Apply(claim))));
    }

    fn volume(&mut self, name: &str, change: Value) {
        let volume = changed(&mut self.volumes, &mut self.version, name, change);
        self.desk.shown(Shown::Volume(Box::new(Event::Apply(volume))));
    }

    /// Does all there is to do.
    fn settle(&mut self) {
        while let Some(Look { item, action }) = self.desk.look() {
            self.looks += 1;
            match action {
                None => continue,
                Some(Action::Claim { name, patch, .. }) => self.claim(&name, patch),
                Some(Action::Volume { name, patch }) => self.volume(&name, patch),
                Some(other) => panic!("{other:?}"),
            }
            self.desk.done(item, Some(self.version));
        }
    }
}

fn changed<K: serde::de::DeserializeOwned>(
    objects: &mut BTreeMap<String, Value>,
    version: &mut u64,
    name: &str,
    change: Value,
) -> K {
    *version += 1;
    let object = objects.entry(name.to_owned()).or_insert_with(|| json!({}));
    merge(object, change);
    merge(object, json!({"metadata": {"resourceVersion": version.to_string()}}));
    serde_json::from_value(object.clone()).unwrap()
}

/// How often an object was looked at until so many claims, that came at once, were all bound.
fn looks(claims: usize) -> usize {
    let (desk, version, looks) = (Desk::new(Settings::default()), 0, 0);
    let (none, class) = (BTreeMap::new(), class("d", "Immediate"));
    let mut shows = Shows { desk, claims: none.clone(), volumes: none, version, looks };
    let class = serde_json::from_value(class).unwrap();
    shows.desk.shown(Shown::Class(Box::new(Event::Apply(class))));
    for number in 0..claims {
        let mut claim = one_of_many(number);
        merge(&mut claim, json!({"metadata": {"uid": format!("u-{number}")}}));
        shows.claim(&format!("a-{number}"), claim);
    }
    shows.settle();
    for claim in shows.claims.clone().into_values() {
        let volume = volume_for(&claim);
        let name = volume["metadata"]["name"].as_str().unwrap().to_owned();
        shows.volume(&name, volume);
    }
    shows.settle();
    assert!(shows.claims.values().all(|claim| claim["status"]["phase"] == "Bound"));
    shows.looks
}

#[test]
fn a_claim_of_a_burst_is_looked_at_as_often_as_one_alone() {
    assert_eq!(looks(1), 9);
    assert_eq!(looks(200), 200 * looks(1));
}
