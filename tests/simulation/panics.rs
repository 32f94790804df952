//! The controller with a provisioner that panics: it costs the one claim or volume some time, and
//! nothing is forgotten.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use csi_provisioner::{
    controller::{
        Controller, ControllerSettings, Deps,
        claims::call_record::RecordSettings,
        classes::Classes,
        events::Events,
        model::unusable_volume::UnusableVolume,
        ownership::ProvisionerIdentity,
        peers::Peers,
        provisioner::{
            Deleter, Failure, NotDeleted, NotPrepared, Outcome, ProvisionRequest,
            ProvisionedVolume, Provisioner, ShouldProvision, VolumeHandle,
        },
    },
    flags::ClaimProtection,
    kube::{Connections, LaneSettings, Lanes, events::Recorder, objects::Volume},
    metrics::Metrics,
    runtime::{Backoff, Clock, Gate, Generator, Random, SystemClock, Tasks, TokioSpawner},
    source_protection::{Protection, ProtectionDeps, ProtectionSettings},
};
use serde_json::json;
use testkit::apiserver::{ApiServer, Options, User};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

const DRIVER: &str = "disk.example.com";

/// Panics at the first call of each kind.
#[derive(Default)]
struct Panicking {
    provisioned: AtomicU32,
    deleted: AtomicU32,
}

impl Provisioner for Panicking {
    type Prepared = ();

    fn secret_names(&self, _request: &ProvisionRequest) -> Vec<String> {
        Vec::new()
    }

    fn can_send(&self, (): &()) -> bool {
        true
    }

    async fn should_provision(&self, _request: &ProvisionRequest) -> ShouldProvision {
        ShouldProvision::Yes
    }

    async fn prepare(&self, _request: &mut ProvisionRequest) -> Result<(), NotPrepared> {
        Ok(())
    }

    async fn create(&self, request: &ProvisionRequest, (): ()) -> Outcome {
        assert!(self.provisioned.fetch_add(1, Ordering::Relaxed) > 0, "a bug on purpose");
        let volume = json!({
            "metadata": {"name": request.volume_name.clone().unwrap()},
            "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                     "persistentVolumeReclaimPolicy": "Delete",
                     "csi": {"driver": DRIVER, "volumeHandle": "handle"}},
        });
        let volume = serde_json::from_value(volume).unwrap();
        Outcome::Provisioned(Box::new(ProvisionedVolume {
            volume,
            handle: "handle".into(),
            ..ProvisionedVolume::default()
        }))
    }
}

impl Deleter for Panicking {
    type PreparedDelete = ();

    async fn discard(
        &self,
        _request: &ProvisionRequest,
        _unusable: &UnusableVolume,
        _is_safe: impl Fn() -> bool + Send + Sync,
    ) -> Result<(), Failure> {
        unreachable!("every volume is good")
    }

    fn handle(&self, volume: &Volume) -> Option<VolumeHandle> {
        Some(volume.source_id().into())
    }

    fn should_delete(&self, _volume: &Volume) -> bool {
        true
    }

    fn check_detached(&self, _volume: &Volume) -> Result<(), NotDeleted> {
        Ok(())
    }

    async fn prepare_delete(&self, _volume: &Volume) -> Result<(), NotDeleted> {
        Ok(())
    }

    async fn delete(&self, _volume: &Volume, (): ()) -> Result<(), NotDeleted> {
        assert!(self.deleted.fetch_add(1, Ordering::Relaxed) > 0, "a bug on purpose");
        Ok(())
    }
}

