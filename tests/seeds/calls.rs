//! The calls that the program waits for, and the check that rests on them: one actor a volume
//! (safety rule 5), so that nobody deletes what it asks for at the same time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{ledger::Ledger, naming::may_be_of, storage::image_of};

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Calls(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    waited_for: BTreeMap<u64, Call>,
    so_far: u64,
    /// The processes that received a handle of an image, and of which image.
    answered: BTreeSet<(String, String)>,
}

/// What is asked of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Create,
    Delete,
}

#[derive(Debug)]
struct Call {
    what: What,
    process: String,
    image: String,
    /// The process can know of which image it is.
    known: bool,
    /// Until when its caller waits.
    until: Instant,
}

/// Dropped, nobody waits for it any more.
pub(crate) struct Waited<'a>(&'a Calls, u64);

impl Drop for Waited<'_> {
    fn drop(&mut self) {
        self.0.0.lock().waited_for.remove(&self.1);
    }
}

impl Calls {
    /// A call for this name or handle reaches the driver.
    pub(crate) fn begins(
        &self,
        ledger: &Ledger,
        what: What,
        process: &str,
        volume: &str,
        time_left: Option<Duration>,
    ) -> Waited<'_> {
        let image = if what == What::Create { volume } else { image_of(volume) };
        let now = Instant::now();
        let mut inner = self.0.lock();
        // A PersistentVolume of another name may have its handle before the driver has answered anybody:
        // nobody knows then that it is of the volume that is being made.
        let known = what == What::Create
            || !ledger.is_named_otherwise(volume)
            || inner.answered.contains(&(process.to_owned(), image.to_owned()));
        let is_same =
            |call: &Call| call.process == process && call.image == image && call.until > now;
        let mut same = inner.waited_for.values().filter(|call| is_same(call));
        if same.any(|call| call.what != what && call.known && known) {
            ledger.wrong(&format!("{process} makes and deletes {image} at the same time"));
        }
        let until = now + time_left.unwrap_or(Duration::from_secs(3_600));
        let call =
            Call { what, process: process.to_owned(), image: image.to_owned(), known, until };
        inner.so_far += 1;
        let number = inner.so_far;
        inner.waited_for.insert(number, call);
        Waited(self, number)
    }

    /// The driver has returned to the process what it has created under this name.
    pub(crate) fn outcome_known(&self, process: &str, name: &str) {
        self.0.lock().answered.insert((process.to_owned(), name.to_owned()));
    }

    /// The name of the volume that is being asked for for the claim with this UID.
    pub(crate) fn asked_for(&self, uid: &str) -> Option<String> {
        let inner = self.0.lock();
        let mut asked = inner.waited_for.values().filter(|call| call.what == What::Create);
        asked.find(|call| may_be_of(&call.image, uid)).map(|call| call.image.clone())
    }

    /// Whether this image is being deleted.
    pub(crate) fn is_deleting(&self, image: &str) -> bool {
        let inner = self.0.lock();
        inner.waited_for.values().any(|call| call.what == What::Delete && call.image == image)
    }
}
