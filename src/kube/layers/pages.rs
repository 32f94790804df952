//! Requests each page of a list with as many objects as fit in memory and come in time.
//!
//! Any user can create claims of more than a megabyte, and kube-rs holds a page twice before it is read. So
//! no list fails for its size, nor do a few large objects make all of it slow: a page that is too large is
//! requested again with fewer objects, and pages that fit well make the next ones larger again. After one that
//! did not come before its deadline, over a slow link or from a slow server, the next ones are smaller, too.

use std::{sync::Arc, time::Duration};

use http::{Uri, uri::InvalidUri};
use http_body::Body as _;
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::service_fn;

use super::{
    Next, Outcome, Request, again,
    whole_answers::{MAX_ANSWER, MaxAnswer},
};
use crate::kube::{
    error::{ApiError, DeadlineExceeded},
    target::{Target, Verb},
};

/// The most that is read of a page of several objects, in bytes.
pub(crate) const MAX_PAGE: usize = 8 << 20;

/// A page that is too large is requested again with this part of its objects, and one that was too slow is
/// followed by such a one.
const SHRINK_FACTOR: u32 = 8;

/// A page that takes no more than this part of what is read of one is followed by one of twice as many, if it
/// came within [`GROWS_WITHIN`].
const GROWS_BELOW: usize = 4;

/// A quarter of the time that an answer may take.
const GROWS_WITHIN: Duration = Duration::from_secs(7);

/// How many objects the next page has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageSize {
    usual: u32,
    objects: u32,
    /// The most that is read of several objects, in bytes.
    max: usize,
}

impl PageSize {
    /// So many objects, unless they take more than `max` bytes.
    pub(crate) fn new(usual: u32, max: usize) -> Self {
        Self { usual, objects: usual, max }
    }

    /// The most that is read of the page, in bytes.
    fn max(self) -> usize {
        if self.objects > 1 { self.max } else { MAX_ANSWER }
    }

    /// What follows a page of so many bytes that took so long.
    fn after(self, bytes: u64, took: Duration) -> Self {
        let fits_well = bytes <= (self.max / GROWS_BELOW) as u64 && took <= GROWS_WITHIN;
        let more = self.objects.saturating_mul(2).min(self.usual);
        Self { objects: if fits_well { more } else { self.objects }, ..self }
    }

    /// What is requested after a page that was too large or too slow; `None` if that was a single object.
    fn smaller(self) -> Option<Self> {
        let objects = (self.objects / SHRINK_FACTOR).max(1);
        (objects < self.objects).then_some(Self { objects, ..self })
    }
}

/// Requests the pages of lists in the sizes that follow from `size`.
pub(crate) fn paged(size: PageSize, next: impl Next) -> impl Next {
    let size = Arc::new(Mutex::new(size));
    service_fn(move |request| send(Arc::clone(&size), next.clone(), request))
}

async fn send(size: Arc<Mutex<PageSize>>, next: impl Next, request: Request) -> Outcome {
    if Target::of(&request).verb != Verb::List {
        return next.send(request).await;
    }
    loop {
        let now = *size.lock();
        let mut page = again(&request);
        *page.uri_mut() = with_limit(request.uri(), now.objects)?;
        page.extensions_mut().insert(MaxAnswer(now.max()));
        let began = Instant::now();
        let outcome = next.send(page).await;
        let is_too_large = outcome
            .as_ref()
            .is_err_and(|error| matches!(error.downcast_ref(), Some(ApiError::TooLarge { .. })));
        let follows = match &outcome {
            Ok(response) => {
                let bytes = response.size_hint().exact();
                bytes.map(|bytes| now.after(bytes, began.elapsed()))
            }
            Err(error) if is_too_large || error.is::<DeadlineExceeded>() => now.smaller(),
            Err(_) => None,
        };
        if let Some(follows) = follows {
            *size.lock() = follows;
        }
        // One that was too slow is reported, and waited out, before the list begins again.
        if !is_too_large || follows.is_none() {
            return outcome;
        }
    }
}

/// The URL with another limit, where it has one.
fn with_limit(url: &Uri, objects: u32) -> Result<Uri, InvalidUri> {
    let parameters = url.query().unwrap_or_default().split('&');
    let parameters = parameters.map(|parameter| match parameter.split_once('=') {
        Some(("limit", _)) => format!("limit={objects}"),
        _ => parameter.to_owned(),
    });
    format!("{}?{}", url.path(), parameters.collect::<Vec<_>>().join("&")).parse()
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::kube::{
        layers::deadline::deadline,
        testing::{Answer, Server, request},
    };

    #[test]
    fn a_page_shrinks_when_it_is_too_large_and_grows_back_while_it_fits_well() {
        let mut size = PageSize::new(500, 8 << 20);
        // The MiB of each page, if it is not too large, and the objects of the next one.
        let pages = [
            Some(2),
            Some(8),
            None,
            None,
            None,
            Some(30),
            Some(3),
            Some(2),
            Some(3),
            Some(1),
            None,
        ];
        let objects = [500, 500, 62, 7, 1, 1, 1, 2, 2, 4, 1];
        let small = [2, 4, 8, 16, 32, 64, 128, 256, 500].map(|objects| (Some(0), objects));
        for (page, objects) in pages.into_iter().zip(objects).chain(small) {
            size = match page {
                Some(mebibytes) => size.after(mebibytes << 20, Duration::ZERO),
                None => size.smaller().unwrap(),
            };
            assert_eq!(size.objects, objects, "after {page:?}");
            assert_eq!(size.max(), if objects == 1 { MAX_ANSWER } else { 8 << 20 });
        }
        assert!(PageSize::new(1, 8 << 20).smaller().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_page_that_is_too_slow_the_next_ones_are_so_small_that_they_come() {
        // The answer takes a second for each ten objects.
        let server = Server::new(|_, request| {
            let (_, objects) = request.url.rsplit_once("limit=").unwrap();
            Answer::status(200).after(objects.parse::<u64>().unwrap() / 10)
        });
        let service = deadline(Duration::from_secs(30), server.service.clone());
        let service = paged(PageSize::new(1000, MAX_PAGE), service);
        let mut answered = Vec::new();
        for _ in 0..4 {
            let page = request(Method::GET, "/api/v1/persistentvolumes?limit=1000");
            answered.push(crate::kube::testing::send(&service, page).await.is_ok());
        }
        assert_eq!(answered, [false, true, true, true], "what is slow is reported at once");
        let limits = server.requests();
        let limits: Vec<_> = limits.iter().map(|it| it.url.rsplit('=').next().unwrap()).collect();
        assert_eq!(limits, ["1000", "125", "125", "125"], "they do not grow again");
    }

    #[test]
    fn only_the_limit_of_a_url_is_replaced() {
        for (url, expected) in [
            ("/p?limit=500&continue=limit%3D5", "/p?limit=7&continue=limit%3D5"),
            ("/p?&fieldSelector=a%3Db&limit=2", "/p?&fieldSelector=a%3Db&limit=7"),
            ("/p?x=1", "/p?x=1"),
        ] {
            assert_eq!(with_limit(&url.parse().unwrap(), 7).unwrap(), *expected);
        }
    }
}
