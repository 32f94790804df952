//! The names of the candidate, the Lease, its namespace and the event source. Pure functions; what is read
//! from the machine is passed in.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};

/// A candidate's identity: the Lease's `holderIdentity`.
///
/// external-provisioner uses the bare host name. A restarted container then leads again at once, but two
/// pods in the host's network take each other for themselves. The pod's UID avoids that: it is unique per
/// pod and the same for restarted containers. If it is unknown, the bare host name is used, which another
/// process may have as well. A Lease with that name that another process wrote then counts as own only
/// after it was unchanged for two retry periods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CandidateIdentity {
    /// The `holderIdentity`.
    pub(super) name: String,
    /// Whether no process outside this pod can have the name.
    pub(super) unique: bool,
}

impl CandidateIdentity {
    /// Creates the identity of a process on `host`, in the pod with this UID if that is known.
    pub fn new(host: &str, pod_uid: Option<&str>) -> Self {
        let host = sanitized(host);
        match pod_uid {
            Some(uid) => Self { name: format!("{host}_{uid}"), unique: true },
            None => Self { name: host, unique: false },
        }
    }

    /// The `holderIdentity`.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Converts to the form of client-go's candidate names: letters, digits and dashes, no dash at the end.
fn sanitized(name: &str) -> String {
    let mut name = dashed(name);
    if name.is_empty() || name.ends_with('-') {
        name.push('X');
    }
    name
}

fn dashed(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// The Lease's name for a driver: external-provisioner's if the API server accepts that, else lower-cased
/// and without dashes at the ends.
pub fn lease_name(driver: &str) -> String {
    let name = dashed(driver).to_ascii_lowercase();
    match name.trim_matches('-') {
        "" => "x".to_owned(),
        name => name.to_owned(),
    }
}

/// The `source.component` of the election's events.
pub fn event_component(driver: &str, host: &str) -> String {
    format!("{}/{host}", driver.replace('/', "-"))
}

/// The Lease's namespace: the flag, else `POD_NAMESPACE`, else the service account's, else
/// `default`.
pub fn namespace(
    flag: Option<&str>,
    pod_namespace: Option<&str>,
    service_account: Option<&str>,
) -> String {
    let candidates = [flag, pod_namespace, service_account.map(str::trim)];
    let found = candidates.into_iter().flatten().find(|name| !name.is_empty());
    found.unwrap_or("default").to_owned()
}

/// The pod's UID in the claims of a bound service account token.
pub fn pod_uid_from_token(token: &str) -> Option<String> {
    let claims = BASE64_URL_SAFE_NO_PAD.decode(token.trim().split('.').nth(1)?).ok()?;
    let claims: serde_json::Value = serde_json::from_slice(&claims).ok()?;
    let uid = claims.get("kubernetes.io")?.get("pod")?.get("uid")?.as_str()?;
    is_uid(uid).then(|| uid.to_owned())
}

/// Whether the text is a UUID.
fn is_uid(text: &str) -> bool {
    text.len() == 36 && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_consists_of_the_host_and_the_pod_if_known() {
        for (host, uid, name, unique) in [
            ("pod-a", None, "pod-a", false),
            ("pod-a", Some("1-2"), "pod-a_1-2", true),
            ("node.example.com", None, "node-example-com", false),
            ("Node_1.", None, "Node-1-X", false),
            ("", None, "X", false),
            ("h.", Some("u"), "h-X_u", true),
        ] {
            let identity = CandidateIdentity::new(host, uid);
            assert_eq!((identity.name(), identity.unique), (name, unique), "{host:?}");
        }
    }

    #[test]
    fn lease_names_are_external_provisioners_if_those_are_valid() {
        for (driver, name) in [
            ("hostpath.csi.k8s.io", "hostpath-csi-k8s-io"),
            ("rook-ceph.rbd.csi.ceph.com", "rook-ceph-rbd-csi-ceph-com"),
            ("a/b_c", "a-b-c"),
            ("Disk.CSI.example.com", "disk-csi-example-com"),
            ("disk.example.com.", "disk-example-com"),
            (".disk", "disk"),
            ("\u{e9}a", "a"),
            ("..", "x"),
            ("", "x"),
        ] {
            assert_eq!(lease_name(driver), name, "{driver:?}");
        }
    }

    #[test]
    fn the_first_given_namespace_is_used() {
        assert_eq!(namespace(Some("flag"), Some("env"), Some("file")), "flag");
        assert_eq!(namespace(Some(""), Some("env"), Some("file")), "env");
        assert_eq!(namespace(None, Some(""), Some(" file\n")), "file");
        assert_eq!(namespace(None, None, Some(" \n")), "default");
        assert_eq!(namespace(None, None, None), "default");
    }

    fn token(claims: &str) -> String {
        format!("head.{}.signature\n", BASE64_URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn a_bound_token_contains_the_pods_uid() {
        let uid = "5a9e1f3c-0000-4000-8000-00000000000a";
        let bound = format!(r#"{{"kubernetes.io":{{"pod":{{"name":"p","uid":"{uid}"}}}}}}"#);
        assert_eq!(pod_uid_from_token(&token(&bound)).as_deref(), Some(uid));
        for claims in [
            r#"{"kubernetes.io":{"serviceaccount":{"uid":"5a9e1f3c-0000-4000-8000-00000000000a"}}}"#,
            r#"{"kubernetes.io":{"pod":{"uid":"../../etc"}}}"#,
            "no json",
        ] {
            assert_eq!(pod_uid_from_token(&token(claims)), None, "{claims}");
        }
        for text in ["", "x", "a.b", "a.!!.c"] {
            assert_eq!(pod_uid_from_token(text), None, "{text}");
        }
    }
}
