//! Which sources drivers copy now, and the check of their protection.
//!
//! A source is a claim that is cloned or a snapshot that is restored. Checked: a first call with a
//! source finds our finalizer on it, and nobody takes that off while a driver copies.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde_json::Value;
use testkit::{
    apiserver::request_info::RequestInfo,
    driver::proto::{CreateVolumeRequest, volume_content_source::Type},
};

use super::{
    admins::BY_HAND, core::Core, ledger::text, naming::may_be_of, rest, storage::image_of,
};

/// Keeps a claim that is cloned.
pub(crate) const CLONED: &str = "provisioner.storage.kubernetes.io/cloning-protection";

/// Keeps a snapshot that is restored.
const RESTORED: &str = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection";

/// What drivers copy now.
#[derive(Debug, Default)]
pub(crate) struct Copying(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    under_way: BTreeMap<u64, Copy>,
    so_far: u64,
    /// Whether the program was refused access to snapshots: then it goes on without protection.
    no_right: bool,
}

/// One copy in the making.
#[derive(Debug, Clone)]
struct Copy {
    /// The host whose driver copies, or another driver.
    host: String,
    /// The UID of the object that is its source; empty where that was gone.
    source: String,
    /// The handle of what is copied.
    handle: String,
    /// The volume that is made.
    volume: String,
}

/// Dropped, it is copied no longer.
pub(crate) struct Copied<'a>(&'a Copying, u64);

impl Drop for Copied<'_> {
    fn drop(&mut self) {
        self.0.0.lock().under_way.remove(&self.1);
    }
}

/// The handle of what a call copies; empty where it makes an empty volume.
pub(crate) fn source_of(request: &CreateVolumeRequest) -> &str {
    match request.volume_content_source.as_ref().and_then(|source| source.r#type.as_ref()) {
        Some(Type::Volume(volume)) => &volume.volume_id,
        Some(Type::Snapshot(snapshot)) => &snapshot.snapshot_id,
        None => "",
    }
}

/// The object that stands for what has this handle: of several, as an admin may make another
/// PersistentVolume for it, one that is guarded.
fn object_of(core: &Core, handle: &str) -> Option<Value> {
    let named = |kind: &str, of: &'static str, path: &'static str, reference: &'static str| {
        let all = core.api.list(kind, "").into_iter();
        // One that an admin has added by hand is nobody's source.
        let found = all.filter(move |object| {
            text(object, path) == handle && !object["metadata"]["annotations"][BY_HAND].is_string()
        });
        found.map(move |object| (of, object.pointer(reference).cloned().unwrap_or_default()))
    };
    let claims = named(
        "PersistentVolume",
        "PersistentVolumeClaim",
        "/spec/csi/volumeHandle",
        "/spec/claimRef",
    );
    let snapshots = named(
        "VolumeSnapshotContent",
        "VolumeSnapshot",
        "/status/snapshotHandle",
        "/spec/volumeSnapshotRef",
    );
    let standing = claims.chain(snapshots).filter_map(|(kind, reference)| {
        let found =
            core.api.get(kind, text(&reference, "/namespace"), text(&reference, "/name"))?;
        (found["metadata"]["uid"] == reference["uid"]).then_some(found)
    });
    let (guarded, bare): (Vec<_>, Vec<_>) = standing.partition(is_guarded);
    guarded.into_iter().chain(bare).next()
}

/// The claim that is guarded, and is named as the source by the claim of this volume.
fn named_source(core: &Core, volume: &str) -> Option<Value> {
    let claims = core.api.objects("PersistentVolumeClaim");
    let claim = claims.iter().find(|claim| may_be_of(volume, claim.meta("uid")))?.value();
    let name = text(claim, "/spec/dataSource/name");
    let source = core.api.get(
        text(claim, "/spec/dataSource/kind"),
        text(claim, "/metadata/namespace"),
        name,
    );
    source.filter(is_guarded)
}

