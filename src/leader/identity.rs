//! Names: the candidate's, the Lease's, the namespace's, the event source's. All pure; what is
//! read from the machine is passed in.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};

/// Who a candidate is: the Lease's `holderIdentity`.
///
/// The original takes the bare host name, so that a restarted container leads again at once, but
/// two pods in the host's network believe they are one. With the pod's UID both hold: it is one
/// per pod and outlives its containers. Where no UID is known the bare host name remains; then
/// another process may bear it too, and a Lease that bears it but was written by another process
/// counts as ours only after it stood still for two retry periods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// What stands in the Lease.
    pub(super) name: String,
    /// Whether no process outside this pod can bear the name.
    pub(super) unique: bool,
}

impl Identity {
    /// The identity of a process on `host`, in the pod with this UID if it is known.
    pub fn new(host: &str, pod_uid: Option<&str>) -> Self {
        let host = sanitized(host);
        match pod_uid {
            Some(uid) => Self { name: format!("{host}_{uid}"), unique: true },
            None => Self { name: host, unique: false },
        }
    }

    /// What stands in the Lease.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// client-go candidates' names: letters, digits and dashes, with no dash at the end.
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

/// The Lease's name for a driver: the original's wherever the API server accepts that; else
/// lower-cased, and trimmed of dashes at its ends.
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

/// The pod's UID in `/proc/self/mountinfo`: the kubelet mounts two files of the pod's own
/// directory, `.../pods/<uid>/...`, into every container. Other mounts may be of other pods.
pub fn pod_uid_from_mountinfo(mountinfo: &str) -> Option<String> {
    mountinfo.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(3);
        let (root, target) = (fields.next()?, fields.next()?);
        if !matches!(target, "/etc/hosts" | "/dev/termination-log") {
            return None;
        }
        let uid = root.split('/').skip_while(|part| *part != "pods").nth(1)?;
        is_uid(uid).then(|| uid.to_owned())
    })
}

/// A UUID, or the bare hash that a static pod has in its place.
fn is_uid(text: &str) -> bool {
    matches!(text.len(), 32 | 36) && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}
