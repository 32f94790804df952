//! `PersistentVolumes`.

use serde_json::{Value, json};

use super::{Errors, access_modes, class_name, names, quantity, same, sign, volume_mode};
use crate::apiserver::{status::FieldError, tree};

/// The sources a volume can have; it has just one.
const SOURCES: &str = "awsElasticBlockStore azureDisk azureFile cephfs cinder csi fc flexVolume \
                       flocker gcePersistentDisk glusterfs hostPath iscsi local nfs photonPersistentDisk \
                       portworxVolume quobyte rbd scaleIO storageos vsphereVolume";

pub(super) fn content(new: &Value, errors: &mut Errors) {
    let spec = tree::at(new, &["spec"]);
    access_modes(spec, "", errors);
    capacity(spec, errors);
    reclaim_policy(spec, errors);
    node_affinity(spec, errors);
    source(spec, errors);
    class_name(spec, "storageClassName", errors);
    volume_mode(spec, errors);
}

fn capacity(spec: &Value, errors: &mut Errors) {
    const FIELD: &str = "spec.capacity";
    let capacity = tree::at(spec, &["capacity"]);
    if tree::is_empty(capacity) {
        errors.push(FieldError::required(FIELD, ""));
    }
    let only_storage =
        capacity.get("storage").is_some() && tree::members(capacity, &[]).count() == 1;
    if !only_storage {
        let shown = if capacity.is_null() { json!(null) } else { capacity.clone() };
        errors.push(FieldError::not_supported(FIELD, &shown, &["storage"]));
    }
    for (name, value) in tree::members(capacity, &[]) {
        let field = format!("{FIELD}[{name}]");
        let Some(amount) = quantity(value, &field, errors) else { continue };
        if sign(&amount).is_lt() {
            let whole = value.as_str().and_then(|text| text.parse::<i64>().ok());
            errors.push(FieldError::invalid(
                &field,
                &json!(whole),
                "must be a valid resource quantity",
            ));
        }
        if sign(&amount).is_le() {
            errors.push(FieldError::invalid(field, value, "must be greater than zero"));
        }
    }
}

fn reclaim_policy(spec: &Value, errors: &mut Errors) {
    const SUPPORTED: [&str; 3] = ["Delete", "Recycle", "Retain"];
    let policy = tree::at(spec, &["persistentVolumeReclaimPolicy"]);
    if !tree::is_empty(policy) && !policy.as_str().is_some_and(|policy| SUPPORTED.contains(&policy))
    {
        errors.push(FieldError::not_supported(
            "spec.persistentVolumeReclaimPolicy",
            policy,
            &SUPPORTED,
        ));
    }
}

fn node_affinity(spec: &Value, errors: &mut Errors) {
    const FIELD: &str = "spec.nodeAffinity.required";
    let Some(affinity) = spec.get("nodeAffinity").filter(|affinity| !affinity.is_null()) else {
        return;
    };
    let Some(required) = affinity.get("required").filter(|required| !required.is_null()) else {
        errors.push(FieldError::required(FIELD, "must specify required node constraints"));
        return;
    };
    let terms = tree::items(required, &["nodeSelectorTerms"]);
    if terms.is_empty() {
        errors.push(FieldError::required(
            format!("{FIELD}.nodeSelectorTerms"),
            "must have at least one node selector term",
        ));
    }
    for (i, term) in terms.iter().enumerate() {
        for (j, requirement) in tree::items(term, &["matchExpressions"]).iter().enumerate() {
            selector_requirement(
                requirement,
                &format!("{FIELD}.nodeSelectorTerms[{i}].matchExpressions[{j}]"),
                errors,
            );
        }
    }
}

fn selector_requirement(requirement: &Value, field: &str, errors: &mut Errors) {
    let values = tree::items(requirement, &["values"]);
    let values_field = format!("{field}.values");
    if values.is_empty() && tree::text(requirement, &["operator"]) == "In" {
        errors.push(FieldError::required(
            &values_field,
            "must be specified when `operator` is 'In' or 'NotIn'",
        ));
    }
    let key = tree::text(requirement, &["key"]);
    errors.invalid_for(&format!("{field}.key"), &json!(key), &names::label_key(key));
    for (i, value) in values.iter().enumerate() {
        errors.invalid_for(
            &format!("{values_field}[{i}]"),
            value,
            &names::label_value(value.as_str().unwrap_or_default()),
        );
    }
}

