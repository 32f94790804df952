//! The fuzz target for the templates by which classes name secrets.

use std::collections::BTreeMap;

use serde_json::json;

use super::{SecretKeys, SecretReference, TemplateContext, reference};
use crate::{
    controller::provisioner::Failure,
    fuzzing::{is_dns_name, lines, text},
    kube::objects::Claim,
};

/// Input of a class's author and of a claim's user.
#[derive(Clone, Copy)]
struct Written<'a> {
    name: &'a str,
    namespace: &'a str,
    claim_namespace: &'a str,
    claim_name: &'a str,
    /// A key and its value.
    annotation: [&'a str; 2],
}

/// Checks that a template yields a valid name or an error, and that the namespace follows from the
/// class and the claim's own namespace alone.
///
/// # Panics
/// If that does not hold.
pub fn secret_template(data: &[u8]) {
    let text = text(data);
    let [name, namespace, claim_namespace, claim_name, key, value] = lines(&text);
    let written =
        Written { name, namespace, claim_namespace, claim_name, annotation: [key, value] };
    let secret = match resolved(written) {
        Ok(secret) => secret,
        Err(why) => return check_refusal(&why),
    };
    assert!(secret.is_some(), "a class that names a secret has none");
    let Some(secret) = secret else { return };
    let SecretReference { namespace: place, name: resolved_name } = &secret;
    assert!(is_dns_name(place) && !place.contains('.') && place.len() <= 63, "{place:?}");
    assert!(is_dns_name(resolved_name), "{resolved_name:?}");
    let filled =
        namespace.replace("${pv.name}", VOLUME).replace("${pvc.namespace}", claim_namespace);
    if !filled.contains('$') {
        assert_eq!(place, &filled);
    }
    if !name.contains('$') {
        assert_eq!(resolved_name, name);
    }
    check_other_user(written, &secret);
}

const VOLUME: &str = "pvc-u";

/// The user's input affects the name, never the namespace.
fn check_other_user(written: Written<'_>, secret: &SecretReference) {
    let [key, _] = written.annotation;
    let other = Written { claim_name: "other", annotation: [key, "other"], ..written };
    if let Ok(Some(moved)) = resolved(other) {
        assert_eq!(moved.namespace, secret.namespace, "a user chooses the namespace");
    }
    let elsewhere = Written { claim_namespace: "elsewhere", ..written };
    if let Ok(Some(moved)) = resolved(elsewhere) {
        let names_it = written.namespace.contains("pvc.namespace");
        assert!(names_it || moved.namespace == secret.namespace, "{}", moved.namespace);
    }
}

/// An error is a single line, whatever the templates contain.
fn check_refusal(why: &Failure) {
    let why = why.to_string();
    assert!(!why.chars().any(char::is_control), "{why:?}");
}

fn resolved(written: Written<'_>) -> Result<Option<SecretReference>, Failure> {
    let [key, value] = written.annotation;
    let claim = json!({"metadata": {"annotations": {key: value}}});
    let claim: Claim = serde_json::from_value(claim).unwrap_or_default();
    let keys = SecretKeys::PROVISIONER;
    let parameters = BTreeMap::from([
        (keys.name.to_owned(), written.name.to_owned()),
        (keys.namespace.to_owned(), written.namespace.to_owned()),
    ]);
    let context = TemplateContext {
        volume_name: VOLUME,
        claim_namespace: written.claim_namespace,
        claim_name: written.claim_name,
        claim: Some(&claim),
    };
    reference(SecretKeys::PROVISIONER, &parameters, &context)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_template_gives_a_valid_name_in_a_namespace_that_no_user_chooses() {
        crate::fuzzing::run("secret_template", 3000, super::secret_template);
    }
}
