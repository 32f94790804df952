//! Starts the informers of classes, claims and PersistentVolumes, and tracks their lists.
//!
//! PersistentVolumes are listed only after all claims are listed, and calls wait for all lists (safety rule 6,
//! docs/safety.md).
//! Each event is applied to the index before an item is queued for it.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;

use super::{
    Controller, Key, changes::Changes, claims::index::KnownClaim, ownership::class_of_claim,
    provisioner::Provisioner,
};
use crate::{
    kube::{
        FirstList, Informer, InformerEvent, Scope, View,
        objects::{Claim, StorageClass, Volume},
    },
    nodes::Nodes,
};

/// After this time an incomplete list is reported.
const REPORT_AFTER: Duration = Duration::from_secs(120);

/// The progress of the lists of each kind. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Lists {
    classes: FirstList,
    claims: FirstList,
    volumes: FirstList,
    /// VolumeAttachments, for a driver that attaches volumes.
    attachments: Option<FirstList>,
    /// CSINodes and Nodes, for a driver with topology.
    nodes: Option<Nodes>,
}

impl Lists {
    /// Nothing is listed by this controller yet; somebody else lists `attachments` and `nodes`.
    pub(super) fn new(attachments: Option<FirstList>, nodes: Option<Nodes>) -> Self {
        Self { attachments, nodes, ..Self::default() }
    }

    /// Returns the kind that is not listed yet.
    fn missing(&self) -> Option<&'static str> {
        let kinds = [
            ("StorageClasses", Some(&self.classes)),
            ("PersistentVolumeClaims", Some(&self.claims)),
            ("PersistentVolumes", Some(&self.volumes)),
            ("VolumeAttachments", self.attachments.as_ref()),
        ];
        let is_missing = |list: Option<&FirstList>| list.is_some_and(|list| !list.is_whole());
        let missing = kinds.into_iter().find(|(_, list)| is_missing(*list));
        missing.map(|(kind, _)| kind).or_else(|| self.nodes.as_ref().and_then(Nodes::missing))
    }
}

impl<P: Provisioner> Controller<P> {
    /// Starts the informers: this process leads from now on.
    pub fn watch(&self) {
        self.watch_classes();
        self.watch_claims();
        self.watch_volumes();
    }

    fn watch_classes(&self) {
        let index = self.claims.index.clone();
        let queues = self.queues.clone();
        self.deps.classes.on_change(move |class, _| {
            queues.claims.add_all(index.uids(|it| class_of_claim(&it.claim) == class));
        });
        let handler = self.lists.classes.clone().completed_by(self.deps.classes.event_handler());
        let informer = self.informer::<StorageClass>();
        self.deps.tasks.spawn_critical("watch of StorageClasses", informer.run(handler));
    }

    fn watch_claims(&self) {
        let handler = self.lists.claims.clone().completed_by(self.claim_event_handler());
        let informer = self.informer::<Claim>();
        self.deps.tasks.spawn_critical("watch of PersistentVolumeClaims", informer.run(handler));
    }

