//! Follows claims and volumes by watches, and notes how far each has come.

use std::{collections::BTreeSet, sync::Arc};

use futures::{StreamExt as _, TryStreamExt as _, future::BoxFuture};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    ResourceExt as _,
    runtime::{WatchStreamExt as _, watcher, watcher::Event},
};
use parking_lot::Mutex;
use tokio::{sync::mpsc, time::Instant};

use super::{
    cluster::Cluster,
    progress::{Milestone, Progress},
    residents::OTHERS,
};

/// What is known of a run's claims; shared with those who make and delete them.
pub(super) type Shared = Arc<Mutex<Progress>>;

/// Reports that a watch has listed what there was.
#[derive(Debug, Clone)]
pub(super) struct Listed(pub(super) mpsc::Sender<()>);

impl Listed {
    fn hears<K>(&self, event: &Event<K>) {
        if matches!(event, Event::InitDone) {
            // Whoever waits does so for the first lists; nobody hears of later ones.
            let _ = self.0.try_send(());
        }
    }
}

/// The watches of a cluster's claims and volumes but residents, to be polled for as long as anything
/// counts.
pub(super) fn follow(
    cluster: &Cluster,
    progress: &Shared,
    lists: &Listed,
) -> [BoxFuture<'static, ()>; 2] {
    let config = watcher::Config::default();
    // Residents are of the run as well: who would list them all takes the server's time from the
    // program.
    let ours = format!("{},{OTHERS}", cluster.names.selector());
    let claims = watcher(cluster.claims(), config.clone().labels(&ours));
    let volumes = watcher(cluster.volumes(), config.labels(OTHERS));
    let namespace = cluster.namespace.clone();
    let (of_claims, of_volumes) = (Arc::clone(progress), Arc::clone(progress));
    let (claims_listed, volumes_listed) = (lists.clone(), lists.clone());
    let mut listed = BTreeSet::new();
    // Errors mend themselves, or show as a run that gets nowhere.
    let claims = claims.default_backoff().into_stream().filter_map(async |event| event.ok());
    let volumes = volumes.default_backoff().into_stream().filter_map(async |event| event.ok());
    [
        Box::pin(claims.for_each(move |event| {
            claim_seen(&event, &mut of_claims.lock());
            claims_listed.hears(&event);
            std::future::ready(())
        })),
        Box::pin(volumes.for_each(move |event| {
            volume_seen(&event, &namespace, &mut listed, &mut of_volumes.lock());
            volumes_listed.hears(&event);
            std::future::ready(())
        })),
    ]
}

fn claim_seen(event: &Event<PersistentVolumeClaim>, progress: &mut Progress) {
    if let Event::Apply(claim) | Event::InitApply(claim) = event {
        let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
        if phase == Some("Bound") {
            progress.reached(&claim.name_any(), Milestone::Bound, Instant::now());
        }
    }
}

/// `listed` collects the claims whose volumes a list shows: the others' have gone meanwhile.
fn volume_seen(
    event: &Event<PersistentVolume>,
    namespace: &str,
    listed: &mut BTreeSet<String>,
    progress: &mut Progress,
) {
    let now = Instant::now();
    match event {
        Event::Init => listed.clear(),
        Event::InitDone => progress.gone_but(listed, now),
        Event::InitApply(volume) => {
            listed.extend(claim_of(volume, namespace).map(str::to_owned));
            volume_stands(volume, namespace, progress, now);
        }
        Event::Apply(volume) => volume_stands(volume, namespace, progress, now),
        Event::Delete(volume) => {
            if let Some(claim) = claim_of(volume, namespace) {
                progress.reached(claim, Milestone::Gone, now);
            }
        }
    }
}

fn volume_stands(
    volume: &PersistentVolume,
    namespace: &str,
    progress: &mut Progress,
    now: Instant,
) {
    let Some(claim) = claim_of(volume, namespace) else { return };
    progress.reached(claim, Milestone::Saved, now);
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    if phase == Some("Released") {
        progress.reached(claim, Milestone::Released, now);
    }
}

/// The claim that a volume is for, where it is of our namespace.
pub(super) fn claim_of<'a>(volume: &'a PersistentVolume, namespace: &str) -> Option<&'a str> {
    let claim = volume.spec.as_ref()?.claim_ref.as_ref()?;
    claim.name.as_deref().filter(|_| claim.namespace.as_deref() == Some(namespace))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn volume(claim: &str, namespace: &str, phase: &str) -> PersistentVolume {
        let claim = json!({"name": claim, "namespace": namespace});
        let volume = json!({"spec": {"claimRef": claim}, "status": {"phase": phase}});
        serde_json::from_value(volume).unwrap()
    }

    fn count(progress: &Progress) -> [usize; 3] {
        [Milestone::Saved, Milestone::Released, Milestone::Gone].map(|m| progress.count(m))
    }

    #[test]
    fn a_volume_is_saved_then_released_then_gone() {
        let (mut progress, mut listed) = (Progress::default(), BTreeSet::new());
        progress.asked("a", Instant::now());
        for (event, expected) in [
            (Event::Apply(volume("a", "elsewhere", "Released")), [0, 0, 0]),
            (Event::Apply(volume("a", "here", "Pending")), [1, 0, 0]),
            (Event::Apply(volume("a", "here", "Released")), [1, 1, 0]),
            (Event::Delete(volume("a", "here", "Released")), [1, 1, 1]),
        ] {
            volume_seen(&event, "here", &mut listed, &mut progress);
            assert_eq!(count(&progress), expected, "{event:?}");
        }
    }

    #[test]
    fn a_volume_that_a_new_list_lacks_has_gone() {
        let (mut progress, mut listed) = (Progress::default(), BTreeSet::new());
        for name in ["stays", "goes", "never-saved"] {
            progress.asked(name, Instant::now());
        }
        for name in ["stays", "goes"] {
            let event = Event::Apply(volume(name, "here", "Bound"));
            volume_seen(&event, "here", &mut listed, &mut progress);
        }
        let list = [Event::Init, Event::InitApply(volume("stays", "here", "Bound"))];
        for event in list.into_iter().chain([Event::InitDone]) {
            volume_seen(&event, "here", &mut listed, &mut progress);
        }
        assert_eq!(count(&progress), [2, 0, 1]);
    }
}
