//! Secrets: which a class names for what, and reading one.
//!
//! Owns the rules of naming one, the templates in the names (reference 3.10), and turning a
//! Secret's values into [`Credentials`]. Leaves what a secret is used for to `request`,
//! `persistent_volume` and `deletion`.

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;

use std::{collections::BTreeMap, sync::Arc};

use super::{
    expand::expand,
    keys::{RESERVED_PREFIX, SecretKind},
    names::{is_dns_label, is_dns_subdomain},
};
use crate::{
    controller::{
        dependencies::index::Dependency, model::unusable_volume::Credentials, provisioner::Failure,
    },
    go_fmt::{quote, quote_list},
    kube::{
        ApiError, CoalescedReads,
        objects::{Claim, Secret, SecretValue, View as _},
    },
};

/// A Secret by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SecretReference {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// What the templates of a secret's name may speak of.
#[derive(Debug, Clone, Copy)]
pub(super) struct TemplateContext<'a> {
    pub(super) volume_name: &'a str,
    pub(super) claim_namespace: &'a str,
    pub(super) claim_name: &'a str,
    /// The claim, where its annotations are known: at deletion they are not.
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

    /// The tokens of a namespace: nothing the claim's user could choose freely.
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

/// The secret that a class names for `kind`, or in general; none where it names none.
///
/// # Errors
/// The original's texts, for pairs that are not whole and templates that resolve to no name.
pub(super) fn reference(
    kind: SecretKind,
    parameters: &BTreeMap<String, String>,
    context: &TemplateContext<'_>,
) -> Result<Option<SecretReference>, Failure> {
    let own = templates(kind, parameters).map_err(|why| {
        Failure::new(format!("failed to get name and namespace template from params: {why}"))
    })?;
    let templates = match own {
        Some(own) => Some(own),
        None => templates(SecretKind::Default, parameters).map_err(|why| {
            Failure::new(format!(
                "failed to get default name and namespace template from params: {why}"
            ))
        })?,
    };
    let Some((name, namespace)) = templates else { return Ok(None) };
    // The namespace is resolved first: its complaint is the one that users see.
    let namespace = resolved(
        namespace,
        |token| context.namespace_token(token),
        is_dns_label,
        "namespace name",
    )?;
    let name = resolved(name, |token| context.name_token(token), is_dns_subdomain, "secret name")?;
    Ok(Some(SecretReference { namespace, name }))
}

/// Whether a class of the driver's names a secret that this program reads for it.
pub(super) fn names_credentials(parameters: &BTreeMap<String, String>) -> bool {
    let kinds = [SecretKind::Default, SecretKind::Provisioner].map(SecretKind::keys);
    let keys = kinds.iter().flat_map(|keys| [Some(keys.name), keys.deprecated.map(|old| old.0)]);
    keys.flatten().any(|key| parameters.contains_key(key))
}

/// The templates (name, namespace) that a class gives for one kind.
fn templates(
    kind: SecretKind,
    parameters: &BTreeMap<String, String>,
) -> Result<Option<(&str, &str)>, String> {
    let keys = kind.keys();
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

/// `template` with its tokens replaced, where the result is valid.
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
    let told = quote(template);
    Err(Failure::new(if template == result {
        format!("{told} is not a valid {what}")
    } else {
        format!("{told} resolved to {} which is not a valid {what}", quote(&result))
    }))
}

/// A Secret's values as they were read; none where no Secret is named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SecretValues {
    values: BTreeMap<String, SecretValue>,
    /// The Secret as it was then.
    source: Option<Dependency>,
}

/// A value that is no UTF-8: CSI carries nothing else. The original finds out when it puts the
/// request together, after all checks of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotText;

impl SecretValues {
    /// The values as CSI carries them.
    pub(super) fn credentials(&self) -> Result<Credentials, NotText> {
        let value = |(key, value): (&String, &SecretValue)| {
            let text = String::from_utf8(value.expose().to_vec()).map_err(|_| NotText)?;
            Ok((key.clone(), text))
        };
        self.values.iter().map(value).collect::<Result<_, _>>().map(Credentials::new)
    }

    /// The Secret as it was read: where the driver refuses, another version may do.
    pub(super) fn source(&self) -> Option<&Dependency> {
        self.source.as_ref()
    }
}

/// The API server did not give a Secret.
#[derive(Debug, thiserror::Error)]
#[error("error getting secret {} in namespace {}: {source}", .reference.name, .reference.namespace)]
pub(super) struct Unreadable {
    /// Which.
    reference: SecretReference,
    /// Why.
    source: Arc<ApiError>,
}

impl Unreadable {
    /// Whether there is no such Secret, as opposed to one that cannot be read now.
    pub(super) fn is_missing(&self) -> bool {
        self.source.is_not_found() || matches!(*self.source, ApiError::BadName(_))
    }
}

impl From<Unreadable> for Failure {
    fn from(unreadable: Unreadable) -> Self {
        let secret = awaited(&unreadable.reference);
        let is_missing = unreadable.is_missing();
        Self::new(unreadable).unread(secret, is_missing)
    }
}

fn awaited(reference: &SecretReference) -> Dependency {
    Dependency::object::<Secret>(Some(&reference.namespace), &reference.name)
}

/// Reads a Secret; no reference, no values.
pub(super) async fn read(
    secrets: &CoalescedReads<Secret>,
    reference: Option<&SecretReference>,
) -> Result<SecretValues, Unreadable> {
    let Some(reference) = reference else { return Ok(SecretValues::default()) };
    let unreadable = |source| Unreadable { reference: reference.clone(), source };
    let (namespace, name) = (&reference.namespace, &reference.name);
    let secret = secrets.get(Some(namespace), name).await.map_err(unreadable)?;
    let source = Some(awaited(reference).observed_as(&secret.metadata));
    Ok(SecretValues { values: secret.data.clone(), source })
}

#[cfg(test)]
mod tests;
