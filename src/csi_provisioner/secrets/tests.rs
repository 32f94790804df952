use serde_json::json;

use super::*;
use crate::csi_provisioner::testing::map;

fn resolve(parameters: &[(&str, &str)]) -> Result<Option<(String, String)>, String> {
    resolve_kind(SecretKeys::PROVISIONER, &map(parameters))
}

fn resolve_kind(
    keys: SecretKeys,
    parameters: &BTreeMap<String, String>,
) -> Result<Option<(String, String)>, String> {
    let claim: Claim = serde_json::from_value(json!({
        "metadata": {"name": "data", "namespace": "shop", "annotations": {"team/secret": "blue", "odd": "No Name"}}
    }))
    .unwrap();
    let context = TemplateContext::of_claim(&claim, "pvc-1");
    reference(keys, parameters, &context)
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
fn credentials_are_text_and_values_never_printed() {
    let values = |data: serde_json::Value| {
        let secret: Secret = serde_json::from_value(json!({"data": data})).unwrap();
        let SecretData::Values(values) = secret.data else { panic!("it is small") };
        SecretValues { values, object: None }
    };
    let read = values(json!({"key": "czNjcjN0", "none": "", "lines": "YQpiAA=="}));
    let exposed = read.credentials().unwrap().expose();
    let expected = [("key", "s3cr3t"), ("lines", "a\nb\0"), ("none", "")];
    assert!(exposed.iter().map(|(k, v)| (k.as_str(), v.as_str())).eq(expected));
    assert!(!format!("{read:?}").contains("s3cr3t"));
    for binary in ["/w==", "czNjcjN0gA==", "7aCA"] {
        let refused = values(json!({"key": binary, "other": "czNjcjN0"})).credentials();
        assert_eq!(refused, Err(NotUtf8), "{binary}");
    }
    assert_eq!(SecretValues::default().credentials(), Ok(Credentials::default()));
}

#[test]
fn a_secret_that_is_too_large_is_waited_for_until_it_changes() {
    let reference = SecretReference { namespace: "ns".into(), name: "s".into() };
    let unreadable = Unreadable { reference, source: Cause::TooLarge };
    assert!(!unreadable.is_missing(), "nothing is deleted without it");
    let failure = Failure::from(unreadable);
    assert_eq!(
        failure.to_string(),
        "error getting secret s in namespace ns: its keys and values take more than 64 KiB, where each key counts 128 bytes more"
    );
    assert_eq!(failure.dependencies, [Dependency::object::<Secret>(Some("ns"), "s")]);
    assert!(failure.is_lasting && crate::kube::objects::MAX_SECRET == 64 << 10);
}

#[test]
fn every_kind_follows_the_same_rules_for_its_pair() {
    let default =
        [("csi.storage.k8s.io/secret-name", "any"), ("csi.storage.k8s.io/secret-namespace", "all")];
    let failed =
        |why: &str| Err(format!("failed to get name and namespace template from params: {why}"));
    for keys in SecretKeys::ALL.into_iter().filter(|keys| *keys != SecretKeys::DEFAULT) {
        let (name, namespace, label) = ((keys.name, "own"), (keys.namespace, "ns"), keys.label);
        let of = |pairs: &[(&str, &str)]| {
            [map(pairs), map(&[pairs, &default].concat())].map(|it| resolve_kind(keys, &it))
        };
        assert_eq!(of(&[]), [Ok(None), found("all", "any")]);
        assert_eq!(of(&[name, namespace]), [found("ns", "own"), found("ns", "own")]);
        let half = format!(
            "either name and namespace for {label} secrets specified, Both must be specified"
        );
        let empty = format!(
            "{label} secrets specified in parameters but value of either namespace or name is empty"
        );
        let mut refused = vec![
            (vec![name], &half),
            (vec![namespace], &half),
            (vec![(keys.name, "")], &half),
            (vec![(keys.name, ""), namespace], &empty),
            (vec![name, (keys.namespace, "")], &empty),
        ];
        let both = format!(
            "{label} secrets specified in parameters with both \"csi\" and \"csi.storage.k8s.io/\" keys"
        );
        if let Some((old_name, old_namespace)) = keys.deprecated {
            let (old_name, old_namespace) = ((old_name, "old"), (old_namespace, "older"));
            assert_eq!(of(&[old_name, old_namespace])[1], found("older", "old"));
            assert_eq!(of(&[old_name, namespace])[1], found("ns", "old"));
            refused.push((vec![old_name], &half));
            refused.push((vec![name, old_name, namespace], &both));
            refused.push((vec![namespace, old_namespace], &both));
        }
        for (pairs, why) in refused {
            assert_eq!(of(&pairs), [failed(why), failed(why)], "{pairs:?}");
        }
    }
}

#[test]
fn names_and_namespaces_must_be_kubernetes_names() {
    let long = |length: usize| "a".repeat(length);
    for (namespace, name, complaint) in [
        ("ns", "s", None),
        (&long(63), &long(253), None),
        (&long(64), "s", Some("namespace name")),
        ("ns", &long(254), Some("secret name")),
        ("a.b", "s", Some("namespace name")),
        ("Ns", "s", Some("namespace name")),
        ("../kube-system", "s", Some("namespace name")),
        ("ns", "a/b", Some("secret name")),
        ("ns", "..", Some("secret name")),
        ("ns", "s\n", Some("secret name")),
        // The namespace is reported first.
        ("Ns", "S", Some("namespace name")),
    ] {
        let got = resolve(&[(NAME, name), (NAMESPACE, namespace)]);
        match complaint {
            None => assert_eq!(got, found(namespace, name)),
            Some(what) => {
                let text = got.unwrap_err();
                assert!(text.ends_with(&format!("is not a valid {what}")), "{text}");
            }
        }
    }
}
