//! Whether what shadow mode finds is true: each result in its log is compared with what happened to the
//! claim and its PersistentVolume.
//!
//! What a provisioner would have saved is made by the model of external-provisioner. A field in which the
//! existing PersistentVolume differs must be reported, and none else; and it may differ only where somebody else has
//! written: on the object since it was saved, on its class or its claim. What shadow mode cannot have
//! seen, as its watch was cut, it need not know.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::Value;
use testkit::apiserver::{ApiServer, object::Object};
use tokio::time::Instant;
use tracing::{
    Event,
    field::{Field, Visit},
};

use super::{
    admins::BY_HAND,
    binder::class_of,
    core::Core,
    external_provisioner::{self, Made, PROTECTION},
    ledger::text,
    naming::{NAMINGS, Names, Naming},
};

/// Where shadow mode logs its results.
pub(crate) const TARGET: &str = "cli::shadow";

/// How old the view of a process may be that goes by its watches.
const VIEW: Duration = Duration::from_secs(400);

/// What happened to what shadow mode compares.
#[derive(Debug, Default)]
pub(crate) struct Agreements(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    revision: u64,
    /// How shadow mode names volumes.
    naming: Option<Naming>,
    /// Every claim that is or was, by UID.
    claims: BTreeMap<String, Claim>,
    /// Every class that is or was, by name.
    classes: BTreeMap<String, Class>,
    /// Every PersistentVolume that is or was, by UID.
    volumes: BTreeMap<String, Volume>,
    /// When a secret was last missing or came.
    secrets_changed: Option<Instant>,
    secrets: usize,
    /// When a node last lost what topology needs of it, or got it back.
    nodes_changed: Option<Instant>,
    /// What shadow mode last read of each PersistentVolume.
    reads: BTreeMap<String, Value>,
    /// When it was last answered a list of PersistentVolumes.
    listed: Option<Instant>,
}

/// A claim that is or was.
#[derive(Debug)]
struct Claim {
    /// As it is or was last.
    last: Arc<Object>,
    since: Instant,
    gone: Option<Instant>,
    /// The names of its classes.
    classes: BTreeSet<String>,
    /// The last revision at which it was there.
    seen: u64,
}

impl Claim {
    fn last(&self) -> &Value {
        self.last.value()
    }
}

/// A class that is or was.
#[derive(Debug)]
struct Class {
    /// As it is or was last.
    last: Arc<Object>,
    /// When it last came, went or was replaced, since the seed's start.
    changed: Option<Instant>,
    stands: bool,
    seen: u64,
}

/// A PersistentVolume that is or was.
#[derive(Debug)]
struct Volume {
    /// As it was saved.
    first: Arc<Object>,
    last: Arc<Object>,
    policies: BTreeSet<String>,
    /// Since when it has been due for deletion.
    due: Option<Instant>,
    gone: Option<Instant>,
    seen: u64,
}

impl Volume {
    fn new(object: &Arc<Object>) -> Self {
        let (first, last) = (Arc::clone(object), Arc::clone(object));
        Self { first, last, policies: BTreeSet::new(), due: None, gone: None, seen: 0 }
    }

    /// It is so now.
    fn changes(&mut self, object: Arc<Object>, now: Instant) {
        let policy = text(object.value(), "/spec/persistentVolumeReclaimPolicy");
        self.policies.insert(policy.to_owned());
        if is_due(object.value()) {
            self.due.get_or_insert(now);
        }
        self.last = object;
    }

    fn first(&self) -> &Value {
        self.first.value()
    }
}

impl Agreements {
    /// Shadow mode names volumes so.
    pub(crate) fn names(&self, naming: Naming) {
        self.0.lock().naming = Some(naming);
    }

    /// Takes in what has changed.
    pub(crate) fn catch_up(&self, api: &ApiServer) {
        let mut inner = self.0.lock();
        if inner.revision != api.revision() {
            inner.revision = api.revision();
            inner.see_claims(api);
            inner.see_classes(api);
            inner.see_volumes(api);
            inner.see_secrets(api);
        }
    }

