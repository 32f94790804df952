//! A driver that finishes what it has begun, also when its caller was killed meanwhile.
//!
//! Promises that a volume's creation and removal take their time and go on without their caller, that any other
//! call for it is refused with Aborted until then, and a count of how often each volume was made. While creations
//! are held, none ends.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use fastrand::Rng;
use parking_lot::Mutex;
use serde_json::json;
use testkit::driver::{
    Answer, Around, Backend as _, Call, Scripted, Status,
    proto::{CreateVolumeRequest, CreateVolumeResponse, DeleteVolumeRequest, DeleteVolumeResponse},
};
use tokio::{sync::watch, time::sleep};

/// The driver's name.
pub(crate) const DRIVER: &str = "disk.example.com";

/// The longest that making or deleting a volume takes, in milliseconds.
const LONGEST: u64 = 400;

/// What the driver holds.
#[derive(Default)]
pub(crate) struct Disks {
    /// The volumes that are being made or removed, by name.
    pub(crate) begun: BTreeSet<String>,
    /// The handles of all volumes there are.
    pub(crate) there: BTreeSet<String>,
    /// How often each was made, by name.
    pub(crate) made: BTreeMap<String, usize>,
}

/// The driver.
pub(crate) struct Persistent {
    answers: Scripted,
    dice: Mutex<Rng>,
    /// Whether creations are held.
    pub(crate) held: watch::Sender<bool>,
    pub(crate) disks: Arc<Mutex<Disks>>,
}

/// What the handle of a volume has before its name.
const HANDLE: &str = "vol-";

/// The handle of a volume of this name.
fn handle(name: &str) -> String {
    format!("{HANDLE}{name}")
}

fn under_way() -> Status {
    Status::aborted("an operation with this volume name is under way")
}

impl Persistent {
    pub(crate) fn new(seed: u64) -> Self {
        let script = serde_json::from_value(json!({"name": DRIVER})).unwrap();
        let dice = Mutex::new(Rng::with_seed(seed));
        let held = watch::Sender::default();
        Self { answers: Scripted::new(script), dice, held, disks: Arc::default() }
    }

    fn pause(&self) -> Duration {
        Duration::from_millis(self.dice.lock().u64(0..=LONGEST))
    }

    /// Begins to make a volume, unless it is there or in the making.
    #[allow(clippy::disallowed_methods)] // it must outlive the call
    fn begin(&self, name: &str) -> Result<Option<tokio::task::JoinHandle<()>>, Status> {
        let mut disks = self.disks.lock();
        if disks.begun.contains(name) {
            return Err(under_way());
        }
        if disks.there.contains(&handle(name)) {
            return Ok(None);
        }
        disks.begun.insert(name.to_owned());
        let (all, name, pause) = (Arc::clone(&self.disks), name.to_owned(), self.pause());
        let mut held = self.held.subscribe();
        Ok(Some(tokio::spawn(async move {
            sleep(pause).await;
            // The driver outlives it.
            let _ = held.wait_for(|held| !held).await;
            let mut disks = all.lock();
            disks.begun.remove(&name);
            disks.there.insert(handle(&name));
            *disks.made.entry(name).or_default() += 1;
        })))
    }
}

impl Around for Persistent {
    type Inside = Scripted;

    fn inside(&self) -> &Scripted {
        &self.answers
    }

    async fn create_volume(&self, call: Call<CreateVolumeRequest>) -> Answer<CreateVolumeResponse> {
        if let Some(making) = self.begin(&call.request.name)? {
            // It ends by itself and does not panic.
            let _ = making.await;
        }
        // The answer takes a while as well: a caller may be killed before it comes.
        sleep(self.pause()).await;
        self.answers.create_volume(call).await
    }

    #[allow(clippy::disallowed_methods)] // it must outlive the call
    async fn delete_volume(&self, call: Call<DeleteVolumeRequest>) -> Answer<DeleteVolumeResponse> {
        let name = call.request.volume_id.trim_start_matches(HANDLE).to_owned();
        if !self.disks.lock().begun.insert(name.clone()) {
            return Err(under_way());
        }
        let (all, pause) = (Arc::clone(&self.disks), self.pause());
        let removal = tokio::spawn(async move {
            sleep(pause).await;
            let mut disks = all.lock();
            disks.begun.remove(&name);
            disks.there.remove(&handle(&name));
        });
        // It ends by itself and does not panic.
        let _ = removal.await;
        sleep(self.pause()).await;
        self.answers.delete_volume(call).await
    }
}
