//! The claims that wait for a pod: the leader does not know them, as their volumes are nobody's yet.

use csi_provisioner::{
    controller::ownership::ProvisionerIdentity,
    kube::{
        ApiError, Client, Scope,
        objects::{Claim, StorageClass, View as _},
    },
};
use csi_translation::Migration;

use crate::{
    check::claims::{Waiting, waiting},
    connection::list,
};

/// Reads the claims of this driver that wait for a pod that uses them, as `namespace/name`.
///
/// # Errors
/// What cannot be read.
pub(super) async fn for_a_pod(client: &Client, driver: &str) -> Result<Vec<String>, ApiError> {
    let classes: Vec<StorageClass> = list(client, &Scope::all(), |_| true).await?;
    let claims: Vec<Claim> = list(client, &Scope::all(), Claim::is_unbound).await?;
    // The gate for RBD is off by default, and which flags the leader has is not known here.
    let in_tree = Migration::of_driver(driver, false).map(|it| it.in_tree_name().to_owned());
    let identity = ProvisionerIdentity { in_tree, ..ProvisionerIdentity::of_driver(driver) };
    let mut waiting = waiting(&identity, &claims, &classes);
    waiting.retain(|(why, _)| *why == Waiting::NoConsumer);
    Ok(waiting.iter().map(|(_, it)| format!("{}/{}", it.namespace(), it.name())).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{self, Answer, Server};

    #[tokio::test]
    async fn claims_of_the_in_tree_plugins_class_are_among_them() {
        let list = |items| Answer::json(200, &json!({"metadata": {}, "items": items}));
        let server = Server::new(move |asked| {
            if asked.url.contains("/storageclasses") {
                list(json!([{
                    "metadata": {"name": "gp2"}, "provisioner": "kubernetes.io/aws-ebs",
                    "volumeBindingMode": "WaitForFirstConsumer",
                }]))
            } else {
                list(json!([{
                    "metadata": {"namespace": "shop", "name": "data", "uid": "u"},
                    "spec": {"storageClassName": "gp2"},
                }]))
            }
        });
        let client = testing::client(&server);
        assert_eq!(for_a_pod(&client, "ebs.csi.aws.com").await.unwrap(), ["shop/data"]);
    }
}
