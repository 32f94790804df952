//! Makes claims and deletes them, in a burst or at a steady rate.

use std::time::Duration;

use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use tokio::time::{Instant, sleep_until};

use super::{
    cluster::for_creation, error::LoadError, objects::Family, progress::Milestone, watches::Shared,
};

/// The claims of one run, and the pace at which they come and go.
#[derive(Debug, Clone)]
pub(super) struct Traffic {
    pub(super) claims: Api<PersistentVolumeClaim>,
    pub(super) family: Family,
    pub(super) progress: Shared,
    pub(super) count: usize,
    /// What each claim requests.
    pub(super) storage: &'static str,
    /// Claims a second; `None` as many as `concurrency` allows.
    pub(super) rate: Option<f64>,
    /// Requests at once.
    pub(super) concurrency: usize,
}

impl Traffic {
    /// Creates them all.
    pub(super) async fn create(&self) -> Result<(), LoadError> {
        let numbers = self.paced().map(Ok);
        numbers.try_for_each_concurrent(self.concurrency, |number| self.create_one(number)).await
    }

    /// Deletes them all.
    pub(super) async fn delete(&self) -> Result<(), LoadError> {
        let numbers = self.paced().map(Ok);
        numbers.try_for_each_concurrent(self.concurrency, |number| self.delete_one(number)).await
    }

    async fn create_one(&self, number: usize) -> Result<(), LoadError> {
        let claim = for_creation(self.family.waiting_claim_of(number, self.storage))?;
        self.progress.lock().asked(&self.family.claim_name(number), Instant::now());
        self.claims.create(&PostParams::default(), &claim).await?;
        Ok(())
    }

    async fn delete_one(&self, number: usize) -> Result<(), LoadError> {
        let name = self.family.claim_name(number);
        self.progress.lock().reached(&name, Milestone::Dropped, Instant::now());
        self.claims.delete(&name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// The claims' numbers, each when its turn has come.
    fn paced(&self) -> impl Stream<Item = usize> {
        let (start, rate) = (Instant::now(), self.rate);
        stream::iter(0..self.count).then(move |number| async move {
            sleep_until(start + due(number, rate)).await;
            number
        })
    }
}

/// When a claim's turn comes, counted from the start.
fn due(number: usize, rate: Option<f64>) -> Duration {
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(f64::from(number) / rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_come_all_at_once_or_evenly_spaced() {
        assert_eq!(due(7, None), Duration::ZERO);
        assert_eq!(due(0, Some(50.0)), Duration::ZERO);
        assert_eq!(due(100, Some(50.0)), Duration::from_secs(2));
        assert_eq!(due(1, Some(0.5)), Duration::from_secs(2));
    }
}
