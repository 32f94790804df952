//! Watching what the controller works on, and how far the lists are.
//!
//! Owns the order in which kinds are listed, claims whole before PersistentVolumes, and what waits for
//! that (safety rule 6). Promises that whatever a watch shows is in the books before anybody is woken
//! for it. Leaves what it means to the books.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{
    Controller, dependencies::watcher::DependencyWatcher, item::Item, provisioner::Provisioner,
    volumes::index::Wake,
};
use crate::{
    kube::{
        Extent, FirstList, Informer, InformerEvent, Scope, View,
        objects::{Claim, StorageClass, Volume},
    },
    mutations,
    mutations::Mutation,
};

/// How long the lists may take before that is reported.
const PATIENCE: Duration = Duration::from_secs(120);

/// How far the lists of each kind are. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Lists(Arc<Shared>);

#[derive(Default)]
struct Shared {
    classes: FirstList,
    claims: FirstList,
    volumes: FirstList,
    /// The lists that this process has asked for since it works.
    of_term: OfTerm,
    /// Cancelled when claims are to be listed.
    claims_wanted: CancellationToken,
    /// Cancelled when PersistentVolumes are to be listed.
    volumes_wanted: CancellationToken,
    /// Asks for another list of PersistentVolumes.
    volumes_anew: Arc<Notify>,
}

#[derive(Default)]
struct OfTerm {
    began: Mutex<Option<Instant>>,
    claims: FirstList,
    volumes: FirstList,
    /// Whether this process watched while another one worked.
    stood_by: AtomicBool,
}

impl Lists {
    /// From now on this process works. Whether it has watched before: what a standby was shown may be
    /// older than the last work of the process before, so claims and then PersistentVolumes are listed
    /// anew.
    fn begin_term(&self) -> bool {
        let Shared { of_term, claims_wanted, .. } = &*self.0;
        *of_term.began.lock() = Some(Instant::now());
        let stood_by = claims_wanted.is_cancelled();
        if stood_by {
            of_term.claims.anew();
            of_term.volumes.anew();
            of_term.stood_by.store(true, Ordering::Relaxed);
        }
        claims_wanted.cancel();
        stood_by
    }

    /// So much of the claims was shown by their watch and taken in: whether they are whole since this
    /// process works.
    fn claims_reached(&self, extent: Extent) -> bool {
        let Shared { claims, of_term, volumes_wanted, .. } = &*self.0;
        claims.reached(extent);
        if extent == Extent::Everything {
            volumes_wanted.cancel();
        }
        // Where a standby watched before, another list says so.
        let counts = of_term.began.lock().is_some() && !of_term.stood_by.load(Ordering::Relaxed);
        if counts {
            of_term.claims.reached(extent);
        }
        counts && extent == Extent::Everything
    }

    /// All claims were listed since this process works, beside their watch: PersistentVolumes are next.
    fn claims_relisted(&self) {
        let Shared { of_term, volumes_anew, .. } = &*self.0;
        of_term.claims.reached(Extent::Nothing);
        of_term.claims.reached(Extent::Everything);
        of_term.volumes.anew();
        volumes_anew.notify_one();
    }

    /// So much of the PersistentVolumes was shown and taken in: whether both kinds are whole since this
    /// process works.
    fn volumes_reached(&self, extent: Extent) -> bool {
        let Shared { volumes, of_term, .. } = &*self.0;
        volumes.reached(extent);
        of_term.volumes.reached(extent);
        extent == Extent::Everything && of_term.claims.is_whole() && of_term.volumes.is_whole()
    }

