//! The paths and their answers: metrics, checks and profiles of one address, pages of another.
//!
//! Content types, bodies and error texts are those of external-provisioner (`ok` and `internal server
//! error: ...` for checks, Go's 404 elsewhere), for any method, since Go's handlers ignore it too.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use http::{HeaderMap, StatusCode, Uri, header, uri::Authority};

use super::{
    answer::{Answer, TEXT, failure, ok, page, redirected},
    pprof::{self, Profiles},
};
use crate::runtime::Tasks;

/// The Prometheus client's content type; `escaping`: names are not escaped.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// A health check; `Err` is the reason of a failure.
type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;
/// Returns the metrics in the Prometheus text format.
type Scrape = Box<dyn Fn() -> String + Send + Sync>;

/// Writes a page, given the query.
type Write = Box<dyn Fn(&str) -> String + Send + Sync>;

/// The served paths.
#[derive(Default)]
pub struct Routes {
    metrics: Option<Metrics>,
    checks: BTreeMap<&'static str, Check>,
    pages: BTreeMap<&'static str, Page>,
    profiles: Option<Profiles>,
    /// Whether only requests for a loopback name are answered.
    is_local: bool,
}

struct Metrics {
    path: String,
    scrape: Scrape,
}

struct Page {
    content_type: &'static str,
    write: Write,
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checks: Vec<_> = self.checks.keys().collect();
        f.debug_struct("Routes")
            .field("metrics", &self.metrics_path())
            .field("checks", &checks)
            .field("pages", &self.pages.keys().collect::<Vec<_>>())
            .field("profiles", &self.profiles.is_some())
            .finish_non_exhaustive()
    }
}

impl Routes {
    /// Serves only metrics at `path`.
    pub fn new(path: &str, scrape: impl Fn() -> String + Send + Sync + 'static) -> Self {
        let metrics = Metrics { path: path.to_owned(), scrape: Box::new(scrape) };
        Self { metrics: Some(metrics), ..Self::default() }
    }

    /// Adds a page at `path`. `write` writes it for a query.
    #[must_use]
    pub fn page(
        mut self,
        path: &'static str,
        content_type: &'static str,
        write: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Self {
        self.pages.insert(path, Page { content_type, write: Box::new(write) });
        self
    }

    /// Answers only requests for a loopback name. A page of another site that a browser loads can reach a
    /// forwarded port under a name of its own, which resolves to this address.
    #[must_use]
    pub fn local(self) -> Self {
        Self { is_local: true, ..self }
    }

    /// Whether a request with these headers may be answered.
    pub(super) fn admits(&self, headers: &HeaderMap) -> bool {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        !self.is_local || host.is_some_and(is_loopback)
    }

    /// Adds a health check at `path`.
    #[must_use]
    pub fn check(
        mut self,
        path: &'static str,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.checks.insert(path, Box::new(check));
        self
    }

    /// Adds profiles of this process, with these tasks, below `/debug/pprof/`.
    #[must_use]
    pub fn profiles(mut self, tasks: Tasks) -> Self {
        self.profiles = Some(Profiles::new(tasks));
        self
    }

    /// The path of the metrics, if they are served.
    pub(super) fn metrics_path(&self) -> Option<&str> {
        self.metrics.as_ref().map(|metrics| metrics.path.as_str())
    }

    pub(super) async fn answer(&self, uri: &Uri) -> Answer {
        let path = uri.path();
        let straight = straight(path);
        if straight != path {
            let slash = if self.lacks_slash(&straight) { "/" } else { "" };
            return elsewhere(&format!("{straight}{slash}"), uri);
        }
        if let Some(metrics) = self.metrics.as_ref().filter(|metrics| path == metrics.path) {
            return ok(METRICS, (metrics.scrape)());
        }
        if let Some(Page { content_type, write }) = self.pages.get(path) {
            return page(content_type, write(uri.query().unwrap_or_default()));
        }
        if let Some(check) = self.checks.get(path) {
            return checked(check());
        }
        // As in Go, the longest pattern that fits counts.
        let below = self.profiles.as_ref().zip(path.strip_prefix(pprof::PATH));
        if let Some((profiles, name)) = below {
            return profiles.answer(name, uri.query().unwrap_or_default()).await;
        }
        if let Some(metrics) = self.metrics.as_ref().filter(|it| is_below(&it.path, path)) {
            return ok(METRICS, (metrics.scrape)());
        }
        if self.lacks_slash(path) {
            return elsewhere(&format!("{path}/"), uri);
        }
        failure(StatusCode::NOT_FOUND, "404 page not found")
    }

    /// Whether the path is served with a slash at its end.
    fn lacks_slash(&self, path: &str) -> bool {
        let profiles = self.profiles.as_ref().map(|_| pprof::PATH);
        [self.metrics_path(), profiles]
            .into_iter()
            .flatten()
            .any(|served| served.strip_suffix('/') == Some(path))
    }
}

/// Whether a Host header names this host: `localhost` or a loopback address, with any port.
fn is_loopback(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Redirects to another path and keeps the query.
fn elsewhere(path: &str, uri: &Uri) -> Answer {
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    redirected(&format!("{path}{query}"))
}

/// Go's `path.Clean`, but keeps a slash at the end.
fn straight(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let slash = if path.ends_with('/') && !parts.is_empty() { "/" } else { "" };
    format!("/{}{slash}", parts.join("/"))
}

/// Go's rule: a pattern that ends in a slash matches all paths below.
fn is_below(pattern: &str, path: &str) -> bool {
    pattern.ends_with('/') && path.starts_with(pattern)
}

fn checked(result: Result<(), String>) -> Answer {
    match result {
        Ok(()) => ok(TEXT, "ok"),
        Err(why) => {
            failure(StatusCode::INTERNAL_SERVER_ERROR, &format!("internal server error: {why}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_for_this_host_are_refused_under_other_names() {
        let headers = |host: &str| [(header::HOST, host.parse().unwrap())].into_iter().collect();
        let local = Routes::default().local();
        for host in
            ["localhost", "LOCALHOST:8081", "127.0.0.1:1", "127.1.2.3", "[::1]:8081", "[::1]"]
        {
            assert!(local.admits(&headers(host)), "{host}");
        }
        for host in [
            "evil.example.com",
            "10.0.0.1:8081",
            "localhost.evil.example.com",
            "127.0.0.1.nip.io",
            "",
            "[::2]",
        ] {
            assert!(!local.admits(&headers(host)), "{host}");
        }
        assert!(!local.admits(&HeaderMap::new()));
        assert!(Routes::default().admits(&HeaderMap::new()));
    }
}
