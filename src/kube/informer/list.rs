//! A list of all objects of a kind, read page by page.
//!
//! The first page is a consistent read. If more objects follow, its objects are dropped and the
//! whole list is requested at once, at the first page's version or newer: a kube-apiserver answers
//! that from its watch cache, while each further page may cost it a read of all objects from etcd.
//! If that request fails, the next list is read in pages, all at the first one's version. No list
//! is older than its first request.

use std::collections::VecDeque;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;

use super::{
    failure::AnswerError,
    pages::{Page, Part},
    source::{PageRequest, Source},
    tolerant::Tolerant,
};
use crate::kube::objects::View;

/// A list that is being read.
pub(super) struct List<V> {
    /// The request of the current page.
    request: PageRequest,
    /// The current page, once it has been requested.
    page: Option<Page>,
    /// What follows the current page, once its head was read.
    next: Option<Next>,
    /// Objects of the current page that came before its head, which decides whether they count.
    early: VecDeque<Tolerant<V>>,
    /// The version of the list, once the first head was read.
    version: Option<String>,
}

/// What follows a page.
enum Next {
    /// Nothing: it is the last one.
    End,
    /// Another page.
    Page(PageRequest),
    /// The whole list. The objects of this page are in it again, so they are not yielded.
    Whole(PageRequest),
}

impl<V: View> List<V> {
    /// A list of which nothing is requested yet.
    pub(super) fn new() -> Self {
        Self {
            request: PageRequest::First,
            page: None,
            next: None,
            early: VecDeque::new(),
            version: None,
        }
    }

    /// The version of the list, for the watch that follows it; none where the server gave none.
    pub(super) fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Whether anything but the first page was requested.
    pub(super) fn is_past_first_page(&self) -> bool {
        !matches!(self.request, PageRequest::First)
    }

    /// Reads the next object; returns none after the last.
    pub(super) async fn next(
        &mut self,
        source: &Source,
    ) -> Result<Option<Tolerant<V>>, AnswerError> {
        loop {
            if matches!(self.next, Some(Next::End | Next::Page(_)))
                && let Some(object) = self.early.pop_front()
            {
                return Ok(Some(object));
            }
            let Some(page) = &mut self.page else {
                self.page = Some(source.request_page(&self.request).await?);
                continue;
            };
            match (page.next().await?, &self.next) {
                (Part::Head(head), _) => self.read_head(head, source),
                (Part::Object(object), None) => self.early.push_back(object),
                (Part::Object(_), Some(Next::Whole(_))) => {}
                (Part::Object(object), Some(Next::End | Next::Page(_))) => return Ok(Some(object)),
                (Part::End, _) => match self.next.take() {
                    Some(Next::Page(request) | Next::Whole(request)) => self.turn_page(request),
                    Some(Next::End) | None => return Ok(None),
                },
            }
        }
    }

    /// Decides what follows the page with this head.
    fn read_head(&mut self, head: ListMeta, source: &Source) {
        let ListMeta { continue_, resource_version, .. } = head;
        let version = resource_version.filter(|version| !version.is_empty());
        let token = continue_.filter(|token| !token.is_empty());
        self.next = Some(match token {
            None => Next::End,
            Some(token) => match self.whole_list(version.as_deref(), source) {
                Some(request) => Next::Whole(request),
                None => Next::Page(PageRequest::Next(token)),
            },
        });
        if matches!(self.next, Some(Next::Whole(_))) {
            self.early.clear();
        }
        // Further pages are at the first one's version, whatever they say.
        if self.version.is_none() || !matches!(self.request, PageRequest::Next(_)) {
            self.version = version;
        }
    }

    /// The request of the whole list, where that may follow the first page. A server whose versions are no
    /// numbers may not know what "at this version or newer" means.
    fn whole_list(&self, version: Option<&str>, source: &Source) -> Option<PageRequest> {
        let version = version.filter(|version| version.parse::<u64>().is_ok())?;
        let may_follow = !self.is_past_first_page() && source.lists_rest_at_once();
        may_follow.then(|| PageRequest::Whole(version.to_owned()))
    }

    fn turn_page(&mut self, request: PageRequest) {
        (self.request, self.page) = (request, None);
    }
}
