//! Lists read once, in pages.
//!
//! Owns the look at all objects of a kind where a cache does not hold them: whether any volume has
//! a certain handle (safety rules 7 and 8), and whether anything of a kind has changed. Promises the server's state at one version, never its
//! cache's, and that no more than a page is held at a time. An object that cannot be read fails the
//! list: "none of them" must not overlook one. Leaves lists that are followed by a watch to
//! [`crate::kube::informer`].

use std::ops::ControlFlow;

use serde::{Deserialize, de::DeserializeOwned};

use super::{Client, MAX_ANSWER};
use crate::kube::{
    connection::url::query,
    error::ApiError,
    objects::{AnyObject, View, kind::Kind},
    scope::Scope,
};

/// Objects in a page, where they are of the usual size.
const PAGE: u32 = 500;

/// The most that is read of a page of several objects, in bytes. A larger one is asked for again with
/// fewer objects, so that no list fails for its size: any user can make claims of more than a megabyte.
const MAX_PAGE: usize = 8 << 20;

/// The part of the objects of a page that one too large is asked for again with.
const FEWER: u32 = 8;

/// One page of a list.
#[derive(Deserialize)]
struct Page<V> {
    #[serde(default)]
    metadata: PageMeta,
    items: Vec<V>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PageMeta {
    #[serde(rename = "continue")]
    next: String,
    #[serde(rename = "resourceVersion")]
    version: String,
}

impl Client {
    /// Shows `visit` all objects in `scope` until it breaks off. A list that takes so long that
    /// the server forgets its version is refused with 410.
    pub async fn list<V: View>(
        &self,
        scope: &Scope,
        visit: impl FnMut(V) -> ControlFlow<()>,
    ) -> Result<(), ApiError> {
        self.list_of(&Kind::of::<V>(), scope, visit).await
    }

    /// The versions of all objects in `scope`, whatever their kind: another text once any of them
    /// has come, changed or gone; none where there are none.
    pub async fn versions(&self, kind: &Kind, scope: &Scope) -> Result<Option<String>, ApiError> {
        let mut versions = Vec::new();
        let note = |object: AnyObject| {
            versions.extend(object.metadata.resource_version);
            ControlFlow::Continue(())
        };
        self.list_of(kind, scope, note).await?;
        Ok((!versions.is_empty()).then(|| versions.join(",")))
    }

    async fn list_of<V: DeserializeOwned>(
        &self,
        kind: &Kind,
        scope: &Scope,
        mut visit: impl FnMut(V) -> ControlFlow<()>,
    ) -> Result<(), ApiError> {
        let collection = kind.collection(scope.namespace.as_deref());
        let (mut limit, mut next) = (PAGE, String::new());
        loop {
            let url = format!("{collection}?limit={limit}{}{next}", scope.query());
            let most = if limit > 1 { MAX_PAGE } else { MAX_ANSWER };
            let page: Page<V> = match self.read_within(url, most).await {
                Err(ApiError::TooLarge { .. }) if limit > 1 => {
                    limit = (limit / FEWER).max(1);
                    continue;
                }
                page => page?,
            };
            if page.items.into_iter().try_for_each(&mut visit).is_break()
                || page.metadata.next.is_empty()
            {
                return Ok(());
            }
            next = format!("&continue={}", query(&page.metadata.next));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kube::{
        objects::{Claim, Volume},
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
    async fn all_pages_are_shown() {
        let (server, mut names) = (pages(), Vec::new());
        let note = |volume: Volume| {
            names.push(volume.name().to_owned());
            ControlFlow::Continue(())
        };
        client(&server).list(&Scope::all(), note).await.unwrap();
        assert_eq!(names, ["a", "b", "c"]);
        let urls: Vec<String> = server.seen().into_iter().map(|seen| seen.url).collect();
        assert_eq!(
            urls,
            [
                "/api/v1/persistentvolumes?limit=500",
                "/api/v1/persistentvolumes?limit=500&continue=x%2Fy%3D"
            ]
        );
    }

    #[tokio::test]
    async fn the_versions_of_all_objects_tell_whether_anything_changed() {
        let items = |versions: &[&str]| {
            let item = |version: &&str| json!({"metadata": {"resourceVersion": version}});
            json!({"items": versions.iter().map(item).collect::<Vec<_>>()})
        };
        for (versions, expected) in [(vec![], None), (vec!["7", "5"], Some("7,5"))] {
            let answer = items(&versions);
            let server = Server::new(move |_, _| Answer::json(200, &answer));
            let scope = Scope::namespace("ns").unwrap();
            let told = client(&server).versions(&Kind::of::<Claim>(), &scope).await.unwrap();
            assert_eq!(told.as_deref(), expected);
            assert_eq!(
                server.seen()[0].url,
                "/api/v1/namespaces/ns/persistentvolumeclaims?limit=500"
            );
        }
    }

    /// Any user can make claims of more than a megabyte.
    #[tokio::test]
    async fn a_page_that_is_too_large_is_asked_for_again_with_fewer_objects() {
        let names: Vec<String> = (0..20).map(|number| format!("c{number}")).collect();
        let all = names.clone();
        let server = Server::new(move |_, seen| {
            let parameter = |name: &str| {
                let mut parts = seen.url.split(['?', '&']);
                parts.find_map(|part| part.strip_prefix(name)?.parse::<usize>().ok())
            };
            let (limit, from) = (parameter("limit=").unwrap(), parameter("continue=").unwrap_or(0));
            let end = (from + limit).min(all.len());
            let large = "x".repeat(1_800_000);
            let items: Vec<Value> = all[from..end]
                .iter()
                .map(|name| json!({"metadata": {"name": name, "annotations": {"a": large}}}))
                .collect();
            let next = if end < all.len() { end.to_string() } else { String::new() };
            Answer::json(200, &json!({"metadata": {"continue": next}, "items": items}))
        });
        let mut seen = Vec::new();
        let note = |claim: Claim| {
            seen.push(claim.name().to_owned());
            ControlFlow::Continue(())
        };
        client(&server).list(&Scope::all(), note).await.unwrap();
        assert_eq!(seen, names);
    }

    #[tokio::test]
    async fn who_has_seen_enough_gets_no_further_page() {
        let server = pages();
        client(&server).list(&Scope::all(), |_: Volume| ControlFlow::Break(())).await.unwrap();
        assert_eq!(server.seen().len(), 1);
    }

    #[tokio::test]
    async fn a_scope_narrows_the_list() {
        let server = Server::new(|_, _| page(&[], ""));
        let scope = Scope::namespace("sc").unwrap().labelled("a in (b,c)").named("x");
        client(&server).list(&scope, |_: Claim| ControlFlow::Continue(())).await.unwrap();
        assert_eq!(
            server.seen()[0].url,
            "/api/v1/namespaces/sc/persistentvolumeclaims?limit=500&labelSelector=a%20in%20%28b%2Cc%29&fieldSelector=metadata.name%3Dx"
        );
    }

    #[tokio::test]
    async fn an_object_that_cannot_be_read_fails_the_list() {
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
