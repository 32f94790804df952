//! The parameters of a request's query, and what they mean together for lists and watches.

use std::time::Duration;

use percent_encoding::percent_decode_str;

use super::{
    resources::{Kind, ServerVersion, StreamingLists},
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
                    super::status::quoted(text)
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
    /// Just this.
    Exact(u64),
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
    pub(crate) initial_events: Option<bool>,
}

impl ListOptions {
    /// Reads and checks a query for `kind`.
    pub(crate) fn parse(
        query: &Query,
        kind: &Kind,
        version: ServerVersion,
        watch: bool,
    ) -> Result<Self, Status> {
        let streaming = streaming(query, version, watch)?;
        let matching = query.get("resourceVersionMatch").filter(|value| !value.is_empty());
        match (streaming, watch && version.streaming_lists == StreamingLists::Ignored) {
            (Some(_), _) => check_match(matching, query, true)?,
            // Without the parameter it belongs to, an old server overlooks this one too.
            (None, true) => {}
            (None, false) => check_match(matching, query, false)?,
        }
        Ok(Self {
            selection: Selection::parse(
                query.get("labelSelector"),
                query.get("fieldSelector"),
                kind,
            )?,
            since: since(query.get("resourceVersion"), matching, watch)?,
            limit: usize::try_from(query.number("limit")?.unwrap_or(0)).unwrap_or(usize::MAX),
            continue_token: query
                .get("continue")
                .filter(|token| !token.is_empty())
                .map(str::to_owned),
            timeout: query
                .number("timeoutSeconds")?
                .filter(|seconds| *seconds > 0)
                .map(Duration::from_secs),
            bookmarks: query.flag("allowWatchBookmarks"),
            initial_events: streaming.map(|value| !matches!(value, "false" | "0")),
        })
    }
}

/// `sendInitialEvents`, where the server knows and takes it.
fn streaming(query: &Query, version: ServerVersion, watch: bool) -> Result<Option<&str>, Status> {
    let given = query.get("sendInitialEvents").filter(|value| watch && !value.is_empty());
    match version.streaming_lists {
        StreamingLists::Ignored => Ok(None),
        StreamingLists::Refused if given.is_some() => Err(streaming_refused()),
        _ => Ok(given),
    }
}

fn streaming_refused() -> Status {
    let why =
        "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
    options_invalid(FieldError::forbidden("sendInitialEvents", why))
}

fn options_invalid(error: FieldError) -> Status {
    Status::invalid_kind("meta.k8s.io", "ListOptions", "", &[error])
}

/// What may stand beside the other parameters of a list or a watch.
fn check_match(matching: Option<&str>, query: &Query, streaming: bool) -> Result<(), Status> {
    const FIELD: &str = "resourceVersionMatch";
    let given = |name| query.get(name).unwrap_or_default();
    let version = given("resourceVersion");
    let why = match (streaming, matching) {
        (true, None) => "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        (false, Some(_)) if query.flag("watch") => "resourceVersionMatch is forbidden for watch",
        (false, Some(_)) if version.is_empty() => {
            "resourceVersionMatch is forbidden unless resourceVersion is provided"
        }
        (false, Some(_)) if !given("continue").is_empty() => {
            "resourceVersionMatch is forbidden when continue is provided"
        }
        (false, Some("Exact")) if version == "0" => {
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""
        }
        (false, None | Some("Exact")) | (_, Some("NotOlderThan")) => return Ok(()),
        (_, Some(other)) => {
            let supported: &[&str] =
                if streaming { &["NotOlderThan"] } else { &["Exact", "NotOlderThan", ""] };
            return Err(options_invalid(FieldError::not_supported(
                FIELD,
                &other.into(),
                supported,
            )));
        }
    };
    Err(options_invalid(FieldError::forbidden(FIELD, why)))
}

fn since(version: Option<&str>, matching: Option<&str>, watch: bool) -> Result<Since, Status> {
    let version = match version {
        None | Some("") => return Ok(Since::Latest),
        Some(text) => parse_version(text)?,
    };
    Ok(match matching {
        _ if version == 0 => Since::Any,
        Some("Exact") if !watch => Since::Exact(version),
        _ => Since::NotOlderThan(version),
    })
}

/// Reads a resourceVersion.
pub(crate) fn parse_version(text: &str) -> Result<u64, Status> {
    text.parse().map_err(|_| {
        let detail =
            format!("strconv.ParseUint: parsing {}: invalid syntax", super::status::quoted(text));
        let error = FieldError::invalid("resourceVersion", &text.into(), &detail);
        Status::bad_request(format!(
            "resourceVersion: {}",
            error.message().trim_start_matches("resourceVersion: ")
        ))
    })
}
