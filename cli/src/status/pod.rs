//! Reads the status of the leader: the Lease names its pod, the pod's flags name the port.

use std::time::Duration;

use csi_provisioner::{kube::Client, runtime::Clock, status::Status};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tokio::time::timeout;

use super::Request;
use crate::{
    check::status_address,
    connection::lease_namespace,
    explain::{BY_CLOCK, LeaseView, read_lease},
    fetch::{TIMEOUT, fetch_over},
    objects::host_of,
};

/// How long the pod and the port-forward may take, with what is read through it.
const FORWARD_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the kubelet's own words about a failed port-forward may take.
const ERROR_WAIT: Duration = Duration::from_secs(1);

/// The flag that names the status's address.
const FLAG: &str = "--status-endpoint";

/// Finds the leader by its Lease, and reads its status through a port-forward.
pub(super) async fn status_of_leader(
    client: &Client,
    forwarding: kube::Client,
    request: &Request,
    driver: &str,
    clock: &dyn Clock,
) -> Result<Status, String> {
    let namespace = lease_namespace(request.lease_namespace.as_deref());
    let lease = read_lease(client, &namespace, driver, clock.wall()).await;
    let (namespace, pod) = holder(lease, driver)?;
    let status = through_port_forward(forwarding, &namespace, &pod);
    let status = timeout(FORWARD_TIMEOUT, status).await;
    status.unwrap_or_else(|_| Err(format!("pod {namespace}/{pod}: no answer in time")))
}

/// Namespace and name of the pod that leads. A holder's name begins with its host name, which is the pod's
/// name unless the pod uses the host's network.
fn holder(lease: LeaseView, driver: &str) -> Result<(String, String), String> {
    match lease {
        LeaseView::Held { lease, holder } => {
            let namespace = lease.split('/').next().unwrap_or_default();
            let pod = host_of(&holder)
                .ok_or_else(|| format!("the holder of the Lease {lease} is no pod: {holder:?}"))?;
            Ok((namespace.to_owned(), pod.to_owned()))
        }
        LeaseView::Abandoned { lease, last_holder, .. } if last_holder.is_empty() => {
            Err(format!("no replica leads: the Lease {lease} names no holder"))
        }
        LeaseView::Abandoned { lease, last_holder, pod } => {
            let pod = if pod.is_empty() { pod } else { format!("; {pod}") };
            Err(format!(
                "no replica leads{BY_CLOCK}: the last holder of the Lease {lease} was {last_holder:?}{pod}"
            ))
        }
        LeaseView::Unread { name, why } => Err(format!("cannot read the Lease {name}: {why}")),
        LeaseView::Missing { name } => Err(format!(
            "there is no Lease {name}: the provisioner of {driver} runs without --leader-election, or has never run. Run this in its pod, with {FLAG}"
        )),
    }
}

async fn through_port_forward(
    client: kube::Client,
    namespace: &str,
    name: &str,
) -> Result<Status, String> {
    let what = format!("pod {namespace}/{name}");
    let pods = Api::<Pod>::namespaced(client, namespace);
    let pod = pods.get(name).await.map_err(|error| unread(&what, error))?;
    let port = port(&pod).map_err(|why| format!("{what}: {why}"))?;
    let forwarded = pods.portforward(name, &[port]).await;
    let mut forwarded = forwarded.map_err(|error| unforwarded(port, &what, error))?;
    let error = forwarded.take_error(port);
    let stream = forwarded.take_stream(port).ok_or("the port-forward has no stream")?;
    let why = match timeout(TIMEOUT, fetch_over(stream, "")).await {
        Ok(Ok(status)) => return Ok(status),
        Ok(Err(why)) => why,
        Err(_) => "no answer in time".into(),
    };
    // What the kubelet says is clearer than that the stream has ended.
    let of_kubelet = match error {
        Some(error) => timeout(ERROR_WAIT, error).await.ok().flatten(),
        None => None,
    };
    Err(format!("{what}, port {port}: {}", of_kubelet.unwrap_or_else(|| why.to_string())))
}

/// Why the pod cannot be read. A holder with the host's network has the name of its node.
fn unread(what: &str, error: kube::Error) -> String {
    let is_missing = matches!(&error, kube::Error::Api(status) if status.code == 404);
    let why = format!("cannot read {what}: {}", said(error));
    if !is_missing {
        return why;
    }
    format!(
        "{why}. If the leader uses the host's network, its pod has another name: run this in that pod, with {FLAG}"
    )
}

