//! The real binary is killed (SIGKILL) again and again at random moments, while claims are created, cloned
//! and deleted, with `--claim-protection=always`. At the end each claim that stays has one volume, no volume
//! was ever made twice, none is left without a PersistentVolume, and with the claims all of them go. Nor is any
//! left of claims that are deleted while it does not run.
//!
//! It plays on the API server that the environment offers, kube-apiserver with kube-controller-manager where
//! `KUBEBUILDER_ASSETS` has them. `STORM_KILLS`, `STORM_CLAIMS` and `STORM_SEED` set its size and its
//! chances, which are printed with the figures. What runs beside what is up to the machine, so a seed does not
//! fix a run.

mod claims;
mod driver;

use std::{collections::BTreeSet, env, time::Duration};

use claims::{Done, Users};
use driver::{DRIVER, Persistent};
use fastrand::Rng;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt as _;
use support::process::{MOST_PEAK, Provisioner};
use testkit::{
    apiserver::serve::manifests,
    control_plane::{ControlPlane, Controllers, TemporaryDirectory},
    driver::Host,
};
use tokio::time::{Instant, sleep};

/// How long a process lives, in milliseconds.
const LIFE: std::ops::RangeInclusive<u64> = 100..=2000;

/// What a process logs that has begun to work.
const WORKS: &str = "Detected CSI driver";

/// How long it may take until nothing is left to do: kube-controller-manager makes 20 changes a second.
const PATIENCE: Duration = Duration::from_secs(300);

/// How many claims are made from one source at once.
const CLONES: usize = 60;

/// A number that the environment may set.
fn variable(name: &str, usual: u64) -> u64 {
    env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// A cluster, its driver, and what starts the program there.
struct Storm {
    users: Users,
    driver: Host<Persistent>,
    arguments: Vec<String>,
    /// How often the program was started.
    lives: usize,
    directory: TemporaryDirectory,
    _controllers: Controllers,
    _control: ControlPlane,
}

impl Storm {
    async fn start(seed: u64) -> Self {
        let (directory, control) =
            (TemporaryDirectory::new().unwrap(), ControlPlane::start().await.unwrap());
        let client = control.client("admin").await.unwrap();
        manifests::apply(&client, &claims::objects(DRIVER)).await.unwrap();
        let controllers = control.controllers().await.unwrap();
        let driver = Host::new(Persistent::new(seed));
        driver.listen(&directory.path().join("csi.sock")).unwrap();
        let arguments = vec![
            format!("--kubeconfig={}", control.layout().kubeconfig("sa").display()),
            format!("--csi-address={}", directory.path().join("csi.sock").display()),
            "--claim-protection=always".to_owned(),
            "--retry-interval-start=100ms".to_owned(),
            "--retry-interval-max=1s".to_owned(),
            "-v=4".to_owned(),
        ];
        Self {
            users: Users { client },
            driver,
            arguments,
            lives: 0,
            directory,
            _controllers: controllers,
            _control: control,
        }
    }

    fn run(&mut self) -> Provisioner {
        self.lives += 1;
        let log = self.directory.path().join(format!("log-{}", self.lives));
        Provisioner::start(env!("CARGO_BIN_EXE_csi-provisioner"), &self.arguments, log)
    }

    /// Lets the program run and kills it so many times; every other time not before it works, and the first time not
    /// before there are more than so many volumes, however slow the machine.
    async fn kill(&mut self, times: u64, volumes: usize, mut dice: Rng) {
        for number in 0..times {
            let mut program = self.run();
            if number == 0 {
                program.until("a volume is made", async |_| self.made() > volumes).await;
            } else if number % 2 == 0 {
                let works = async |it: &mut Provisioner| it.log().contains(WORKS);
                program.until("it works", works).await;
            }
            sleep(Duration::from_millis(dice.u64(LIFE))).await;
            let log = program.log();
            assert!(program.has_ended().is_none(), "it ended by itself:\n{log}");
            drop(program); // kills it
            for bad in ["suspected leak", "panicked"] {
                assert!(!log.contains(bad), "{bad}:\n{log}");
            }
        }
    }

    /// The handles at the driver and those of the PersistentVolumes.
    async fn handles(&self) -> (BTreeSet<String>, BTreeSet<String>) {
        let at_driver = self.driver.backend().disks.lock().there.clone();
        let volumes = self.users.all_volumes().await.into_iter();
        let handle = |volume: k8s_openapi::api::core::v1::PersistentVolume| {
            Some(volume.spec?.csi?.volume_handle)
        };
        (at_driver, volumes.filter_map(handle).collect())
    }

    /// Waits until the claims that stay are bound, all others are gone, and each volume at the driver is that
    /// of a PersistentVolume.
    async fn settle(&self, program: &mut Provisioner, staying: &BTreeSet<String>) {
        wait(program, "everything has settled", async || {
            let claims = self.users.all_claims().await;
            let names: BTreeSet<String> = claims.iter().map(kube::ResourceExt::name_any).collect();
            if names != *staying || !claims.iter().all(is_bound) {
                let bound = claims.iter().filter(|claim| is_bound(claim)).count();
                return Some(format!("{} of {} claims, {bound} bound", names.len(), staying.len()));
            }
            let (at_driver, in_cluster) = self.handles().await;
            let is_settled = at_driver == in_cluster && in_cluster.len() == staying.len();
            let odd: Vec<_> = at_driver.symmetric_difference(&in_cluster).collect();
            (!is_settled)
                .then(|| format!("{} volumes, in one place only: {odd:?}", in_cluster.len()))
        })
        .await;
    }

    /// The number of volumes that were made.
    fn made(&self) -> usize {
        self.driver.backend().disks.lock().made.len()
    }

    /// How often the driver was called.
    fn calls(&self) -> String {
        let counts = self.driver.journal().counts();
        let (creates, deletes) = (counts["CreateVolume"], counts["DeleteVolume"]);
        format!("{creates} CreateVolume and {deletes} DeleteVolume calls")
    }

    /// Each volume that was made is that of a claim, and was made once.
    fn check_made(&self, done: &Done) -> usize {
        let disks = self.driver.backend().disks.lock();
        let twice: Vec<_> = disks.made.iter().filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "made more than once: {twice:?}");
        let strange: Vec<_> =
            disks.made.keys().filter(|name| !done.volumes.contains(*name)).collect();
        assert!(strange.is_empty(), "of no claim: {strange:?}");
        disks.made.len()
    }

    /// Deletes all claims and waits until nothing is left of them, in the cluster and at the driver.
    async fn clear(&self, program: &mut Provisioner) {
        self.users.delete_all().await;
        wait(program, "nothing is left", async || {
            let claims = self.users.all_claims().await;
            let (at_driver, in_cluster) = self.handles().await;
            let left = [claims.len(), in_cluster.len(), at_driver.len()];
            let finalizers = claims.first().map(|claim| claim.finalizers().to_vec());
            (left != [0; 3])
                .then(|| format!("claims, PersistentVolumes, volumes: {left:?}; {finalizers:?}"))
        })
        .await;
    }
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some("Bound") && claim.metadata.deletion_timestamp.is_none()
}

