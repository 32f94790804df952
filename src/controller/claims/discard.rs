//! Removes an unusable volume directly, without a PersistentVolume.
//!
//! That is safe only if the volume is nobody's (safety rule 8). Live reads before each attempt
//! (several tries within two seconds) must show that
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
//! it. Only the process that made an unusable volume knows it, so no volume of an earlier term comes here.
//!
//! A user can have thousands of volumes discarded: one list of all PersistentVolumes serves all who have asked
//! before it began.

use std::{collections::BTreeMap, ops::ControlFlow, time::Duration};

use parking_lot::Mutex;

use super::{
    index::{ClaimGuard, KnownClaim, claim_uid},
    state::Transition,
    worker::ClaimWorker,
};
use crate::{
    controller::{
        Key,
        events::claim_key,
        live::is_recent,
        model::{unusable_volume::UnusableVolume, volume_handle::VolumeHandle},
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

/// The lists of all PersistentVolumes.
#[derive(Debug, Default)]
pub struct VolumeLists {
    asked: Mutex<Asked>,
    /// Locked by the one who lists.
    turn: tokio::sync::Mutex<()>,
}

/// By the UIDs of claims.
#[derive(Debug, Default)]
struct Asked {
    /// The volumes that the next list is for.
    wanted: BTreeMap<Key, VolumeHandle>,
    /// What the last list has found for others than its caller.
    found: BTreeMap<Key, Option<String>>,
}

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
        self.protect(held, request).await;
        let reads = match self.read_objection(held, request, unusable).await {
            Ok(reads) => reads,
            Err(error) => return self.retry_discard(request, unusable, &Failure::new(error)),
        };
        // Once more what costs nothing: the reads may have taken long.
        let known = || self.objection_by_memory(held, &unusable.handle);
        if let Some(objection) = reads.objection.or_else(known) {
            return self.leave_alone(held, request, unusable, &objection);
        }
        if !is_recent(&*self.deps.clock, reads.began) {
            return self.retry_discard(request, unusable, &Failure::new(READ_TOO_LONG_AGO));
        }
        let is_safe = || is_recent(&*self.deps.clock, reads.began);
        let discarded = self.deps.provisioner.discard(request, unusable, is_safe).await;
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
        let objection = self.objection_by_memory(held, &unusable.handle);
        if objection.is_some() {
            return Ok(LiveReads { began, objection });
        }
        let client = &self.deps.client;
        let objection = match objection_by_name(client, held.uid(), request).await? {
            None => self.objection_among_all(held.uid(), &unusable.handle).await?,
            found => found,
        };
        if objection.is_some() || is_recent(&*self.deps.clock, began) {
            return Ok(LiveReads { began, objection });
        }
        // The list took so long that the first reads are too old.
        let began = self.deps.clock.boot();
        let objection = objection_by_name(client, held.uid(), request).await?;
        Ok(LiveReads { began, objection })
    }

    /// Looks for an objection in what this process knows.
    fn objection_by_memory(&self, held: &ClaimGuard, handle: &VolumeHandle) -> Option<String> {
        if held.has_had_volume() {
            return Some("the claim has had a PersistentVolume, perhaps of it".to_owned());
        }
        let is_unsaved = self.index.any_unsaved(|unsaved| unsaved.handle == *handle);
        is_unsaved.then(|| "it is being saved for another claim".to_owned())
    }

    /// Looks for an objection in all PersistentVolumes, by a list that begins after this is called.
    async fn objection_among_all(
        &self,
        uid: &Key,
        handle: &VolumeHandle,
    ) -> Result<Option<String>, ApiError> {
        let VolumeLists { asked, turn } = &self.volume_lists;
        {
            let mut asked = asked.lock();
            // Nobody has come for it.
            asked.found.remove(uid);
            asked.wanted.insert(Key::clone(uid), handle.clone());
        }
        let _turn = turn.lock().await;
        let wanted = {
            let mut asked = asked.lock();
            if let Some(found) = asked.found.remove(uid) {
                return Ok(found);
            }
            // Whoever listed before may have been dropped with it.
            asked.wanted.insert(Key::clone(uid), handle.clone());
            std::mem::take(&mut asked.wanted)
        };
        let handle_of = |volume: &Volume| self.deps.provisioner.handle(volume);
        let listed = objections_among_all(&self.deps.client, &wanted, handle_of).await;
        let mut found = listed.inspect_err(|_| {
            // The next list is for all who wait.
            let mut asked = asked.lock();
            for (uid, handle) in &wanted {
                asked.wanted.entry(uid.clone()).or_insert_with(|| handle.clone());
            }
        })?;
        let own = found.remove(uid);
        let Asked { wanted: again, found: of_others } = &mut *asked.lock();
        // Whoever has asked again meanwhile waits for a list that begins later.
        let others = wanted.into_keys().filter(|other| other != uid && !again.contains_key(other));
        *of_others = others.map(|it| (Key::clone(&it), found.remove(&it))).collect();
        Ok(own)
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

/// Looks for an objection in the PersistentVolume of the volume's name and in the claim.
async fn objection_by_name(
    client: &Client,
    uid: &str,
    request: &ProvisionRequest,
) -> Result<Option<String>, ApiError> {
    let claim = Name::namespaced(request.claim.namespace(), request.claim.name())?;
    let named = async {
        match Name::cluster(request.name()) {
            Ok(name) => client.get_opt::<Volume>(name).await,
            // If there is no name, or it is not a valid object name, no PersistentVolume has it.
            Err(_) => Ok(None),
        }
    };
    // At once: a request may wait for a token of --kube-api-qps for longer than an answer counts.
    let (named, live) = tokio::try_join!(named, client.get_opt::<Claim>(claim))?;
    if named.is_some() {
        return Ok(Some(format!("PersistentVolume {:?} exists", request.name())));
    }
    let is_bound = live.is_some_and(|live| live.uid() == uid && !live.is_unbound());
    Ok(is_bound.then(|| "the claim is bound".to_owned()))
}

/// Looks for objections in all PersistentVolumes: to the removal of these volumes of these claims.
async fn objections_among_all(
    client: &Client,
    wanted: &BTreeMap<Key, VolumeHandle>,
    handle_of: impl Fn(&Volume) -> Option<VolumeHandle> + Send,
) -> Result<BTreeMap<Key, String>, ApiError> {
    // The index of volumes (`volumes::index`) cannot answer this: its watch may be behind, and a
    // missing entry would cost somebody's data. Nor does it know the claims of other handles. The
    // list is read page by page and not kept.
    let mut by_handle = BTreeMap::<&str, Vec<&Key>>::new();
    for (uid, handle) in wanted {
        by_handle.entry(handle.key()).or_default().push(uid);
    }
    let mut found = BTreeMap::new();
    let visit = |volume: Volume| {
        let handle = handle_of(&volume);
        let same = handle.and_then(|handle| by_handle.get(handle.key()));
        let same = same.into_iter().flatten().map(|uid| (Key::clone(uid), "has it"));
        let own = wanted.get_key_value(claim_uid(&volume));
        let own = own.map(|(uid, _)| (Key::clone(uid), "is the claim's"));
        for (uid, what) in same.chain(own) {
            found
                .entry(uid)
                .or_insert_with(|| format!("PersistentVolume {:?} {what}", volume.name()));
        }
        if found.len() < wanted.len() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    client.list(&Scope::all(), visit).await?;
    Ok(found)
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

    async fn objection(server: &Server) -> Result<Option<String>, ApiError> {
        objection_to(server, &request()).await
    }

    async fn objection_to(
        server: &Server,
        request: &ProvisionRequest,
    ) -> Result<Option<String>, ApiError> {
        let client = client(server);
        if let Some(found) = objection_by_name(&client, "u", request).await? {
            return Ok(Some(found));
        }
        let wanted = [(Key::from("u"), VolumeHandle::from("h"))].into();
        let handle_of = |volume: &Volume| Some(volume.source_id().into());
        Ok(objections_among_all(&client, &wanted, handle_of).await?.remove("u"))
    }

    /// On a server with at most one PersistentVolume of the name, one claim and some other volumes.
    #[tokio::test]
    async fn only_a_volume_that_nobody_has_is_deleted_directly() {
        let claim = |uid: &str, volume: Option<&str>| {
            Some(json!({"metadata": {"uid": uid}, "spec": {"volumeName": volume}}))
        };
        let volume = |uid: &str, handle: &str| {
            json!({"metadata": {"name": format!("pv-{handle}")},
                   "spec": {"claimRef": {"uid": uid}, "csi": {"volumeHandle": handle}}})
        };
        let named = |uid: &str, handle: &str| Some(volume(uid, handle));
        let others = |handles: &[&str]| handles.iter().map(|it| volume("x", it)).collect();
        let exists = Some(r#"PersistentVolume "pvc-u" exists"#);
        let table: [(_, _, Vec<Value>, _); 10] = [
            (None, None, vec![], None),
            (None, claim("u", None), others(&["a", "b"]), None),
            // A successor of the same name may be bound: it is another claim.
            (None, claim("other", Some("pv")), vec![], None),
            (None, claim("u", Some("pv")), vec![], Some("the claim is bound")),
            (Some(json!({})), None, vec![], exists),
            (named("u", "other"), None, vec![], exists),
            (named("x", "h"), None, vec![], exists),
            // Another claim's with another handle: with a shortened UUID that may be the same
            // volume.
            (named("x", "other"), None, vec![], exists),
            (
                None,
                claim("u", None),
                others(&["a", "h"]),
                Some(r#"PersistentVolume "pv-h" has it"#),
            ),
            // Two handles can be one volume: while the claim has any PersistentVolume, nothing is deleted.
            (None, None, vec![volume("u", "x")], Some(r#"PersistentVolume "pv-x" is the claim's"#)),
        ];
        for (named, claim, items, expected) in table {
            let what = format!("{named:?} {claim:?} {items:?}");
            let answer = |object: &Option<Value>| match object {
                Some(object) => Answer::json(200, object),
                None => Answer::refusal(404, "NotFound", "not found"),
            };
            let server = Server::new(move |_, request| match request.url.as_str() {
                "/api/v1/persistentvolumes/pvc-u" => answer(&named),
                "/api/v1/namespaces/ns/persistentvolumeclaims/c" => answer(&claim),
                "/api/v1/persistentvolumes?&limit=500" => {
                    Answer::json(200, &json!({"metadata": {}, "items": items}))
                }
                other => panic!("{other}"),
            });
            assert_eq!(objection(&server).await.unwrap().as_deref(), expected, "{what}");
        }
    }

    /// `--volume-name-prefix=a/b`: the PersistentVolume is refused, and its volume must not stay.
    #[tokio::test]
    async fn an_invalid_object_name_does_not_prevent_the_deletion() {
        let server = Server::new(|_, request| match request.url.as_str() {
            "/api/v1/persistentvolumes?&limit=500" => {
                Answer::json(200, &json!({"metadata": {}, "items": []}))
            }
            _ => Answer::refusal(404, "NotFound", "not found"),
        });
        let request = ProvisionRequest { volume_name: Ok("a/b-u".into()), ..request() };
        assert_eq!(objection_to(&server, &request).await.unwrap(), None);
    }

    #[tokio::test]
    async fn nothing_is_deleted_after_a_failed_read() {
        for broken in 0..3 {
            let server = Server::new(move |number, _| match number {
                n if n == broken => Answer::refusal(403, "Forbidden", "no"),
                0 | 1 => Answer::refusal(404, "NotFound", "not found"),
                _ => Answer::json(200, &json!({"metadata": {}, "items": []})),
            });
            assert!(objection(&server).await.is_err(), "{broken}");
        }
    }
}
