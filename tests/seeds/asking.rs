//! Whether what is asked for and saved is what the claim's user could get from a new claim: the checks
//! of each CreateVolume and of each PersistentVolume, by the API server's own objects.
//!
//! A process may ask again for what it has asked for; else the volume's name follows from its flags and
//! the claim's UID, the class is the claim's and ours, the source is what the claim's own reference
//! leads to, and the claim is neither bound nor deleted before anybody asked. A class or a claim
//! counts as it was when the process was last shown everything.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::Mutex;
use serde_json::Value;
use testkit::{
    apiserver::{ApiServer, object::Object},
    binder::class_of,
    driver::proto::CreateVolumeRequest,
};
use tokio::time::{Duration, Instant};

use super::{
    copying::source_of,
    core::{Core, DRIVER},
    ledger::{Recorded, text},
    nodes::ZONE,
    process::Life,
    storage::image_of,
    users,
    watching::{self, before},
};

/// For so long a source counts as reachable after it was: it is read before the claim is marked and
/// its source guarded.
const READ_BEFORE: Duration = Duration::from_secs(90);

/// The same where answers are slow at times.
const SLOWLY_READ: Duration = Duration::from_secs(10);

/// What was, as far as these checks need it.
#[derive(Debug, Default)]
pub(crate) struct Asking(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    revision: u64,
    /// When the API server was last looked at.
    seen: Option<Instant>,
    /// Every claim that is or was, by UID.
    claims: BTreeMap<String, Claim>,
    /// Every class that is or was, by name.
    classes: BTreeMap<String, Vec<Class>>,
    /// What each claim and snapshot was at the driver.
    handles: BTreeMap<Reference, Vec<Held>>,
    /// Until when each namespace let claims of another use what of it.
    grants: BTreeMap<Grant, Instant>,
    /// What each process has asked for under each name.
    asked: BTreeMap<(String, String), Asked>,
    /// The volumes that anybody has asked for.
    begun: BTreeSet<String>,
    /// Who has written a record on each claim.
    writers: BTreeMap<String, BTreeSet<String>>,
    /// When each process last read that there is no such node.
    without: BTreeMap<(String, String), Instant>,
}

/// Claims of a namespace may use objects of a kind in another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Grant {
    from: String,
    to: String,
    kind: String,
}

/// A claim that is or was.
#[derive(Debug, Default)]
struct Claim {
    namespace: String,
    /// What it is to be a copy of.
    source: Option<Reference>,
    /// The names of its classes, each since then.
    classes: Vec<(Instant, String)>,
    /// Since when it has borne its record of an open call, and what that says.
    record: Option<(Instant, Recorded)>,
    /// Since when it has named a volume, and which.
    named: Option<(Instant, String)>,
    /// It has said at some time that another driver is to serve it, or none: what becomes of it then is
    /// not followed.
    was_for_another: bool,
    deleted: Option<Instant>,
}

/// A class that is or was.
#[derive(Debug)]
struct Class {
    uid: String,
    since: Instant,
    until: Option<Instant>,
    provisioner: String,
    policy: String,
    parameters: BTreeMap<String, String>,
}

/// An object that a claim names as its source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Reference {
    kind: String,
    namespace: String,
    name: String,
}

/// A handle that an object had at the driver, and until when.
#[derive(Debug)]
struct Held {
    handle: String,
    until: Instant,
}

/// What a process has asked for under one name.
#[derive(Debug, Default)]
struct Asked {
    sources: BTreeSet<String>,
    parameters: BTreeSet<BTreeMap<String, String>>,
    /// The policies that its class may have said.
    policies: BTreeSet<String>,
    /// When the last call began.
    last: Option<Instant>,
}

impl Claim {
    /// Since when it needs this volume no longer: it is deleted, or has another.
    fn gone_for(&self, volume: &str) -> Option<Instant> {
        let other = self.named.as_ref().filter(|(_, named)| named != volume);
        self.deleted.into_iter().chain(other.map(|(since, _)| *since)).min()
    }

