//! The paths and their answers: metrics, checks and the CPU profile of one address, the status of another.
//!
//! Content types, bodies and error texts are those of external-provisioner (`ok` and `internal server
//! error: ...` for checks, Go's 404 elsewhere), for any method, since Go's handlers ignore it too.

use std::{collections::BTreeMap, net::IpAddr};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Uri, header, uri::Authority};
use http_body_util::Full;
use tokio::{
    sync::Mutex,
    time::{Instant, Interval},
};

use super::pace;
#[cfg(feature = "cpu-profiles")]
use super::profile;

/// The Prometheus client's content type; `escaping`: names are not escaped.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// How many times as long as it took to render is the text of the metrics shared: rendering takes a twentieth
/// of the time at most, and whoever asks now and then gets what is true now.
pub(super) const SHARED: u32 = 20;

/// What a request under another name than that of this host gets.
const FOREIGN_HOST: &str = "only for localhost: ask for it by a loopback name or address";

/// What a browser is told of JSON: to keep none, and to show it as nothing else.
const OF_JSON: [(HeaderName, &str); 2] =
    [(header::CACHE_CONTROL, "no-store"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];

/// An answer.
pub(super) type Answer = Response<Full<Bytes>>;

/// A health check; `Err` is the reason of a failure.
type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;
/// Returns the metrics in the Prometheus text format.
type Scrape = Box<dyn Fn() -> String + Send + Sync>;
/// Writes JSON, given the query.
type Write = Box<dyn Fn(&str) -> String + Send + Sync>;

/// The served paths.
#[derive(Default)]
pub struct Routes {
    metrics: Option<Metrics>,
    checks: BTreeMap<&'static str, Check>,
    /// Whether the CPU profile is served.
    #[cfg(feature = "cpu-profiles")]
    profile: bool,
    status: Option<Status>,
}

struct Metrics {
    path: String,
    scrape: Scrape,
    shared: Mutex<Shared>,
}

/// Where the status is, and what writes it: one request is answered after the other.
struct Status {
    path: &'static str,
    write: Write,
    pace: Mutex<Interval>,
}

/// The text that scrapes share, and their pace: one is answered after the other, whoever asks.
struct Shared {
    pace: Interval,
    /// The text, and until when it is shared.
    text: Option<(Instant, Bytes)>,
}

impl Routes {
    /// Serves only metrics at `path`.
    pub fn new(path: &str, scrape: impl Fn() -> String + Send + Sync + 'static) -> Self {
        let shared = Mutex::new(Shared { pace: pace(), text: None });
        let metrics = Metrics { path: path.to_owned(), scrape: Box::new(scrape), shared };
        Self { metrics: Some(metrics), ..Self::default() }
    }

    /// Serves only the status as JSON at `path`; `write` writes it for a query. Answers only requests for a
    /// loopback name: a page of another site that a browser loads can reach a forwarded port under a name of
    /// its own, which resolves to this address.
    pub fn status(
        path: &'static str,
        write: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Self {
        let status = Status { path, write: Box::new(write), pace: Mutex::new(pace()) };
        Self { status: Some(status), ..Self::default() }
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

    /// Adds the CPU profile of this process, unless it is built without.
    #[must_use]
    pub fn profile(self) -> Self {
        Self {
            #[cfg(feature = "cpu-profiles")]
            profile: true,
            ..self
        }
    }

    /// The path of the metrics, if they are served.
    pub(super) fn metrics_path(&self) -> Option<&str> {
        self.metrics.as_ref().map(|metrics| metrics.path.as_str())
    }

    /// Whether a request with these headers may be answered.
    fn admits(&self, headers: &HeaderMap) -> bool {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        self.status.is_none() || host.is_some_and(is_loopback)
    }

    pub(super) async fn answer(&self, uri: &Uri, headers: &HeaderMap) -> Answer {
        if !self.admits(headers) {
            return failure(StatusCode::FORBIDDEN, FOREIGN_HOST);
        }
        let (path, query) = (uri.path(), uri.query().unwrap_or_default());
        if let Some(metrics) = self.metrics.as_ref().filter(|metrics| path == metrics.path) {
            return ok(METRICS, metrics.text().await);
        }
        if let Some(check) = self.checks.get(path) {
            return checked(check());
        }
        if let Some(status) = self.status.as_ref().filter(|status| path == status.path) {
            status.pace.lock().await.tick().await;
            let mut answer = ok("application/json", (status.write)(query));
            let of_json = OF_JSON.map(|(name, value)| (name, HeaderValue::from_static(value)));
            answer.headers_mut().extend(of_json);
            return answer;
        }
        #[cfg(feature = "cpu-profiles")]
        if self.profile && path == profile::PATH {
            return profile::answer(query).await;
        }
        failure(StatusCode::NOT_FOUND, "404 page not found")
    }
}

impl Metrics {
    async fn text(&self) -> Bytes {
        let mut shared = self.shared.lock().await;
        shared.pace.tick().await;
        match &shared.text {
            Some((end, text)) if Instant::now() < *end => text.clone(),
            _ => {
                let start = Instant::now();
                let text = Bytes::from((self.scrape)());
                shared.text = Some((Instant::now() + start.elapsed() * SHARED, text.clone()));
                text
            }
        }
    }
}

/// Whether a Host header names this host: `localhost` or a loopback address, with any port.
fn is_loopback(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn checked(result: Result<(), String>) -> Answer {
    match result {
        Ok(()) => ok(TEXT, "ok"),
        Err(why) => {
            failure(StatusCode::INTERNAL_SERVER_ERROR, &format!("internal server error: {why}"))
        }
    }
}

/// 200 with a body of this media type.
pub(super) fn ok(content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    respond(StatusCode::OK, content_type, body.into())
}

/// The answer of Go's `http.Error`.
pub(super) fn failure(status: StatusCode, text: &str) -> Answer {
    let mut answer = respond(status, TEXT, format!("{text}\n").into());
    let nosniff = HeaderValue::from_static("nosniff");
    answer.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    answer
}

fn respond(status: StatusCode, content_type: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_for_this_host_is_refused_under_other_names() {
        let headers = |host: &str| [(header::HOST, host.parse().unwrap())].into_iter().collect();
        let local = Routes::status("/status.json", str::to_owned);
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
