//! Speaks of a kind to a server that serves it in another version, with the same fields.

use http::Uri;
use tower::service_fn;

use super::{Next, Outcome, Request};
use crate::kube::objects::View;

/// Replaces the version of `V` by `version` in the paths of requests about it.
pub(crate) fn in_version<V: View>(version: &'static str, next: impl Next) -> impl Next {
    service_fn(move |request| send::<V, _>(version, next.clone(), request))
}

async fn send<V: View, N: Next>(version: &str, next: N, mut request: Request) -> Outcome {
    if let Some(uri) = replaced::<V>(request.uri(), version) {
        *request.uri_mut() = uri;
    }
    next.send(request).await
}

fn replaced<V: View>(uri: &Uri, version: &str) -> Option<Uri> {
    let prefix = format!("/apis/{}/{}/", V::GROUP, V::VERSION);
    let rest = uri.path_and_query()?.as_str().strip_prefix(&prefix)?;
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(format!("/apis/{}/{version}/{rest}", V::GROUP).parse().ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::objects::StorageCapacity;

    #[test]
    fn only_the_version_of_the_kind_is_replaced() {
        for (path, expected) in [
            (
                "/apis/storage.k8s.io/v1/namespaces/a%2Fb/csistoragecapacities?&limit=500",
                Some(
                    "/apis/storage.k8s.io/v1beta1/namespaces/a%2Fb/csistoragecapacities?&limit=500",
                ),
            ),
            ("/apis/apps/v1/deployments", None),
            ("/api/v1/nodes", None),
        ] {
            let replaced = replaced::<StorageCapacity>(&path.parse().unwrap(), "v1beta1");
            assert_eq!(replaced.map(|uri| uri.to_string()).as_deref(), expected);
        }
    }
}
