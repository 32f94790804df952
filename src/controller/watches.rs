//! Starts the informers of classes, claims and PersistentVolumes, and tracks their lists.
//!
//! PersistentVolumes are listed only after all claims are listed, and calls wait for both (safety rule 6).
//! Each event is applied to the index before an item is queued for it.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{
    Controller,
    claims::index::{ClaimSnapshot, Verification},
    item::Item,
    ownership::class_of_claim,
    provisioner::Provisioner,
    volumes::index::WakeUps,
};
use crate::{
    kube::{
        Extent, FirstList, Informer, InformerEvent, Scope, View,
        objects::{Claim, StorageClass, Volume},
    },
    mutations,
    mutations::Mutation,
};

/// After this time an incomplete list is reported.
const LIST_TIMEOUT: Duration = Duration::from_secs(120);

/// The progress of the lists of each kind. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Lists(Arc<SharedLists>);

#[derive(Default)]
struct SharedLists {
    classes: FirstList,
    claims: FirstList,
    volumes: FirstList,
    term: TermLists,
    /// Cancelled when claims are to be listed.
    start_claims: CancellationToken,
    /// Cancelled when PersistentVolumes are to be listed.
    start_volumes: CancellationToken,
    /// Requests another list of PersistentVolumes.
    relist_volumes: Arc<Notify>,
}

/// The lists that were requested since this process became the leader.
#[derive(Default)]
struct TermLists {
    began: OnceLock<Instant>,
    claims: FirstList,
    volumes: FirstList,
    /// Whether this process was a standby before.
    was_standby: AtomicBool,
}

impl Lists {
    /// Records that this process is the leader from now on. Returns whether it was a standby before. Then
    /// claims and after them PersistentVolumes are listed again, as a standby's view may be older than
    /// the last writes of the previous leader.
    fn begin_term(&self) -> bool {
        let SharedLists { term, start_claims, .. } = &*self.0;
        term.began.get_or_init(Instant::now);
        let was_standby = start_claims.is_cancelled();
        if was_standby {
            term.claims.anew();
            term.volumes.anew();
            term.was_standby.store(true, Ordering::Relaxed);
        }
        start_claims.cancel();
        was_standby
    }

    /// Records how much of the claims their informer has listed. Returns whether that completes the list
    /// of claims of this term.
    fn claims_reached(&self, extent: Extent) -> bool {
        let SharedLists { claims, term, start_volumes, .. } = &*self.0;
        claims.reached(extent);
        if extent == Extent::Everything {
            start_volumes.cancel();
        }
        // A former standby lists claims separately; see `claims_relisted`.
        let counts = term.began.get().is_some() && !term.was_standby.load(Ordering::Relaxed);
        if counts {
            term.claims.reached(extent);
        }
        counts && extent == Extent::Everything
    }

    /// Records that a former standby has listed all claims in this term, beside the informer. Requests
    /// the list of PersistentVolumes.
    fn claims_relisted(&self) {
        let SharedLists { term, relist_volumes, .. } = &*self.0;
        term.claims.reached(Extent::Nothing);
        term.claims.reached(Extent::Everything);
        term.volumes.anew();
        relist_volumes.notify_one();
    }

    /// Records how much of the PersistentVolumes their informer has listed. Returns whether that
    /// completes the lists of both kinds of this term.
    fn volumes_reached(&self, extent: Extent) -> bool {
        let SharedLists { volumes, term, .. } = &*self.0;
        volumes.reached(extent);
        term.volumes.reached(extent);
        extent == Extent::Everything && term.claims.is_whole() && term.volumes.is_whole()
    }

    /// Returns the kind that is not listed yet.
    fn missing(&self) -> Option<&'static str> {
        let kinds = [
            ("StorageClasses", &self.0.classes),
            ("PersistentVolumeClaims", &self.0.claims),
            ("PersistentVolumes", &self.0.volumes),
        ];
        kinds.into_iter().find(|(_, list)| !list.is_whole()).map(|(kind, _)| kind)
    }

    /// Returns the kind that is not listed in this term although the term began long ago.
    fn overdue(&self) -> Option<&'static str> {
        let TermLists { began, claims, volumes, .. } = &self.0.term;
        let is_late = began.get().is_some_and(|began| began.elapsed() >= LIST_TIMEOUT);
        let kinds = [("PersistentVolumeClaims", claims), ("PersistentVolumes", volumes)];
        let late = kinds.into_iter().find(|(_, list)| is_late && !list.is_whole());
        late.map(|(kind, _)| kind)
    }

    /// Checks that everything is listed. An error names what is not.
    fn check(&self) -> Result<(), String> {
        if let Some(kind) = self.missing() {
            return Err(format!("{kind} are not listed yet"));
        }
        match self.overdue() {
            Some(kind) => Err(format!("{kind} are not listed since this process works")),
            None => Ok(()),
        }
    }
}

