//! Secrets: which one a class names for which purpose, and reading it.
//!
//! Implements the pairs of keys, the templates in their values, and the conversion of a Secret's
//! values to [`Credentials`]. What a secret is used for belongs to `request`, `persistent_volume`
//! and `deletion`.

#[cfg(any(test, feature = "fuzzing"))]
#[path = "../../fuzz/bodies/secret_template.rs"]
pub mod fuzz;

use std::{collections::BTreeMap, sync::Arc};

use go_fmt::{quote, quote_list};

use super::{
    expand::expand,
    keys::{RESERVED_PREFIX, SecretKeys},
};
use crate::{
    controller::{
        dependencies::Dependency, model::unusable_volume::Credentials, provisioner::Failure,
    },
    kube::{
        ApiError, CoalescedReads,
        name::{is_dns_label, is_dns_subdomain},
        objects::{Claim, Secret, SecretData, SecretValue, View as _},
    },
};

/// A Secret by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SecretReference {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// The values of the template variables.
#[derive(Debug, Clone, Copy)]
pub(super) struct TemplateContext<'a> {
    pub(super) volume_name: &'a str,
    pub(super) claim_namespace: &'a str,
    pub(super) claim_name: &'a str,
    /// The claim, if its annotations are known; at deletion they are not.
    pub(super) claim: Option<&'a Claim>,
}

impl<'a> TemplateContext<'a> {
    /// The context of provisioning for `claim`.
    pub(super) fn of_claim(claim: &'a Claim, volume_name: &'a str) -> Self {
        Self {
            volume_name,
            claim_namespace: claim.namespace(),
            claim_name: claim.name(),
            claim: Some(claim),
        }
    }

    /// The variables of namespaces: nothing that the claim's user can choose freely.
    fn namespace_token(&self, token: &str) -> Option<String> {
        match token {
            "pv.name" => Some(self.volume_name.to_owned()),
            "pvc.namespace" => Some(self.claim_namespace.to_owned()),
            _ => None,
        }
    }

    fn name_token(&self, token: &str) -> Option<String> {
        if let Some(value) = self.namespace_token(token) {
            return Some(value);
        }
        if token == "pvc.name" {
            return Some(self.claim_name.to_owned());
        }
        let key = token.strip_prefix("pvc.annotations['")?.strip_suffix("']")?;
        self.claim?.annotation(key).map(str::to_owned)
    }
}

/// The secret that a class names for this use, or as the default; `None` if it names none.
///
/// # Errors
/// external-provisioner's texts for incomplete pairs and for templates that do not resolve to a
/// valid name.
pub(super) fn reference(
    keys: SecretKeys,
    parameters: &BTreeMap<String, String>,
    context: &TemplateContext<'_>,
) -> Result<Option<SecretReference>, Failure> {
    let own = templates(keys, parameters).map_err(|why| {
        Failure::new(format!("failed to get name and namespace template from params: {why}"))
    })?;
    let templates = match own {
        Some(own) => Some(own),
        None => templates(SecretKeys::DEFAULT, parameters).map_err(|why| {
            Failure::new(format!(
                "failed to get default name and namespace template from params: {why}"
            ))
        })?,
    };
    let Some((name, namespace)) = templates else { return Ok(None) };
    // The namespace is resolved first: its error takes precedence.
    let namespace = resolved(
        namespace,
        |token| context.namespace_token(token),
        is_dns_label,
        "namespace name",
    )?;
    let name = resolved(name, |token| context.name_token(token), is_dns_subdomain, "secret name")?;
    Ok(Some(SecretReference { namespace, name }))
}

/// Whether the class names a secret that this program reads.
pub(super) fn names_credentials(parameters: &BTreeMap<String, String>) -> bool {
    let kinds = [SecretKeys::DEFAULT, SecretKeys::PROVISIONER];
    let keys = kinds.iter().flat_map(|keys| [Some(keys.name), keys.deprecated.map(|old| old.0)]);
    keys.flatten().any(|key| parameters.contains_key(key))
}

/// The templates (name, namespace) that a class sets for one use.
fn templates(
    keys: SecretKeys,
    parameters: &BTreeMap<String, String>,
) -> Result<Option<(&str, &str)>, String> {
    let (old_name, old_namespace) = keys.deprecated.unzip();
    let label = keys.label;
    let pick = |old: Option<&str>, new: &str| {
        let old = old.and_then(|key| parameters.get(key));
        match (old, parameters.get(new)) {
            (Some(_), Some(_)) => Err(format!(
                "{label} secrets specified in parameters with both \"csi\" and \"{RESERVED_PREFIX}\" keys"
            )),
            (old, new) => Ok(old.or(new).map(String::as_str)),
        }
    };
    match (pick(old_name, keys.name)?, pick(old_namespace, keys.namespace)?) {
        (None, None) => Ok(None),
        (Some(""), Some(_)) | (Some(_), Some("")) => Err(format!(
            "{label} secrets specified in parameters but value of either namespace or name is empty"
        )),
        (Some(name), Some(namespace)) => Ok(Some((name, namespace))),
        _ => Err(format!(
            "either name and namespace for {label} secrets specified, Both must be specified"
        )),
    }
}

