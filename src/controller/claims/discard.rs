//! Removing a volume that cannot be used, without a PersistentVolume.
//!
//! Owns the conditions under which that is safe (safety rule 8), read live before every attempt,
//! which is several tries within two seconds: no PersistentVolume has the claim's name or the
//! volume's handle or is for the claim, none that waits to be saved has the handle either, and the
//! claim is unbound or gone. Promises that the claim is not asked for again before the volume is
//! gone, that a volume which may be somebody's is left alone, counted and told (rule 14), and that
//! its user hears what became of it. That the answer came in this process's term needs no check: what
//! is known of a leftover ends with the process.

use std::{ops::ControlFlow, time::Duration};

use super::sync::ClaimWorker;
use crate::{
    controller::{
        events::claim_key,
        limiter::Attempt,
        model::unusable_volume::UnusableVolume,
        provisioner::{Congestion, Failure, ProvisionRequest, Provisioner},
    },
    kube::{
        ApiError, Client, Name, Scope,
        objects::{Claim, View as _, Volume},
    },
    metrics::SuspectedLeak,
    mutations,
    mutations::Mutation,
    workqueue::Action,
};

/// Why a volume is not removed where what was looked up has aged since.
const LOOKED_TOO_LONG_AGO: &str = "whose volume it is was looked up more than two seconds ago, and may have changed. It is looked up again";

impl<P: Provisioner> ClaimWorker<P> {
    /// Removes what the call for `order` left, or says why it stays. The caller holds the
    /// volume's key. Like every DeleteVolume it waits for its turn, holding nothing.
    pub(crate) async fn discard(
        &self,
        uid: &str,
        order: &ProvisionRequest,
        leftover: &UnusableVolume,
        look: &mut Attempt,
    ) -> Action {
        let Some(permit) = look.permit(order.class.name(), false) else {
            return Action::AwaitChange;
        };
        let (objection, looked) = match self.objection(uid, order, leftover).await {
            Ok(found) => found,
            Err(error) => return self.not_discarded(order, leftover, &Failure::new(error)),
        };
        if let Some(objection) = objection {
            return self.suspect(uid, order, leftover, &objection);
        }
        self.open_calls.protect(uid, order).await;
        if !self.live.is_recent(looked) {
            // What it waited for is there now: the next look is followed by its call.
            return self.not_discarded(order, leftover, &Failure::new(LOOKED_TOO_LONG_AGO));
        }
        let is_safe = || self.live.is_recent(looked);
        let discarded = self.provisioner.discard(leftover, is_safe).await;
        permit.ended(discarded.as_ref().err().map_or(Congestion::Bearable, Failure::strain));
        match discarded {
            Ok(()) => {
                self.tell_failure(order, &leftover.defect);
                let wanted = self.book.discarded(uid);
                if wanted { Action::Retry } else { Action::Done }
            }
            Err(why) => self.not_discarded(order, leftover, &why),
        }
    }

    /// Why the leftover must stay, where it must, and since when that may be otherwise.
    async fn objection(
        &self,
        uid: &str,
        order: &ProvisionRequest,
        leftover: &UnusableVolume,
    ) -> Result<(Option<String>, Duration), ApiError> {
        let looked = self.live.now();
        let unseen = [Mutation::DiscardUnseen, Mutation::ConflictIsDelete];
        if unseen.into_iter().any(mutations::is_on) {
            return Ok((None, looked));
        }
        let key = self.provisioner.key(&leftover.handle);
        let same = |handle: &str| self.provisioner.key(handle) == key;
        if self.store.holds(same) {
            return Ok((Some("it is being saved for another claim".to_owned()), looked));
        }
        let stands_for_it =
            |volume: &Volume| self.provisioner.handle(volume).is_some_and(|handle| same(&handle));
        let found = objection(&self.client, uid, order, stands_for_it).await?;
        if found.is_some() || self.live.is_recent(looked) {
            return Ok((found, looked));
        }
        // To list all of them took long.
        let looked = self.live.now();
        Ok((objection_by_name(&self.client, uid, order).await?, looked))
    }

