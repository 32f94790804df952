//! Prints what is observed, as a timeline.
//!
//! Owns the clock of the lines, which counts from its start, and the last line. Leaves observing to
//! `observer`, and what a line looks like to `timeline`.

use std::{io, time::Duration};

use testkit::apiserver::serve::manifests::ManifestError;
use tokio::time::Instant;

use crate::{
    cluster::Cluster,
    observations::{Observation, Source},
    observer::Observer,
    timeline::Timeline,
};

/// What is observed, on its way to the timeline.
pub struct Screen {
    observer: Observer,
    timeline: Timeline,
    began: Instant,
    last: String,
}

impl Screen {
    /// Observes a cluster.
    ///
    /// # Errors
    /// As [`Observer::start`].
    pub async fn start(cluster: &Cluster, timeline: Timeline) -> Result<Self, ManifestError> {
        let observer = Observer::start(cluster).await?;
        Ok(Self { observer, timeline, began: Instant::now(), last: "nothing".to_owned() })
    }

    /// The time since the start.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// The last observation.
    pub fn last(&self) -> &str {
        &self.last
    }

    /// Prints what is new, and returns it.
    ///
    /// # Errors
    /// What the file system or the output says.
    pub async fn observe(&mut self, cluster: &Cluster) -> io::Result<Vec<Observation>> {
        let observations = self.observer.next(cluster).await?;
        for observation in &observations {
            self.last = observation.to_string();
            self.timeline.line(self.began.elapsed(), observation.source, &self.last)?;
        }
        Ok(observations)
    }

    /// Prints what the demo itself does; the effects are printed below it.
    ///
    /// # Errors
    /// What the output says.
    pub fn print(&mut self, what: &str) -> io::Result<()> {
        self.timeline.say("")?;
        self.timeline.line(self.began.elapsed(), Source::Demo, what)
    }

    /// Writes something that is no part of the table.
    ///
    /// # Errors
    /// What the output says.
    pub fn say(&mut self, text: &str) -> io::Result<()> {
        self.timeline.say(text)
    }
}
