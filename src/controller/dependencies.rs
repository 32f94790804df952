//! Which claims wait for which API objects, such as a missing Secret or a VolumeSnapshot that is not ready.
//!
//! An attempt that fails before its call because of an object registers that object as a [`Dependency`] of
//! its claim. Objects of kinds that are watched as a whole wake their claims. For all others the claim's own
//! retry is the poll: its back-off is limited by [`DependencyIndex::poll_within`] while its wait is young.
//!
//! Nothing is read, watched or queued here. What a namespace's user can change wakes claims of that
//! namespace only, costs in the long run at most one attempt of them in `NAMESPACE_INTERVAL`, however often
//! he changes it and however many wait, and never resets a back-off.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::Key;
use crate::kube::{
    InformerEvent, Kind, View,
    objects::{Claim, CsiNode, Node},
};

/// For this long after a claim began to wait, it is tried again every [`YOUNG_POLL`].
const YOUNG: Duration = Duration::from_secs(600);

/// The longest time between two attempts of a claim whose wait is young.
const YOUNG_POLL: Duration = Duration::from_secs(15);

/// The longest time between two attempts of a claim that has waited for long.
const OLD_POLL: Duration = Duration::from_secs(300);

/// The waiting claims of one namespace together are tried no more often than this.
const NAMESPACE_INTERVAL: Duration = Duration::from_millis(100);

/// An object that an attempt did not find, or found not ready: one by name, or any of a kind, optionally in
/// one namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dependency {
    /// The object's kind.
    pub kind: &'static Kind,
    /// The object's namespace, for namespaced kinds.
    pub namespace: Option<String>,
    /// The object's name. Without one, any object of the kind counts, in `namespace` if that is set.
    pub name: Option<String>,
}

impl Dependency {
    /// The object `name` of the kind that `V` reads; `namespace` is set for namespaced kinds.
    pub fn object<V: View>(namespace: Option<&str>, name: &str) -> Self {
        let namespace = namespace.map(str::to_owned);
        Self { kind: V::API, namespace, name: Some(name.to_owned()) }
    }

    /// Any object of the kind that `V` reads.
    pub fn any<V: View>() -> Self {
        Self { kind: V::API, namespace: None, name: None }
    }

    /// Any object of the kind that `V` reads, in `namespace`.
    pub fn any_in<V: View>(namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..Self::any::<V>() }
    }

    /// Whether each change of the object wakes the claims that wait for it: it is watched, and no user of a
    /// namespace writes it.
    fn wakes_at_once(&self) -> bool {
        self.kind == Node::API || self.kind == CsiNode::API
    }

    /// Whether this is `object`, or any object of such a kind and namespace.
    fn covers(&self, object: &Self) -> bool {
        self.kind == object.kind
            && (self.namespace.is_none() || self.namespace == object.namespace)
            && (self.name.is_none() || self.name == object.name)
    }
}

/// Which claims wait for which objects. Clones share one index.
#[derive(Debug, Clone, Default)]
pub struct DependencyIndex(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    claims: BTreeMap<Key, Wait>,
    /// Each claim that others wait for, with each of these.
    sources: BTreeSet<(Dependency, Key)>,
    /// How many claims of a namespace wait.
    namespaces: BTreeMap<String, u32>,
}

/// What one claim waits for.
#[derive(Debug)]
struct Wait {
    objects: Box<[Dependency]>,
    /// The claim's namespace.
    namespace: String,
    since: Instant,
    /// When a change that a user can make woke the claim last, or wakes it next.
    woken: Option<Instant>,
}

impl DependencyIndex {
    /// Registers that the claim `uid` of `namespace` waits for these objects, and for no others.
    pub fn wait(&self, uid: &Key, namespace: &str, dependencies: &[Dependency]) {
        let mut waiting = self.0.lock();
        let before = waiting.remove(uid);
        if dependencies.is_empty() {
            return;
        }
        let sources = dependencies.iter().filter(|it| it.kind == Claim::API);
        waiting.sources.extend(sources.map(|it| (it.clone(), uid.clone())));
        let (objects, namespace) = (dependencies.into(), namespace.to_owned());
        *waiting.namespaces.entry(namespace.clone()).or_default() += 1;
        let (since, woken) =
            before.map_or_else(|| (Instant::now(), None), |it| (it.since, it.woken));
        waiting.claims.insert(uid.clone(), Wait { objects, namespace, since, woken });
    }

    /// Removes the claim `uid`: it waits for nothing any more.
    pub fn forget(&self, uid: &Key) {
        self.0.lock().remove(uid);
    }

