//! Deliberate defects, which the simulation must find.

use super::{ProvisionRequest, Record};
use crate::{
    controller::{
        claims::record_status::RECORD,
        model::source::{NamedSource, Source, SourceKind},
    },
    kube::objects::View as _,
    mutations::{Mutation, is_on},
};

/// Takes the volume's name and source from the record, which must not be trusted for them.
pub(super) fn believe(request: &mut ProvisionRequest, record: &Record) {
    if is_on(Mutation::RecordedNameBelieved) && !record.volume.is_empty() {
        request.volume_name = Ok(record.volume.clone());
    }
    if is_on(Mutation::RecordedSourceBelieved) && !record.volume.is_empty() {
        request.source = source(request);
    }
}

fn source(request: &ProvisionRequest) -> Option<Source> {
    let text = request.claim.annotation(RECORD)?;
    let written: serde_json::Value = serde_json::from_str(text).ok()?;
    let source = written.get("source")?;
    let text = |field| source.get(field)?.as_str().map(str::to_owned);
    let kind = match text("kind")?.as_str() {
        "snapshot" => SourceKind::Snapshot,
        _ => SourceKind::Claim,
    };
    let named = NamedSource { kind, namespace: text("namespace")?, name: text("name")? };
    Some(Source { named, uid: text("uid")?, handle: text("handle")? })
}
