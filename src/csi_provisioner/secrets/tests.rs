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
fn a_class_names_secrets_by_pair_default_or_older_keys() {
    let old = [("csiProvisionerSecretName", "old"), ("csiProvisionerSecretNamespace", "ns")];
    let default =
        [("csi.storage.k8s.io/secret-name", "any"), ("csi.storage.k8s.io/secret-namespace", "ns")];
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
        let secret: Secret = serde_json::from_value(json!({"data": data})).unwrap();
        SecretValues { values: secret.data, object: None }
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

/// How a class may set one half of a pair: not at all, by its key, by its older key, by both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Half {
    Absent,
    New,
    Old,
    Both,
    Empty,
}

const HALVES: [Half; 5] = [Half::Absent, Half::New, Half::Old, Half::Both, Half::Empty];

impl Half {
    fn put(self, parameters: &mut BTreeMap<String, String>, new: &str, old: &str, value: &str) {
        let mut set = |key: &str, value: &str| parameters.insert(key.to_owned(), value.to_owned());
        match self {
            Self::Absent => {}
            Self::New => drop(set(new, value)),
            Self::Old => drop(set(old, value)),
            Self::Both => drop((set(new, value), set(old, value))),
            Self::Empty => drop(set(new, "")),
        }
    }
}

/// The result for a kind's own pair, by external-provisioner's rules in their order.
fn expected(
    label: &str,
    name: Half,
    namespace: Half,
    with_default: bool,
) -> Result<Option<(String, String)>, String> {
    let halves = [name, namespace];
    let failed =
        |why: &str| Err(format!("failed to get name and namespace template from params: {why}"));
    if halves.contains(&Half::Both) {
        return failed(&format!(
            "{label} secrets specified in parameters with both \"csi\" and \"csi.storage.k8s.io/\" keys"
        ));
    }
    match halves.iter().filter(|half| **half == Half::Absent).count() {
        2 if with_default => found("ns-default", "default"),
        2 => Ok(None),
        1 => failed(&format!(
            "either name and namespace for {label} secrets specified, Both must be specified"
        )),
        _ if halves.contains(&Half::Empty) => failed(&format!(
            "{label} secrets specified in parameters but value of either namespace or name is empty"
        )),
        _ => found("ns", "own"),
    }
}

#[test]
fn every_kind_follows_the_same_rules_for_its_pair() {
    for keys in SecretKeys::ALL.into_iter().filter(|keys| *keys != SecretKeys::DEFAULT) {
        let (old_name, old_namespace) = keys.deprecated.unwrap_or(("", ""));
        let possible =
            |half: &&Half| keys.deprecated.is_some() || !matches!(half, Half::Old | Half::Both);
        for name in HALVES.iter().filter(possible) {
            for namespace in HALVES.iter().filter(possible) {
                for with_default in [false, true] {
                    let mut parameters = BTreeMap::new();
                    name.put(&mut parameters, keys.name, old_name, "own");
                    namespace.put(&mut parameters, keys.namespace, old_namespace, "ns");
                    if with_default {
                        parameters.extend(map(&[
                            ("csi.storage.k8s.io/secret-name", "default"),
                            ("csi.storage.k8s.io/secret-namespace", "ns-default"),
                        ]));
                    }
                    assert_eq!(
                        resolve_kind(keys, &parameters),
                        expected(keys.label, *name, *namespace, with_default),
                        "{parameters:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_default_pair_must_be_whole_where_a_kind_has_none_of_its_own() {
    let prefix = "failed to get default name and namespace template from params: ";
    let half = format!(
        "{prefix}either name and namespace for Default secrets specified, Both must be specified"
    );
    let empty = format!(
        "{prefix}Default secrets specified in parameters but value of either namespace or name is empty"
    );
    let (name, namespace) =
        ("csi.storage.k8s.io/secret-name", "csi.storage.k8s.io/secret-namespace");
    assert_eq!(resolve(&[(namespace, "ns")]), Err(half));
    assert_eq!(resolve(&[(name, "s"), (namespace, "")]), Err(empty));
    // The default is ignored if the kind's own pair is complete.
    assert_eq!(resolve(&[(name, "s"), (NAME, "own"), (NAMESPACE, "ns")]), found("ns", "own"));
    // An incomplete pair of the kind's own is reported before it.
    let own = resolve(&[(name, "s"), (NAME, "own")]).unwrap_err();
    assert!(own.contains("for Provisioner secrets"), "{own}");
}

#[test]
fn names_and_namespaces_must_be_kubernetes_names() {
    let long = |length: usize| "a".repeat(length);
    for (namespace, name, complaint) in [
        ("ns", "s", None),
        ("0", "0", None),
        ("ns", "a.b-c.d", None),
        (&long(63), &long(253), None),
        (&long(64), "s", Some("namespace name")),
        ("ns", &long(254), Some("secret name")),
        ("a.b", "s", Some("namespace name")),
        ("Ns", "s", Some("namespace name")),
        ("ns-", "s", Some("namespace name")),
        ("../kube-system", "s", Some("namespace name")),
        ("ns", "S", Some("secret name")),
        ("ns", "a/b", Some("secret name")),
        ("ns", "..", Some("secret name")),
        ("ns", "a%2fb", Some("secret name")),
        ("ns", " s", Some("secret name")),
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

/// Variables are parsed as Go's `os.Expand` does.
#[test]
fn dollar_signs_follow_go() {
    let unknown = |template: &str, tokens: &str| {
        Err(format!("error resolving value {}: invalid tokens: {tokens}", quote(template)))
    };
    for (name, expected) in [
        ("x${pvc.name", found("ns", "xpvc.name")),
        ("x${}", found("ns", "x")),
        ("${pv.name}${pv.name}", found("ns", "pvc-1pvc-1")),
        ("a$$", unknown("a$$", r#"["$"]"#)),
        ("a$-b", unknown("a$-b", r#"["-"]"#)),
        ("$1", unknown("$1", r#"["1"]"#)),
        ("$name-$name-$b", unknown("$name-$name-$b", r#"["b" "name"]"#)),
        ("$pvc.name", unknown("$pvc.name", r#"["pvc"]"#)),
        ("${ pvc.name }", unknown("${ pvc.name }", r#"[" pvc.name "]"#)),
        ("${PVC.NAME}", unknown("${PVC.NAME}", r#"["PVC.NAME"]"#)),
        ("${pvc.annotations}", unknown("${pvc.annotations}", r#"["pvc.annotations"]"#)),
        ("${pvc.annotations[team/secret]}", unknown("${pvc.annotations[team/secret]}", r#"["pvc.annotations[team/secret]"]"#)),
        ("${pvc.annotations['']}", unknown("${pvc.annotations['']}", r#"["pvc.annotations['']"]"#)),
        ("s$", Err(r#""s$" is not a valid secret name"#.into())),
        ("$.s", Err(r#""$.s" is not a valid secret name"#.into())),
        ("${}", Err(r#""${}" resolved to "" which is not a valid secret name"#.into())),
        ("x\u{a0}${pvc.name}", Err(r#""x\u00a0${pvc.name}" resolved to "x\u00a0data" which is not a valid secret name"#.into())),
    ] {
        assert_eq!(resolve(&[(NAME, name), (NAMESPACE, "ns")]), expected, "{name}");
    }
}
