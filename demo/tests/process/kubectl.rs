//! `demo --keep` with an unmodified kubectl (those of `TESTKIT_KUBECTL`): the commands that it
//! prints do what it says.

use std::{env, path::Path, time::Duration};

use rustix::process::Signal;
use testkit::kubectl;
use tokio::{process::Command, time::timeout};

use crate::command::Running;

#[tokio::test]
async fn a_kept_cluster_does_what_its_invitation_says() {
    // As the workspace's tests have built it; on its own the demo builds it, which takes minutes.
    let built = Path::new(env!("CARGO_BIN_EXE_demo")).with_file_name("csi-provisioner");
    let mut arguments = vec!["--keep"];
    if built.is_file() {
        arguments.extend(["--program", built.to_str().unwrap()]);
    }
    for kubectl in kubectl::named() {
        // In front of the others.
        let folder = kubectl.parent().map_or("", |folder| folder.to_str().unwrap());
        let path = format!("{folder}:{}", env::var("PATH").unwrap());
        let mut demo = Running::start(&arguments);
        let mut commands = Vec::new();
        for begin in ["export KUBECONFIG=", "kubectl describe", "ls", "kubectl delete"] {
            commands.push(demo.line(&format!("  {begin}")).await);
        }
        let [export, describe, list, delete] = commands.try_into().unwrap();
        let shell = async |command: &str| {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("{export}\n{command}")]).env("PATH", &path);
            let output = timeout(Duration::from_secs(60), shell.output()).await;
            let output = output.expect("it hangs").unwrap();
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success() && errors.is_empty(), "{command}: {errors}");
            String::from_utf8(output.stdout).unwrap()
        };
        let shown = shell(&describe).await;
        assert!(shown.contains("Bound") && shown.contains("Successfully provisioned"), "{shown}");
        assert!(shell(&list).await.starts_with("vol-pvc-"));
        assert_eq!(shell(&delete).await, "persistentvolumeclaim \"data\" deleted\n");
        demo.line("DeleteVolume").await;
        demo.line("volume  pvc-").await;
        demo.line(": gone").await;
        assert_eq!(shell(&list).await, "");
        demo.send(Signal::INT);
        let (code, errors) = demo.end().await;
        assert_eq!(code, Some(0), "{errors}");
        demo.nothing_is_left();
    }
}
