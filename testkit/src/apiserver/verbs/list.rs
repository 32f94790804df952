//! List, in pages, now or as of an earlier revision.

use std::sync::Arc;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{State, Target};
use crate::apiserver::{
    object::{Key, Object},
    parameters::{ListOptions, Since},
    status::Status,
    store::Compacted,
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

/// Where a page starts, and the state it is taken from.
struct Start {
    after: Option<Key>,
    /// The state's revision; none for what is now.
    revision: Option<u64>,
    limit: usize,
    /// How many objects are left, if the page before said so.
    left: Option<usize>,
}

impl State {
    /// A page of a kind's objects.
    pub(crate) fn list(&self, target: &Target, options: &ListOptions) -> Result<Page, Status> {
        let start = self.start(options)?;
        let namespace = Some(target.key.namespace.as_str()).filter(|ns| !ns.is_empty());
        let resource = target.kind.group_resource();
        let now = self.store.range(&resource, namespace, start.after.as_ref());
        let Some(revision) = start.revision else {
            return Ok(page(now.map(|(_, object)| object), options, &start, self.store.revision()));
        };
        let after = start.after.as_ref();
        let then = self.store.at(&resource, revision).map_err(|Compacted { .. }| too_old(after))?;
        let wanted = |key: &Key| {
            namespace.is_none_or(|ns| ns == key.namespace) && after.is_none_or(|after| key > after)
        };
        Ok(page(then.of(now, wanted).map(|(_, object)| object), options, &start, revision))
    }

    fn start(&self, options: &ListOptions) -> Result<Start, Status> {
        let current = self.store.revision();
        if let Some(token) = &options.continue_token {
            let Token { after, revision, left } = Token::decode(token)?;
            return Ok(Start {
                after: Some(after),
                revision,
                limit: self.in_a_page(options.limit),
                left,
            });
        }
        let limit = match options.since {
            Since::NotOlderThan(asked) if asked > current => {
                return Err(Status::too_large_version(asked, current));
            }
            // As the watch cache does: `0` is answered whole, whatever the limit.
            Since::Any => 0,
            Since::Latest | Since::NotOlderThan(_) => self.in_a_page(options.limit),
        };
        Ok(Start { after: None, revision: None, limit, left: None })
    }

    /// How many objects a page holds of which `limit` are asked for.
    fn in_a_page(&self, limit: usize) -> usize {
        limit.min(self.page)
    }
}

fn page<'a>(
    objects: impl Iterator<Item = &'a Arc<Object>>,
    options: &ListOptions,
    start: &Start,
    revision: u64,
) -> Page {
    let mut selected = objects.filter(|object| options.selection.matches(object.value()));
    let limit = if start.limit == 0 { usize::MAX } else { start.limit };
    let objects: Vec<Arc<Object>> = selected.by_ref().take(limit).cloned().collect();
    let after = selected.next().and_then(|_| objects.last()).map(|last| last.key());
    let Some(after) = after else {
        return Page { objects, revision, continue_token: None, remaining: None };
    };
    // With a selector what is left is not counted, as the real server does not.
    let count = || {
        start.left.map_or_else(|| selected.count() + 1, |left| left.saturating_sub(objects.len()))
    };
    let remaining = if options.selection.is_all() { Some(count()) } else { None };
    let token = Token { after, revision: Some(revision), left: remaining };
    Page { continue_token: Some(token.encode()), objects, revision, remaining }
}

fn too_old(after: Option<&Key>) -> Status {
    let Some(after) = after else {
        return Status::expired("The resourceVersion for the provided list is too old.");
    };
    let mut status = Status::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without \
         the continue parameter, or use the continue token in this response to retrieve the remainder of the results. \
         Continuing with the provided token results in an inconsistent list - objects that were created, modified, or \
         deleted between the time the first chunk was returned and now may show up in the list.",
    );
    tree::set(
        &mut status.body,
        &["metadata", "continue"],
        json!(Token { after: after.clone(), revision: None, left: None }.encode()),
    );
    status
}

/// Where a list goes on.
struct Token {
    after: Key,
    /// The state it is taken from; none for whatever there is then.
    revision: Option<u64>,
    left: Option<usize>,
}

impl Token {
    fn encode(&self) -> String {
        let revision = self.revision.map_or_else(|| json!(-1), |revision| json!(revision));
        let start = json!([self.after.namespace, self.after.name]);
        let token =
            json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start, "left": self.left});
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
        let left = tree::at(&token, &["left"]).as_u64().and_then(|left| usize::try_from(left).ok());
        Some(Self { after: Key::new(namespace.as_str()?, name.as_str()?), revision, left })
    }
}