    /// It was answered this PersistentVolume.
    pub(crate) fn read(&self, volume: Value) {
        let name = text(&volume, "/metadata/name").to_owned();
        self.0.lock().reads.insert(name, volume);
    }

    /// It was answered a list of PersistentVolumes.
    pub(crate) fn listed(&self) {
        self.0.lock().listed = Some(Instant::now());
    }

    /// A node has lost what topology needs of it, or got it back.
    pub(crate) fn nodes_changed(&self) {
        self.0.lock().nodes_changed = Some(Instant::now());
    }

    /// How many claims have gone in that time.
    pub(crate) fn gone_within(&self, time: Duration) -> usize {
        let inner = self.0.lock();
        let gone = inner.claims.values().filter_map(|claim| claim.gone);
        gone.filter(|gone| gone.elapsed() <= time).count()
    }
}

impl Inner {
    fn see_claims(&mut self, api: &ApiServer) {
        let (now, revision) = (Instant::now(), self.revision);
        for object in api.objects("PersistentVolumeClaim") {
            let uid = object.meta("uid");
            if !self.claims.contains_key(uid) {
                let claim = Claim {
                    last: Arc::clone(&object),
                    since: now,
                    gone: None,
                    classes: BTreeSet::from([class_of(object.value()).to_owned()]),
                    seen: revision,
                };
                self.claims.insert(uid.to_owned(), claim);
            }
            let Some(claim) = self.claims.get_mut(uid) else { continue };
            claim.seen = revision;
            if !Arc::ptr_eq(&claim.last, &object) {
                claim.classes.insert(class_of(object.value()).to_owned());
                claim.last = object;
            }
        }
        for claim in self.claims.values_mut().filter(|claim| claim.seen != revision) {
            claim.gone.get_or_insert(now);
        }
    }

    fn see_classes(&mut self, api: &ApiServer) {
        let (now, seen) = (Instant::now(), self.revision);
        let is_start = self.classes.is_empty();
        for last in api.objects("StorageClass") {
            match self.classes.get_mut(last.meta("name")) {
                Some(class) if class.stands && Arc::ptr_eq(&class.last, &last) => class.seen = seen,
                Some(class) => *class = Class { last, changed: Some(now), stands: true, seen },
                None => {
                    let (name, changed) =
                        (last.meta("name").to_owned(), (!is_start).then_some(now));
                    self.classes.insert(name, Class { last, changed, stands: true, seen });
                }
            }
        }
        let is_gone = |class: &&mut Class| class.stands && class.seen != seen;
        for class in self.classes.values_mut().filter(is_gone) {
            (class.stands, class.changed) = (false, Some(now));
        }
    }

    fn see_volumes(&mut self, api: &ApiServer) {
        let (now, seen) = (Instant::now(), self.revision);
        for object in api.objects("PersistentVolume") {
            let uid = object.meta("uid");
            if !self.volumes.contains_key(uid) {
                self.volumes.insert(uid.to_owned(), Volume::new(&object));
            }
            let Some(volume) = self.volumes.get_mut(uid) else { continue };
            volume.seen = seen;
            if !Arc::ptr_eq(&volume.last, &object) || volume.policies.is_empty() {
                volume.changes(object, now);
            }
        }
        for volume in self.volumes.values_mut().filter(|volume| volume.seen != seen) {
            volume.gone.get_or_insert(now);
        }
    }

    fn see_secrets(&mut self, api: &ApiServer) {
        let secrets = api.objects("Secret").len();
        if secrets != self.secrets {
            (self.secrets, self.secrets_changed) = (secrets, Some(Instant::now()));
        }
    }
}

/// Whether the volume of this PersistentVolume is to be deleted by its provisioner.
fn is_due(volume: &Value) -> bool {
    text(volume, "/status/phase") == "Released"
        && text(volume, "/spec/persistentVolumeReclaimPolicy") == "Delete"
        && (is_protected(volume) || volume["metadata"]["deletionTimestamp"].is_null())
}

