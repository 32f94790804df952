//! List, in pages, now or as of an earlier revision.

use std::sync::Arc;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{State, Target};
use crate::apiserver::{
    tree,
    object::{Key, Object},
    parameters::{ListOptions, Since},
    status::Status,
    store::Compacted,
};

/// One page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    /// The objects, in order.
    pub(crate) objects: Vec<Arc<Object>>,
    /// The list's resourceVersion.
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
    revision: Option<u64>,
    limit: usize,
}

impl State {
    /// A page of a kind's objects.
    ///
    /// # Errors
    /// 400 for a token that is none, 410 for one whose state is forgotten, 504 for a revision
    /// that is not yet.
    pub(crate) fn list(&self, target: &Target, options: &ListOptions) -> Result<Page, Status> {
        let start = self.start(options)?;
        let namespace = Some(target.key.namespace.as_str()).filter(|ns| !ns.is_empty());
        let resource = target.kind.group_resource();
        let now = self.store.range(&resource, namespace, start.after.as_ref());
        let Some(revision) = start.revision else {
            return Ok(page(now.map(|(_, object)| object), options, start.limit, self.store.revision()));
        };
        let then = self.store.at(&resource, revision).map_err(|Compacted { .. }| too_old(start.after.as_ref()))?;
        let wanted = |key: &Key| namespace.is_none_or(|ns| ns == key.namespace) && start.after.as_ref().is_none_or(|after| key > after);
        let objects = then.of(now, wanted);
        Ok(page(objects.map(|(_, object)| object), options, start.limit, revision))
    }

    fn start(&self, options: &ListOptions) -> Result<Start, Status> {
        let current = self.store.revision();
        if let Some(token) = &options.continue_token {
            let (after, revision) = decode(token)?;
            return Ok(Start { after: Some(after), revision, limit: options.limit });
        }
        let (revision, limit) = match options.since {
            Since::Exact(asked) | Since::NotOlderThan(asked) if asked > current => {
                return Err(Status::too_large_version(asked, current));
            }
            Since::Exact(asked) => (Some(asked), options.limit),
            // As the watch cache does: `0` is answered whole, whatever the limit.
            Since::Any => (None, 0),
            Since::Latest | Since::NotOlderThan(_) => (None, options.limit),
        };
        Ok(Start { after: None, revision, limit })
    }
}

fn page<'a>(objects: impl Iterator<Item = &'a Arc<Object>>, options: &ListOptions, limit: usize, revision: u64) -> Page {
    let mut selected = objects.filter(|object| options.selection.matches(object.value()));
    let limit = if limit == 0 { usize::MAX } else { limit };
    let objects: Vec<Arc<Object>> = selected.by_ref().take(limit).cloned().collect();
    let after = selected.next().and(objects.last()).map(|last| last.key());
    // What is left is counted only where that costs no look at each object, as etcd does.
    let remaining = after.as_ref().filter(|_| options.selection.is_all()).map(|_| selected.count() + 1);
    let continue_token = after.map(|after| encode(&after, Some(revision)));
    Page { objects, revision, continue_token, remaining }
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
    tree::set(&mut status.body, &["metadata", "continue"], json!(encode(after, None)));
    status
}

/// A token that goes on after a key, at a revision or, without, at whatever there is then.
fn encode(after: &Key, revision: Option<u64>) -> String {
    let revision = revision.map_or(json!(-1), |revision| json!(revision));
    let start = json!([after.namespace, after.name]);
    BASE64_URL_SAFE_NO_PAD.encode(json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start}).to_string())
}

fn decode(token: &str) -> Result<(Key, Option<u64>), Status> {
    let bad = || Status::bad_request("continue key is not valid");
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(token).map_err(|_| bad())?;
    let token: Value = serde_json::from_slice(&bytes).map_err(|_| bad())?;
    let [namespace, name] = tree::items(&token, &["start"]) else { return Err(bad()) };
    let key = Key::new(namespace.as_str().ok_or_else(bad)?, name.as_str().ok_or_else(bad)?);
    match tree::at(&token, &["rv"]).as_i64() {
        Some(-1) => Ok((key, None)),
        Some(revision) => Ok((key, Some(u64::try_from(revision).map_err(|_| bad())?))),
        None => Err(bad()),
    }
}
