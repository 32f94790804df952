//! Predicts what csi-provisioner would request for a claim and save as its PersistentVolume.
//!
//! Its checks before a call make the request, and it builds the PersistentVolume, as for a volume of its own.
//! The driver's response is read off the PersistentVolume that another provisioner saved. Nothing is sent to
//! the driver, and no secret is kept.

use std::collections::BTreeMap;

use go_fmt::quantity::Quantity;
use k8s_openapi::api::core::v1::{
    NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume, VolumeNodeAffinity,
};
use serde_json::Value;

use super::judgement::{Documented, Judgement};
use csi_provisioner::{
    controller::{
        claims::save,
        provisioner::{Failure, NotPrepared, ProvisionRequest},
    },
    csi::proto::{self, CreateVolumeRequest},
    csi_provisioner::{Checks, Defect, IDENTITY, Prepared, ProvisionerSettings, build_usable},
    kube::objects::{self, Volume},
};

/// What this program would request for a claim.
#[derive(Debug)]
pub(super) struct Prediction {
    request: ProvisionRequest,
    /// Without the values of secrets.
    prepared: Prepared,
}

impl Prediction {
    /// Makes the request for a claim.
    ///
    /// # Errors
    /// The first check that failed.
    pub(super) async fn of(
        checks: Checks<'_>,
        mut request: ProvisionRequest,
    ) -> Result<Self, NotPrepared> {
        let prepared = checks.all(&mut request).await?.without_secret();
        Ok(Self { request, prepared })
    }

    /// The request to the driver, without its secrets.
    pub(super) fn request(&self) -> &CreateVolumeRequest {
        &self.prepared.request
    }

    /// Whether the class is the in-tree plugin's.
    pub(super) fn is_migrated(&self) -> bool {
        self.prepared.migration.is_some()
    }

    /// Whether the volume has a source.
    pub(super) fn has_source(&self) -> bool {
        self.prepared.source.is_some()
    }

    /// The PersistentVolume that this program would save, if the driver's response was the one that the
    /// PersistentVolume `found` was made from.
    ///
    /// # Errors
    /// There is none, and what that says.
    pub(super) fn persistent_volume(
        &self,
        settings: &ProvisionerSettings,
        found: &Value,
    ) -> Result<PersistentVolume, Judgement> {
        let response = self.response(settings, found)?;
        let Self { request, prepared } = self;
        let volume = build_usable(settings, request, prepared, &response)
            .map_err(|defect| self.refuse(&defect))?;
        Ok(save::complete(volume, &self.request))
    }

    /// This program would have deleted the volume as unusable, perhaps because the requested size overflows
    /// the request's field.
    fn refuse(&self, defect: &Defect) -> Judgement {
        let overflows = matches!(defect, Defect::TooSmall { .. })
            && self.prepared.size.checked_value().is_none();
        Judgement::of_refused(defect, overflows.then_some(Documented::HugeClaims))
    }

    /// The driver's response, as far as the PersistentVolume shows it.
    fn response(
        &self,
        settings: &ProvisionerSettings,
        found: &Value,
    ) -> Result<proto::Volume, Judgement> {
        let volume: Volume = objects::of_json(found).map_err(Judgement::of_unreadable)?;
        let handle = settings.handle(&volume).map_err(Judgement::of_unreadable)?.into_owned();
        let affinity = settings.node_affinity(&volume).map_err(Judgement::of_unreadable)?;
        Ok(proto::Volume {
            capacity_bytes: capacity(found),
            volume_id: handle,
            volume_context: context(settings, &volume, found).map_err(Judgement::of_unreadable)?,
            content_source: self.prepared.request.volume_content_source.clone(),
            accessible_topology: affinity.as_deref().map(places).unwrap_or_default(),
        })
    }
}

/// The size in bytes; 0, unknown, if there is none.
fn capacity(found: &Value) -> i64 {
    let size = found.pointer("/spec/capacity/storage").and_then(Value::as_str);
    size.and_then(|size| Quantity::parse(size).ok()?.checked_value()).unwrap_or_default()
}

/// The volume context: the attributes without the identity of the process that saved them.
fn context(
    settings: &ProvisionerSettings,
    volume: &Volume,
    found: &Value,
) -> Result<BTreeMap<String, String>, Failure> {
    if volume.spec.in_tree.is_some() {
        return Ok(settings.translated(volume)?.attributes);
    }
    let attributes = found.pointer("/spec/csi/volumeAttributes").and_then(Value::as_object);
    let texts = attributes.into_iter().flatten().filter(|(key, _)| *key != IDENTITY);
    Ok(texts.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect())
}

/// The topologies that the node affinity was made from. What cannot come from a driver is left out, and is
/// found as a difference.
fn places(affinity: &VolumeNodeAffinity) -> Vec<proto::Topology> {
    let terms = affinity.required.iter().flat_map(|selector| &selector.node_selector_terms);
    let segments = |term: &NodeSelectorTerm| {
        let expressions = term.match_expressions.iter().flatten();
        expressions.filter_map(segment).collect()
    };
    terms.map(|term| proto::Topology { segments: segments(term) }).collect()
}

fn segment(expression: &NodeSelectorRequirement) -> Option<(String, String)> {
    match expression.values.as_deref() {
        Some([value]) if expression.operator == "In" => {
            Some((expression.key.clone(), value.clone()))
        }
        _ => None,
    }
}