    /// Returns the function that applies an event of a claim and queues the items that it concerns.
    fn claim_event_handler(&self) -> impl FnMut(InformerEvent<Claim>) + Send + 'static + use<P> {
        let protection = self.deps.protection.clone();
        let index = self.claims.index.clone();
        let queues = self.queues.clone();
        let dependencies = self.claims.dependencies.clone();
        let peers = self.deps.peers.clone();
        let mut changes = Changes::default();
        move |event| {
            protection.on_event(&event);
            let is_change = matches!(event, InformerEvent::Apply(_));
            let deleted = match &event {
                InformerEvent::Delete(claim) => Some(Key::from(claim.uid())),
                _ => None,
            };
            // Includes claims that wait for one of another provisioner, to clone it.
            let waiting = dependencies.waiting_for_claim(&event);
            let claims = index.on_event(event);
            for (uid, delay) in waiting {
                match delay {
                    Duration::ZERO => queues.claims.add(uid),
                    delay => queues.claims.add_after(uid, delay),
                }
            }
            // A claim whose deletion is missed stops waiting when its back-off ends.
            if let Some(uid) = deleted {
                dependencies.forget(&uid);
                if !index.is(&uid, |_| true) {
                    // What its next turn would do.
                    peers.forget(&uid);
                    queues.claims.cancel(&uid);
                }
            }
            // Nobody waits any more for a volume that cannot be saved: its worker decides now, not after its back-off.
            let is_given_up = |it: KnownClaim| it.unsaved().is_some() && it.is_gone_or_bound();
            let given_up = claims.iter().filter(|uid| index.known(uid).is_some_and(is_given_up));
            queues.unsaved.add_all(given_up.cloned());
            for uid in claims {
                if is_change {
                    changes.queue(&queues.claims, uid);
                } else {
                    queues.claims.add(uid);
                }
            }
        }
    }

    fn watch_volumes(&self) {
        let handler = self.lists.volumes.clone().completed_by(self.volume_event_handler());
        let claims = self.lists.claims.clone();
        let informer = self.informer::<Volume>();
        self.deps.tasks.spawn_critical("watch of PersistentVolumes", async move {
            claims.whole().await;
            informer.run(handler).await;
        });
    }

    /// Returns the function that applies an event of a PersistentVolume and queues the items that it
    /// concerns.
    fn volume_event_handler(&self) -> impl FnMut(InformerEvent<Volume>) + Send + 'static + use<P> {
        let index = Arc::clone(&self.volumes.index);
        let claim_index = self.claims.index.clone();
        let queues = self.queues.clone();
        move |event| {
            let is_whole = matches!(event, InformerEvent::InitDone(_));
            // Each PersistentVolume is compared with the claims before anything is done for it.
            let claims = claim_index.on_volume_event(&event);
            queues.volumes.add_all(index.on_event(event));
            queues.unsaved.add_all(claims.iter().cloned());
            queues.claims.add_all(claims);
            if is_whole {
                claim_index.both_listed();
            }
        }
    }

    fn informer<V: View>(&self) -> Informer<V> {
        let random = Arc::clone(&self.deps.random);
        Informer::new(&self.deps.client, Scope::all(), random, &self.deps.metrics)
    }

    /// Waits until everything has been listed, as external-provisioner does: then volumes can be created and
    /// deleted.
    pub(super) async fn everything_listed(&self) {
        let Lists { classes, claims, volumes, attachments, nodes } = &self.lists;
        for list in [classes, claims, volumes].into_iter().chain(attachments) {
            list.whole().await;
        }
        if let Some(nodes) = nodes {
            nodes.listed().await;
        }
    }

    /// Emits events about claims that wait for a list which takes long. Never returns.
    pub(super) async fn report_missing_lists(&self) {
        loop {
            sleep(REPORT_AFTER).await;
            let Some(kind) = self.lists.missing() else { continue };
            let why = format!(
                "{kind} are not listed yet, and nothing is asked for before: the log says why, as does /readyz"
            );
            for uid in self.claims.index.uids(KnownClaim::is_wanted) {
                self.claims.report_waiting(&uid, &why);
            }
        }
    }

    /// The list of StorageClasses.
    pub fn class_list(&self) -> FirstList {
        self.lists.classes.clone()
    }

    /// The list of PersistentVolumes.
    pub fn volume_list(&self) -> FirstList {
        self.lists.volumes.clone()
    }

    /// Returns a check that everything is listed. Its error names what is not.
    pub fn readiness(&self) -> impl Fn() -> Result<(), String> + Send + Sync + use<P> {
        let lists = self.lists.clone();
        move || match lists.missing() {
            Some(kind) => Err(format!("{kind} are not listed yet")),
            None => Ok(()),
        }
    }
}