    /// The names of its classes since then.
    fn classes_since(&self, known: Instant) -> impl Iterator<Item = &str> {
        let ends = self.classes.iter().skip(1).map(|(since, _)| Some(*since)).chain([None]);
        let all = self.classes.iter().zip(ends);
        let current = all.filter(move |(_, end)| end.is_none_or(|end| end >= known));
        current.map(|((_, name), _)| name.as_str())
    }
}

impl Class {
    fn stood_since(&self, known: Instant) -> bool {
        self.until.is_none_or(|until| until >= known)
    }

    /// Whether it led to a request with these parameters.
    fn says(&self, parameters: &BTreeMap<String, String>) -> bool {
        self.parameters == *parameters
    }
}

impl Inner {
    fn see_claims(&mut self, claims: &[Arc<Object>], now: Instant) {
        let mut standing = BTreeSet::new();
        for object in claims {
            let claim = object.value();
            if text(claim, "/metadata/deletionTimestamp").is_empty() {
                standing.insert(object.meta("uid"));
            }
            if object.revision() <= self.revision {
                continue;
            }
            let known = self.claims.entry(object.meta("uid").to_owned()).or_insert_with(|| Claim {
                namespace: object.meta("namespace").to_owned(),
                source: Reference::of(claim),
                ..Claim::default()
            });
            let class = class_of(claim);
            if known.classes.last().is_none_or(|(_, last)| last != class) {
                known.classes.push((now, class.to_owned()));
            }
            let record = Recorded::on(claim);
            if known.record.as_ref().map(|(_, record)| record) != record.as_ref() {
                known.record = record.map(|record| (now, record));
            }
            known.was_for_another |= is_for_another(claim);
            match text(claim, "/spec/volumeName") {
                "" => known.named = None,
                volume => drop(known.named.get_or_insert_with(|| (now, volume.to_owned()))),
            }
        }
        for (uid, claim) in &mut self.claims {
            if !standing.contains(uid.as_str()) {
                claim.deleted.get_or_insert(now);
            }
        }
    }

    fn see_classes(&mut self, api: &ApiServer, now: Instant) {
        let classes = api.objects("StorageClass");
        let stands = |uid: &str| classes.iter().any(|class| class.meta("uid") == uid);
        for class in self.classes.values_mut().flatten() {
            if class.until.is_none() && !stands(&class.uid) {
                class.until = Some(now);
            }
        }
        for class in classes.iter().filter(|class| class.revision() > self.revision) {
            let versions = self.classes.entry(class.meta("name").to_owned()).or_default();
            if versions.iter().all(|version| version.uid != class.meta("uid")) {
                versions.push(Class::of(class, now));
            }
        }
    }

    /// What claims and snapshots are at the driver now.
    /// What was so when the API server was last looked at was so until now, when that is done again.
    fn nothing_changed_until(&mut self, now: Instant) {
        let held = self.handles.values_mut().flatten().map(|held| &mut held.until);
        for until in held.chain(self.grants.values_mut()) {
            if Some(*until) == self.seen {
                *until = now;
            }
        }
        self.seen = Some(now);
    }

    fn see_sources(&mut self, api: &ApiServer, claims: &[Arc<Object>], now: Instant) {
        let volumes = api.objects("PersistentVolume");
        for claim in claims {
            let named = text(claim.value(), "/spec/volumeName");
            let mut volumes = volumes.iter().filter(|volume| volume.meta("name") == named);
            let own = |volume: &&Arc<Object>| {
                text(volume.value(), "/spec/claimRef/uid") == claim.meta("uid")
            };
            if let Some(volume) = volumes.find(own) {
                let handle = text(volume.value(), "/spec/csi/volumeHandle");
                self.holds(Reference::to("PersistentVolumeClaim", claim), handle, now);
            }
        }
        let contents = api.objects("VolumeSnapshotContent");
        for snapshot in api.objects("VolumeSnapshot") {
            let content = contents.iter().find(|content| {
                text(content.value(), "/spec/volumeSnapshotRef/uid") == snapshot.meta("uid")
            });
            if let Some(content) = content {
                let handle = text(content.value(), "/status/snapshotHandle");
                self.holds(Reference::to("VolumeSnapshot", &snapshot), handle, now);
            }
        }
    }