/// Why the port is not forwarded. API servers that miss "create" do not say so.
fn unforwarded(port: u16, what: &str, error: kube::Error) -> String {
    let is_forbidden = matches!(&error, kube::Error::Api(status) if status.code == 403);
    let needs = if is_forbidden {
        " (needs get on pods/portforward, and create from Kubernetes 1.35 on)"
    } else {
        ""
    };
    format!(
        "cannot forward port {port} of {what}: {}{needs}",
        said(error).trim_end_matches([':', ' '])
    )
}

/// What the server said, or what went wrong on the way.
fn said(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message,
        error => error.to_string(),
    }
}

/// The port that the flags of a container name. Others' flags are not those of csi-provisioner.
fn port(pod: &Pod) -> Result<u16, String> {
    let containers = pod.spec.iter().flat_map(|spec| {
        // A sidecar may be one of them.
        spec.init_containers.iter().flatten().chain(&spec.containers)
    });
    let mut addresses = containers.filter_map(|it| status_address(&serde_json::to_value(it).ok()?));
    let Some(address) = addresses.next_back() else {
        return Err(format!("no container has {FLAG}: add {FLAG}=:8090"));
    };
    let port = address.rsplit(':').next().and_then(|port| port.parse().ok());
    port.ok_or_else(|| format!("{FLAG}={address} names no port"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_port_is_that_of_the_flag() {
        for (args, expected) in [
            (json!(["--status-endpoint=:8090"]), Ok(8090)),
            (json!(["--status-endpoint", "127.0.0.1:8091", "--v=5"]), Ok(8091)),
            (json!(["--status-endpoint=:1", "--status-endpoint=[::1]:2"]), Ok(2)),
            (json!(["--v=5"]), Err("no container has --status-endpoint")),
            (json!(["--status-endpoints=:1"]), Err("no container has --status-endpoint")),
            (json!(["--status-endpoint=:$(PORT)"]), Ok(8092)),
            (json!(["--status-endpoint=$(OTHER)"]), Err("--status-endpoint=$(OTHER) names no")),
        ] {
            let env = json!([{"name": "PORT", "value": "8092"}]);
            // The provisioner may be a sidecar among the init containers.
            let provisioner = json!([{"name": "p", "args": args, "env": env}]);
            let spec = json!({"containers": [{"name": "driver"}], "initContainers": provisioner});
            let port =
                port(&serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap());
            match expected {
                Ok(expected) => assert_eq!(port, Ok(expected), "{args}"),
                Err(text) => assert!(port.unwrap_err().starts_with(text), "{args}"),
            }
        }
    }

    #[test]
    fn a_pod_that_cannot_be_read_is_named_with_the_servers_words() {
        let refused = |code, message: &str| {
            let status = kube::core::Status::failure(message, "Reason").with_code(code);
            unread("pod csi/n1", kube::Error::Api(status.boxed()))
        };
        assert_eq!(refused(403, "no"), "cannot read pod csi/n1: no");
        assert!(
            refused(404, "pods not found").contains("not found. If the leader uses the host's")
        );
    }

    /// kube-apiserver 1.36 without "create" ends its message there.
    #[test]
    fn a_refused_port_forward_names_the_verbs() {
        let refused = |code| {
            let status = kube::core::Status::failure("pods \"p\" is forbidden: ", "Reason");
            unforwarded(1, "pod csi/p", kube::Error::Api(status.with_code(code).boxed()))
        };
        assert!(refused(403).ends_with(
            "forbidden (needs get on pods/portforward, and create from Kubernetes 1.35 on)"
        ));
        assert!(refused(404).ends_with("forbidden"));
    }

    #[test]
    fn a_lease_without_a_leader_says_why() {
        let held = |by: &str| LeaseView::Held { lease: "csi/d".into(), holder: by.into() };
        assert_eq!(holder(held("pod-1_4"), "d"), Ok(("csi".to_owned(), "pod-1".to_owned())));
        let abandoned = |by: &str| LeaseView::Abandoned {
            lease: "csi/d".into(),
            last_holder: by.into(),
            pod: String::new(),
        };
        for (view, why) in [
            (held("x;reboot_4"), "is no pod"),
            (abandoned("a"), "leads by this machine's clock"),
            (abandoned(""), "no replica leads: the Lease csi/d names no holder"),
            (LeaseView::Missing { name: "d".into() }, "without --leader-election"),
        ] {
            let refused = holder(view, "d").unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
