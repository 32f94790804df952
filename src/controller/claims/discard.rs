//! Removes an unusable volume directly, without a PersistentVolume.
//!
//! That is safe only if the volume is nobody's (safety rule 8). Live reads before each attempt,
//! which is several tries within two seconds, must show that
//!
//! * no PersistentVolume has the claim's volume name or the volume's handle, or is for the claim,
//! * no volume with this handle waits to be saved,
//! * the claim is unbound or gone.
//!
//! Nor must this process have seen a PersistentVolume of the claim that is gone by now: what was written to the
//! volume through that may be wanted.
//!
//! No call is made for the claim before the volume is removed. A volume that may be somebody's is
//! left alone and reported as a suspected leak (safety rule 14). An event says what became of
//! it. An unusable volume is known only to the process that made it, so the volume is always of
//! this process's term.

use std::{ops::ControlFlow, time::Duration};

use super::{
    index::{ClaimGuard, KnownClaim},
    state::Transition,
    worker::ClaimWorker,
};
use crate::{
    controller::{
        events::claim_key,
        live::is_recent,
        model::unusable_volume::UnusableVolume,
        provisioner::{Failure, ProvisionRequest, Provisioner},
    },
    kube::{
        ApiError, Client, Name, Scope,
        objects::{Claim, View as _, Volume},
    },
    metrics::SuspectedLeak,
    workqueue::Action,
};

/// Why a volume is not removed if the live reads are too old.
const READ_TOO_LONG_AGO: &str = "whose volume it is was looked up more than two seconds ago, and may have changed. It is looked up again";

/// The result of live reads.
struct LiveReads {
    /// When the first of them began.
    began: Duration,
    /// Why the volume must stay, if it must.
    objection: Option<String>,
}

impl<P: Provisioner> ClaimWorker<P> {
    /// Removes the unusable volume that the call with `request` made, or reports why it stays.
    pub(crate) async fn discard(
        &self,
        held: &ClaimGuard,
        request: &ProvisionRequest,
        unusable: &UnusableVolume,
    ) -> Action {
        let reads = match self.read_objection(held, request, unusable).await {
            Ok(reads) => reads,
            Err(error) => return self.retry_discard(request, unusable, &Failure::new(error)),
        };
        if let Some(objection) = reads.objection {
            return self.leave_alone(held, request, unusable, &objection);
        }
        self.protect(held, request).await;
        if !is_recent(&*self.deps.clock, reads.began) {
            // The record is written now, so the next attempt is faster.
            return self.retry_discard(request, unusable, &Failure::new(READ_TOO_LONG_AGO));
        }
        let is_safe = || is_recent(&*self.deps.clock, reads.began);
        let discarded = self.deps.provisioner.discard(unusable, is_safe).await;
        match discarded {
            Ok(()) => {
                self.report_failure(request, &unusable.defect);
                held.update(|it| it.advance(Transition::Discarded));
                if held.is(KnownClaim::is_wanted) { Action::Retry } else { Action::Done }
            }
            Err(why) => self.retry_discard(request, unusable, &why),
        }
    }

    /// Reads live whether the volume must stay.
    async fn read_objection(
        &self,
        held: &ClaimGuard,
        request: &ProvisionRequest,
        unusable: &UnusableVolume,
    ) -> Result<LiveReads, ApiError> {
        let began = self.deps.clock.boot();
        if held.has_had_volume() {
            let objection = Some("the claim has had a PersistentVolume, perhaps of it".to_owned());
            return Ok(LiveReads { began, objection });
        }
        let handle = &unusable.handle;
        if self.index.any_unsaved(|unsaved| unsaved.handle == *handle) {
            let objection = Some("it is being saved for another claim".to_owned());
            return Ok(LiveReads { began, objection });
        }
        let is_of_volume =
            |volume: &Volume| self.deps.provisioner.handle(volume).is_some_and(|it| it == *handle);
        let objection = objection(&self.deps.client, held.uid(), request, is_of_volume).await?;
        if objection.is_some() || is_recent(&*self.deps.clock, began) {
            return Ok(LiveReads { began, objection });
        }
        // The list took so long that the first reads are too old.
        let began = self.deps.clock.boot();
        let objection = objection_by_name(&self.deps.client, held.uid(), request).await?;
        Ok(LiveReads { began, objection })
    }

    /// Reports why the volume could not be removed, and tries again before anything else.
    fn retry_discard(
        &self,
        request: &ProvisionRequest,
        unusable: &UnusableVolume,
        why: &Failure,
    ) -> Action {
        let failure = Failure::new(format!("{}: {why}", unusable.orphaned));
        self.report_failure(request, &failure);
        Action::Retry
    }

    /// Leaves the volume alone and reports a suspected leak.
    fn leave_alone(
        &self,
        held: &ClaimGuard,
        request: &ProvisionRequest,
        unusable: &UnusableVolume,
        objection: &str,
    ) -> Action {
        let why = format!(
            "{}. The volume {:?} may be left at the driver: it is not deleted, as {objection}",
            unusable.defect, unusable.handle
        );
        tracing::error!(claim = %claim_key(&request.claim), uid = &**held.uid(), error = why, "suspected leak");
        self.deps.metrics.controller.suspected_leak(SuspectedLeak::UNUSABLE);
        self.report_failure(request, &Failure::new(why));
        held.update(|it| it.advance(Transition::LeakSuspected));
        Action::Done
    }
}