    /// The kind that is not listed yet.
    fn missing(&self) -> Option<&'static str> {
        let kinds = [
            ("StorageClasses", &self.0.classes),
            ("PersistentVolumeClaims", &self.0.claims),
            ("PersistentVolumes", &self.0.volumes),
        ];
        kinds.into_iter().find(|(_, list)| !list.is_whole()).map(|(kind, _)| kind)
    }

    /// The kind that is not listed anew though this process has worked for long.
    fn overdue(&self) -> Option<&'static str> {
        let OfTerm { began, claims, volumes, .. } = &self.0.of_term;
        let is_late = began.lock().is_some_and(|began| began.elapsed() >= PATIENCE);
        let kinds = [("PersistentVolumeClaims", claims), ("PersistentVolumes", volumes)];
        let late = kinds.into_iter().find(|(_, list)| is_late && !list.is_whole());
        late.map(|(kind, _)| kind)
    }

    /// A check of whether everything is listed; an error names what is not.
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
    /// Starts watching, claims and PersistentVolumes from [`Controller::stand_by`] or
    /// [`Controller::work`] on. `claims` is shown all claims as well, just before this controller takes
    /// them in.
    pub fn watch(&self, claims: impl Fn(&InformerEvent<Claim>) + Send + 'static) {
        self.watch_classes();
        self.watch_claims(claims);
        self.watch_volumes();
        self.look_out();
    }

    /// Keeps an eye on what claims and volumes wait for and no other watch shows.
    fn look_out(&self) {
        let queues = self.queues.clone();
        let wake = Box::new(move |item| queues.wake_items(vec![item]));
        let (client, waits) = (self.client.clone(), self.claims.waits.clone());
        let lookout = DependencyWatcher::new(client, waits, wake, self.shown.clone());
        self.tasks.spawn_critical("watch of awaited objects", lookout.run());
    }

    fn watch_classes(&self) {
        let (book, queues) = (self.claims.book.clone(), self.queues.clone());
        let wake = move |class: &str| queues.wake_claims(book.of_class(class));
        let observer = self.classes.observer(self.lists.0.classes.clone(), Box::new(wake));
        self.tasks.spawn_critical(
            "watch of StorageClasses",
            self.reflector::<StorageClass>().run(observer),
        );
    }

    fn watch_claims(&self, also: impl Fn(&InformerEvent<Claim>) + Send + 'static) {
        let (book, queues) = (self.claims.book.clone(), self.queues.clone());
        let (lists, waits) = (self.lists.clone(), self.claims.waits.clone());
        let observer = move |event: InformerEvent<Claim>| {
            also(&event);
            let extent = Extent::of(&event);
            // Whoever is gone unnoticed ceases to wait when its back-off ends.
            if let InformerEvent::Delete(claim) = &event {
                waits.forget(&Item::claim(claim.uid()));
            }
            // Others may wait for a claim that is of no interest itself: it is to be cloned.
            let waiting = waits.of_shown(&event);
            let claims = book.observe(event);
            queues.wake_items(waiting);
            // Nobody is left to mend what keeps its volume from being saved.
            let given_up = claims.iter().filter(|uid| book.is_saving(uid) && book.is_gone(uid));
            queues.wake_unsaved(given_up.cloned().collect());
            queues.wake_claims(claims);
            if lists.claims_reached(extent) {
                // Its watch follows this list.
                book.claims_listed(Some(0));
            }
        };
        let lists = self.lists.clone();
        let reflector = self.reflector::<Claim>();
        self.tasks.spawn_critical("watch of PersistentVolumeClaims", async move {
            lists.0.claims_wanted.cancelled().await;
            if mutations::is_on(Mutation::VolumesListedFirst) {
                lists.0.volumes_wanted.cancel();
                lists.0.volumes.whole().await;
            }
            reflector.run(observer).await;
        });
    }

    fn watch_volumes(&self) {
        let (book, queues) = (self.volumes.book.clone(), self.queues.clone());
        let (lists, waits) = (self.lists.clone(), self.claims.waits.clone());
        let claims_book = self.claims.book.clone();
        let observer = move |event: InformerEvent<Volume>| {
            let extent = Extent::of(&event);
            if let InformerEvent::Delete(volume) = &event {
                waits.forget(&Item::volume(volume.name()));
            }
            let Wake { volumes, adoption, claims } = book.observe(event);
            queues.wake_volumes(volumes);
            if adoption {
                queues.adoption.notify_one();
            }
            queues.wake_unsaved(claims.clone());
            queues.wake_claims(claims);
            if lists.volumes_reached(extent) {
                queues.wake_claims(claims_book.listed());
            }
        };
        let lists = self.lists.clone();
        let anew = Arc::clone(&lists.0.volumes_anew);
        let reflector = self.reflector::<Volume>().relist_when(anew);
        self.tasks.spawn_critical("watch of PersistentVolumes", async move {
            lists.0.volumes_wanted.cancelled().await;
            reflector.run(observer).await;
        });
    }

    fn reflector<V: View>(&self) -> Informer<V> {
        let random = Arc::clone(&self.random);
        Informer::new(&self.client, Scope::all(), random, &self.metrics)
    }

    /// Another process works: claims and PersistentVolumes are followed meanwhile. Nothing is written
    /// and the driver is not called.
    pub fn stand_by(&self) {
        self.lists.0.claims_wanted.cancel();
    }

    /// From now on this process works. Until claims and PersistentVolumes are listed since, each claim is
    /// looked up before its first call, and nothing is deleted.
    pub(super) fn begin_term(&self) {
        self.claims.book.begin_term();
        self.claims.provisioner.lead();
        if self.lists.begin_term() {
            self.list_claims_anew();
        }
    }

    /// Lists claims and then PersistentVolumes as they are since this process works. New claims are shown
    /// by the watch meanwhile, and served.
    fn list_claims_anew(&self) {
        let (book, queues, lists) =
            (self.claims.book.clone(), self.queues.clone(), self.lists.clone());
        let taking_in = book.clone();
        let observer = move |event| queues.wake_claims(taking_in.stands(event));
        let reflector = self.reflector::<Claim>();
        self.tasks.spawn("list of PersistentVolumeClaims", async move {
            lists.0.claims.whole().await;
            book.claims_listed(reflector.list_once(observer).await);
            lists.claims_relisted();
        });
    }

    /// DependencyIndex until volumes can be made: everything has been listed, be it by a standby.
    pub(super) async fn may_create(&self) {
        let Shared { classes, claims, volumes, .. } = &*self.lists.0;
        for list in [classes, claims, volumes] {
            list.whole().await;
        }
        self.claims.provisioner.ready_to_create().await;
    }

    /// DependencyIndex until everything has been listed since this process works: nothing is deleted before.
    pub(super) async fn may_delete(&self) {
        let Shared { classes, of_term, .. } = &*self.lists.0;
        for list in [classes, &of_term.claims, &of_term.volumes] {
            list.whole().await;
        }
        self.claims.provisioner.ready_to_delete().await;
    }

    /// Tells the users of claims that wait for a list which takes long; never returns.
    pub(super) async fn report_missing_lists(&self) {
        loop {
            sleep(PATIENCE).await;
            let Some(kind) = self.lists.missing().or_else(|| self.lists.overdue()) else {
                continue;
            };
            let why = format!(
                "{kind} are not listed yet, and nothing is asked for before: the log says why, as does /readyz"
            );
            for uid in self.claims.book.unlisted() {
                self.claims.report_waiting(&uid, &why);
            }
        }
    }

    /// DependencyIndex until all classes have been listed once.
    pub fn classes_listed(&self) -> impl Future<Output = ()> + Send + use<P> {
        let classes = self.lists.0.classes.clone();
        async move { classes.whole().await }
    }

    /// A check of whether everything has been listed; an error names what has not.
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
        assert!(lists.0.claims_wanted.is_cancelled() && !lists.0.volumes_wanted.is_cancelled());
        begins_and_ends(|extent| drop_it(lists.claims_reached(extent)));
        assert!(lists.0.volumes_wanted.is_cancelled());
        assert!(!lists.volumes_reached(Nothing) && !lists.volumes_reached(Something));
        assert!(lists.volumes_reached(Everything));
    }

    #[test]
    fn a_new_leader_lists_both_anew_and_in_order() {
        let lists = Lists::default();
        lists.0.classes.reached(Everything);
        lists.0.claims_wanted.cancel();
        begins_and_ends(|extent| drop_it(lists.claims_reached(extent)));
        begins_and_ends(|extent| {
            lists.volumes_reached(extent);
        });
        lists.begin_term();
        assert_eq!(lists.missing(), None, "a standby has listed both");
        // What the watch shows does not count, nor do volumes before the claims.
        begins_and_ends(|extent| assert!(!lists.claims_reached(extent)));
        begins_and_ends(|extent| assert!(!lists.volumes_reached(extent)));
        lists.claims_relisted();
        assert!(!lists.volumes_reached(Everything), "it began before the claims were whole");
        let mut whole = false;
        begins_and_ends(|extent| whole = lists.volumes_reached(extent));
        assert!(whole);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_is_not_whole_after_two_minutes_is_reported() {
        let lists = Lists::default();
        lists.0.classes.reached(Everything);
        lists.0.claims_wanted.cancel();
        begins_and_ends(|extent| drop_it(lists.claims_reached(extent)));
        begins_and_ends(|extent| {
            lists.volumes_reached(extent);
        });
        lists.begin_term();
        assert_eq!(lists.check(), Ok(()));
        sleep(PATIENCE).await;
        assert!(lists.check().unwrap_err().starts_with("PersistentVolumeClaims"));
    }
}
