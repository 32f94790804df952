//! The requests of an informer: pages of its list, and its watches.

use kube::{
    api::{ListParams, Request, WatchParams},
    client::Client,
};

use super::{
    InformerSettings,
    answer::Answer,
    failure::Failure,
    pages::Page,
    watch::{self, Events},
};
use crate::kube::{
    objects::{View, kind::Kind},
    scope::Scope,
};

/// Where the objects of an informer are requested, and how.
pub(super) struct Source {
    client: Client,
    /// The path of the objects, without a query.
    path: String,
    scope: Scope,
    settings: InformerSettings,
    /// Whether what follows the first page is requested at once, and not in pages.
    rest_at_once: bool,
    /// Whether lists and watches are requested in protobuf.
    in_protobuf: bool,
}

impl Source {
    /// Requests the objects in `scope` that `V` reads, in protobuf where `V` can be read from it.
    pub(super) fn new<V: View>(client: Client, scope: Scope, settings: InformerSettings) -> Self {
        Self {
            client,
            path: Kind::of::<V>().collection(scope.namespace.as_deref()),
            scope,
            settings,
            rest_at_once: settings.first_page.is_some(),
            in_protobuf: V::from_protobuf().is_some(),
        }
    }

    /// Whether what follows the first page is requested at once.
    pub(super) fn lists_rest_at_once(&self) -> bool {
        self.rest_at_once
    }

    /// Adapts the next requests to why one failed: they are in JSON where protobuf was refused, and the
    /// next list is the other way round where what follows the first page could not be had at once, or
    /// in pages.
    pub(super) fn adapt(&mut self, failure: &Failure, is_past_first_page: bool) {
        self.in_protobuf &= !failure.asks_for_json();
        if is_past_first_page && self.settings.first_page.is_some() {
            self.rest_at_once = !self.rest_at_once;
        }
    }

    /// The request of all objects.
    pub(super) fn unlimited(&self) -> ListParams {
        ListParams {
            label_selector: self.scope.labels.clone(),
            field_selector: self.scope.fields.clone(),
            ..ListParams::default()
        }
    }

    /// The request of the first page. It names no version, so the server reads consistently.
    pub(super) fn first_page(&self) -> ListParams {
        let InformerSettings { first_page, page_size, .. } = self.settings;
        self.unlimited().limit(first_page.filter(|_| self.rest_at_once).unwrap_or(page_size))
    }

    /// The request of the page that `token` names.
    pub(super) fn next_page(&self, token: &str) -> ListParams {
        self.unlimited().limit(self.settings.page_size).continue_token(token)
    }

    /// Requests a page; returns once the answer has begun.
    pub(super) async fn request_page(&self, params: &ListParams) -> kube::Result<Page> {
        let request = Request::new(&*self.path).list(params).map_err(kube::Error::BuildRequest)?;
        Page::request(&self.client, request, self.in_protobuf).await
    }

    /// Opens a watch that yields what has changed since `version`.
    pub(super) async fn watch<V: View>(&self, version: &str) -> kube::Result<Events<V>> {
        let seconds = u32::try_from(self.settings.watch_timeout.as_secs()).unwrap_or(u32::MAX);
        let params = WatchParams {
            label_selector: self.scope.labels.clone(),
            field_selector: self.scope.fields.clone(),
            ..WatchParams::default().timeout(seconds)
        };
        let request = Request::new(&*self.path).watch(&params, version);
        let request = request.map_err(kube::Error::BuildRequest)?;
        let answer = Answer::request(&self.client, request, "watch", self.in_protobuf).await?;
        Ok(watch::events(answer.encoding, answer.body))
    }
}