/// Returns why the volume that was made for `request` must not be deleted directly, by what the API
/// server says now. `None`: it may be. `is_of_volume` returns whether a PersistentVolume has the
/// volume.
async fn objection(
    client: &Client,
    uid: &str,
    request: &ProvisionRequest,
    is_of_volume: impl Fn(&Volume) -> bool + Send,
) -> Result<Option<String>, ApiError> {
    match objection_by_name(client, uid, request).await? {
        None => objection_among_all(client, uid, is_of_volume).await,
        found => Ok(found),
    }
}

/// Looks for an objection in the PersistentVolume of the volume's name and in the claim.
async fn objection_by_name(
    client: &Client,
    uid: &str,
    request: &ProvisionRequest,
) -> Result<Option<String>, ApiError> {
    // If there is no name, or it is not a valid object name, no PersistentVolume has it.
    if let Ok(name) = &request.volume_name
        && let Ok(object) = Name::cluster(name)
        && client.get_opt::<Volume>(object).await?.is_some()
    {
        return Ok(Some(format!("PersistentVolume {name:?} exists")));
    }
    let claim = Name::namespaced(request.claim.namespace(), request.claim.name())?;
    let live = client.get_opt::<Claim>(claim).await?;
    let is_bound = live.is_some_and(|live| live.uid() == uid && !live.is_unbound());
    Ok(is_bound.then(|| "the claim is bound".to_owned()))
}

/// Looks for an objection in all PersistentVolumes.
async fn objection_among_all(
    client: &Client,
    uid: &str,
    is_of_volume: impl Fn(&Volume) -> bool + Send,
) -> Result<Option<String>, ApiError> {
    // The index of handles (`volumes::handles`) cannot answer this: its watch may be behind, and a
    // missing entry would cost somebody's data. Nor does it know the claims of other handles. The
    // list is read page by page and not kept.
    let mut owner = None;
    let visit = |volume: Volume| {
        let what = if is_of_volume(&volume) {
            "has it"
        } else if volume.spec.claim_ref.as_ref().is_some_and(|claim| claim.uid == uid) {
            "is the claim's"
        } else {
            return ControlFlow::Continue(());
        };
        owner = Some(format!("PersistentVolume {:?} {what}", volume.name()));
        ControlFlow::Break(())
    };
    client.list(&Scope::all(), visit).await?;
    Ok(owner)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::kube::testing::{Answer, Server, client};

    fn request() -> ProvisionRequest {
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
            "/api/v1/persistentvolumes?&limit=500" => Answer::json(200, &list),
            other => panic!("{other}"),
        })
    }

    async fn objection_by(server: &Server) -> Option<String> {
        objection(&client(server), "u", &request(), |volume| volume.source_id() == "h")
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn only_a_volume_that_nobody_has_is_deleted_directly() {
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
            // Another claim's with another handle: with a shortened UUID that may be the same
            // volume.
            (named("x", "other"), None, vec![], Some(r#"PersistentVolume "pvc-u" exists"#)),
            (None, claim("u", None), vec!["a", "h"], Some(r#"PersistentVolume "pv-h" has it"#)),
        ];
        for (named, claim, handles, expected) in table {
            let server = server(named.clone(), claim.clone(), &handles);
            assert_eq!(
                objection_by(&server).await.as_deref(),
                expected,
                "{named:?} {claim:?} {handles:?}"
            );
        }
    }

    /// Two handles can be one volume: while the claim has any PersistentVolume, nothing is deleted.
    #[tokio::test]
    async fn another_volume_of_the_claim_prevents_the_deletion() {
        let other = json!({"metadata": {"name": "old-u"}, "spec": {
            "csi": {"volumeHandle": "alias"}, "claimRef": {"uid": "u"}}});
        let server = Server::new(move |_, request| match request.url.as_str() {
            "/api/v1/persistentvolumes?&limit=500" => {
                Answer::json(200, &json!({"metadata": {}, "items": [other]}))
            }
            _ => Answer::refusal(404, "NotFound", "not found"),
        });
        let expected = r#"PersistentVolume "old-u" is the claim's"#;
        assert_eq!(objection_by(&server).await.as_deref(), Some(expected));
    }

    /// `--volume-name-prefix=a/b`: the PersistentVolume is refused, and its volume must not stay.
    #[tokio::test]
    async fn an_invalid_object_name_does_not_prevent_the_deletion() {
        let server = server(None, None, &["a"]);
        let request = ProvisionRequest { volume_name: Ok("a/b-u".into()), ..request() };
        assert_eq!(objection(&client(&server), "u", &request, |_| false).await.unwrap(), None);
    }

    #[tokio::test]
    async fn nothing_is_deleted_after_a_failed_read() {
        for broken in 0..3 {
            let server = Server::new(move |number, _| match number {
                n if n == broken => Answer::refusal(403, "Forbidden", "no"),
                0 | 1 => Answer::refusal(404, "NotFound", "not found"),
                _ => Answer::json(200, &json!({"metadata": {}, "items": []})),
            });
            assert!(
                objection(&client(&server), "u", &request(), |_| false).await.is_err(),
                "{broken}"
            );
        }
    }
}