fn is_protected(volume: &Value) -> bool {
    let finalizers = volume["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|finalizers| finalizers.iter().any(|it| it == PROTECTION))
}

// === Results ===

/// A line of the log.
#[derive(Debug, Default)]
struct Line {
    message: String,
    object: String,
    volume: String,
    subject: String,
    reasons: String,
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "object" => value.clone_into(&mut self.object),
            "volume" => value.clone_into(&mut self.volume),
            "subject" => value.clone_into(&mut self.subject),
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "reasons" => self.reasons = format!("{value:?}"),
            _ => {}
        }
    }
}

/// A line of shadow mode's log: if it is a result, that must be true.
pub(crate) fn hear(core: &Core, event: &Event<'_>) {
    let mut line = Line::default();
    event.record(&mut line);
    if !line.message.starts_with(RESULT) {
        return;
    }
    let (Line { object, volume, reasons, .. }, agreement) = (&line, line.agreement());
    core.ledger.log(&format!("shadow: {object} {volume} {agreement} {reasons}"));
    let wrong = core.agreements.0.lock().objections(core, &line);
    for what in wrong {
        core.ledger.wrong(&format!("shadow mode says of {object} {agreement}: {what}"));
    }
}

/// What a result begins with.
const RESULT: &str = "compared: ";

impl Line {
    /// How much a result agrees.
    fn agreement(&self) -> &str {
        self.message.strip_prefix(RESULT).unwrap_or_default()
    }

    /// The fields in which it says that the PersistentVolume differs.
    fn fields(&self) -> BTreeSet<String> {
        let mut parts: Vec<&str> = self.reasons.split(": this program's is ").collect();
        parts.pop();
        parts.iter().filter_map(|part| part.rsplit('"').next()).map(str::to_owned).collect()
    }

    fn says(&self, words: &str) -> bool {
        self.reasons.contains(words)
    }
}

impl Inner {
    /// What is not true about a result.
    fn objections(&self, core: &Core, line: &Line) -> Vec<String> {
        match line.subject.as_str() {
            "deletions" => self.about_deletion(line).into_iter().collect(),
            "claims without a volume for an hour" => {
                self.about_unserved(line).into_iter().collect()
            }
            "PersistentVolumes" if line.says("it was gone before it could be read") => {
                self.about_vanished(line).into_iter().collect()
            }
            "PersistentVolumes" if line.says("this program's request is not known") => Vec::new(),
            "PersistentVolumes" => self.about_volume(core, line),
            _ => self.about_served_there(core, line).into_iter().collect(),
        }
    }

    fn about_vanished(&self, line: &Line) -> Option<String> {
        let mut named =
            self.volumes.values().filter(|it| text(it.first(), "/metadata/name") == line.volume);
        let was_gone = named.clone().next().is_none() || named.any(|it| it.gone.is_some());
        (!was_gone).then(|| format!("{} stands", line.volume))
    }

    /// A claim that is gone says nothing.
    fn about_unserved(&self, line: &Line) -> Option<String> {
        if matches!(line.agreement(), "documented" | "unexplained") {
            return Some("nobody has done anything".to_owned());
        }
        let stands = self.claims_named(&line.object).any(|claim| claim.gone.is_none());
        (!stands).then(|| "the claim is gone".to_owned())
    }

    fn claims_named(&self, object: &str) -> impl Iterator<Item = &Claim> {
        let name = object.strip_prefix("PersistentVolumeClaim ").unwrap_or(object).to_owned();
        self.claims.values().filter(move |claim| {
            let namespace = text(claim.last(), "/metadata/namespace");
            format!("{namespace}/{}", text(claim.last(), "/metadata/name")) == name
        })
    }
}

// === PersistentVolumes ===

/// The fields that a class decides, and may have said otherwise before.
const OF_CLASS: [&str; 1] = ["spec.persistentVolumeReclaimPolicy"];

/// What begins the fields that another class would decide otherwise.
const OF_CLASSES: [&str; 7] = [
    "metadata.annotations[pv.kubernetes.io/provisioned-by",
    "metadata.annotations[volume.kubernetes.io/provisioner-deletion-secret",
    "spec.csi.",
    "spec.mountOptions",
    "spec.persistentVolumeReclaimPolicy",
    "spec.storageClassName",
    "metadata.finalizers[",
];

/// What anybody may add.
const FOREIGN: [&str; 3] = ["metadata.annotations[", "metadata.finalizers[", "metadata.labels["];