impl<P: Provisioner> Controller<P> {
    /// Starts the informers. Claims and PersistentVolumes are listed from [`Controller::stand_by`] or
    /// [`Controller::work`] on. `on_claim_event` is called with each event of a claim, before this
    /// controller applies the event.
    pub fn watch(&self, on_claim_event: impl Fn(&InformerEvent<Claim>) + Send + 'static) {
        self.watch_classes();
        self.watch_claims(on_claim_event);
        self.watch_volumes();
    }

    fn watch_classes(&self) {
        let index = self.claims.index.clone();
        let queues = self.queues.clone();
        self.classes.on_change(move |class, _| {
            queues.wake_claims(index.uids(|it| class_of_claim(&it.claim) == class));
        });
        let handler = self.classes.event_handler(self.lists.0.classes.clone());
        self.tasks.spawn_critical(
            "watch of StorageClasses",
            self.informer::<StorageClass>().run(handler),
        );
    }

    fn watch_claims(&self, on_claim_event: impl Fn(&InformerEvent<Claim>) + Send + 'static) {
        let handler = self.claim_event_handler(on_claim_event);
        let lists = self.lists.clone();
        let informer = self.informer::<Claim>();
        self.tasks.spawn_critical("watch of PersistentVolumeClaims", async move {
            lists.0.start_claims.cancelled().await;
            if mutations::is_on(Mutation::VolumesListedFirst) {
                lists.0.start_volumes.cancel();
                lists.0.volumes.whole().await;
            }
            informer.run(handler).await;
        });
    }

