//! Shares reads between callers, mostly of single objects ([`ReadBy`]).
//!
//! A secret or a class that a thousand claims name is read ten times a second, not a thousand times.
//! A caller gets the object as it was at most 100 ms before the call, or ten times as long as the read took, at most
//! a second ([`CoalescedReads::for_a_second`]: always a second). Callers that come while a read is in flight wait for
//! its answer. A failed read is shared only by those callers that waited for it. Objects, in particular Secrets, are
//! dropped after a second and never printed. A caller that knows of a change calls [`CoalescedReads::forget`].

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::{Client, Name};
use crate::{
    kube::{error::ApiError, objects::View},
    runtime::Tasks,
};

/// How long an answer is shared at least, counted from the sending of its request: no longer than a short back-off, so
/// that an attempt does not see what the one before it has seen.
const SHARED_AT_LEAST: Duration = Duration::from_millis(100);

/// How long an answer is shared at most.
const SHARED_AT_MOST: Duration = Duration::from_secs(1);

/// An answer that took long is shared for this multiple of its time: users can make objects large.
const SHARED_FACTOR: u32 = 10;

/// What is read by a namespace and a name. Any object is.
pub trait ReadBy: Sized + Send + Sync + 'static {
    /// Reads it through `client`.
    fn read(
        client: &Client,
        namespace: Option<&str>,
        name: &str,
    ) -> impl Future<Output = Result<Self, ApiError>> + Send;
}

impl<V: View> ReadBy for V {
    async fn read(client: &Client, namespace: Option<&str>, name: &str) -> Result<V, ApiError> {
        let name = match namespace {
            Some(namespace) => Name::namespaced(namespace, name),
            None => Name::cluster(name),
        };
        client.get(name?).await
    }
}

/// The result of a read.
type Answer<V> = Result<Arc<V>, Arc<ApiError>>;

/// Reads objects of one kind. Clones share their reads.
pub struct CoalescedReads<V> {
    client: Client,
    tasks: Tasks,
    /// How long an answer is shared at least.
    shared_for: Duration,
    reads: Arc<Mutex<Reads<V>>>,
}

/// The reads of the last second: when each was sent, and its answer.
type Reads<V> = BTreeMap<Object, (Instant, SharedAnswer<V>)>;

/// An answer for which several callers wait, or had waited, and until when it is shared.
type SharedAnswer<V> = Shared<BoxFuture<'static, (Answer<V>, Instant)>>;

/// An object's namespace, if its kind has them, and name.
type Object = (Option<String>, String);

impl<V: ReadBy> CoalescedReads<V> {
    /// Reads through `client`; tasks spawned on `tasks` drop the answers after a second.
    pub fn new(client: Client, tasks: Tasks) -> Self {
        Self { client, tasks, shared_for: SHARED_AT_LEAST, reads: Arc::default() }
    }

    /// The same, but each answer is shared for a second.
    #[must_use]
    pub fn for_a_second(self) -> Self {
        Self { shared_for: SHARED_AT_MOST, ..self }
    }

    /// Returns the object as it was a short time ago.
    ///
    /// # Errors
    /// Those of [`Client::get`].
    pub async fn get(&self, namespace: Option<&str>, name: &str) -> Answer<V> {
        let object = object(namespace, name);
        let shared = self.read(&object);
        let (answer, _) = shared.clone().await;
        if answer.is_err() {
            forget(&self.reads, &object, &shared);
        }
        answer
    }

    /// Drops the shared answer: the next caller reads the object again.
    pub fn forget(&self, namespace: Option<&str>, name: &str) {
        self.reads.lock().remove(&object(namespace, name));
    }

    /// Returns the answer to wait for; sends a request if none is recent enough.
    fn read(&self, object: &Object) -> SharedAnswer<V> {
        let now = Instant::now();
        let mut reads = self.reads.lock();
        if let Some((sent, answer)) = reads.get(object)
            && now < answer.peek().map_or(*sent + SHARED_AT_MOST, |(_, until)| *until)
        {
            return answer.clone();
        }
        let answer = request(self.client.clone(), object.clone(), now, self.shared_for);
        let answer = answer.boxed().shared();
        reads.insert(object.clone(), (now, answer.clone()));
        drop(reads);
        self.forget_later(object.clone(), answer.clone());
        answer
    }

    fn forget_later(&self, object: Object, answer: SharedAnswer<V>) {
        let reads = Arc::clone(&self.reads);
        self.tasks.spawn("forgetting a shared read", async move {
            sleep(SHARED_AT_MOST).await;
            forget(&reads, &object, &answer);
        });
    }
}

impl<V> Clone for CoalescedReads<V> {
    fn clone(&self) -> Self {
        let (client, tasks) = (self.client.clone(), self.tasks.clone());
        Self { client, tasks, shared_for: self.shared_for, reads: Arc::clone(&self.reads) }
    }
}

