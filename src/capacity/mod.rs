//! CSIStorageCapacity objects: how much room there is, told to the scheduler.
//!
//! Owns what `--enable-capacity` needs before anything can be published: where the objects go, who
//! owns them ([`owner`]), and whether the driver says at all how much room it has. The
//! publisher itself is still to come: until then the callers refuse what [`Publishing`] asks of it.
//! Leaves reading the environment to `flags`.

pub mod owner;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::{
    csi::{Capabilities, proto::controller_service_capability::rpc::Type as Rpc},
    kube_api::Client,
};

/// What flags and environment say.
#[derive(Debug, Clone, Copy)]
pub struct Settings<'a> {
    /// The objects' namespace, and that of this pod; empty where the environment has none.
    pub namespace: &'a str,
    /// This pod (empty where the environment names none), and how many controllers above it the owner is; `None`: no owner.
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

/// Why nothing can be published; in the original's words (reference 1.3).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The objects need a namespace.
    #[error("need NAMESPACE env variable for CSIStorageCapacity objects")]
    NoNamespace,
    /// The way to the owner begins at the pod.
    #[error("need POD_NAME env variable to determine CSIStorageCapacity owner")]
    NoPodName,
    /// There is no such owner, or it cannot be found out.
    #[error("look up owner(s) of pod: {0}")]
    Owner(#[from] owner::LookupError),
}

impl Publishing {
    /// What `--enable-capacity` comes to with this driver. Nothing is written.
    ///
    /// # Errors
    /// What is missing, whatever the driver can do: as in the original.
    pub async fn prepare(
        client: &Client,
        settings: Settings<'_>,
        driver: &Capabilities,
    ) -> Result<Self, Error> {
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
    async fn find(client: &Client, settings: Settings<'_>) -> Result<Self, Error> {
        let Settings { namespace, owner } = settings;
        if namespace.is_empty() {
            return Err(Error::NoNamespace);
        }
        let owner = match owner {
            None => None,
            Some(("", _)) => return Err(Error::NoPodName),
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

    async fn prepare(settings: Settings<'_>, driver: &[Rpc]) -> Result<Publishing, Error> {
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
    async fn what_is_missing_is_told_in_this_order_whatever_the_driver_can_do() {
        let namespace = "need NAMESPACE env variable for CSIStorageCapacity objects";
        let pod = "need POD_NAME env variable to determine CSIStorageCapacity owner";
        for (settings, expected) in [
            (Settings { namespace: "", owner: Some(("", 1)) }, namespace),
            (Settings { namespace: "", owner: None }, namespace),
            (settings(Some(("", 0))), pod),
            (
                settings(Some(("ghost", 0))),
                "look up owner(s) of pod: get object: pods \"ghost\" not found",
            ),
            (
                settings(Some(("prov-0", 1))),
                "look up owner(s) of pod: v1/Pod \"prov-0\" in namespace \"csi\" has no controlling owner, cannot unwind the ownership further",
            ),
        ] {
            for driver in [&[Rpc::GetCapacity][..], &[]] {
                let error = prepare(settings, driver).await.unwrap_err();
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
