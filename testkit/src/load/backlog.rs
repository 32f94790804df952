//! A backlog: claims that stood before the program started.
//!
//! Owns the order of such a run. A bare client writes; then all claims are made; then the program
//! starts, and the time counts until the last claim's PersistentVolume and the last event stand;
//! then the claims are bound and deleted; the program ends, and the bare client writes once more.
//! Promises that nobody binds claims meanwhile, where the server is ours.

use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::{Api, api::ListParams};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::{
    Bench, Reading,
    bare::Bare,
    error::LoadError,
    latency::rounded,
    program::Program,
    progress::Milestone,
    report::{MemoryUse, Pace, Provision, Report},
    traffic::Traffic,
    usage::Cpu,
};

/// How often the events are counted.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// When no event has come for so long, the last one has come.
const LAST_EVENT: Duration = Duration::from_secs(3);

/// How fast a backlog was served.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Drain {
    /// From the program's start until the last claim's PersistentVolume was observed.
    pub saved: Pace,
    /// Until the last event stood as well.
    pub written: Pace,
    /// How many events came.
    pub events: usize,
    /// The bare client, before and after the program.
    pub bare: [Pace; 2],
    /// The rate of `saved` over the mean of the bare client's.
    pub saved_to_bare: f64,
    /// The rate of `written` over the same.
    pub written_to_bare: f64,
}

impl Drain {
    fn new(saved: Pace, (written, events): (Pace, usize), bare: [Pace; 2]) -> Self {
        let mean = bare.iter().map(|pace| pace.per_second).sum::<f64>() / 2.0;
        let over = |pace: Pace| if mean > 0.0 { rounded(pace.per_second / mean) } else { 0.0 };
        Self {
            saved,
            written,
            events,
            bare,
            saved_to_bare: over(saved),
            written_to_bare: over(written),
        }
    }
}

impl Bench {
    /// Claims stand before the program starts.
    pub(super) async fn measure_backlog(&self) -> Result<Report, LoadError> {
        let before = self.bare("before").await?;
        let traffic = self.traffic("claim", self.options.claims);
        traffic.create().await?;
        sleep(self.options.settle()).await;
        let nothing = self.nothing().await?;
        let (events, start) = (self.events().await?, Instant::now());
        self.launch()?;
        self.reached(Milestone::Saved, traffic.count).await?;
        let written = self.written(&traffic, events, start).await?;
        sleep(self.options.settle()).await;
        let cost = self.reading().await?.since(nothing, true);
        let (saved, first) = self.since(start, traffic.count);
        let drained = self.memory()?;
        self.cluster.bind();
        self.reached(Milestone::Bound, traffic.count).await?;
        let provision = Provision::of(&self.progress.lock(), cost);
        let delete = self.delete(&traffic).await?;
        let (setting, end) = (self.setting().await?, self.memory()?);
        if let Some(program) = self.program.get() {
            program.stop().await;
        }
        self.cluster.stop_binding();
        let bare = [before, self.bare("after").await?];
        Ok(Report {
            setting,
            first_volume_seconds: first,
            first_new_volume_seconds: None,
            drain: saved.map(|saved| Drain::new(saved, written, bare)),
            provision,
            delete,
            memory: MemoryUse::of(drained, drained, end),
            volumes_left_at_driver: self.left_at_driver()?,
        })
    }

    /// The bare client's pace.
    async fn bare(&self, what: &str) -> Result<Pace, LoadError> {
        let family = self.cluster.family(what);
        let client = self.cluster.server.measured_client().await?;
        let bare = Bare { client, family, count: self.options.claims };
        let pace = bare.write().await;
        bare.clean_up().await?;
        sleep(self.options.settle()).await;
        pace
    }

    /// What was used before the program is started. The server has counted the bare client's requests as
    /// those of the program's user.
    async fn nothing(&self) -> Result<Reading, LoadError> {
        let before = self.reading().await?;
        let requests = Some(before.requests.unwrap_or_default());
        Ok(Reading { cpu: Some(Cpu::default()), requests, ..before })
    }

    /// The pace from `start` to the last PersistentVolume, and the seconds to the first.
    fn since(&self, start: Instant, count: usize) -> (Option<Pace>, Option<f64>) {
        let progress = self.progress.lock();
        let last = progress.last(Milestone::Saved);
        let first = progress.first(Milestone::Saved);
        let seconds = |first: Instant| rounded(first.duration_since(start).as_secs_f64());
        (last.map(|last| Pace::new(count, last.duration_since(start))), first.map(seconds))
    }

    /// Waits for two events a claim beside the `others`, or until no more come; the pace from
    /// `start` to the last of them, and how many there were.
    async fn written(
        &self,
        traffic: &Traffic,
        others: usize,
        start: Instant,
    ) -> Result<(Pace, usize), LoadError> {
        let (mut events, mut last) = (self.events().await?, Instant::now());
        while events < others + 2 * traffic.count && last.elapsed() < LAST_EVENT {
            self.program.get().map_or(Ok(()), Program::check)?;
            sleep(POLL_INTERVAL).await;
            let now = self.events().await?;
            if now > events {
                (events, last) = (now, Instant::now());
            }
        }
        Ok((Pace::new(traffic.count, last.duration_since(start)), events.saturating_sub(others)))
    }

    /// How many events stand in the namespace.
    async fn events(&self) -> Result<usize, LoadError> {
        let events: Api<Event> =
            Api::namespaced(self.cluster.client.clone(), &self.cluster.namespace);
        let page = events.list_metadata(&ListParams::default().limit(1)).await?;
        let more = page.metadata.remaining_item_count.unwrap_or_default();
        Ok(page.items.len() + usize::try_from(more).unwrap_or_default())
    }
}