impl<V> fmt::Debug for CoalescedReads<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CoalescedReads")
    }
}

/// Reads the object. Also returns until when the answer is shared.
async fn request<V: ReadBy>(
    client: Client,
    (namespace, name): Object,
    sent: Instant,
    shared_for: Duration,
) -> (Answer<V>, Instant) {
    let answer = V::read(&client, namespace.as_deref(), &name).await;
    let long = sent.elapsed().saturating_mul(SHARED_FACTOR);
    let until = sent + long.clamp(shared_for, SHARED_AT_MOST);
    (answer.map(Arc::new).map_err(Arc::new), until)
}

fn object(namespace: Option<&str>, name: &str) -> Object {
    (namespace.map(str::to_owned), name.to_owned())
}

/// Drops the shared answer for `object`, if it still is this one.
fn forget<V>(reads: &Mutex<Reads<V>>, object: &Object, answer: &SharedAnswer<V>) {
    let mut reads = reads.lock();
    if reads.get(object).is_some_and(|(_, shared)| shared.ptr_eq(answer)) {
        reads.remove(object);
    }
}

#[cfg(test)]
mod tests {

    use serde_json::json;

    use super::*;
    use crate::{
        kube::{
            objects::Secret,
            testing,
            testing::{Server, client},
        },
        runtime::TokioSpawner,
    };

    const MS: Duration = Duration::from_millis(1);

    fn reads(server: &Server) -> CoalescedReads<Secret> {
        CoalescedReads::new(client(server), Tasks::new(Arc::new(TokioSpawner)).0)
    }

    /// A server that answers each request after so many seconds, with another version.
    fn versions(after: u64) -> Server {
        Server::new(move |number, _| {
            let secret = json!({"metadata": {"resourceVersion": number.to_string()},
                                "data": {"key": "czNjcjN0"}});
            testing::Answer::json(200, &secret).after(after)
        })
    }

    async fn version(reads: &CoalescedReads<Secret>, name: &str) -> String {
        let secret = reads.get(Some("ns"), name).await.unwrap();
        secret.metadata.resource_version.clone().unwrap().into()
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_one_answer_leaves_the_next() {
        let server = versions(0);
        let reads = reads(&server);
        assert_eq!(version(&reads, "s").await, "0");
        sleep(SHARED_AT_MOST.saturating_sub(MS)).await;
        assert_eq!(version(&reads, "s").await, "1");
        sleep(MS).await;
        assert_eq!(version(&reads, "s").await, "1", "the first read's task keeps the second");
        assert_eq!(server.requests().len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_shared_from_its_request_and_for_longer_if_it_took_long() {
        for (took, shared_for) in [(0, 100), (5, 100), (50, 500), (200, 1000)] {
            let server = Server::new(move |number, _| {
                let secret = json!({"metadata": {"resourceVersion": number.to_string()}});
                testing::Answer::json(200, &secret).after_time(took * MS)
            });
            let reads = reads(&server);
            assert_eq!(version(&reads, "s").await, "0");
            sleep((shared_for - took - 1) * MS).await;
            assert_eq!(version(&reads, "s").await, "0", "{took}");
            sleep(MS).await;
            assert_eq!(version(&reads, "s").await, "1", "{took}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_goes_on_when_its_first_caller_is_dropped() {
        let server = versions(3);
        let reads = reads(&server);
        let impatient = tokio::time::timeout(100 * MS, version(&reads, "s"));
        let (gone, stayed) = tokio::join!(impatient, version(&reads, "s"));
        assert!(gone.is_err());
        assert_eq!((stayed.as_str(), server.requests().len()), ("0", 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_read_is_shared_only_by_callers_that_waited_for_it() {
        let server = Server::new(|number, _| match number {
            0 => testing::Answer::refusal(404, "NotFound", "none").after(1),
            _ => testing::Answer::json(200, &json!({})),
        });
        let reads = reads(&server);
        let both = tokio::join!(reads.get(Some("ns"), "s"), reads.get(Some("ns"), "s"));
        assert!(both.0.unwrap_err().is_not_found() && both.1.unwrap_err().is_not_found());
        assert!(reads.get(Some("ns"), "s").await.is_ok());
        assert_eq!(server.requests().len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn objects_are_dropped_after_a_second_and_never_printed() {
        let server = versions(0);
        let reads = reads(&server);
        let secret = reads.get(Some("ns"), "s").await.unwrap();
        assert!(!format!("{reads:?} {secret:?}").contains("s3cr3t"));
        let kept = Arc::downgrade(&secret);
        drop(secret);
        assert!(kept.upgrade().is_some(), "for the callers of that time");
        sleep(SHARED_AT_MOST + MS).await;
        assert!(kept.upgrade().is_none());
    }
}
