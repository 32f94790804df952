//! The four kinds of patches.
//!
//! Distinguishes them by their content type and applies each to an object. Promises never
//! to change the object it was given when it fails. Leaves preconditions to `verbs`: what a patch
//! puts into the metadata is checked there like any other update.

mod strategic;

use serde_json::Value;

use super::{
    body::{from_json, from_yaml},
    resources::Kind,
    status::Status,
};

/// How a patch is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchKind {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Kubernetes' merge with keys and directives.
    Strategic,
    /// Server-side apply.
    Apply,
}

/// The media types, in the order error messages list them.
const TYPES: [(PatchKind, &str); 4] = [
    (PatchKind::Json, "application/json-patch+json"),
    (PatchKind::Merge, "application/merge-patch+json"),
    (PatchKind::Strategic, "application/strategic-merge-patch+json"),
    (PatchKind::Apply, "application/apply-patch+yaml"),
];

/// A patch, read.
#[derive(Debug, Clone)]
pub(crate) struct Patch {
    kind: PatchKind,
    body: Value,
}

impl Patch {
    /// Reads a patch; custom kinds take no strategic ones.
    ///
    /// # Errors
    /// 415 for an unknown type, 400 for what can't be parsed.
    pub(crate) fn parse(kind: &Kind, content_type: &str, body: &[u8]) -> Result<Self, Status> {
        let taken = |patch: PatchKind| !(kind.custom && patch == PatchKind::Strategic);
        let found = TYPES.iter().find(|(patch, name)| *name == content_type && taken(*patch));
        let Some((patch, _)) = found else {
            let accepted: Vec<&str> =
                TYPES.iter().filter(|(patch, _)| taken(*patch)).map(|(_, name)| *name).collect();
            return Err(Status::unsupported_media_type(&accepted));
        };
        let decoded = if *patch == PatchKind::Apply { from_yaml(body) } else { from_json(body) };
        let body =
            decoded.map_err(|why| Status::bad_request(format!("error decoding patch: {why}")))?;
        Ok(Self { kind: *patch, body })
    }

    /// How the patch is meant.
    pub(crate) fn kind(&self) -> PatchKind {
        self.kind
    }

    /// The object with the patch applied.
    ///
    /// # Errors
    /// 422 for a JSON patch that does not fit, 400 for one that is malformed.
    pub(crate) fn apply(&self, kind: &Kind, mut object: Value) -> Result<Value, Status> {
        match self.kind {
            PatchKind::Json => apply_operations(&mut object, &self.body)?,
            PatchKind::Merge => json_patch::merge(&mut object, &self.body),
            PatchKind::Strategic => strategic::merge(kind, &mut object, &self.body)?,
            // Without owners of fields, an apply is a merge that takes nothing away.
            PatchKind::Apply => strategic::apply(kind, &mut object, &self.body)?,
        }
        Ok(object)
    }
}

fn apply_operations(object: &mut Value, patch: &Value) -> Result<(), Status> {
    let operations: json_patch::Patch = serde_json::from_value(patch.clone())
        .map_err(|error| Status::bad_request(format!("error decoding patch: {error}")))?;
    json_patch::patch(object, &operations).map_err(|error| {
        Status::new(422, "Invalid", "the server rejected our request due to an error in our request")
            .details(serde_json::json!({"causes": [{"reason": "UnexpectedServerResponse", "message": error.to_string()}]}))
    })
}