impl Inner {
    fn about_volume(&self, core: &Core, line: &Line) -> Vec<String> {
        let Some(found) = self.reads.get(&line.volume) else {
            return vec!["it was not read".to_owned()];
        };
        // Of claims that share a name, nothing in the result says which it is about.
        let claims = self.claims_of(line, found);
        let all = claims.map(|claim| self.about_claims_volume(core, line, claim, found));
        let least = all.min_by_key(Vec::len);
        least.unwrap_or_else(|| vec!["there is no such claim".to_owned()])
    }

    fn about_claims_volume(
        &self,
        core: &Core,
        line: &Line,
        claim: &Claim,
        found: &Value,
    ) -> Vec<String> {
        if !self.is_made_for(found, claim) {
            let is_another = text(found, "/spec/claimRef/uid")
                != text(claim.last(), "/metadata/uid")
                || created(found) < created(claim.last());
            let is_wrong = line.agreement() == "unexplained" && is_another;
            return is_wrong.then(|| "it is another claim's".to_owned()).into_iter().collect();
        }
        let (truth, said) = (self.differences(claim, found), line.fields());
        let certain = |field: &&String| !self.is_uncertain(claim, field);
        let unsaid = truth.keys().filter(|field| !said.contains(*field)).filter(certain);
        let untrue = said.iter().filter(|field| !truth.contains_key(*field)).filter(certain);
        let unexplained = said.iter().filter(|field| !self.is_explained(core, claim, found, field));
        let unexplained = unexplained.filter(certain);
        let words = [
            unsaid.map(|field| format!("{field} differs, too")).collect::<Vec<_>>(),
            untrue.map(|field| format!("{field} does not differ")).collect(),
            unexplained.map(|field| format!("nobody has written {field}")).collect(),
            self.about_words(line, claim, &truth).into_iter().collect(),
        ];
        words.concat()
    }

    /// Whether the word for these fields is the right one.
    fn about_words(
        &self,
        line: &Line,
        claim: &Claim,
        truth: &BTreeMap<String, bool>,
    ) -> Option<String> {
        let said = line.fields();
        let is_foreign = |field: &String| truth.get(field).copied().unwrap_or_default();
        let right = match line.agreement() {
            "same" => said.is_empty(),
            "unknown" if line.says("the class was changed meanwhile") => {
                self.class_has_changed(claim)
            }
            "unknown" => !said.is_empty() && said.iter().all(is_foreign),
            "unexplained" => !said.iter().all(is_foreign),
            _ => false,
        };
        (!right).then(|| format!("that is another word for {said:?}"))
    }

