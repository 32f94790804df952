//! Opens no more than one watch a second: a server, or a proxy before it, may end every watch at once, and
//! kube-rs opens the next one without a pause.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};
use tower::service_fn;

use super::{Next, Outcome, Request};
use crate::kube::target::Verb;

/// The least time from the beginning of one watch to that of the next.
const INTERVAL: Duration = Duration::from_secs(1);

/// Makes watches wait for one another.
pub(crate) fn paced(next: impl Next) -> impl Next {
    let next_watch = Arc::new(Mutex::new(Instant::now()));
    service_fn(move |request| send(Arc::clone(&next_watch), next.clone(), request))
}

/// Before the time in `next_watch` no watch is opened.
async fn send(next_watch: Arc<Mutex<Instant>>, next: impl Next, request: Request) -> Outcome {
    if Verb::of(&request) == Verb::Watch {
        let from = reserve(&mut next_watch.lock());
        sleep_until(from).await;
    }
    next.send(request).await
}

/// When the next watch is opened; the one after it an interval later.
fn reserve(next_watch: &mut Instant) -> Instant {
    let from = Instant::now().max(*next_watch);
    *next_watch = from + INTERVAL;
    from
}
