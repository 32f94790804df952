//! The parameters of a request's query, and what they mean together for lists and watches.

use std::time::Duration;

use percent_encoding::percent_decode_str;

use super::{
    resources::Kind,
    selectors::Selection,
    status::{FieldError, Status},
};

/// A query, decoded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads what follows the question mark.
    pub(crate) fn parse(query: Option<&str>) -> Self {
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(k, v)| (decoded(k), decoded(v)))
                .collect(),
        )
    }

    /// The first value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// A boolean parameter as apimachinery reads it: there, and not `false` or `0`.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| !matches!(value.to_lowercase().as_str(), "false" | "0"))
    }

    fn number(&self, name: &str) -> Result<Option<u64>, Status> {
        match self.get(name) {
            None | Some("") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| {
                Status::bad_request(format!(
                    "strconv.ParseInt: parsing {}: invalid syntax",
                    go_fmt::quote(text)
                ))
            }),
        }
    }
}

fn decoded(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

/// How a list's or a watch's resourceVersion is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Since {
    /// No version asked for: the newest state.
    Latest,
    /// `0`: whatever there is.
    Any,
    /// Not older than this.
    NotOlderThan(u64),
}

/// The options of a list, a watch or a deletecollection.
#[derive(Debug, Clone)]
pub(crate) struct ListOptions {
    pub(crate) selection: Selection,
    pub(crate) since: Since,
    pub(crate) limit: usize,
    pub(crate) continue_token: Option<String>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) bookmarks: bool,
}

impl ListOptions {
    /// Reads and checks a query for `kind`.
    pub(crate) fn parse(query: &Query, kind: &Kind) -> Result<Self, Status> {
        // The newest clients fall back to lists where streaming ones are refused so.
        for (name, why) in [
            (
                "sendInitialEvents",
                "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
            ),
            ("resourceVersionMatch", "this server matches no version but by resourceVersion"),
        ] {
            if query.get(name).is_some_and(|value| !value.is_empty()) {
                let error = FieldError::forbidden(name, why);
                return Err(Status::invalid_kind("meta.k8s.io", "ListOptions", "", &[error]));
            }
        }
        let (labels, fields) = (query.get("labelSelector"), query.get("fieldSelector"));
        let token = query.get("continue").filter(|token| !token.is_empty());
        let seconds = query.number("timeoutSeconds")?.filter(|seconds| *seconds > 0);
        Ok(Self {
            selection: Selection::parse(labels, fields, kind)?,
            since: since(query.get("resourceVersion"))?,
            limit: usize::try_from(query.number("limit")?.unwrap_or(0)).unwrap_or(usize::MAX),
            continue_token: token.map(str::to_owned),
            timeout: seconds.map(Duration::from_secs),
            bookmarks: query.flag("allowWatchBookmarks"),
        })
    }
}

fn since(version: Option<&str>) -> Result<Since, Status> {
    Ok(match version {
        None | Some("") => Since::Latest,
        Some(text) => match parse_version(text)? {
            0 => Since::Any,
            version => Since::NotOlderThan(version),
        },
    })
}

/// Reads a resourceVersion.
fn parse_version(text: &str) -> Result<u64, Status> {
    text.parse().map_err(|_| {
        let detail = format!("strconv.ParseUint: parsing {}: invalid syntax", go_fmt::quote(text));
        let error = FieldError::invalid("resourceVersion", &text.into(), &detail);
        Status::bad_request(format!(
            "resourceVersion: {}",
            error.message().trim_start_matches("resourceVersion: ")
        ))
    })
}
