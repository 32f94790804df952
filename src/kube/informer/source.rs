//! The requests of an informer: pages of its list, and its watches.

use http::Method;

use super::{
    InformerSettings,
    pages::Page,
    watch::{self, Events},
};
use crate::kube::{
    client::{self, Client},
    connection::{transport::ResponseBody, url::query},
    error::ApiError,
    objects::{View, kind::Kind},
    scope::Scope,
};

/// Which part of a list is requested.
pub(super) enum PageRequest {
    /// The first page. It names no version, so the server reads consistently.
    First,
    /// The page that the token names.
    Next(String),
    /// The whole list, at this version or newer.
    Whole(String),
}

/// Where the objects of an informer are requested, and how.
pub(super) struct Source {
    client: Client,
    /// The path of the objects, without a query.
    path: String,
    scope: Scope,
    settings: InformerSettings,
    /// Whether what follows the first page is requested at once, and not in pages.
    rest_at_once: bool,
}

impl Source {
    /// Requests the objects in `scope` that `V` reads.
    pub(super) fn new<V: View>(client: Client, scope: Scope, settings: InformerSettings) -> Self {
        Self {
            client,
            path: Kind::of::<V>().collection(scope.namespace.as_deref()),
            scope,
            settings,
            rest_at_once: settings.first_page.is_some(),
        }
    }

    /// Whether what follows the first page is requested at once.
    pub(super) fn lists_rest_at_once(&self) -> bool {
        self.rest_at_once
    }

    /// Adapts the next list to one that failed: it is the other way round where what follows the first
    /// page could not be had at once, or in pages.
    pub(super) fn adapt(&mut self, is_past_first_page: bool) {
        if is_past_first_page && self.settings.first_page.is_some() {
            self.rest_at_once = !self.rest_at_once;
        }
    }

    /// Requests a page; returns once the answer has begun.
    pub(super) async fn request_page(&self, page: &PageRequest) -> Result<Page, ApiError> {
        let InformerSettings { first_page, page_size, .. } = self.settings;
        let body = self
            .open(match page {
                PageRequest::First => {
                    let limit = first_page.filter(|_| self.rest_at_once).unwrap_or(page_size);
                    format!("limit={limit}")
                }
                PageRequest::Next(token) => format!("limit={page_size}&continue={}", query(token)),
                PageRequest::Whole(version) => {
                    format!("resourceVersion={}&resourceVersionMatch=NotOlderThan", query(version))
                }
            })
            .await?;
        Ok(Page::new(body))
    }

    /// Opens a watch that yields what has changed since `version`.
    pub(super) async fn watch<V: View>(&self, version: &str) -> Result<Events<V>, ApiError> {
        let (seconds, version) = (self.settings.watch_timeout.as_secs(), query(version));
        let parameters = format!(
            "watch=true&timeoutSeconds={seconds}&allowWatchBookmarks=true&resourceVersion={version}"
        );
        Ok(watch::events::<V>(self.open(parameters).await?))
    }

    /// Sends a request with these parameters for the objects in the scope. Returns the body of the answer
    /// as it is received.
    async fn open(&self, parameters: String) -> Result<ResponseBody, ApiError> {
        let url = format!("{}?{parameters}{}", self.path, self.scope.query());
        let mut request = client::request(Method::GET, url)?;
        let (_, body) = self.client.open(&mut request).await?;
        Ok(body)
    }
}