    /// Neither gone nor known to be somebody's: tried again before anything else.
    fn not_discarded(
        &self,
        order: &ProvisionRequest,
        leftover: &UnusableVolume,
        why: &Failure,
    ) -> Action {
        let told = Failure::new(format!("{}: {why}", leftover.orphaned));
        self.tell_failure(order, &told);
        Action::Retry
    }

    fn suspect(
        &self,
        uid: &str,
        order: &ProvisionRequest,
        leftover: &UnusableVolume,
        objection: &str,
    ) -> Action {
        let why = format!(
            "{}. The volume {:?} may be left at the driver: it is not deleted, as {objection}",
            leftover.defect, leftover.handle
        );
        tracing::error!(claim = %claim_key(&order.claim), uid, error = why, "suspected leak");
        self.metrics.suspected_leak(SuspectedLeak::Unusable);
        self.tell_failure(order, &Failure::new(why));
        self.book.suspected(uid);
        Action::Done
    }
}

/// Why the volume that was made for `order` must not be deleted directly, by what the API server
/// says now; `None`: it may be. `stands_for_it` is asked of every PersistentVolume.
async fn objection(
    client: &Client,
    uid: &str,
    order: &ProvisionRequest,
    stands_for_it: impl Fn(&Volume) -> bool + Send,
) -> Result<Option<String>, ApiError> {
    match objection_by_name(client, uid, order).await? {
        None => objection_among_all(client, uid, stands_for_it).await,
        found => Ok(found),
    }
}

/// The same by the PersistentVolume of its name and by its claim.
async fn objection_by_name(
    client: &Client,
    uid: &str,
    order: &ProvisionRequest,
) -> Result<Option<String>, ApiError> {
    // Where there is no name, or none that an object can bear, none has it.
    if let Ok(name) = &order.volume_name
        && let Ok(object) = Name::cluster(name)
        && exists(client.get::<Volume>(object).await)?.is_some()
    {
        return Ok(Some(format!("PersistentVolume {name:?} exists")));
    }
    let claim = Name::namespaced(order.claim.namespace(), order.claim.name())?;
    let live = exists(client.get::<Claim>(claim).await)?;
    let is_bound = live.is_some_and(|live| live.uid() == uid && !live.is_unbound());
    Ok(is_bound.then(|| "the claim is bound".to_owned()))
}

/// The same by all PersistentVolumes.
async fn objection_among_all(
    client: &Client,
    uid: &str,
    stands_for_it: impl Fn(&Volume) -> bool + Send,
) -> Result<Option<String>, ApiError> {
    // The index of handles (`handles`) can't answer this: its watch may be behind, and a missing
    // entry would cost somebody's data; nor does it know whose a volume of another handle is. A
    // list is read page by page, nothing of it is kept, and as many run at once as may delete.
    let mut owner = None;
    let look = |volume: Volume| {
        let what = if stands_for_it(&volume) {
            "has it"
        } else if volume.spec.claim_ref.as_ref().is_some_and(|claim| claim.uid == uid) {
            "is the claim's"
        } else {
            return ControlFlow::Continue(());
        };
        owner = Some(format!("PersistentVolume {:?} {what}", volume.name()));
        ControlFlow::Break(())
    };
    client.list(&Scope::all(), look).await?;
    Ok(owner)
}