    /// Within which time the claim is to be tried again, although its back-off may be longer; `None` if no
    /// attempt is due before an event wakes it.
    pub fn poll_within(&self, uid: &Key) -> Option<Duration> {
        let waiting = self.0.lock();
        let wait = waiting.claims.get(uid)?;
        if wait.objects.iter().all(Dependency::wakes_at_once) {
            return None;
        }
        let poll = if wait.since.elapsed() < YOUNG { YOUNG_POLL } else { OLD_POLL };
        let poll = poll.max(wait.share(&waiting.namespaces));
        // An attempt before the wake may have read what was there before the change.
        Some(wait.until_wake().map_or(poll, |wake| wake.min(poll)))
    }

    /// Whether the claim has waited for at least `time`.
    pub(super) fn has_waited(&self, uid: &Key, time: Duration) -> bool {
        self.0.lock().claims.get(uid).is_some_and(|wait| wait.since.elapsed() >= time)
    }

    /// Returns the claims that wait for this object, and after which time to try them. If users can change the
    /// object, claims of other namespaces are left out, and those that such a change woke not long ago come later:
    /// kube-controller-manager binds a claim by two writes, and the second one says that it is bound. Those that are
    /// to come already are left out.
    pub fn waiting_for(&self, object: &Dependency) -> Vec<(Key, Duration)> {
        let is_trusted = object.wakes_at_once();
        let mut waiting = self.0.lock();
        let uids = waiting.awaiting(object);
        let Waiting { claims, namespaces, .. } = &mut *waiting;
        let mut delay = |uid: &Key| {
            let wait = claims.get_mut(uid)?;
            if is_trusted {
                return Some(Duration::ZERO);
            }
            let is_reached = object.namespace.as_ref() == Some(&wait.namespace);
            if is_reached { wait.wake(namespaces) } else { None }
        };
        uids.into_iter().filter_map(|uid| Some((uid.clone(), delay(&uid)?))).collect()
    }

    /// Returns the claims that wait for the claim that `event` adds or changes, as
    /// [`DependencyIndex::waiting_for`]. A claim in a list wakes nothing: their next attempt is not far.
    pub(super) fn waiting_for_claim(&self, event: &InformerEvent<Claim>) -> Vec<(Key, Duration)> {
        let InformerEvent::Apply(claim) = event else { return Vec::new() };
        // Usually no claim of its namespace waits.
        if !self.0.lock().namespaces.contains_key(claim.namespace()) {
            return Vec::new();
        }
        self.waiting_for(&Dependency::object::<Claim>(Some(claim.namespace()), claim.name()))
    }

    /// The number of objects that claims wait for, by resource.
    pub fn count_by_resource(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        let waiting = self.0.lock();
        let objects: BTreeSet<_> = waiting.claims.values().flat_map(|wait| &wait.objects).collect();
        for object in objects {
            *counts.entry(object.kind.resource()).or_default() += 1;
        }
        counts
    }
}

impl Waiting {
    /// The claims that have registered this object, or any of its kind. All are looked at, but for a claim, which
    /// users change as often as they like: it is always registered by its name.
    fn awaiting(&self, object: &Dependency) -> Vec<Key> {
        if object.kind == Claim::API {
            let first = (object.clone(), Key::from(""));
            let of_source = self.sources.range(first..).take_while(|(it, _)| it == object);
            return of_source.map(|(_, uid)| uid.clone()).collect();
        }
        let covers = |wait: &Wait| wait.objects.iter().any(|it| it.covers(object));
        let awaiting = self.claims.iter().filter(|(_, wait)| covers(wait));
        awaiting.map(|(uid, _)| uid.clone()).collect()
    }

    /// Removes the claim. Returns for what it has waited.
    fn remove(&mut self, uid: &Key) -> Option<Wait> {
        let wait = self.claims.remove(uid)?;
        for object in &wait.objects {
            self.sources.remove(&(object.clone(), uid.clone()));
        }
        if let Some(count) = self.namespaces.get_mut(&wait.namespace) {
            *count -= 1;
            if *count == 0 {
                self.namespaces.remove(&wait.namespace);
            }
        }
        Some(wait)
    }
}

impl Wait {
    /// The time between two attempts of the claim, if all of its namespace are tried in turn.
    fn share(&self, namespaces: &BTreeMap<String, u32>) -> Duration {
        let count = namespaces.get(&self.namespace).copied().unwrap_or_default();
        NAMESPACE_INTERVAL.saturating_mul(count)
    }

    /// A change that a user of the namespace can make wakes the claim. Returns after which time; `None` if it is to
    /// be woken already.
    fn wake(&mut self, namespaces: &BTreeMap<String, u32>) -> Option<Duration> {
        if self.until_wake().is_some() {
            return None;
        }
        let (now, pause) = (Instant::now(), self.share(namespaces).max(YOUNG_POLL));
        let next = self.woken.map_or(now, |last| now.max(last + pause));
        self.woken = Some(next);
        Some(next - now)
    }