    /// The claims that a result may be about.
    fn claims_of<'a>(
        &'a self,
        line: &'a Line,
        found: &'a Value,
    ) -> impl Iterator<Item = &'a Claim> {
        let uid = text(found, "/spec/claimRef/uid");
        self.claims_named(&line.object).filter(move |claim| {
            text(claim.last(), "/metadata/uid") == uid
                || text(claim.last(), "/spec/volumeName") == line.volume
                || self.is_made_for(found, claim)
        })
    }

    fn volume(&self, found: &Value) -> Option<&Volume> {
        self.volumes.get(text(found, "/metadata/uid"))
    }

    /// Whether the PersistentVolume was saved for this claim.
    fn is_made_for(&self, found: &Value, claim: &Claim) -> bool {
        let first = self.volume(found).map(Volume::first);
        first.is_some_and(|first| {
            first["spec"]["claimRef"]["uid"] == claim.last()["metadata"]["uid"]
        })
    }

    /// The fields in which the PersistentVolume is not as the model says, and whether another component may
    /// have added them.
    fn differences(&self, claim: &Claim, object: &Value) -> BTreeMap<String, bool> {
        let (uid, class) = (text(claim.last(), "/metadata/uid"), class_of(claim.last()));
        let class = self.classes.get(class).map_or(&Value::Null, |class| class.last.value());
        let name = self.naming.unwrap_or(Naming::USUAL).name(uid);
        let model =
            external_provisioner::volume(&name, &Made::shown_by(object), claim.last(), class);
        let (expected, mut found) = (fields(&model), fields(object));
        if is_past_protection(object) {
            found.insert(protection(), "present".to_owned());
        }
        let all: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
        let differs = all.into_iter().filter(|field| expected.get(*field) != found.get(*field));
        let is_foreign = |field: &str| {
            !expected.contains_key(field) && FOREIGN.iter().any(|it| field.starts_with(it))
        };
        differs.map(|field| (field.clone(), is_foreign(field))).collect()
    }

    fn class_has_changed(&self, claim: &Claim) -> bool {
        let changed = |name: &String| {
            let class = self.classes.get(name);
            class.is_none_or(|class| class.changed.is_some_and(|at| at + VIEW > claim.since))
        };
        claim.classes.iter().any(changed)
    }

    /// Whether the field may have had another value when it was predicted or saved.
    fn is_uncertain(&self, claim: &Claim, field: &str) -> bool {
        claim.classes.len() > 1 && OF_CLASSES.iter().any(|it| field.starts_with(it))
            || self.class_has_changed(claim) && OF_CLASS.contains(&field)
    }

    /// Whether somebody but a provisioner has written the field.
    fn is_explained(&self, core: &Core, claim: &Claim, found: &Value, field: &str) -> bool {
        let is_by_hand = found["metadata"]["annotations"][BY_HAND].is_string();
        let value = |object| fields(object).remove(field);
        let is_changed =
            || self.volume(found).is_some_and(|volume| value(volume.first()) != value(found));
        let uid = text(claim.last(), "/metadata/uid");
        let of_other_flags = || {
            let name = text(found, "/metadata/name");
            field == "metadata.name"
                && matches!(core.plan.names, Names::Changing)
                && NAMINGS.iter().any(|naming| naming.name(uid) == name)
        };
        is_by_hand || is_changed() || of_other_flags()
    }
}

/// When the object was created, as text.
fn created(object: &Value) -> &str {
    text(object, "/metadata/creationTimestamp")
}

/// The path of what keeps a PersistentVolume until its volume is gone.
fn protection() -> String {
    format!("metadata.finalizers[{PROTECTION}]")
}

/// Whether the provisioner itself may have taken its finalizer off by now: the volume is kept, or it is
/// deleted.
fn is_past_protection(found: &Value) -> bool {
    text(found, "/spec/persistentVolumeReclaimPolicy") != "Delete"
        || found["metadata"]["deletionTimestamp"].is_string()
}

/// What only the API server writes, and what differs from read to read.
const IGNORED: [&str; 10] = [
    "apiVersion",
    "kind",
    "status",
    "metadata.creationTimestamp",
    "metadata.deletionGracePeriodSeconds",
    "metadata.deletionTimestamp",
    "metadata.generation",
    "metadata.resourceVersion",
    "metadata.uid",
    "spec.claimRef.resourceVersion",
];

/// What belongs to the PersistentVolume controller, or differs from process to process.
const OTHERS: [&str; 3] = [
    "metadata.annotations[pv.kubernetes.io/bound-by-controller]",
    "metadata.finalizers[kubernetes.io/pv-protection]",
    "spec.csi.volumeAttributes[storage.kubernetes.io/csiProvisionerIdentity]",
];

/// All fields by their paths.
fn fields(object: &Value) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    collect("", object, &mut all);
    all.retain(|field, _| !OTHERS.contains(&field.as_str()));
    all
}

fn collect(path: &str, value: &Value, all: &mut BTreeMap<String, String>) {
    match value {
        _ if IGNORED.contains(&path) => {}
        Value::Null => {}
        Value::Object(entries) => {
            entries.iter().for_each(|(key, value)| collect(&below(path, key), value, all));
        }
        Value::Array(items) if path == "metadata.finalizers" => {
            let items = items.iter().filter_map(Value::as_str);
            all.extend(items.map(|it| (format!("{path}[{it}]"), "present".to_owned())));
        }
        Value::Array(items) if items.is_empty() => {}
        other => drop(all.insert(path.to_owned(), other.to_string())),
    }
}

fn below(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        "metadata.annotations" | "metadata.labels" | "spec.csi.volumeAttributes" => {
            format!("{path}[{key}]")
        }
        _ => format!("{path}.{key}"),
    }
}

