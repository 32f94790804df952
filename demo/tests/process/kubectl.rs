//! `demo --keep` with an unmodified kubectl: the commands that it prints do what it says.
//! It is played with every binary that `TESTKIT_KUBECTL` names. The program is the one that the demo builds for
//! itself.

use std::{env, ffi::OsString, fs, path::PathBuf, process, time::Duration};

use testkit::kubectl;
use tokio::{process::Command, time::timeout};

use crate::command::Running;

/// How long a command may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where kubectl keeps what it has discovered; removed at the end.
struct Home(PathBuf);

impl Home {
    fn new() -> Self {
        Self(env::temp_dir().join(format!("demo-home-{}", process::id())))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The values of PATH to test with, each with another kubectl in front.
fn paths() -> Vec<OsString> {
    let own: Vec<PathBuf> = env::split_paths(&env::var_os("PATH").unwrap()).collect();
    let front = |file: PathBuf| {
        let directory = file.parent().unwrap().to_owned();
        env::join_paths([directory].iter().chain(&own)).unwrap()
    };
    kubectl::named().into_iter().map(front).collect()
}

/// The commands that the kept demo prints.
async fn invited(demo: &mut Running) -> [String; 4] {
    let mut commands = Vec::new();
    for begin in ["export KUBECONFIG=", "kubectl describe", "ls", "kubectl delete"] {
        commands.push(demo.line(&format!("  {begin}")).await);
    }
    commands.try_into().unwrap()
}

#[tokio::test]
async fn a_kept_cluster_does_what_its_invitation_says() {
    for path in paths() {
        let mut demo = Running::start("keep", &["--keep"]);
        let [export, describe, list, delete] = invited(&mut demo).await;
        let home = Home::new();
        let shell = async |command: &str| {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("{export}\n{command}")]);
            shell.env("PATH", &path).env("HOME", &home.0).kill_on_drop(true);
            let output = timeout(PATIENCE, shell.output()).await.expect("it hangs").unwrap();
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success() && errors.is_empty(), "{command}: {errors}");
            String::from_utf8(output.stdout).unwrap()
        };
        let shown = shell(&describe).await;
        for expected in ["Bound", "pvc-", "Successfully provisioned volume"] {
            assert!(shown.contains(expected), "no {expected} in:\n{shown}");
        }
        assert!(shell(&list).await.starts_with("vol-pvc-"));

        assert_eq!(shell(&delete).await, "persistentvolumeclaim \"data\" deleted\n");
        demo.line("DeleteVolume").await;
        demo.line("volume  pvc-").await;
        demo.line(": gone").await;
        assert_eq!(shell(&list).await, "");

        demo.send("INT");
        let (code, errors) = demo.end().await;
        assert_eq!(code, Some(0), "{errors}");
        demo.nothing_is_left();
    }
}