    /// In which time the claim is woken, if that is to come.
    fn until_wake(&self) -> Option<Duration> {
        self.woken?.checked_duration_since(Instant::now()).filter(|wake| !wake.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::kube::objects::Secret;

    fn secret(name: &str) -> Dependency {
        Dependency::object::<Secret>(Some("ns"), name)
    }

    fn source() -> Dependency {
        Dependency::object::<Claim>(Some("ns"), "source")
    }

    fn woken_at_once(index: &DependencyIndex, object: &Dependency) -> Vec<Key> {
        let woken = index.waiting_for(object);
        woken.into_iter().filter(|(_, delay)| delay.is_zero()).map(|(uid, _)| uid).collect()
    }

    fn claims(names: &[&str]) -> Vec<Key> {
        names.iter().copied().map(Key::from).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn claims_wait_for_what_they_registered_last() {
        let index = DependencyIndex::default();
        let [a, b] = ["a", "b"].map(Key::from);
        let node = Dependency::object::<Node>(None, "node");
        index.wait(&a, "ns", &[node.clone(), secret("s"), source()]);
        index.wait(&b, "ns", &[Dependency::any::<Node>()]);
        assert_eq!(woken_at_once(&index, &node), claims(&["a", "b"]));
        let other = Dependency::object::<Node>(None, "other");
        assert_eq!(woken_at_once(&index, &other), claims(&["b"]));
        let counts = index.count_by_resource();
        assert_eq!(counts.values().sum::<usize>(), 4, "{counts:?}");
        index.wait(&a, "ns", &[secret("s")]);
        assert_eq!(woken_at_once(&index, &node), claims(&["b"]));
        index.forget(&a);
        index.wait(&b, "ns", &[]);
        assert!(index.waiting_for(&node).is_empty() && index.count_by_resource().is_empty());
        let Waiting { claims, sources, namespaces } = &*index.0.lock();
        assert!(claims.is_empty() && sources.is_empty() && namespaces.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_of_many_waits_is_polled_seldom_and_others_are_not() {
        let index = DependencyIndex::default();
        for number in 0..5000 {
            index.wait(&number.to_string().into(), "many", &[secret("s")]);
        }
        index.wait(&"other".into(), "one", &[secret("s")]);
        let of = |name: &str| index.poll_within(&name.into());
        assert_eq!(of("17"), Some(Duration::from_secs(500)));
        assert_eq!(of("other"), Some(YOUNG_POLL));
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_changes_all_the_time_wakes_each_claim_in_its_turn() {
        let index = DependencyIndex::default();
        for number in 0..1000 {
            index.wait(&number.to_string().into(), "ns", &[source()]);
        }
        let (mut woken, mut scheduled) = (0, BTreeMap::<Key, Instant>::new());
        // 50 changes a second for 300 seconds.
        for _ in 0..15_000 {
            let now = Instant::now();
            scheduled.retain(|uid, due| {
                let is_due = *due <= now;
                if is_due {
                    // Its attempt fails, and it waits again.
                    woken += 1;
                    index.wait(uid, "ns", &[source()]);
                }
                !is_due
            });
            for (uid, delay) in index.waiting_for(&source()) {
                scheduled.entry(uid).or_insert(now + delay);
            }
            advance(Duration::from_millis(20)).await;
        }
        assert_eq!(woken, 3000, "each of them once in 100 seconds");
    }

    /// The first of two changes has not brought what the claim waits for.
    #[tokio::test(start_paused = true)]
    async fn a_change_soon_after_another_wakes_the_claim_later() {
        let (index, own) = (DependencyIndex::default(), Key::from("own"));
        index.wait(&own, "ns", &[source()]);
        assert_eq!(index.waiting_for(&source()), [(own.clone(), Duration::ZERO)]);
        let second = Duration::from_secs(1);
        advance(YOUNG + second).await;
        assert_eq!(index.waiting_for(&source()), [(own.clone(), Duration::ZERO)]);
        advance(second).await;
        assert_eq!(
            index.waiting_for(&source()),
            [(own.clone(), YOUNG_POLL.saturating_sub(second))]
        );
        assert_eq!(index.waiting_for(&source()), [], "it is to come");
        // An attempt of its own comes before, and may read what was there before the change.
        advance(second).await;
        index.wait(&own, "ns", &[source()]);
        assert_eq!(index.poll_within(&own), Some(YOUNG_POLL.saturating_sub(second * 2)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_wakes_only_claims_of_his_namespace() {
        let index = DependencyIndex::default();
        index.wait(&"own".into(), "ns", &[source()]);
        index.wait(&"others".into(), "elsewhere", &[source()]);
        assert_eq!(index.waiting_for(&source()), [("own".into(), Duration::ZERO)]);
    }
}