    /// Returns the function that applies an event of a claim and queues the items that it concerns.
    fn claim_event_handler<F: Fn(&InformerEvent<Claim>) + Send + 'static>(
        &self,
        on_claim_event: F,
    ) -> impl FnMut(InformerEvent<Claim>) + Send + 'static + use<P, F> {
        let index = self.claims.index.clone();
        let queues = self.queues.clone();
        let lists = self.lists.clone();
        let dependencies = self.claims.dependencies.clone();
        move |event| {
            on_claim_event(&event);
            let extent = Extent::of(&event);
            // A claim whose deletion is missed stops waiting when its back-off ends.
            if let InformerEvent::Delete(claim) = &event {
                dependencies.forget(&Item::claim(claim.uid()));
            }
            // Includes items that wait for a claim of another provisioner, to clone it.
            let waiting = dependencies.waiting_for_claim(&event);
            let claims = index.on_event(event);
            queues.wake_items(waiting);
            // For a deleted claim no later event can clear what prevents the save, so it is decided now.
            let is_given_up = |it: ClaimSnapshot| it.is_saving() && it.is_gone_or_bound();
            let given_up = claims.iter().filter(|uid| index.snapshot(uid).is_some_and(is_given_up));
            queues.wake_unsaved(given_up.cloned().collect());
            queues.wake_claims(claims);
            if lists.claims_reached(extent) {
                // The watch continues from this list, whatever its version.
                index.claims_listed(Some(0));
            }
        }
    }

    fn watch_volumes(&self) {
        let handler = self.volume_event_handler();
        let lists = self.lists.clone();
        let relist = Arc::clone(&lists.0.relist_volumes);
        let informer = self.informer::<Volume>().relist_when(relist);
        self.tasks.spawn_critical("watch of PersistentVolumes", async move {
            lists.0.start_volumes.cancelled().await;
            informer.run(handler).await;
        });
    }

    /// Returns the function that applies an event of a PersistentVolume and queues the items that it
    /// concerns.
    fn volume_event_handler(&self) -> impl FnMut(InformerEvent<Volume>) + Send + 'static + use<P> {
        let index = self.volumes.index.clone();
        let claim_index = self.claims.index.clone();
        let queues = self.queues.clone();
        let lists = self.lists.clone();
        let dependencies = self.claims.dependencies.clone();
        move |event| {
            let extent = Extent::of(&event);
            if let InformerEvent::Delete(volume) = &event {
                dependencies.forget(&Item::volume(volume.name()));
            }
            let WakeUps { volumes, unprotected, claims } = index.on_event(event);
            queues.wake_volumes(volumes);
            if unprotected {
                queues.unprotected.notify_one();
            }
            queues.wake_unsaved(claims.clone());
            queues.wake_claims(claims);
            if lists.volumes_reached(extent) {
                queues.wake_claims(claim_index.both_listed());
            }
        }
    }

    fn informer<V: View>(&self) -> Informer<V> {
        let random = Arc::clone(&self.random);
        Informer::new(&self.client, Scope::all(), random, &self.metrics)
    }

    /// Starts to list and watch claims and PersistentVolumes while another process is the leader.
    /// Nothing is written and the driver is not called.
    pub fn stand_by(&self) {
        self.lists.0.start_claims.cancel();
    }

    /// Records that this process is the leader from now on. Until claims and PersistentVolumes are listed
    /// in this term, each claim is verified by live reads before its first call, and nothing is deleted.
    pub(super) fn begin_term(&self) {
        self.claims.index.begin_term();
        self.claims.provisioner.lead();
        if self.lists.begin_term() {
            self.relist_claims();
        }
    }

    /// Lists claims and then PersistentVolumes again, after this process was a standby. Claims that the
    /// watch reports meanwhile are provisioned.
    fn relist_claims(&self) {
        let index = self.claims.index.clone();
        let lists = self.lists.clone();
        let queues = self.queues.clone();
        let listed_index = index.clone();
        let handler = move |event| queues.wake_claims(listed_index.on_relist_event(event));
        let informer = self.informer::<Claim>();
        self.tasks.spawn("list of PersistentVolumeClaims", async move {
            lists.0.claims.whole().await;
            index.claims_listed(informer.list_once(handler).await);
            lists.claims_relisted();
        });
    }

    /// Waits until volumes can be created: everything has been listed once, if only as a standby.
    pub(super) async fn ready_to_create(&self) {
        let SharedLists { classes, claims, volumes, .. } = &*self.lists.0;
        for list in [classes, claims, volumes] {
            list.whole().await;
        }
        self.claims.provisioner.ready_to_create().await;
    }

    /// Waits until volumes can be deleted: everything has been listed since this process is the leader.
    pub(super) async fn ready_to_delete(&self) {
        let SharedLists { classes, term, .. } = &*self.lists.0;
        for list in [classes, &term.claims, &term.volumes] {
            list.whole().await;
        }
        self.claims.provisioner.ready_to_delete().await;
    }

    /// Emits events about claims that wait for a list which takes long. Never returns.
    pub(super) async fn report_missing_lists(&self) {
        loop {
            sleep(LIST_TIMEOUT).await;
            let Some(kind) = self.lists.missing().or_else(|| self.lists.overdue()) else {
                continue;
            };
            let why = format!(
                "{kind} are not listed yet, and nothing is asked for before: the log says why, as does /readyz"
            );
            let waits = |it: &ClaimSnapshot| it.required.what == Verification::Unlisted;
            for uid in self.claims.index.uids(waits) {
                self.claims.report_waiting(&uid, &why);
            }
        }
    }

    /// Waits until all classes have been listed once.
    pub fn classes_listed(&self) -> impl Future<Output = ()> + Send + use<P> {
        let classes = self.lists.0.classes.clone();
        async move { classes.whole().await }
    }

    /// Returns a check that everything is listed. Its error names what is not.
    pub fn readiness(&self) -> impl Fn() -> Result<(), String> + Send + Sync + use<P> {
        let lists = self.lists.clone();
        move || lists.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use Extent::{Everything, Nothing, Something};

    fn drop_it(_: bool) {}

    fn begins_and_ends(mut reached: impl FnMut(Extent)) {
        [Nothing, Something, Everything].into_iter().for_each(&mut reached);
    }

    #[test]
    fn at_a_cold_start_volumes_are_listed_after_the_claims() {
        let lists = Lists::default();
        lists.begin_term();
        assert!(lists.0.start_claims.is_cancelled() && !lists.0.start_volumes.is_cancelled());
        begins_and_ends(|extent| drop_it(lists.claims_reached(extent)));
        assert!(lists.0.start_volumes.is_cancelled());
        assert!(!lists.volumes_reached(Nothing) && !lists.volumes_reached(Something));
        assert!(lists.volumes_reached(Everything));
    }

    #[test]
    fn a_new_leader_lists_both_anew_and_in_order() {
        let lists = Lists::default();
        lists.0.classes.reached(Everything);
        lists.0.start_claims.cancel();
        begins_and_ends(|extent| drop_it(lists.claims_reached(extent)));
        begins_and_ends(|extent| {
            lists.volumes_reached(extent);
        });
        lists.begin_term();
        assert_eq!(lists.missing(), None, "a standby has listed both");
        // The informer's list of claims does not count, nor volumes that are listed before the claims.
        begins_and_ends(|extent| assert!(!lists.claims_reached(extent)));
        begins_and_ends(|extent| assert!(!lists.volumes_reached(extent)));
        lists.claims_relisted();
        assert!(
            !lists.volumes_reached(Everything),
            "this list began before the claims were listed"
        );
        let mut whole = false;
        begins_and_ends(|extent| whole = lists.volumes_reached(extent));
        assert!(whole);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_is_not_whole_after_two_minutes_is_reported() {
        let lists = Lists::default();
        lists.0.classes.reached(Everything);
        lists.0.start_claims.cancel();
        begins_and_ends(|extent| drop_it(lists.claims_reached(extent)));
        begins_and_ends(|extent| {
            lists.volumes_reached(extent);
        });
        lists.begin_term();
        assert_eq!(lists.check(), Ok(()));
        sleep(LIST_TIMEOUT).await;
        assert!(lists.check().unwrap_err().starts_with("PersistentVolumeClaims"));
    }
}
