//! The claims that wait for a pod: the leader does not know them, as their volumes are nobody's yet.

use std::time::Duration;

use csi_provisioner::{
    controller::ownership::ProvisionerIdentity,
    kube::{
        ApiError, Client, Scope,
        objects::{Claim, StorageClass, View as _},
    },
};
use csi_translation::Migration;
use tokio::time::Instant;

use crate::{
    check::claims::{Waiting, waiting},
    connection::list,
};

/// How long a list is shown: it is of all claims of the cluster, and `--watch` shows a table every few seconds.
const KEPT: Duration = Duration::from_secs(60);

/// The claims that wait for a pod, or why they cannot be read, as of the last list.
#[derive(Default)]
pub(super) struct Listed(Option<(Instant, Result<Vec<String>, String>)>);

impl Listed {
    /// Those of the last list, or of a new one where that is old.
    pub(super) async fn current(
        &mut self,
        client: &Client,
        driver: &str,
    ) -> Result<Vec<String>, String> {
        if let Some((at, claims)) = &self.0
            && at.elapsed() < KEPT
        {
            return claims.clone();
        }
        let claims = for_a_pod(client, driver).await.map_err(|error| error.to_string());
        self.0 = Some((Instant::now(), claims.clone()));
        claims
    }
}

/// Reads the claims of this driver that wait for a pod that uses them, as `namespace/name`.
///
/// # Errors
/// What cannot be read.
async fn for_a_pod(client: &Client, driver: &str) -> Result<Vec<String>, ApiError> {
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
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use serde_json::json;

    use super::*;
    use crate::testing::{self, Answer, Server};

    #[tokio::test]
    async fn claims_of_the_in_tree_plugins_class_are_among_them() {
        let class = json!({
            "metadata": {"name": "gp2"}, "provisioner": "kubernetes.io/aws-ebs",
            "volumeBindingMode": "WaitForFirstConsumer",
        });
        let metadata = json!({"namespace": "shop", "name": "data", "uid": "u"});
        let claim = json!({"metadata": metadata, "spec": {"storageClassName": "gp2"}});
        let server = Server::new(move |asked| {
            let item = if asked.url.contains("/storageclasses") { &class } else { &claim };
            Answer::json(200, &json!({"metadata": {}, "items": [item]}))
        });
        let client = testing::client(&server);
        assert_eq!(for_a_pod(&client, "ebs.csi.aws.com").await.unwrap(), ["shop/data"]);
    }

    #[tokio::test(start_paused = true)]
    async fn all_claims_are_listed_once_a_minute() {
        let lists = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&lists);
        let server = Server::new(move |asked| {
            let is_of_claims = asked.url.contains("/persistentvolumeclaims");
            counted.fetch_add(usize::from(is_of_claims), Ordering::Relaxed);
            Answer::json(200, &json!({"metadata": {}, "items": []}))
        });
        let (client, mut listed) = (testing::client(&server), Listed::default());
        for (seconds, expected) in [(0, 1), (5, 1), (54, 1), (1, 2)] {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            assert_eq!(listed.current(&client, "d").await, Ok(Vec::new()));
            assert_eq!(lists.load(Ordering::Relaxed), expected, "{seconds}");
        }
    }
}