/// Starts a controller on `api` that works until the test ends; what it counts.
fn start(api: &ApiServer, provisioner: Arc<Panicking>) -> Metrics {
    let (tasks, _ended) = Tasks::new(Arc::new(TokioSpawner));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let random: Arc<dyn Random> = Arc::new(Generator::from_seed(1));
    let metrics = Metrics::new();
    let lanes = Lanes::new(
        Connections::to(api.service(User::new("provisioner"))),
        LaneSettings::default(),
        Gate::open(Arc::clone(&clock)),
        Arc::clone(&random),
        &metrics,
    );
    let recorder =
        Recorder::start(lanes.events, &tasks, Arc::clone(&clock), Arc::clone(&random), &metrics);
    let retry = Backoff::new(Duration::from_secs(1), Duration::from_secs(300));
    let protection = Protection::new(ProtectionDeps {
        client: lanes.objects.clone(),
        metrics: metrics.clone(),
        random: Arc::clone(&random),
        clock: Arc::clone(&clock),
        events: recorder.for_component("test"),
        driver: DRIVER.to_owned(),
        tasks: tasks.clone(),
        settings: ProtectionSettings {
            restores: false,
            clones: false,
            workers: 1,
            sweep_interval: None,
            retry,
            peers: false,
            cross_namespace_sources: false,
            timeout: None,
        },
    });
    let controller = Controller::new(Deps {
        provisioner,
        identity: ProvisionerIdentity::of_driver(DRIVER),
        peers: Peers::default(),
        protection,
        attachments: None,
        nodes: None,
        client: lanes.objects,
        classes: Classes::default(),
        events: Events::new(recorder.for_component("test")),
        metrics: metrics.clone(),
        clock,
        random,
        tasks: tasks.clone(),
        settings: ControllerSettings {
            workers: 2,
            retry,
            open_calls: RecordSettings { mode: ClaimProtection::Auto, timeout: None },
        },
    });
    controller.watch();
    tasks.spawn("controller", async move { controller.work(CancellationToken::new()).await });
    metrics
}

/// The value of one series; none where it is not served.
fn value(metrics: &Metrics, series: &str) -> Option<f64> {
    let text = metrics.text();
    text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}

fn has_event(api: &ApiServer, namespace: &str, reason: &str) -> bool {
    api.list("Event", namespace).iter().any(|event| {
        event["reason"] == reason
            && event["message"].as_str().unwrap_or_default().contains("internal error")
    })
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_reported_and_costs_the_claim_and_its_volume_some_time_only() {
    let api = ApiServer::new(Options::default());
    api.namespace("sc");
    api.create(&json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
                       "metadata": {"name": "fast"}, "provisioner": DRIVER}))
        .unwrap();
    let provisioner = Arc::new(Panicking::default());
    let metrics = start(&api, Arc::clone(&provisioner));
    sleep(Duration::from_secs(1)).await;
    let claim = api
        .create(&json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": "sc",
                         "annotations": {"volume.kubernetes.io/storage-provisioner": DRIVER}},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
                     "resources": {"requests": {"storage": "1Gi"}}},
        }))
        .unwrap();
    sleep(Duration::from_secs(10 * 60)).await;
    assert_eq!(provisioner.provisioned.load(Ordering::Relaxed), 1, "set aside");
    assert!(has_event(&api, "sc", "ProvisioningFailed"));
    assert_eq!(value(&metrics, "provisioner_panics_total{queue=\"claims\"}"), Some(1.0));
    assert_eq!(value(&metrics, "provisioner_claims{state=\"background\"}"), Some(1.0));
    let oldest = value(&metrics, "provisioner_oldest_claim_age_seconds").unwrap();
    assert!((599.0..=601.0).contains(&oldest), "{oldest}");

    // Its call may have made a volume: deleting the claim wakes it, and it is asked for again.
    api.delete("PersistentVolumeClaim", "sc", "data").unwrap();
    sleep(Duration::from_secs(10)).await;
    let name = format!("pvc-{}", claim["metadata"]["uid"].as_str().unwrap());
    assert!(api.get("PersistentVolume", "", &name).is_some());
    let sum =
        |family: &str| value(&metrics, &format!("{family}_sum{{class=\"fast\",source=\"\"}}"));
    let waited = sum("provisioner_claim_wait_seconds").unwrap();
    assert!((600.0..=611.0).contains(&waited), "all attempts: {waited}");
    let attempt = sum("controller_persistentvolumeclaim_provision_duration_seconds").unwrap();
    assert!(attempt < 1.0, "the last attempt only: {attempt}");
    assert_eq!(value(&metrics, "provisioner_oldest_claim_age_seconds"), Some(0.0));

    let released = json!({"status": {"phase": "Released"}});
    api.merge("PersistentVolume", "", &name, &released).unwrap();
    sleep(Duration::from_secs(60)).await;
    assert!(has_event(&api, "default", "VolumeFailedDelete"));
    sleep(Duration::from_secs(20 * 60)).await;
    assert_eq!(provisioner.deleted.load(Ordering::Relaxed), 2, "the resync brings it back");
    assert!(api.get("PersistentVolume", "", &name).is_none());
}
