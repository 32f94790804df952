//! Shadow mode as a process beside the program: its report is JSON, and it ends in order. All kinds of claims are
//! compared beside the recorded scenarios, and `simulation/shadow.rs` has its rights.

use std::process::Command;

use cli::shadow::{Agreement, ShadowReport, Subject};
use serde_json::json;
use support::{
    process::{Provisioner, Surroundings, beside},
    simulation::{DRIVER, claim, class},
};
use testkit::ports::free_port;

const SIDECAR: &str = env!("CARGO_BIN_EXE_csi-provisioner");

/// What shadow mode has found, by `kubectl csi-provisioner shadow-report`; `None` while it does not answer.
fn report(status: &str) -> Option<ShadowReport> {
    let mut command = Command::new(beside(SIDECAR, "kubectl-csi_provisioner"));
    command.args(["shadow-report", "-o", "json", "--status-endpoint", status]);
    serde_json::from_slice(&command.output().unwrap().stdout).ok()
}

/// Whether one object of this subject was compared, and is the same.
fn is_same(status: &str, subject: Subject) -> bool {
    let report = report(status).unwrap();
    let mut totals = report.totals.iter().filter(|total| total.subject == subject);
    totals.any(|total| total.agreement == Agreement::Same && total.count == 1)
}

#[tokio::test(flavor = "multi_thread")]
async fn it_compares_a_volume_and_its_deletion_and_ends_in_order() {
    let around = Surroundings::start(json!({"name": DRIVER})).await;
    let api = around.served.api();
    api.create(&class("fast", &json!({}))).unwrap();
    let status = format!("127.0.0.1:{}", free_port().unwrap());
    let mut program = Command::new(beside(SIDECAR, "kubectl-csi_provisioner"));
    let kubeconfig = around.served.layout().kubeconfig("admin");
    program.args([
        "shadow",
        "--driver",
        DRIVER,
        "--capabilities=CONTROLLER_SERVICE,CREATE_DELETE_VOLUME",
    ]);
    program.args(["--status-endpoint", &status]).arg("--kubeconfig").arg(kubeconfig).env_clear();
    let mut shadow = Provisioner::run(&mut program, around.file("shadow.log"));
    shadow.until("shadow mode answers", async |_| report(&status).is_some()).await;
    let _provisioner = around.provisioner(SIDECAR, &[]);

    let mut claim = claim("data");
    claim["metadata"]["namespace"] = json!("default");
    let claim = api.create(&claim).unwrap();
    let compared = async |_: &mut Provisioner| is_same(&status, Subject::Volume);
    shadow.until("the volume is compared", compared).await;
    api.delete("PersistentVolumeClaim", "default", "data").unwrap();
    let name = format!("pvc-{}", claim["metadata"]["uid"].as_str().unwrap());
    let released = json!({"status": {"phase": "Released"}});
    api.merge("PersistentVolume", "", &name, &released).unwrap();
    let compared = async |_: &mut Provisioner| is_same(&status, Subject::Deletion);
    shadow.until("the deletion is compared", compared).await;

    let report = report(&status).unwrap();
    let others = [Agreement::Documented, Agreement::Unexplained, Agreement::Unknown];
    assert_eq!(others.map(|agreement| report.count(agreement)), [0; 3], "{}", report.to_text());
    let (ended, log) = (shadow.stop().await, shadow.log());
    assert!(ended.success() && log.contains("Shadow mode: nothing is written"), "{log}");
    around.stop().await;
}
