//! Secrets: which a class names for what, and reading one.
//!
//! Owns the rules of naming one, the templates in the names
//! (reference 3.10), and [`Credentials`], which can't be printed. Leaves what a secret is used
//! for to `request`, `persistent_volume` and `deletion`.

use std::{collections::BTreeMap, fmt};

use super::{
    expand::expand,
    keys::{RESERVED_PREFIX, SecretKind},
    names::{is_dns_label, is_dns_subdomain},
};
use crate::{
    controller::provisioner::Failure,
    go_text::{quote, quote_list},
    kube_api::{
        ApiError, Client, Name,
        views::{Claim, Secret, View as _},
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

/// Whether a class names a secret that this program reads for the driver.
pub fn names_credentials(parameters: &BTreeMap<String, String>) -> bool {
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

/// What a driver needs to know to be let in: a Secret's values as CSI carries them. Prints as
/// nothing but its being there.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Credentials(BTreeMap<String, String>);

impl Credentials {
    /// The values for a request's `secrets` field, which is printed stripped.
    pub(super) fn expose(&self) -> BTreeMap<String, String> {
        self.0.clone()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***stripped***")
    }
}

/// Why a Secret could not be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SecretError {
    /// The API server did not give it.
    #[error("error getting secret {} in namespace {}: {source}", .reference.name, .reference.namespace)]
    Unreadable {
        /// Which.
        reference: SecretReference,
        /// Why.
        source: ApiError,
    },
    /// CSI carries text; this value is something else.
    #[error("secret {} in namespace {}: the value of {key:?} is not valid UTF-8, and CSI carries nothing else", .reference.name, .reference.namespace)]
    NotText {
        /// Which.
        reference: SecretReference,
        /// The value's key.
        key: String,
    },
}

impl SecretError {
    /// Whether the Secret does not exist, as opposed to being out of reach for now.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Self::Unreadable { source, .. } if source.is_not_found())
    }
}

/// Reads a Secret; no reference, no credentials.
pub(super) async fn read(
    client: &Client,
    reference: Option<&SecretReference>,
) -> Result<Credentials, SecretError> {
    let Some(reference) = reference else { return Ok(Credentials::default()) };
    let unreadable = |source| SecretError::Unreadable { reference: reference.clone(), source };
    let name = Name::namespaced(&reference.namespace, &reference.name)
        .map_err(|error| unreadable(error.into()))?;
    let secret: Secret = client.get(name).await.map_err(unreadable)?;
    credentials(&secret, reference)
}

fn credentials(secret: &Secret, reference: &SecretReference) -> Result<Credentials, SecretError> {
    let value = |(key, value): (&String, &crate::kube_api::views::SecretValue)| {
        let text = String::from_utf8(value.expose().to_vec());
        let text = text
            .map_err(|_| SecretError::NotText { reference: reference.clone(), key: key.clone() })?;
        Ok((key.clone(), text))
    };
    secret.data.iter().map(value).collect::<Result<_, _>>().map(Credentials)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resolve(parameters: &[(&str, &str)]) -> Result<Option<(String, String)>, String> {
        let parameters =
            parameters.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let claim: Claim = serde_json::from_value(json!({
            "metadata": {"name": "data", "namespace": "shop", "annotations": {"team/secret": "blue", "odd": "No Name"}}
        }))
        .unwrap();
        let context = TemplateContext::of_claim(&claim, "pvc-1");
        reference(SecretKind::Provisioner, &parameters, &context)
            .map(|found| found.map(|found| (found.namespace, found.name)))
            .map_err(|failure| failure.to_string())
    }

    const NAME: &str = "csi.storage.k8s.io/provisioner-secret-name";
    const NAMESPACE: &str = "csi.storage.k8s.io/provisioner-secret-namespace";

    #[allow(clippy::unnecessary_wraps)] // what `resolve` gives
    fn found(namespace: &str, name: &str) -> Result<Option<(String, String)>, String> {
        Ok(Some((namespace.into(), name.into())))
    }

    #[test]
    fn a_class_names_secrets_by_pair_default_or_older_keys() {
        let old = [("csiProvisionerSecretName", "old"), ("csiProvisionerSecretNamespace", "ns")];
        let default = [
            ("csi.storage.k8s.io/secret-name", "any"),
            ("csi.storage.k8s.io/secret-namespace", "ns"),
        ];
        assert_eq!(resolve(&[]), Ok(None));
        assert_eq!(resolve(&[(NAME, "s"), (NAMESPACE, "ns")]), found("ns", "s"));
        assert_eq!(resolve(&old), found("ns", "old"));
        assert_eq!(resolve(&default), found("ns", "any"));
        assert_eq!(
            resolve(&[default[0], default[1], (NAME, "s"), (NAMESPACE, "ns")]),
            found("ns", "s")
        );
        assert_eq!(resolve(&[old[0], (NAMESPACE, "ns")]), found("ns", "old"));
    }

    #[test]
    fn pairs_must_be_whole() {
        let prefix = "failed to get name and namespace template from params: ";
        let table: [(&[(&str, &str)], String); 5] = [
            (&[(NAME, "s")], format!("{prefix}either name and namespace for Provisioner secrets specified, Both must be specified")),
            (&[(NAME, ""), (NAMESPACE, "ns")], format!("{prefix}Provisioner secrets specified in parameters but value of either namespace or name is empty")),
            (&[(NAME, "s"), (NAMESPACE, "")], format!("{prefix}Provisioner secrets specified in parameters but value of either namespace or name is empty")),
            (&[(NAME, "s"), ("csiProvisionerSecretName", "s"), (NAMESPACE, "ns")], format!("{prefix}Provisioner secrets specified in parameters with both \"csi\" and \"csi.storage.k8s.io/\" keys")),
            (&[("csi.storage.k8s.io/secret-name", "s")], "failed to get default name and namespace template from params: either name and namespace for Default secrets specified, Both must be specified".into()),
        ];
        for (parameters, expected) in table {
            assert_eq!(resolve(parameters), Err(expected), "{parameters:?}");
        }
    }

    #[test]
    fn templates_speak_of_volume_claim_and_annotations() {
        let table = [
            ("${pvc.namespace}", "${pv.name}", found("shop", "pvc-1")),
            ("${pv.name}", "${pvc.name}.${pvc.namespace}", found("pvc-1", "data.shop")),
            ("ns", "${pvc.annotations['team/secret']}", found("ns", "blue")),
            ("${pvc.name}", "s", Err(r#"error resolving value "${pvc.name}": invalid tokens: ["pvc.name"]"#.into())),
            ("ns", "${b}-${a}", Err(r#"error resolving value "${b}-${a}": invalid tokens: ["a" "b"]"#.into())),
            ("ns", "${pvc.annotations['none']}", Err(r#"error resolving value "${pvc.annotations['none']}": invalid tokens: ["pvc.annotations['none']"]"#.into())),
            ("ns", "${pvc.annotations['odd']}", Err(r#""${pvc.annotations['odd']}" resolved to "No Name" which is not a valid secret name"#.into())),
            ("Ns", "s", Err(r#""Ns" is not a valid namespace name"#.into())),
        ];
        for (namespace, name, expected) in table {
            assert_eq!(
                resolve(&[(NAME, name), (NAMESPACE, namespace)]),
                expected,
                "{namespace} {name}"
            );
        }
    }

    #[test]
    fn credentials_are_text_and_never_printed() {
        let reference = SecretReference { namespace: "ns".into(), name: "s".into() };
        let secret = |value: &str| {
            serde_json::from_value::<Secret>(json!({"data": {"key": value}})).unwrap()
        };
        let read = credentials(&secret("czNjcjN0"), &reference).unwrap();
        assert_eq!(read.expose()["key"], "s3cr3t");
        assert_eq!(format!("{read:?}"), "***stripped***");
        let refused = credentials(&secret("/w=="), &reference).unwrap_err();
        assert!(
            refused.to_string().contains("the value of \"key\" is not valid UTF-8"),
            "{refused}"
        );
    }
}
