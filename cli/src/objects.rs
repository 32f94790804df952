//! What the commands read of objects that the sidecar does not read so: events of others, and Leases in
//! whichever namespace they are.

use std::{fmt::Debug, time::Duration};

use csi_provisioner::{
    controller::model::record::dns_name_or_empty,
    kube::{ApiError, Client, Name, objects::View},
    leader,
};
use jiff::Timestamp;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Event};
use kube::{Api, Resource, api::ListParams, core::NamespaceResourceScope};
use serde::de::DeserializeOwned;

/// The events about the object, which is of this kind; `namespace` is theirs.
///
/// # Errors
/// They cannot be listed.
pub(crate) async fn events_about(
    client: &Client,
    namespace: &str,
    kind: &str,
    object: &impl View,
) -> Result<Vec<Event>, ApiError> {
    let name = object.name();
    Name::namespaced(namespace, name)?;
    let about = format!("involvedObject.kind={kind},involvedObject.name={name}");
    let api = Api::<Event>::namespaced(client.kube(), namespace);
    let listed = api.list(&ListParams::default().fields(&about)).await;
    let mut events = listed.map_err(|error| ApiError::of_kube(error, "events"))?.items;
    events.retain(|event| event.involved_object.uid.as_deref() == Some(object.uid()));
    Ok(events)
}

/// When it last happened, in whichever field its writer says so.
pub(crate) fn last_time(event: &Event) -> Option<Timestamp> {
    let of_series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let precise = of_series.map(|time| time.0);
    let [last, first, created] =
        [&event.last_timestamp, &event.first_timestamp, &event.metadata.creation_timestamp]
            .map(|time| time.as_ref().map(|time| time.0));
    let began = event.event_time.as_ref().map(|time| time.0);
    precise.or(last).or(began).or(first).or(created)
}

/// The Lease of this name, in `namespace` or, if that is empty, in the only one that has it: whoever may
/// write Leases in some namespace can write one of this name, so none of several is preferred.
///
/// # Errors
/// It cannot be read, or there are several.
pub(crate) async fn find_lease(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<Lease>, String> {
    if !namespace.is_empty() {
        return get_opt(client, namespace, name).await.map_err(|error| error.to_string());
    }
    let named = ListParams::default().fields(&format!("metadata.name={name}"));
    let listed = Api::<Lease>::all(client.kube()).list(&named).await;
    let found = listed.map_err(|error| ApiError::of_kube(error, "leases").to_string())?.items;
    if found.len() > 1 {
        let namespaces = found.into_iter().filter_map(|lease| lease.metadata.namespace);
        let namespaces = namespaces.collect::<Vec<_>>().join(", ");
        return Err(format!(
            "several namespaces have one: {namespaces}; give --leader-election-namespace"
        ));
    }
    Ok(found.into_iter().next())
}

/// The object of this name; `None` if it does not exist. A refusal does not reach kube-rs's `get_opt`.
///
/// # Errors
/// It cannot be read.
pub(crate) async fn get_opt<K>(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<K>, ApiError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    K: Clone + Debug + DeserializeOwned,
{
    Name::namespaced(namespace, name)?;
    let read = Api::<K>::namespaced(client.kube(), namespace).get(name).await;
    match read.map_err(|error| ApiError::of_kube(error, &K::plural(&()))) {
        Err(error) if error.is_not_found() => Ok(None),
        read => read.map(Some),
    }
}

/// The holder at `now`. A Lease without a duration is held.
pub(crate) fn current_holder(lease: &Lease, now: Timestamp) -> Option<&str> {
    let spec = lease.spec.as_ref()?;
    let holder = Some(leader::holder(spec)).filter(|holder| !holder.is_empty())?;
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let (Some(renewed), Some(seconds)) = (&spec.renew_time, seconds) else {
        return Some(holder);
    };
    let since = Duration::try_from(now.duration_since(renewed.0)).unwrap_or_default();
    (since <= Duration::from_secs(seconds)).then_some(holder)
}

/// The host name in a holder's identity, which is the pod's name unless the pod uses the host's network.
/// `None` if it is no DNS name: whoever may write the Lease chose the text, and an admin copies commands.
pub(crate) fn host_of(holder: &str) -> Option<&str> {
    let host = holder.split('_').next().map(dns_name_or_empty);
    host.filter(|host| !host.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{Answer, Server, client};
    use csi_provisioner::kube::objects::Claim;

    #[test]
    fn the_last_time_is_found_whichever_field_has_it() {
        let time = |second: u32| format!("2026-01-01T00:00:0{second}Z");
        let precise = |second: u32| format!("2026-01-01T00:00:0{second}.000000Z");
        for (event, second) in [
            (json!({"metadata": {"creationTimestamp": time(1)}}), 1),
            (json!({"firstTimestamp": time(2)}), 2),
            (json!({"firstTimestamp": time(1), "eventTime": precise(2), "lastTimestamp": null}), 2),
            (json!({"firstTimestamp": time(1), "lastTimestamp": time(3)}), 3),
            (json!({"series": {"lastObservedTime": precise(3)}, "lastTimestamp": time(1)}), 3),
        ] {
            let read: Event = serde_json::from_value(event.clone()).unwrap();
            assert_eq!(last_time(&read).map(|it| it.to_string()), Some(time(second)), "{event}");
        }
    }

    #[tokio::test]
    async fn events_of_an_earlier_object_of_the_name_are_left_out() {
        let server = Server::new(|asked| {
            assert!(asked.url.contains("involvedObject.name%3Ddata"), "{asked:?}");
            let items = ["before", "u"].map(|uid| json!({"involvedObject": {"uid": uid}}));
            Answer::json(200, &json!({"metadata": {}, "items": items}))
        });
        let metadata = json!({"namespace": "shop", "name": "data", "uid": "u"});
        let claim: Claim = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        let events = events_about(&client(&server), "shop", "PersistentVolumeClaim", &claim).await;
        let uids: Vec<_> = events.unwrap().into_iter().map(|it| it.involved_object.uid).collect();
        assert_eq!(uids, [Some("u".to_owned())]);
    }

    #[test]
    fn a_lease_is_held_until_it_has_run_out() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let lease = |holder: &str| json!({"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "1970-01-01T00:00:10.000000Z"});
        for (spec, now, expected) in [
            (lease("a"), 10, Some("a")),
            (lease("a"), 25, Some("a")),
            (lease("a"), 26, None),
            (lease(""), 10, None),
            (json!({"holderIdentity": "a"}), 10, Some("a")),
            (json!({"holderIdentity": "a", "leaseDurationSeconds": -1}), 10, Some("a")),
            (json!({}), 10, None),
        ] {
            let lease: Lease = serde_json::from_value(json!({"spec": &spec})).unwrap();
            assert_eq!(current_holder(&lease, at(now)), expected, "{spec} {now}");
        }
    }
}