/// Waits until nothing is missing any more.
async fn wait(program: &mut Provisioner, what: &str, missing: impl AsyncFn() -> Option<String>) {
    let start = Instant::now();
    while let Some(missing) = missing().await {
        let log = if start.elapsed() < PATIENCE { String::new() } else { program.log() };
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}: {missing}\n{log}");
        assert!(program.has_ended().is_none(), "it ended by itself:\n{}", program.log());
        sleep(Duration::from_millis(500)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_at_random_moments_leak_nothing_and_double_nothing() {
    let (kills, claims) = (variable("STORM_KILLS", 20), variable("STORM_CLAIMS", 100));
    let seed = variable("STORM_SEED", fastrand::u64(..));
    println!("{kills} kills, {claims} claims, STORM_SEED={seed}");
    let mut storm = Storm::start(seed).await;
    let mut done = storm.users.create_sources().await;
    let mut program = storm.run();
    storm.settle(&mut program, &done.staying).await;
    drop(program);
    let sources = storm.made();
    let start = Instant::now();
    let time = Duration::from_millis((LIFE.start() + LIFE.end()) / 2 * kills);
    let users = storm.users.clone();
    let coming = users.come_and_go(usize::try_from(claims).unwrap(), time, seed);
    let (came, ()) = tokio::join!(coming, storm.kill(kills, sources, Rng::with_seed(seed)));
    done.volumes.extend(came.volumes);
    done.staying.extend(came.staying);
    let raged = start.elapsed();
    let before = storm.made() - sources;
    let mut program = storm.run();
    storm.settle(&mut program, &done.staying).await;
    let settled = start.elapsed();
    let made = storm.check_made(&done);
    storm.clear(&mut program).await;
    let cleared = start.elapsed();
    assert_eq!(storm.check_made(&done), made, "a volume was made for a deleted claim");
    assert!(program.stop().await.success(), "{}", program.log());

    let stayed = done.staying.len();
    let (count, deleted) = (done.volumes.len(), done.volumes.len() - stayed);
    println!(
        "{kills} kills in {raged:.1?}; {count} claims ({} clones, {deleted} deleted meanwhile); {made} volumes \
         made, {before} of them during the storm ({:.1} a second), by {}; settled after {settled:.1?}, all gone \
         after {cleared:.1?}; left 0, doubled 0",
        came.clones,
        f64::from(u32::try_from(before).unwrap()) / raged.as_secs_f64(),
        storm.calls()
    );
}

/// All calls are under way when the process is killed, and the driver carries them out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_calls_of_claims_that_are_deleted_after_a_kill_leave_nothing() {
    let mut storm = Storm::start(0).await;
    storm.users.create_large("large", DRIVER).await;
    let mut done = Done::default();
    for number in 0..CLONES {
        let name = format!("clone-{number}");
        done.volumes.insert(storm.users.create(&name, Some("large")).await);
    }
    storm.driver.backend().held.send_replace(true);
    let mut program = storm.run();
    let begun = async || {
        let begun = storm.driver.backend().disks.lock().begun.len();
        (begun < CLONES).then(|| format!("{begun} calls"))
    };
    wait(&mut program, "all calls are under way", begun).await;
    let first = program.peak();
    drop(program); // kills it

    storm.users.delete_all().await;
    storm.driver.backend().held.send_replace(false);
    while storm.driver.backend().disks.lock().there.len() < CLONES {
        sleep(Duration::from_millis(50)).await;
    }
    let mut program = storm.run();
    storm.clear(&mut program).await;
    assert_eq!(storm.check_made(&done), CLONES);
    let peaks = [first, program.peak()];
    println!("{CLONES} calls were open; {}; {peaks:?} KiB at most", storm.calls());
    assert!(peaks.iter().all(|peak| *peak <= MOST_PEAK), "{peaks:?} KiB");
    let log = program.log();
    assert!(!log.contains("suspected leak") && !log.contains("panicked"), "{log}");
}
