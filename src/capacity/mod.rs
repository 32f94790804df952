//! CSIStorageCapacity objects: how much room there is, told to the scheduler.
//!
//! Owns what `--enable-capacity` needs before anything can be published: where the objects go, who
//! owns them ([`owner`]), and whether the driver says at all how much room it has. The
//! publisher itself is still to come: until then the callers refuse what [`Publishing`] asks of it.
//! Leaves the environment, and what is missing there, to `flags`.

pub mod owner;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use self::owner::LookupError;
use crate::{
    csi::{Capabilities, proto::controller_service_capability::rpc::Type as Rpc},
    kube_api::Client,
};

/// What flags and environment say.
#[derive(Debug, Clone, Copy)]
pub struct Settings<'a> {
    /// The objects' namespace, and that of this pod.
    pub namespace: &'a str,
    /// This pod, and how many controllers above it the owner is; `None`: no owner.
    pub owner: Option<(&'a str, u32)>,
}

/// What is to be published.
#[derive(Debug, Clone, PartialEq)]
pub enum Publishing {
    /// Nothing: the driver does not say how much room it has.
    Nothing,
    /// Objects for the driver's classes.
    To(Destination),
}

/// Where the objects go.
#[derive(Debug, Clone, PartialEq)]
pub struct Destination {
    /// The namespace they live in.
    pub namespace: String,
    /// Whose end is theirs too.
    pub owner: Option<OwnerReference>,
}

impl Publishing {
    /// What `--enable-capacity` comes to with this driver. Nothing is written.
    ///
    /// # Errors
    /// The owner cannot be found, whatever the driver can do: as in the original.
    pub async fn prepare(
        client: &Client,
        settings: Settings<'_>,
        driver: &Capabilities,
    ) -> Result<Self, LookupError> {
        let destination = Destination::find(client, settings).await?;
        if driver.controller.contains(&Rpc::GetCapacity) {
            return Ok(Self::To(destination));
        }
        tracing::warn!(
            "the CSI driver does not say how much room it has (GET_CAPACITY): --enable-capacity publishes nothing"
        );
        Ok(Self::Nothing)
    }
}

impl Destination {
    async fn find(client: &Client, settings: Settings<'_>) -> Result<Self, LookupError> {
        let Settings { namespace, owner } = settings;
        let owner = match owner {
            None => None,
            Some((pod, levels)) => Some(owner::look_up(client, namespace, pod, levels).await?),
        };
        if let Some(OwnerReference { api_version, kind, name, .. }) = &owner {
            tracing::info!(
                "using {api_version}/{kind} {name} as owner of CSIStorageCapacity objects"
            );
        }
        Ok(Self { namespace: namespace.to_owned(), owner })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kube_api::testing::{Answer, Server, client, logged};

    /// A server with the pod `prov-0`, which nobody owns.
    fn server() -> Server {
        Server::new(|_, seen| match &*seen.url {
            "/api/v1" => Answer::json(
                200,
                &json!({"resources": [{"name": "pods", "kind": "Pod", "namespaced": true}]}),
            ),
            "/api/v1/namespaces/csi/pods/prov-0" => {
                Answer::json(200, &json!({"metadata": {"uid": "u"}}))
            }
            _ => Answer::refusal(404, "NotFound", "pods \"ghost\" not found"),
        })
    }

    fn settings(owner: Option<(&str, u32)>) -> Settings<'_> {
        Settings { namespace: "csi", owner }
    }

    async fn prepare(settings: Settings<'_>, driver: &[Rpc]) -> Result<Publishing, LookupError> {
        let driver =
            Capabilities { controller: driver.iter().copied().collect(), ..Default::default() };
        Publishing::prepare(&client(&server()), settings, &driver).await
    }

    #[tokio::test]
    async fn objects_go_to_the_namespace_and_belong_to_the_owner() {
        let Ok(Publishing::To(found)) =
            prepare(settings(Some(("prov-0", 0))), &[Rpc::GetCapacity]).await
        else {
            panic!("nothing is published")
        };
        assert_eq!(found.namespace, "csi");
        assert_eq!(found.owner.map(|owner| owner.uid).as_deref(), Some("u"));
        let without = prepare(settings(None), &[Rpc::GetCapacity]).await.unwrap();
        let nobodys = Destination { namespace: "csi".to_owned(), owner: None };
        assert_eq!(without, Publishing::To(nobodys), "and no pod is needed");
    }

    #[tokio::test]
    async fn an_owner_that_is_not_found_is_told_whatever_the_driver_can_do() {
        for (owner, expected) in [
            (("ghost", 0), "get object: pods \"ghost\" not found"),
            (
                ("prov-0", 1),
                "v1/Pod \"prov-0\" in namespace \"csi\" has no controlling owner, cannot unwind the ownership further",
            ),
        ] {
            for driver in [&[Rpc::GetCapacity][..], &[]] {
                let error = prepare(settings(Some(owner)), driver).await.unwrap_err();
                assert_eq!(error.to_string(), expected);
            }
        }
    }

    #[tokio::test]
    async fn a_driver_that_does_not_say_how_much_room_it_has_is_told_of_once() {
        let (log, _guard) = logged();
        let publishing = prepare(settings(Some(("prov-0", 0))), &[Rpc::CreateDeleteVolume]);
        assert_eq!(publishing.await.unwrap(), Publishing::Nothing);
        assert_eq!(log.text().matches("GET_CAPACITY").count(), 1);
    }
}
