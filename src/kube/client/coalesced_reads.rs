//! Reads of single objects that are shared by all who ask at about the same time.
//!
//! Owns what was read for the length of a second: a secret or a class that a thousand claims name
//! is read once a second, not a thousand times. Promises that whoever asks gets an object that stood
//! no longer than a second before the question, that those who ask while a read is under way
//! wait for its answer and send nothing, that a failed read is shared only by those who waited for
//! it, and that nothing is kept beyond its time: also no Secret, and none is ever printed. Leaves to
//! its users to say [`CoalescedReads::forget`] when what they read turned out to be of no use.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::{Client, name::Name};
use crate::{
    kube::{error::ApiError, objects::View},
    runtime::Tasks,
};

/// For so long after a request was sent its answer serves others.
const SHARED_FOR: Duration = Duration::from_secs(1);

/// What a read came to.
type Answer<V> = Result<Arc<V>, Arc<ApiError>>;

/// Reads objects of one kind. Clones share what they read.
pub struct CoalescedReads<V> {
    client: Client,
    tasks: Tasks,
    reads: Arc<Mutex<Reads<V>>>,
}

/// The reads of the last second, by whose object they are of.
struct Reads<V> {
    by_object: BTreeMap<Object, Read<V>>,
    /// How many there ever were.
    count: u64,
}

/// An object by namespace, where its kind has them, and name.
type Object = (Option<String>, String);

/// One request, under way or answered.
struct Read<V> {
    number: u64,
    sent: Instant,
    answer: Shared<BoxFuture<'static, Answer<V>>>,
}

impl<V: View> CoalescedReads<V> {
    /// Reads through `client`; `tasks` forget what was read.
    pub fn new(client: Client, tasks: Tasks) -> Self {
        let reads = Reads { by_object: BTreeMap::new(), count: 0 };
        Self { client, tasks, reads: Arc::new(Mutex::new(reads)) }
    }

    /// The object, as it was a second ago at the earliest.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn get(&self, namespace: Option<&str>, name: &str) -> Answer<V> {
        let object = object(namespace, name);
        let (number, answer) = self.read(&object);
        let answer = answer.await;
        if answer.is_err() {
            forget(&self.reads, &object, number);
        }
        answer
    }

    /// Whoever asks from now on gets the object as it is from now on.
    pub fn forget(&self, namespace: Option<&str>, name: &str) {
        self.reads.lock().by_object.remove(&object(namespace, name));
    }

    /// The read that serves whoever asks now, and its number.
    fn read(&self, object: &Object) -> (u64, Shared<BoxFuture<'static, Answer<V>>>) {
        let now = Instant::now();
        let mut reads = self.reads.lock();
        if let Some(read) = reads.by_object.get(object)
            && now < read.sent + SHARED_FOR
        {
            return (read.number, read.answer.clone());
        }
        reads.count += 1;
        let number = reads.count;
        let answer = request(self.client.clone(), object.clone()).boxed().shared();
        let read = Read { number, sent: now, answer: answer.clone() };
        reads.by_object.insert(object.clone(), read);
        drop(reads);
        self.forget_in_time(object.clone(), number);
        (number, answer)
    }

    fn forget_in_time(&self, object: Object, number: u64) {
        let reads = Arc::clone(&self.reads);
        self.tasks.spawn("forgetting what was read", async move {
            sleep(SHARED_FOR).await;
            forget(&reads, &object, number);
        });
    }
}

impl<V> Clone for CoalescedReads<V> {
    fn clone(&self) -> Self {
        let (client, tasks) = (self.client.clone(), self.tasks.clone());
        Self { client, tasks, reads: Arc::clone(&self.reads) }
    }
}

impl<V> fmt::Debug for CoalescedReads<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CoalescedReads")
    }
}

async fn request<V: View>(client: Client, (namespace, name): Object) -> Answer<V> {
    let name = match &namespace {
        Some(namespace) => Name::namespaced(namespace, &name),
        None => Name::cluster(&name),
    };
    let read = async { client.get(name?).await };
    read.await.map(Arc::new).map_err(Arc::new)
}

fn object(namespace: Option<&str>, name: &str) -> Object {
    (namespace.map(str::to_owned), name.to_owned())
}