fn source(spec: &Value, errors: &mut Errors) {
    let given: Vec<&str> =
        SOURCES.split_whitespace().filter(|source| !tree::at(spec, &[source]).is_null()).collect();
    if given.is_empty() {
        errors.push(FieldError::required("spec", "must specify a volume type"));
    }
    for extra in given.iter().skip(1) {
        errors.push(FieldError::forbidden(
            format!("spec.{extra}"),
            "may not specify more than 1 volume type",
        ));
    }
    match given.first() {
        Some(&"csi") => csi(tree::at(spec, &["csi"]), errors),
        Some(&"vsphereVolume") => needed(spec, "vsphereVolume", "volumePath", errors),
        Some(&"gcePersistentDisk") => needed(spec, "gcePersistentDisk", "pdName", errors),
        Some(&"awsElasticBlockStore") => needed(spec, "awsElasticBlockStore", "volumeID", errors),
        Some(&"portworxVolume") => needed(spec, "portworxVolume", "volumeID", errors),
        Some(&"azureDisk") => {
            needed(spec, "azureDisk", "diskName", errors);
            needed(spec, "azureDisk", "diskURI", errors);
        }
        Some(&"azureFile") => azure_file(tree::at(spec, &["azureFile"]), errors),
        _ => {}
    }
}

fn needed(spec: &Value, source: &str, member: &str, errors: &mut Errors) {
    if tree::text(spec, &[source, member]).is_empty() {
        // The real server's path for this one differs from the field's name.
        let path = if source == "gcePersistentDisk" { "persistentDisk" } else { source };
        errors.push(FieldError::required(format!("spec.{path}.{member}"), ""));
    }
}

fn azure_file(azure: &Value, errors: &mut Errors) {
    for member in ["secretName", "shareName"] {
        if tree::text(azure, &[member]).is_empty() {
            errors.push(FieldError::required(format!("spec.azureFile.{member}"), ""));
        }
    }
    if azure.get("secretNamespace").is_some_and(|namespace| namespace.as_str() == Some("")) {
        errors.push(FieldError::required("spec.azureFile.secretNamespace", ""));
    }
}

fn csi(csi: &Value, errors: &mut Errors) {
    driver_name(csi, errors);
    if tree::text(csi, &["volumeHandle"]).is_empty() {
        errors.push(FieldError::required("spec.csi.volumeHandle", ""));
    }
    for member in [
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ] {
        if let Some(reference) = csi.get(member).filter(|reference| !reference.is_null()) {
            secret_reference(reference, &format!("spec.csi.{member}"), errors);
        }
    }
}

fn driver_name(csi: &Value, errors: &mut Errors) {
    const FIELD: &str = "spec.csi.driver";
    let driver = tree::text(csi, &["driver"]);
    if driver.is_empty() {
        errors.push(FieldError::required(FIELD, ""));
        return;
    }
    if driver.len() > 63 {
        errors.push(FieldError::too_long(FIELD, 63));
    }
    errors.invalid_for(FIELD, &json!(driver), &names::subdomain(&driver.to_lowercase()));
}

fn secret_reference(reference: &Value, field: &str, errors: &mut Errors) {
    for (member, rule) in
        [("name", names::subdomain as fn(&str) -> Vec<String>), ("namespace", names::label)]
    {
        let field = format!("{field}.{member}");
        match tree::text(reference, &[member]) {
            "" => errors.push(FieldError::required(field, "")),
            text => errors.invalid_for(&field, &json!(text), &rule(text)),
        }
    }
}

pub(super) fn changes(new: &Value, old: &Value, errors: &mut Errors) {
    let (new, old) = (tree::at(new, &["spec"]), tree::at(old, &["spec"]));
    let changed = SOURCES
        .split_whitespace()
        .any(|source| !same(&comparable(new, old, source), tree::at(old, &[source])));
    if changed {
        let why = "spec.persistentvolumesource is immutable after creation";
        errors.push(FieldError::forbidden("spec.persistentvolumesource", why));
    }
    errors.immutable("volumeMode", tree::at(new, &["volumeMode"]), tree::at(old, &["volumeMode"]));
    let (affinity, before) = (tree::at(new, &["nodeAffinity"]), tree::at(old, &["nodeAffinity"]));
    if !before.is_null() {
        errors.immutable("nodeAffinity", affinity, before);
    }
    if old.get("volumeAttributesClassName").is_some()
        && new.get("volumeAttributesClassName").is_none()
    {
        errors.push(FieldError::forbidden(
            "spec.volumeAttributesClassName",
            "update from non-nil value to nil is forbidden",
        ));
    }
}

/// A source as it is compared: the reference to the secret for expansion may be added later.
fn comparable(new: &Value, old: &Value, source: &str) -> Value {
    const EXPAND: &str = "controllerExpandSecretRef";
    let mut value = tree::at(new, &[source]).clone();
    if source == "csi" && tree::at(old, &["csi", EXPAND]).is_null() {
        tree::remove(&mut value, &[EXPAND]);
    }
    value
}