fn wears(object: &Value, finalizer: &str) -> bool {
    let finalizers = object["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|finalizers| finalizers.iter().any(|it| it == finalizer))
}

/// Whether the object wears the finalizer of sources of its kind.
pub(crate) fn is_guarded(object: &Value) -> bool {
    wears(object, CLONED) || wears(object, RESTORED)
}

impl Copying {
    /// A driver copies from now on.
    pub(crate) fn begins(&self, host: &str, uid: &str, handle: &str, volume: &str) -> Copied<'_> {
        let mut inner = self.0.lock();
        inner.so_far += 1;
        let number = inner.so_far;
        let copy = Copy {
            host: host.to_owned(),
            source: uid.to_owned(),
            handle: handle.to_owned(),
            volume: volume.to_owned(),
        };
        inner.under_way.insert(number, copy);
        Copied(self, number)
    }

    /// Whether the driver on this host copies what has this handle, and keeps it locked.
    pub(crate) fn is_locked(&self, host: &str, handle: &str) -> bool {
        let inner = self.0.lock();
        inner.under_way.values().any(|copy| {
            copy.host == host
                && (copy.handle == handle || image_of(&copy.handle) == image_of(handle))
        })
    }

    /// The program may not write snapshots for now.
    pub(crate) fn forbidden(&self) {
        self.0.lock().no_right = true;
    }

    /// A call with a source reaches the driver: which object the source is.
    ///
    /// One that is repeated may find its source gone: whatever the first has made is followed.
    pub(crate) fn asked(core: &Core, process: &str, name: &str, handle: &str) -> String {
        let found = (!handle.is_empty()).then(|| object_of(core, handle)).flatten();
        // A source whose PersistentVolume has just gone is known only by its claim.
        let found = found.map(|found| {
            if is_guarded(&found) { found } else { named_source(core, name).unwrap_or(found) }
        });
        let Some(object) = found else { return String::new() };
        let forbidden = core.copying.0.lock().no_right && object["kind"] == "VolumeSnapshot";
        // A tenant may take the finalizer off his own claim.
        let excused = forbidden || core.ledger.is_tampered(text(&object, "/metadata/uid"));
        if !is_guarded(&object) && core.ledger.is_first_call(name) && !excused {
            let what = text(&object, "/metadata/name");
            core.ledger.wrong(&format!("{process} asks for {name} while {what} is not guarded"));
        }
        text(&object, "/metadata/uid").to_owned()
    }

    /// Of the volumes that are made from the object, one whose making keeps it guarded.
    fn needs(&self, core: &Core, uid: &str) -> Option<String> {
        let copies: Vec<Copy> = self.0.lock().under_way.values().cloned().collect();
        let of_it = copies.into_iter().filter(|copy| copy.source == uid);
        let mut volumes = of_it.map(|copy| copy.volume);
        // A record that is not followed keeps nothing (safety.md, "The open-call record").
        volumes.find(|volume| {
            !core.ledger.had_volume(volume)
                && !core.ledger.is_suspect(volume)
                && !rest::is_excused(core, volume)
        })
    }
}

/// A source that a request may write.
pub(crate) struct Source {
    kind: &'static str,
    namespace: String,
    name: String,
    uid: String,
}

impl Source {
    /// The guarded source that a request is about to write.
    pub(crate) fn before(core: &Core, info: &RequestInfo) -> Option<Self> {
        let kind = match info.resource.as_str() {
            "persistentvolumeclaims" => "PersistentVolumeClaim",
            "volumesnapshots" => "VolumeSnapshot",
            _ => return None,
        };
        let writes = matches!(info.verb.as_str(), "update" | "patch");
        let object = writes.then(|| core.api.get(kind, &info.namespace, &info.name))??;
        is_guarded(&object).then(|| Self {
            kind,
            namespace: info.namespace.clone(),
            name: info.name.clone(),
            uid: text(&object, "/metadata/uid").to_owned(),
        })
    }

    /// The request was carried out.
    pub(crate) fn after(&self, core: &Core, process: &str) {
        let now = core.api.get(self.kind, &self.namespace, &self.name);
        let kept =
            now.is_some_and(|now| text(&now, "/metadata/uid") == self.uid && is_guarded(&now));
        if kept {
            return;
        }
        if let Some(volume) = core.copying.needs(core, &self.uid) {
            let (kind, name) = (self.kind, &self.name);
            core.ledger.wrong(&format!(
                "{process} frees the {kind} {name} while a driver makes {volume} from it"
            ));
        }
    }
}
