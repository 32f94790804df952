//! Lists objects once, in pages.
//!
//! For callers that need all objects of a kind and do not watch them, such as whether any volume has a
//! certain handle (safety rules 7 and 8), or which claims name a snapshot. The list is
//! consistent at one version, it does not come from the server's watch cache, and only one page is in
//! memory at a time. An object that cannot be parsed fails the list, since a caller that looks for
//! "none of them" must not miss one. Lists that a watch follows are in [`crate::kube::informer`].

use std::{ops::ControlFlow, sync::Arc};

use kube::{
    api::ListParams,
    client::Body,
    core::{ObjectList, Request},
};

use super::Client;
use crate::kube::{
    error::ApiError,
    layers::{
        ApiService,
        pages::{MAX_PAGE, PageSize, paged},
    },
    objects::{View, kind::Kind},
    scope::Scope,
};

/// Objects in a page.
const PAGE: u32 = 500;

/// The most that is read of a page of a namespace, all of which its user may have written, in bytes.
const MAX_NAMESPACE_PAGE: usize = 1 << 20;

impl Client {
    /// Calls `visit` with all objects in `scope` until it breaks. If the server compacts the list's
    /// version meanwhile, the error is 410.
    pub async fn list<V: View>(
        &self,
        scope: &Scope,
        mut visit: impl FnMut(V) -> ControlFlow<()>,
    ) -> Result<(), ApiError> {
        let collection = Request::new(Kind::of::<V>().collection(scope.namespace.as_deref()));
        let max = if scope.namespace.is_some() { MAX_NAMESPACE_PAGE } else { MAX_PAGE };
        let service = paged(PageSize::new(PAGE, max), self.service.clone());
        let pages = Self::new(ApiService::new(service), Arc::clone(&self.random));
        let mut parameters = ListParams {
            label_selector: scope.labels.clone(),
            field_selector: scope.fields.clone(),
            limit: Some(PAGE),
            ..ListParams::default()
        };
        loop {
            let request = collection.list(&parameters)?.map(Body::from);
            let (page, _): (ObjectList<V>, _) = pages.send(request).await?;
            let next = page.metadata.continue_.filter(|next| !next.is_empty());
            if page.items.into_iter().try_for_each(&mut visit).is_break() || next.is_none() {
                return Ok(());
            }
            parameters.continue_token = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kube::{
        objects::Volume,
        testing::{Answer, Server, client},
    };

    fn page(names: &[&str], next: &str) -> Answer {
        let items: Vec<Value> =
            names.iter().map(|name| json!({"metadata": {"name": name}})).collect();
        Answer::json(
            200,
            &json!({"metadata": {"continue": next, "resourceVersion": "7"}, "items": items}),
        )
    }

    fn pages() -> Server {
        Server::new(
            |number, _| if number == 0 { page(&["a", "b"], "x/y=") } else { page(&["c"], "") },
        )
    }

    #[tokio::test]
    async fn objects_of_all_pages_are_visited() {
        let (server, mut names) = (pages(), Vec::new());
        let note = |volume: Volume| {
            names.push(volume.name().to_owned());
            ControlFlow::Continue(())
        };
        client(&server).list(&Scope::all(), note).await.unwrap();
        assert_eq!(names, ["a", "b", "c"]);
        let urls: Vec<String> = server.requests().into_iter().map(|request| request.url).collect();
        assert_eq!(
            urls,
            [
                "/api/v1/persistentvolumes?&limit=500",
                "/api/v1/persistentvolumes?&limit=500&continue=x%2Fy%3D"
            ]
        );
    }

    #[tokio::test]
    async fn an_object_that_cannot_be_parsed_fails_the_list() {
        let items = json!({"metadata": {}, "items": [{"metadata": {"name": "a"}}, {"spec": 7}]});
        let server = Server::new(move |_, _| Answer::json(200, &items));
        let listed =
            client(&server).list(&Scope::all(), |_: Volume| ControlFlow::Continue(())).await;
        assert!(matches!(listed, Err(ApiError::Unreadable { .. })));
        let gone = Server::new(|_, _| Answer::refusal(410, "Expired", "too old"));
        let listed = client(&gone).list(&Scope::all(), |_: Volume| ControlFlow::Continue(())).await;
        assert_eq!(listed.unwrap_err().code(), Some(410));
    }
}