/// What was read, where it exists.
fn exists<V>(read: Result<V, ApiError>) -> Result<Option<V>, ApiError> {
    match read {
        Err(error) if error.is_not_found() => Ok(None),
        read => read.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::kube::testing::{Answer, Server, client};

    fn order() -> ProvisionRequest {
        let claim = json!({"metadata": {"namespace": "ns", "name": "c", "uid": "u"}});
        ProvisionRequest {
            claim: Arc::new(serde_json::from_value(claim).unwrap()),
            class: Arc::default(),
            volume_name: Ok("pvc-u".into()),
            selected_node: None,
            withdrawn: false,
            source: None,
            topology: None,
        }
    }

    /// A server with at most one PersistentVolume of the name, one claim and some other volumes.
    fn server(named: Option<Value>, claim: Option<Value>, handles: &[&str]) -> Server {
        let volume = |handle: &&str| json!({"metadata": {"name": format!("pv-{handle}")}, "spec": {"csi": {"volumeHandle": handle}}});
        let list = json!({"metadata": {}, "items": handles.iter().map(volume).collect::<Vec<_>>()});
        let answer = |object: &Option<Value>| match object {
            Some(object) => Answer::json(200, object),
            None => Answer::refusal(404, "NotFound", "not found"),
        };
        Server::new(move |_, request| match request.url.as_str() {
            "/api/v1/persistentvolumes/pvc-u" => answer(&named),
            "/api/v1/namespaces/ns/persistentvolumeclaims/c" => answer(&claim),
            "/api/v1/persistentvolumes?limit=500" => Answer::json(200, &list),
            other => panic!("{other}"),
        })
    }

    async fn asked(server: &Server) -> Option<String> {
        objection(&client(server), "u", &order(), |volume| volume.handle() == "h").await.unwrap()
    }

    #[tokio::test]
    async fn only_what_is_nobodys_is_deleted_directly() {
        let claim = |uid: &str, volume: Option<&str>| {
            Some(json!({"metadata": {"uid": uid}, "spec": {"volumeName": volume}}))
        };
        let named = |uid: &str, handle: &str| {
            Some(json!({"spec": {"claimRef": {"uid": uid}, "csi": {"volumeHandle": handle}}}))
        };
        let table = [
            (None, None, vec![], None),
            (None, claim("u", None), vec!["a", "b"], None),
            // A successor of the same name may be bound: it is another claim.
            (None, claim("other", Some("pv")), vec![], None),
            (None, claim("u", Some("pv")), vec![], Some("the claim is bound")),
            (Some(json!({})), None, vec![], Some(r#"PersistentVolume "pvc-u" exists"#)),
            (named("u", "other"), None, vec![], Some(r#"PersistentVolume "pvc-u" exists"#)),
            (named("x", "h"), None, vec![], Some(r#"PersistentVolume "pvc-u" exists"#)),
            // A stranger's of another handle: under a cut UUID that may be the same volume.
            (named("x", "other"), None, vec![], Some(r#"PersistentVolume "pvc-u" exists"#)),
            (None, claim("u", None), vec!["a", "h"], Some(r#"PersistentVolume "pv-h" has it"#)),
        ];
        for (named, claim, handles, expected) in table {
            let server = server(named.clone(), claim.clone(), &handles);
            assert_eq!(
                asked(&server).await.as_deref(),
                expected,
                "{named:?} {claim:?} {handles:?}"
            );
        }
    }

    /// Two handles can be one volume: while the claim has any PersistentVolume, nothing is deleted.
    #[tokio::test]
    async fn another_volume_of_the_claim_protects_the_leftover() {
        let other = json!({"metadata": {"name": "old-u"}, "spec": {
            "csi": {"volumeHandle": "alias"}, "claimRef": {"uid": "u"}}});
        let server = Server::new(move |_, request| match request.url.as_str() {
            "/api/v1/persistentvolumes?limit=500" => {
                Answer::json(200, &json!({"metadata": {}, "items": [other]}))
            }
            _ => Answer::refusal(404, "NotFound", "not found"),
        });
        let expected = r#"PersistentVolume "old-u" is the claim's"#;
        assert_eq!(asked(&server).await.as_deref(), Some(expected));
    }

    /// `--volume-name-prefix=a/b`: the PersistentVolume is refused, and its volume must not stay.
    #[tokio::test]
    async fn a_name_that_no_object_can_bear_protects_nothing() {
        let server = server(None, None, &["a"]);
        let order = ProvisionRequest { volume_name: Ok("a/b-u".into()), ..order() };
        assert_eq!(objection(&client(&server), "u", &order, |_| false).await.unwrap(), None);
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_no_permission() {
        for broken in 0..3 {
            let server = Server::new(move |number, _| match number {
                n if n == broken => Answer::refusal(403, "Forbidden", "no"),
                0 | 1 => Answer::refusal(404, "NotFound", "not found"),
                _ => Answer::json(200, &json!({"metadata": {}, "items": []})),
            });
            assert!(
                objection(&client(&server), "u", &order(), |_| false).await.is_err(),
                "{broken}"
            );
        }
    }
}
