//! Which secret is used to delete a volume.
//!
//! The volume's annotations come first, then its class. Pure except for reading the Secret.

use std::sync::Arc;

use super::{
    ceph_rbd::CephRbd,
    persistent_volume::{DELETION_SECRET_NAME, DELETION_SECRET_NAMESPACE},
    reads::Reads,
    secrets::{self, SecretReference, SecretValues, TemplateContext},
};
use crate::{
    controller::provisioner::Failure,
    kube::objects::{StorageClass, View as _, Volume},
};

/// Returns the secret for deleting `volume`. `class` looks up its class, if that still exists;
/// called only if the class is needed.
///
/// # Errors
/// The class is unknown, its templates do not resolve, or the Secret can't be read, since the
/// driver may need it. Only a Secret that does not exist is skipped, as in external-provisioner:
/// the driver then decides whether it needs one.
pub(super) async fn secret(
    reads: &Reads,
    volume: &Volume,
    class: impl FnOnce() -> Result<Option<Arc<StorageClass>>, Failure>,
    ceph_rbd: CephRbd,
) -> Result<SecretValues, Failure> {
    let reference = reference(volume, class, ceph_rbd)?;
    match secrets::read(&reads.secrets, reference.as_ref()).await {
        Err(missing) if missing.is_missing() => {
            tracing::warn!(pv = volume.name(), error = %missing, "deleting without credentials");
            Ok(SecretValues::default())
        }
        read => Ok(read?),
    }
}

fn reference(
    volume: &Volume,
    class: impl FnOnce() -> Result<Option<Arc<StorageClass>>, Failure>,
    ceph_rbd: CephRbd,
) -> Result<Option<SecretReference>, Failure> {
    let annotated =
        (volume.annotation(DELETION_SECRET_NAME), volume.annotation(DELETION_SECRET_NAMESPACE));
    if let (Some(name), Some(namespace)) = annotated {
        let whole = !name.is_empty() && !namespace.is_empty();
        return Ok(whole
            .then(|| SecretReference { namespace: namespace.to_owned(), name: name.to_owned() }));
    }
    let (Some(class), Some(claim)) = (class()?, &volume.spec.claim_ref) else { return Ok(None) };
    let context = TemplateContext {
        volume_name: volume.name(),
        claim_namespace: &claim.namespace,
        claim_name: &claim.name,
        claim: None,
    };
    ceph_rbd.deletion_secret(&class.parameters, &context).map_err(|why| {
        Failure::new(format!("failed to get secretreference for volume {}: {why}", volume.name()))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn named(
        annotations: &Value,
        parameters: &Value,
        claim: bool,
    ) -> Result<Option<(String, String)>, String> {
        let claim = if claim { json!({"namespace": "shop", "name": "data"}) } else { Value::Null };
        let volume: Volume = serde_json::from_value(json!({
            "metadata": {"name": "pv", "annotations": annotations}, "spec": {"claimRef": claim}
        }))
        .unwrap();
        let class = Some(parameters)
            .filter(|p| !p.is_null())
            .map(|p| Arc::new(serde_json::from_value(json!({"parameters": p})).unwrap()));
        reference(&volume, || Ok(class), CephRbd::default())
            .map(|found| found.map(|found| (found.namespace, found.name)))
            .map_err(|why| why.to_string())
    }

    #[test]
    fn annotations_come_before_the_class() {
        let class = json!({
            "csi.storage.k8s.io/provisioner-secret-name": "${pv.name}-${pvc.name}",
            "csi.storage.k8s.io/provisioner-secret-namespace": "${pvc.namespace}",
        });
        let by_class = Ok(Some(("shop".into(), "pv-data".into())));
        let (name, namespace) = (DELETION_SECRET_NAME, DELETION_SECRET_NAMESPACE);
        assert_eq!(
            named(&json!({name: "s", namespace: "ns"}), &class, true),
            Ok(Some(("ns".into(), "s".into())))
        );
        assert_eq!(named(&json!({name: "", namespace: ""}), &class, true), Ok(None));
        assert_eq!(named(&json!({name: "s", namespace: ""}), &class, true), Ok(None));
        assert_eq!(named(&json!({name: "s"}), &class, true), by_class);
        assert_eq!(named(&json!({}), &class, true), by_class);
        assert_eq!(named(&json!({}), &class, false), Ok(None));
        assert_eq!(named(&json!({}), &Value::Null, true), Ok(None));
    }

    #[test]
    fn a_template_with_annotations_cannot_be_resolved_at_deletion() {
        let class = json!({
            "csi.storage.k8s.io/provisioner-secret-name": "${pvc.annotations['a']}",
            "csi.storage.k8s.io/provisioner-secret-namespace": "ns",
        });
        let text = named(&json!({}), &class, true).unwrap_err();
        assert_eq!(
            text,
            r#"failed to get secretreference for volume pv: error resolving value "${pvc.annotations['a']}": invalid tokens: ["pvc.annotations['a']"]"#
        );
    }
}