// === Claims that only the other serves, and deletions ===

/// Whether the driver's `volume_context` is larger than this program takes: 256 KiB.
fn is_too_large(found: &Value) -> bool {
    let attributes = found["spec"]["csi"]["volumeAttributes"].as_object();
    let size = |(key, value): (&String, &Value)| key.len() + value.as_str().map_or(0, str::len);
    attributes.is_some_and(|all| all.iter().map(size).sum::<usize>() > 256 << 10)
}

/// Whether a process may have seen the state before this change, by its watches, while the claim stood.
fn changed_since(change: Option<Instant>, claim: &Claim) -> bool {
    change.is_some_and(|at| at + VIEW > claim.since)
}

/// Whether the claim's source is gone, is going, or has come since the claim.
fn source_has_changed(core: &Core, claim: &Value) -> bool {
    let spec = &claim["spec"];
    let source = if spec["dataSource"].is_null() { "dataSourceRef" } else { "dataSource" };
    let (kind, name) = (text(&spec[source], "/kind"), text(&spec[source], "/name"));
    let source = core.api.get(kind, text(claim, "/metadata/namespace"), name);
    source.is_none_or(|source| {
        let is_going = source["metadata"]["deletionTimestamp"].is_string();
        is_going || created(&source) >= created(claim)
    })
}

impl Inner {
    fn about_served_there(&self, core: &Core, line: &Line) -> Option<String> {
        let found = self.reads.get(&line.volume)?;
        // Of claims that share a name, nothing in the result says which it is about.
        let all = self.claims_of(line, found);
        let all = all.map(|claim| self.about_claim_served_there(core, line, claim, found));
        all.min_by_key(Option::is_some).flatten()
    }

    fn about_claim_served_there(
        &self,
        core: &Core,
        line: &Line,
        claim: &Claim,
        found: &Value,
    ) -> Option<String> {
        let is_by_hand = found["metadata"]["annotations"][BY_HAND].is_string();
        let is_deleted =
            claim.gone.is_some() || claim.last()["metadata"]["deletionTimestamp"].is_string();
        match line.agreement() {
            "unknown" if line.says("only after its PersistentVolume was saved") => None,
            "documented" => (!is_deleted).then(|| "nobody has deleted the claim".to_owned()),
            _ if is_by_hand || !self.is_made_for(found, claim) => None,
            _ if line.says("is too large") && is_too_large(found) => None,
            _ if line.says("secret") && changed_since(self.secrets_changed, claim) => None,
            _ if line.says("topology") && changed_since(self.nodes_changed, claim) => None,
            _ if self.class_has_changed(claim) => None,
            _ if line.says("DataSource") && source_has_changed(core, claim.last()) => None,
            _ if core.ledger.is_tampered(text(claim.last(), "/metadata/uid")) => None,
            _ => Some("nothing was in the way".to_owned()),
        }
    }

    fn about_deletion(&self, line: &Line) -> Option<String> {
        let name = line.object.strip_prefix("PersistentVolume ").unwrap_or(&line.object);
        let named = |volume: &&Volume| text(volume.first(), "/metadata/name") == name;
        let volumes: Vec<&Volume> = self.volumes.values().filter(named).collect();
        let last = volumes.iter().max_by_key(|volume| volume.gone)?;
        let was_due = volumes.iter().any(|volume| volume.due.is_some());
        match line.agreement() {
            "same" => (!was_due).then(|| "it was not due".to_owned()),
            "unknown" if line.says("nothing was due") => {
                self.was_plainly_due(last).then(|| "it was due".to_owned())
            }
            "unknown" => None,
            _ => Some("only whether it was due can be known".to_owned()),
        }
    }

    /// Whether the PersistentVolume was due for deletion, and shadow mode must have seen that.
    fn was_plainly_due(&self, volume: &Volume) -> bool {
        let is_seen = |due: Instant| self.listed.is_none_or(|listed| listed < due);
        let is_by_hand = volume.first()["metadata"]["annotations"][BY_HAND].is_string();
        volume.policies.len() == 1 && !is_by_hand && volume.due.is_some_and(is_seen)
    }
}