    fn see_grants(&mut self, api: &ApiServer, now: Instant) {
        let members = |list: &Value| list.as_array().cloned().unwrap_or_default();
        for grant in api.objects("ReferenceGrant") {
            let (spec, to) = (&grant.value()["spec"], grant.meta("namespace"));
            for (from, kind) in members(&spec["from"])
                .iter()
                .flat_map(|from| members(&spec["to"]).into_iter().map(move |to| (from.clone(), to)))
            {
                let from = text(&from, "/namespace").to_owned();
                let kind = text(&kind, "/kind").to_owned();
                self.grants.insert(Grant { from, to: to.to_owned(), kind }, now);
            }
        }
    }

    /// Whether the claim was allowed to use its source then or since.
    fn is_allowed_since(&self, claim: &Claim, since: Instant) -> bool {
        let Some(source) = &claim.source else { return true };
        let grant = Grant {
            from: claim.namespace.clone(),
            to: source.namespace.clone(),
            kind: source.kind.clone(),
        };
        grant.from == grant.to || self.grants.get(&grant).is_some_and(|until| *until >= since)
    }

    fn holds(&mut self, object: Reference, handle: &str, now: Instant) {
        let held = self.handles.entry(object).or_default();
        match held.iter_mut().find(|held| held.handle == handle) {
            Some(held) => held.until = now,
            None => held.push(Held { handle: handle.to_owned(), until: now }),
        }
    }

    /// Whether the claim may be made from what has this handle; an empty one is nothing.
    fn is_reachable(&self, claim: &Claim, handle: &str) -> bool {
        let Some(source) = &claim.source else { return handle.is_empty() };
        let held = self.handles.get(source).into_iter().flatten();
        held.filter(|held| held.until >= recently()).any(|held| held.handle == handle)
    }

    /// The versions of the class since then.
    fn versions(&self, class: &str, known: Instant) -> impl Iterator<Item = &Class> {
        let versions = self.classes.get(class).into_iter().flatten();
        versions.filter(move |version| version.stood_since(known))
    }

    /// The one claim that the process names so.
    fn claim_of(&self, life: &Life, name: &str) -> Result<Option<&str>, String> {
        let mut named = self.claims.keys().filter(|uid| life.naming().name(uid) == name);
        let Some(first) = named.next() else {
            return Err(format!("{name}, which follows from no claim's UID"));
        };
        Ok(named.next().is_none().then_some(first.as_str()))
    }
}

impl Reference {
    /// What the claim names as its source.
    fn of(claim: &Value) -> Option<Self> {
        let spec = &claim["spec"];
        let named = if spec["dataSource"].is_null() { "dataSourceRef" } else { "dataSource" };
        let member = |member: &str| spec[named][member].as_str().unwrap_or_default();
        if spec[named].is_null() {
            return None;
        }
        let namespace = match member("namespace") {
            "" => text(claim, "/metadata/namespace"),
            other => other,
        };
        Some(Self {
            kind: member("kind").to_owned(),
            namespace: namespace.to_owned(),
            name: member("name").to_owned(),
        })
    }