/// Expands `template`; the result must be valid.
fn resolved(
    template: &str,
    token: impl Fn(&str) -> Option<String>,
    is_valid: fn(&str) -> bool,
    what: &str,
) -> Result<String, Failure> {
    let mut unknown = std::collections::BTreeSet::new();
    let result = expand(template, |name| {
        token(name).unwrap_or_else(|| {
            unknown.insert(name.to_owned());
            String::new()
        })
    });
    if !unknown.is_empty() {
        let unknown = quote_list(unknown.iter().map(String::as_str));
        return Err(Failure::new(format!(
            "error resolving value {}: invalid tokens: {unknown}",
            quote(template)
        )));
    }
    if is_valid(&result) {
        return Ok(result);
    }
    let quoted = quote(template);
    Err(Failure::new(if template == result {
        format!("{quoted} is not a valid {what}")
    } else {
        format!("{quoted} resolved to {} which is not a valid {what}", quote(&result))
    }))
}

/// A Secret's values as they were read; empty if no Secret is named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SecretValues {
    values: Arc<BTreeMap<String, SecretValue>>,
    /// The Secret that was read.
    object: Option<Dependency>,
}

/// A value is not UTF-8, which CSI requires. external-provisioner detects this when the request is
/// serialized, after all its checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotUtf8;

impl SecretValues {
    /// The values as CSI expects them.
    pub(super) fn credentials(&self) -> Result<Credentials, NotUtf8> {
        let value = |(key, value): (&String, &SecretValue)| {
            let text = String::from_utf8(value.expose().to_vec()).map_err(|_| NotUtf8)?;
            Ok((key.clone(), text))
        };
        self.values.iter().map(value).collect::<Result<_, _>>().map(Credentials::new)
    }

    /// The Secret that was read: if the driver refuses, a change of it may help.
    pub(super) fn object(&self) -> Option<&Dependency> {
        self.object.as_ref()
    }
}

/// A Secret could not be read.
#[derive(Debug, thiserror::Error)]
#[error("error getting secret {} in namespace {}: {source}", .reference.name, .reference.namespace)]
pub(super) struct Unreadable {
    /// The Secret.
    reference: SecretReference,
    /// The cause.
    source: Cause,
}

/// Why a Secret could not be read.
#[derive(Debug, thiserror::Error)]
enum Cause {
    /// The API server did not send it.
    #[error(transparent)]
    Unread(Arc<ApiError>),
    /// It is too large to be kept for each call.
    #[error("its keys and values take more than 64 KiB, where each key counts 128 bytes more")]
    TooLarge,
}

impl Unreadable {
    /// Whether the Secret does not exist, as opposed to one that cannot be read now.
    pub(super) fn is_missing(&self) -> bool {
        let Cause::Unread(error) = &self.source else { return false };
        error.is_not_found() || matches!(**error, ApiError::BadName(_))
    }
}

impl From<Unreadable> for Failure {
    fn from(unreadable: Unreadable) -> Self {
        let secret = dependency_on(&unreadable.reference);
        let is_lasting = unreadable.is_missing() || matches!(unreadable.source, Cause::TooLarge);
        Self::new(unreadable).unread(secret, is_lasting)
    }
}

fn dependency_on(reference: &SecretReference) -> Dependency {
    Dependency::object::<Secret>(Some(&reference.namespace), &reference.name)
}

/// Reads a Secret; without a reference, returns no values. Each call has a copy of the values, and each
/// volume that is not saved yet, so they must not be large.
pub(super) async fn read(
    secrets: &CoalescedReads<Secret>,
    reference: Option<&SecretReference>,
) -> Result<SecretValues, Unreadable> {
    let Some(reference) = reference else { return Ok(SecretValues::default()) };
    let unreadable = |source| Unreadable { reference: reference.clone(), source };
    let (namespace, name) = (&reference.namespace, &reference.name);
    let secret = secrets.get(Some(namespace), name).await;
    match secret.map_err(|error| unreadable(Cause::Unread(error)))?.data.clone() {
        SecretData::Values(values) => {
            Ok(SecretValues { values, object: Some(dependency_on(reference)) })
        }
        SecretData::TooLarge => Err(unreadable(Cause::TooLarge)),
    }
}

#[cfg(test)]
mod tests;
