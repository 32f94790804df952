//! Watching what the controller works on, and how far the first lists are.
//!
//! Owns the order in which kinds are listed and what waits for that. Promises that whatever a watch
//! shows is in the books before anybody is woken for it. Leaves what it means to the books.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{
    Controller, item::Item, lookout::Lookout, provisioner::Provisioner, volume_book::Wake,
};
use crate::{
    kube_api::{
        Extent, FirstList, Reflector, Scope, Sighting, View, reflector,
        views::{Claim, StorageClass, Volume},
    },
    mutations::{self, Mutation},
};

/// How far the first list of each kind is.
#[derive(Default)]
pub(super) struct Lists {
    pub(super) classes: FirstList,
    pub(super) claims: FirstList,
    pub(super) volumes: FirstList,
    /// Cancelled when claims and PersistentVolumes are to be listed.
    pub(super) wanted: CancellationToken,
    /// Asks for another list of claims.
    pub(super) claims_anew: Arc<Notify>,
    /// Asks for another list of PersistentVolumes.
    pub(super) volumes_anew: Arc<Notify>,
}

impl<P: Provisioner> Controller<P> {
    /// Starts watching, claims and PersistentVolumes from [`Controller::stand_by`] or
    /// [`Controller::work`] on. `claims` is shown all claims as well, just before this controller takes
    /// them in.
    pub fn watch(&self, claims: impl Fn(&Sighting<Claim>) + Send + 'static) {
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
        let lookout = Lookout::new(client, waits, wake, self.shown.clone());
        self.tasks.vital("watch of awaited objects", lookout.run());
    }

    fn watch_classes(&self) {
        let (book, queues) = (self.claims.book.clone(), self.queues.clone());
        let wake = move |class: &str| queues.wake_claims(book.of_class(class));
        let observer = self.classes.observer(self.lists.classes.clone(), Box::new(wake));
        self.tasks.vital("watch of StorageClasses", self.reflector::<StorageClass>().run(observer));
    }

    fn watch_claims(&self, also: impl Fn(&Sighting<Claim>) + Send + 'static) {
        let (book, queues) = (self.claims.book.clone(), self.queues.clone());
        let (first_list, waits) = (self.lists.claims.clone(), self.claims.waits.clone());
        let freshness = self.claims.freshness.clone();
        let observer = move |sighting: Sighting<Claim>| {
            also(&sighting);
            if matches!(sighting, Sighting::Restarted) {
                book.claims_asked(freshness.now());
            }
            let extent = Extent::of(&sighting);
            // Whoever is gone unnoticed ceases to wait when its back-off ends.
            if let Sighting::Deleted(claim) = &sighting {
                waits.forget(&Item::claim(claim.uid()));
            }
            // Others may wait for a claim that is of no interest itself: it is to be cloned.
            let waiting = waits.of_shown(&sighting);
            let claims = book.observe(sighting);
            queues.wake_items(waiting);
            // Nobody is left to mend what keeps its volume from being saved.
            let given_up = claims.iter().filter(|uid| book.is_saving(uid) && book.is_gone(uid));
            queues.wake_unsaved(given_up.cloned().collect());
            queues.wake_claims(claims);
            first_list.reached(extent);
        };
        // New claims are served while the old ones are listed, however many these are.
        let reflector = self.reflector_of_many::<Claim>().anew_when(self.lists.claims_anew.clone());
        let (volumes, wanted) = (self.lists.volumes.clone(), self.lists.wanted.clone());
        self.tasks.vital("watch of PersistentVolumeClaims", async move {
            wanted.cancelled().await;
            if mutations::is_on(Mutation::VolumesListedFirst) {
                volumes.whole().await;
            }
            reflector.run_overlapped(observer).await;
        });
    }

    fn watch_volumes(&self) {
        let (book, queues) = (self.volumes.book.clone(), self.queues.clone());
        let (first_list, waits) = (self.lists.volumes.clone(), self.claims.waits.clone());
        let observer = move |sighting: Sighting<Volume>| {
            let extent = Extent::of(&sighting);
            if let Sighting::Deleted(volume) = &sighting {
                waits.forget(&Item::volume(volume.name()));
            }
            let Wake { volumes, adoption, claims } = book.observe(sighting);
            queues.wake_volumes(volumes);
            if adoption {
                queues.adoption.notify_one();
            }
            queues.wake_unsaved(claims.clone());
            queues.wake_claims(claims);
            first_list.reached(extent);
        };
        let reflector =
            self.reflector_of_many::<Volume>().anew_when(self.lists.volumes_anew.clone());
        let wanted = self.lists.wanted.clone();
        self.tasks.vital("watch of PersistentVolumes", async move {
            wanted.cancelled().await;
            reflector.run_overlapped(observer).await;
        });
    }

    fn reflector<V: View>(&self) -> Reflector<V> {
        self.reflector_as(reflector::Settings::default())
    }

    /// Of a kind of which a cluster may hold a hundred thousand.
    fn reflector_of_many<V: View>(&self) -> Reflector<V> {
        self.reflector_as(reflector::Settings::of_many())
    }

    fn reflector_as<V: View>(&self, settings: reflector::Settings) -> Reflector<V> {
        let random = Arc::clone(&self.random);
        Reflector::new(&self.client, Scope::all(), settings, random, &self.metrics)
    }

    /// Another process works: claims and PersistentVolumes are followed meanwhile. Nothing is written
    /// and the driver is not called.
    pub fn stand_by(&self) {
        self.lists.wanted.cancel();
    }

    /// From now on this process works. What a standby was shown may be older than the last work of the
    /// process before: all that tells who has a volume is listed anew.
    pub(super) fn begin_term(&self) {
        if self.lists.wanted.is_cancelled() {
            self.claims.book.take_over();
            self.lists.claims_anew.notify_one();
            self.lists.volumes_anew.notify_one();
        } else {
            self.claims.book.start_working();
            self.lists.wanted.cancel();
        }
    }

    /// Waits until volumes can be made for claims that nothing else keeps waiting. As in the original
    /// that is never where we may not list the volumes; but nobody waits for the end of their list.
    pub(super) async fn may_create(&self) {
        self.lists.classes.whole().await;
        self.lists.volumes.begun().await;
        self.claims.provisioner.ready_to_create().await;
    }

    /// Waits until everything has been listed once: nothing is deleted before.
    pub(super) async fn may_delete(&self) {
        for list in [&self.lists.classes, &self.lists.claims, &self.lists.volumes] {
            list.whole().await;
        }
        self.claims.provisioner.ready_to_delete().await;
    }

    /// Waits until all classes have been listed once.
    pub fn classes_listed(&self) -> impl Future<Output = ()> + Send + use<P> {
        let classes = self.lists.classes.clone();
        async move { classes.whole().await }
    }

    /// A check of whether everything has been listed once; an error names what has not.
    pub fn readiness(&self) -> impl Fn() -> Result<(), String> + Send + Sync + use<P> {
        let kinds = [
            ("StorageClasses", self.lists.classes.clone()),
            ("PersistentVolumeClaims", self.lists.claims.clone()),
            ("PersistentVolumes", self.lists.volumes.clone()),
        ];
        move || match kinds.iter().find(|(_, list)| !list.is_whole()) {
            None => Ok(()),
            Some((kind, _)) => Err(format!("{kind} are not listed yet")),
        }
    }
}
