//! List, in pages, which show the state that the first of them was taken from.

use std::sync::Arc;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{State, Target};
use crate::apiserver::{
    object::{Key, Object},
    parameters::{ListOptions, Since},
    resources::GroupResource,
    status::Status,
    tree,
};

/// One page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) objects: Vec<Arc<Object>>,
    pub(crate) revision: u64,
    /// Where the next page begins; none after the last.
    pub(crate) continue_token: Option<String>,
    /// How many objects come after this page, where that is known.
    pub(crate) remaining: Option<usize>,
}

impl Page {
    /// The list's metadata.
    pub(crate) fn metadata(&self) -> Value {
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if let Some(token) = &self.continue_token {
            tree::set(&mut metadata, &["continue"], json!(token));
        }
        if let Some(remaining) = self.remaining {
            tree::set(&mut metadata, &["remainingItemCount"], json!(remaining));
        }
        metadata
    }
}

/// A list whose next pages may still be asked for: as it stood when the first one was.
#[derive(Debug)]
pub(crate) struct Begun {
    of: (GroupResource, String),
    revision: u64,
    objects: Arc<[Arc<Object>]>,
}

/// How many such lists are kept. The next page of an older one is refused as too old.
const KEPT: usize = 16;

impl State {
    /// A page of a kind's objects.
    pub(crate) fn list(&mut self, target: &Target, options: &ListOptions) -> Result<Page, Status> {
        let limit = self.limit(options)?;
        let token = options.continue_token.as_deref().map(Token::decode).transpose()?;
        let of = (target.kind.group_resource(), target.key.namespace.clone());
        let (objects, revision) = if let Some(Token { after, revision: Some(revision) }) = &token {
            let begun = self.begun(&of, *revision).ok_or_else(|| too_old(after))?;
            (Arc::clone(begun), *revision)
        } else {
            let namespace = Some(of.1.as_str()).filter(|ns| !ns.is_empty());
            let now = self.store.range(&of.0, namespace);
            (now.map(|(_, object)| Arc::clone(object)).collect(), self.store.revision())
        };
        let is_read =
            |object: &Arc<Object>| token.as_ref().is_some_and(|it| object.key() <= it.after);
        let left = objects.get(objects.partition_point(is_read)..).unwrap_or_default();
        let mut selected = left.iter().filter(|it| options.selection.matches(it.value()));
        let page: Vec<Arc<Object>> = selected.by_ref().take(limit).cloned().collect();
        let Some(after) = selected.next().and_then(|_| page.last()).map(|last| last.key()) else {
            return Ok(Page { objects: page, revision, continue_token: None, remaining: None });
        };
        // With a selector what is left is not counted, as the real server does not.
        let remaining = options.selection.is_all().then(|| left.len() - page.len());
        if self.begun(&of, revision).is_none() {
            self.lists.push_back(Begun { of, revision, objects });
            self.lists.drain(..self.lists.len().saturating_sub(KEPT));
        }
        let token = Token { after, revision: Some(revision) };
        Ok(Page { objects: page, revision, continue_token: Some(token.encode()), remaining })
    }

    /// A list that began at `revision`, if there is still what has changed since.
    fn begun(&self, of: &(GroupResource, String), revision: u64) -> Option<&Arc<[Arc<Object>]>> {
        self.store.reaches(&of.0, revision).ok()?;
        let begun = self.lists.iter().find(|it| it.of == *of && it.revision == revision);
        begun.map(|begun| &begun.objects)
    }

    /// How many objects the page holds at most.
    fn limit(&self, options: &ListOptions) -> Result<usize, Status> {
        let current = self.store.revision();
        let limit = match options.since {
            _ if options.continue_token.is_some() => options.limit.min(self.page),
            Since::NotOlderThan(asked) if asked > current => {
                return Err(Status::too_large_version(asked, current));
            }
            // As the watch cache does: `0` is answered whole, whatever the limit.
            Since::Any => 0,
            Since::Latest | Since::NotOlderThan(_) => options.limit.min(self.page),
        };
        Ok(if limit == 0 { usize::MAX } else { limit })
    }
}

fn too_old(after: &Key) -> Status {
    let mut status = Status::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without \
         the continue parameter, or use the continue token in this response to retrieve the remainder of the results. \
         Continuing with the provided token results in an inconsistent list - objects that were created, modified, or \
         deleted between the time the first chunk was returned and now may show up in the list.",
    );
    tree::set(
        &mut status.body,
        &["metadata", "continue"],
        json!(Token { after: after.clone(), revision: None }.encode()),
    );
    status
}

/// Where a list goes on.
struct Token {
    after: Key,
    /// The state it is taken from; none for whatever there is then.
    revision: Option<u64>,
}

impl Token {
    fn encode(&self) -> String {
        let revision = self.revision.map_or_else(|| json!(-1), |revision| json!(revision));
        let start = json!([self.after.namespace, self.after.name]);
        let token = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start});
        BASE64_URL_SAFE_NO_PAD.encode(token.to_string())
    }

    fn decode(token: &str) -> Result<Self, Status> {
        Self::read(token).ok_or_else(|| Status::bad_request("continue key is not valid"))
    }

    fn read(token: &str) -> Option<Self> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(token).ok()?;
        let token: Value = serde_json::from_slice(&bytes).ok()?;
        let [namespace, name] = tree::items(&token, &["start"]) else { return None };
        let revision = match tree::at(&token, &["rv"]).as_i64()? {
            -1 => None,
            revision => Some(u64::try_from(revision).ok()?),
        };
        Some(Self { after: Key::new(namespace.as_str()?, name.as_str()?), revision })
    }
}