    fn to(kind: &str, object: &Object) -> Self {
        let (namespace, name) = (object.meta("namespace"), object.meta("name"));
        Self { kind: kind.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl Class {
    fn of(object: &Object, now: Instant) -> Self {
        let class = object.value();
        let parameters = class["parameters"].as_object().into_iter().flatten();
        let parameters = parameters.filter(|(key, _)| !key.starts_with("csi.storage.k8s.io/"));
        let plain = |(key, value): (&String, &Value)| {
            (key.clone(), value.as_str().unwrap_or_default().to_owned())
        };
        Self {
            uid: object.meta("uid").to_owned(),
            since: now,
            until: None,
            provisioner: text(class, "/provisioner").to_owned(),
            policy: text(class, "/reclaimPolicy").to_owned(),
            parameters: parameters.map(plain).collect(),
        }
    }
}

impl Asking {
    /// Takes in what has changed.
    pub(crate) fn catch_up(&self, api: &ApiServer, copies: bool) {
        let now = Instant::now();
        let mut inner = self.0.lock();
        inner.nothing_changed_until(now);
        let revision = api.revision();
        if inner.revision == revision {
            return;
        }
        let claims = api.objects("PersistentVolumeClaim");
        inner.see_claims(&claims, now);
        inner.see_classes(api, now);
        if copies {
            inner.see_sources(api, &claims, now);
            inner.see_grants(api, now);
        }
        inner.revision = revision;
    }

    /// Somebody has written a record on the claim.
    pub(crate) fn recorded(&self, who: &str, uid: &str) {
        let mut inner = self.0.lock();
        inner.writers.entry(uid.to_owned()).or_default().insert(who.to_owned());
    }

    /// A process reads that there is no such node.
    pub(crate) fn lacks_node(&self, who: &str, node: &str) {
        let key = (who.to_owned(), node.to_owned());
        self.0.lock().without.insert(key, Instant::now());
    }

    /// A CreateVolume reaches the driver, of the volume that is or will be `image`.
    pub(crate) fn check_request(
        &self,
        core: &Core,
        life: &Life,
        request: &CreateVolumeRequest,
        image: &str,
    ) {
        let wrong = if life.is_external_provisioner() {
            Vec::new()
        } else {
            self.0.lock().objections_to(core, life, request, image)
        };
        for what in wrong {
            core.ledger.wrong(&format!("{} asks for {what}", life.name()));
        }
        self.0.lock().note(core, life, request, image);
    }

    /// A PersistentVolume is made by a process.
    pub(crate) fn check_volume(&self, core: &Core, life: &Life, volume: &Value) {
        let wrong = self.0.lock().objections_to_volume(core, life, volume);
        for what in wrong {
            let name = text(volume, "/metadata/name");
            core.ledger.wrong(&format!("{} saves {name} {what}", life.name()));
        }
    }
}

impl Inner {
    /// What is wrong with a request.
    fn objections_to(
        &self,
        core: &Core,
        life: &Life,
        request: &CreateVolumeRequest,
        image: &str,
    ) -> Vec<String> {
        let name = &request.name;
        let uid = match self.claim_of(life, name) {
            Err(why) => return vec![why],
            // Of claims that share a name nothing here says whose call it is.
            Ok(None) => return Vec::new(),
            Ok(Some(uid)) => uid,
        };
        let claim = &self.claims[uid];
        let asked = self.asked.get(&(life.name().to_owned(), image.to_owned()));
        let (source, parameters) = (source_of(request), parameters(request));
        let mut wrong = Vec::new();
        let repeats_source = asked.is_some_and(|asked| asked.sources.contains(source));
        if !repeats_source && !self.is_reachable(claim, source) {
            let named = &claim.source;
            wrong.push(format!("{name} of {source:?}, and its claim may use {named:?}"));
        }
        // Whose claim is deleted follows its call to its end.
        let follows = asked.is_some() && claim.deleted.is_some();
        if !source.is_empty() && !follows && !self.is_allowed_since(claim, recently()) {
            wrong.push(format!("{name} of {:?}, which nobody lets it use", claim.source));
        }
        let repeats_class = asked.is_some_and(|asked| asked.parameters.contains(&parameters));
        if !repeats_class && !self.is_of_its_class(core, life, claim, &parameters) {
            let classes: Vec<&str> =
                claim.classes.iter().map(|(_, class)| class.as_str()).collect();
            wrong.push(format!(
                "{name} with {parameters:?}, and its claim's classes are {classes:?}"
            ));
        }
        let class = parameters.get("of").map_or("", String::as_str);
        let zones = users::zones(core, class);
        let odd = places(request).find(|place| !zones.iter().any(|zone| is_zone(place, zone)));
        wrong.extend(odd.map(|place| format!("{name} in {place:?}, where {class} has no volumes")));
        let known = core.ledger.watching.known_until(life.name(), watching::CLAIMS);
        if asked.is_none() && self.is_followed_elsewhere(core, life, claim, image) {
            wrong.push(format!("{name}, whose call is followed elsewhere: {:?}", claim.record));
        }
        if asked.is_none() && claim.named.as_ref().is_some_and(|(since, _)| *since < known) {
            wrong.push(format!("{name}, whose claim is bound"));
        }
        let deleted = claim.deleted.is_some_and(|deleted| deleted < known);
        if deleted && !self.begun.contains(image) && !self.may_be_open(core, life, uid) {
            wrong.push(format!("{name} for the first time, and its claim is deleted"));
        }
        wrong
    }

    /// Whether the call that is recorded since then is of another node than the image, which stands; the
    /// process has not read since the record that it is gone, which is when it takes the call over.
    fn is_followed_elsewhere(&self, core: &Core, life: &Life, claim: &Claim, image: &str) -> bool {
        let known = core.ledger.watching.known_until(life.name(), watching::CLAIMS);
        claim.record.as_ref().is_some_and(|(since, record)| {
            let other = record.other_node(image).filter(|_| record.names(image));
            let Some(node) = other else { return false };
            let read = self.without.get(&(life.name().to_owned(), node.to_owned()));
            let stands = core.api.get("Node", "", node).is_some();
            stands && read.is_none_or(|read| read < since) && *since < known
        })
    }

    /// Whether the process may know of an earlier call that never reached the driver: by the record of
    /// another process, or by its own call that the driver's end has cut off.
    fn may_be_open(&self, core: &Core, life: &Life, uid: &str) -> bool {
        let writers = self.writers.get(uid);
        writers.is_some_and(|writers| writers.iter().any(|who| who != life.name()))
            || core.plan.outages && core.plan.restarts
    }

    /// Whether the parameters are of a class of the claim's that is ours.
    fn is_of_its_class(
        &self,
        core: &Core,
        life: &Life,
        claim: &Claim,
        parameters: &BTreeMap<String, String>,
    ) -> bool {
        let known = |kind| core.ledger.watching.known_until(life.name(), kind);
        let mut names = claim.classes_since(planned(core, known(watching::CLAIMS)));
        let classes = planned(core, known(watching::CLASSES));
        names.any(|name| {
            let mut versions = self.versions(name, classes);
            versions.any(|version| version.provisioner == DRIVER && version.says(parameters))
        })
    }

    fn note(&mut self, core: &Core, life: &Life, request: &CreateVolumeRequest, image: &str) {
        let (source, parameters) = (source_of(request), parameters(request));
        let known = core.ledger.watching.known_until(life.name(), watching::CLASSES);
        let known = planned(core, known);
        let all = self.classes.keys().flat_map(|class| self.versions(class, known));
        let policies = all.filter(|class| class.says(&parameters)).map(|it| it.policy.clone());
        let policies: Vec<String> = policies.collect();
        let asked = self.asked.entry((life.name().to_owned(), image.to_owned())).or_default();
        asked.sources.insert(source.to_owned());
        asked.last = Some(Instant::now());
        asked.parameters.insert(parameters);
        asked.policies.extend(policies);
        self.begun.insert(image.to_owned());
    }

    /// Whether the claim's user has given it a class of another driver's, for which nobody wants our volume.
    fn is_handed_over(&self, claim: &Claim) -> bool {
        let class = claim.classes.last().and_then(|(_, name)| self.classes.get(name));
        class.and_then(|versions| versions.last()).is_some_and(|it| it.provisioner != DRIVER)
    }

    /// What is wrong with a PersistentVolume: safety rule 9.
    fn objections_to_volume(&self, core: &Core, life: &Life, volume: &Value) -> Vec<String> {
        let (name, uid) = (text(volume, "/metadata/name"), text(volume, "/spec/claimRef/uid"));
        if life.naming().name(uid) != name {
            return vec![format!("for the claim {uid}, which is named otherwise")];
        }
        let image = image_of(text(volume, "/spec/csi/volumeHandle"));
        let asked = self.asked.get(&(life.name().to_owned(), image.to_owned()));
        let (Some(asked), Some(claim)) = (asked, self.claims.get(uid)) else {
            return vec![format!("of {image}, which it has not asked for")];
        };
        let called = asked.last.unwrap_or_else(Instant::now);
        if !self.is_allowed_since(claim, before(called, READ_BEFORE)) {
            return vec![format!("of {:?}, which nobody let it use", claim.source)];
        }
        let class = text(volume, "/spec/storageClassName");
        let known = |kind| core.ledger.watching.known_until(life.name(), kind);
        let (classes, claims) = (known(watching::CLASSES), known(watching::CLAIMS));
        let now: BTreeSet<&str> =
            self.versions(class, classes).map(|version| version.policy.as_str()).collect();
        let stands = |version: &Class| version.since < classes && version.until.is_none();
        let may_lack = !self.versions(class, classes).any(stands);
        let then = |policy: &str| asked.policies.contains(policy);
        let by_now = |policy: &str| now.contains(policy) || may_lack && then(policy);
        let policy = text(volume, "/spec/persistentVolumeReclaimPolicy");
        let may_live =
            claim.was_for_another || claim.gone_for(name).is_none_or(|gone| gone >= claims);
        // One that names a volume before there is one may be taken for bound to another.
        let may_be_gone =
            claim.deleted.is_some() || claim.named.is_some() || self.is_handed_over(claim);
        let of_gone = match policy {
            "Retain" => by_now(policy) || then(policy),
            _ => by_now(policy) && then(policy),
        };
        let is_right = may_live && by_now(policy) || may_be_gone && of_gone;
        if is_right {
            return Vec::new();
        }
        let then = &asked.policies;
        vec![format!("with {policy}; its class {class} says {now:?}, and said {then:?}")]
    }
}

/// Whether the claim says that another driver is to serve it, or none.
fn is_for_another(claim: &Value) -> bool {
    let driver = claim.pointer("/metadata/annotations/volume.kubernetes.io~1storage-provisioner");
    driver.is_some_and(|driver| driver != DRIVER)
}

/// Since when a claim and its class count for a call, of which all was known until then: the call is planned
/// with it, and what is read for the call after that may hang, or take a while one read after the other.
fn planned(core: &Core, known: Instant) -> Instant {
    let ago = match (core.plan.hung, core.plan.slow) {
        (1.., _) => READ_BEFORE,
        (0, 1..) => SLOWLY_READ,
        (0, 0) => Duration::ZERO,
    };
    before(known, ago)
}

/// Since when what a call rests on may have been read.
fn recently() -> Instant {
    before(Instant::now(), READ_BEFORE)
}

/// The places that a request names.
fn places(request: &CreateVolumeRequest) -> impl Iterator<Item = BTreeMap<&str, &str>> {
    let terms = request.accessibility_requirements.iter();
    let terms = terms.flat_map(|terms| terms.requisite.iter().chain(&terms.preferred));
    terms.map(|term| {
        term.segments.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
    })
}

fn is_zone(place: &BTreeMap<&str, &str>, zone: &str) -> bool {
    place.len() == 1 && place.get(ZONE) == Some(&zone)
}

/// The parameters of a request.
fn parameters(request: &CreateVolumeRequest) -> BTreeMap<String, String> {
    request.parameters.clone().into_iter().collect()
}
