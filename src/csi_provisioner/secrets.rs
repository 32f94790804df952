//! Secrets: which a class names for what, and reading one.
//!
//! Owns the rules of naming one, the templates in the names (reference 3.10), and turning a
//! Secret's values into [`Credentials`]. Leaves what a secret is used for to `request`,
//! `persistent_volume` and `deletion`.

use std::collections::BTreeMap;

use super::{
    expand::expand,
    keys::{RESERVED_PREFIX, SecretKind},
    names::{is_dns_label, is_dns_subdomain},
};
use crate::{
    controller::{leftover::Credentials, provisioner::Failure},
    go_text::{quote, quote_list},
    kube_api::{
        ApiError, Client, Name,
        views::{Claim, Secret, SecretValue, View as _},
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
pub(super) struct SecretValues(BTreeMap<String, SecretValue>);

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
        self.0.iter().map(value).collect::<Result<_, _>>().map(Credentials::new)
    }
}

/// The API server did not give a Secret.
#[derive(Debug, thiserror::Error)]
#[error("error getting secret {} in namespace {}: {source}", .reference.name, .reference.namespace)]
pub(super) struct Unreadable {
    /// Which.
    reference: SecretReference,
    /// Why.
    source: ApiError,
}

impl Unreadable {
    /// Whether the Secret does not exist, as opposed to being out of reach for now.
    pub(super) fn is_missing(&self) -> bool {
        self.source.is_not_found()
    }
}

/// Reads a Secret; no reference, no values.
pub(super) async fn read(
    client: &Client,
    reference: Option<&SecretReference>,
) -> Result<SecretValues, Unreadable> {
    let Some(reference) = reference else { return Ok(SecretValues::default()) };
    let unreadable = |source| Unreadable { reference: reference.clone(), source };
    let name = Name::namespaced(&reference.namespace, &reference.name)
        .map_err(|error| unreadable(error.into()))?;
    let secret: Secret = client.get(name).await.map_err(unreadable)?;
    Ok(SecretValues(secret.data))
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
    fn credentials_are_text_and_values_never_printed() {
        let values = |data: serde_json::Value| {
            SecretValues(serde_json::from_value::<Secret>(json!({"data": data})).unwrap().data)
        };
        let read = values(json!({"key": "czNjcjN0", "none": "", "lines": "YQpiAA=="}));
        let exposed = read.credentials().unwrap().expose();
        let expected = [("key", "s3cr3t"), ("lines", "a\nb\0"), ("none", "")];
        assert!(exposed.iter().map(|(k, v)| (k.as_str(), v.as_str())).eq(expected));
        assert!(!format!("{read:?}").contains("s3cr3t"));
        for binary in ["/w==", "czNjcjN0gA==", "7aCA"] {
            let refused = values(json!({"key": binary, "other": "czNjcjN0"})).credentials();
            assert_eq!(refused, Err(NotText), "{binary}");
        }
        assert_eq!(SecretValues::default().credentials(), Ok(Credentials::default()));
    }
}