/// Forgets this very read of the object.
fn forget<V>(reads: &Mutex<Reads<V>>, object: &Object, number: u64) {
    let mut reads = reads.lock();
    if reads.by_object.get(object).is_some_and(|read| read.number == number) {
        reads.by_object.remove(object);
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;
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

    fn recent(server: &Server) -> CoalescedReads<Secret> {
        CoalescedReads::new(client(server), Tasks::new(Arc::new(TokioSpawner)).0)
    }

    /// A server whose every answer, given after so many seconds, is another version.
    fn versions(after: u64) -> Server {
        Server::new(move |number, _| {
            let secret = json!({"metadata": {"resourceVersion": number.to_string()},
                                "data": {"key": "czNjcjN0"}});
            testing::Answer::json(200, &secret).after(after)
        })
    }

    async fn version(recent: &CoalescedReads<Secret>, name: &str) -> String {
        let secret = recent.get(Some("ns"), name).await.unwrap();
        secret.metadata.resource_version.clone().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_serves_for_a_second_from_its_request() {
        let server = versions(0);
        let recent = recent(&server);
        assert_eq!(version(&recent, "s").await, "0");
        sleep(SHARED_FOR.saturating_sub(MS)).await;
        assert_eq!(version(&recent, "s").await, "0");
        sleep(MS).await;
        assert_eq!(version(&recent, "s").await, "1");
        sleep(SHARED_FOR.saturating_sub(MS)).await;
        assert_eq!(version(&recent, "s").await, "1", "the first one's end is not the second's");
        assert_eq!(server.seen().len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_asks_while_a_read_is_under_way_waits_for_it() {
        let server = versions(3);
        let recent = recent(&server);
        let answers = join_all((0..100).map(|_| version(&recent, "s"))).await;
        assert!(answers.iter().all(|version| version == "0"));
        assert_eq!(server.seen().len(), 1);
        // Its second counts from the sending: it is over when the answer comes.
        assert_eq!(version(&recent, "s").await, "1");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_serves_only_who_asked_within_its_second() {
        let server = versions(3);
        let recent = recent(&server);
        let late = async {
            sleep(SHARED_FOR).await;
            version(&recent, "s").await
        };
        assert_eq!(tokio::join!(version(&recent, "s"), late), ("0".into(), "1".into()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_goes_on_when_who_sent_it_goes_away() {
        let server = versions(3);
        let recent = recent(&server);
        let impatient = tokio::time::timeout(100 * MS, version(&recent, "s"));
        let (gone, stayed) = tokio::join!(impatient, version(&recent, "s"));
        assert!(gone.is_err());
        assert_eq!((stayed.as_str(), server.seen().len()), ("0", 1));
    }

    #[tokio::test(start_paused = true)]
    async fn objects_are_told_apart_by_namespace_and_name() {
        let server = versions(0);
        let recent = recent(&server);
        for (namespace, name) in [("a", "s"), ("b", "s"), ("a", "t"), ("a", "s")] {
            recent.get(Some(namespace), name).await.unwrap();
        }
        let urls: Vec<_> = server.seen().into_iter().map(|seen| seen.url).collect();
        let url = |namespace, name| format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        assert_eq!(urls, [url("a", "s"), url("b", "s"), url("a", "t")]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_read_is_shared_by_those_who_waited_for_it_and_nobody_else() {
        let server = Server::new(|number, _| match number {
            0 => testing::Answer::refusal(404, "NotFound", "none").after(1),
            _ => testing::Answer::json(200, &json!({})),
        });
        let recent = recent(&server);
        let both = tokio::join!(recent.get(Some("ns"), "s"), recent.get(Some("ns"), "s"));
        assert!(both.0.unwrap_err().is_not_found() && both.1.unwrap_err().is_not_found());
        assert!(recent.get(Some("ns"), "s").await.is_ok());
        assert_eq!(server.seen().len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_forgotten_is_read_anew() {
        let server = versions(0);
        let recent = recent(&server);
        assert_eq!(version(&recent, "s").await, "0");
        recent.forget(Some("ns"), "other");
        assert_eq!(version(&recent, "s").await, "0");
        recent.forget(Some("ns"), "s");
        assert_eq!(version(&recent, "s").await, "1");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_kept_beyond_its_time_nor_printed() {
        let server = versions(0);
        let recent = recent(&server);
        let secret = recent.get(Some("ns"), "s").await.unwrap();
        assert!(!format!("{recent:?} {secret:?}").contains("s3cr3t"));
        let kept = Arc::downgrade(&secret);
        drop(secret);
        assert!(kept.upgrade().is_some(), "for who comes within the second");
        sleep(SHARED_FOR + MS).await;
        assert!(kept.upgrade().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_is_none_is_never_asked_for() {
        let server = versions(0);
        let error = recent(&server).get(Some("ns"), "a/b").await.unwrap_err();
        assert!(matches!(*error, ApiError::BadName(_)), "{error}");
        assert!(server.seen().is_empty());
    }
}
