//! The command `demo` as a process, with a directory of its own for temporary files.

use std::{fs, process::Stdio, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use testkit::control_plane::TemporaryDirectory;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

/// How long anything may take, the build of the program included.
const PATIENCE: Duration = Duration::from_secs(600);

/// A program that is no provisioner.
pub(crate) fn stub(name: &str) -> String {
    format!("{}/tests/stubs/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// The running command.
pub(crate) struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    directory: TemporaryDirectory,
}

impl Running {
    /// Runs it.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let directory = TemporaryDirectory::new().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_demo"))
            .args(arguments)
            .env("TMPDIR", directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines, directory }
    }

    /// The next line that contains `what`.
    pub(crate) async fn line(&mut self, what: &str) -> String {
        let found = async {
            loop {
                let line = self.lines.next_line().await.unwrap();
                let line = line.unwrap_or_else(|| panic!("it ended without {what:?}"));
                if line.contains(what) {
                    return line;
                }
            }
        };
        let waited = timeout(PATIENCE, found).await;
        waited.unwrap_or_else(|_| panic!("{what:?} never came"))
    }

    /// Where the kernel shows the program, whose log begins with its process number.
    pub(crate) async fn program(&self) -> String {
        let logged = async {
            loop {
                let cluster = fs::read_dir(self.directory.path()).unwrap().next().unwrap().unwrap();
                let log = cluster.path().join("program.log");
                let log = fs::read_to_string(log).unwrap_or_default();
                if let Some(number) = log.lines().next() {
                    return format!("/proc/{number}");
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, logged).await.expect("the program logs nothing")
    }

    /// Sends a signal.
    pub(crate) fn send(&self, signal: Signal) {
        let id = self.child.id().expect("it ended already").cast_signed();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
    }

    /// Its exit code, and what it said on standard error.
    pub(crate) async fn end(&mut self) -> (Option<i32>, String) {
        let mut errors = String::new();
        let ended = async {
            let mut output = self.child.stderr.take().unwrap();
            output.read_to_string(&mut errors).await.unwrap();
            self.child.wait().await.unwrap()
        };
        let status = timeout(PATIENCE, ended).await.expect("it does not end");
        (status.code(), errors)
    }

    /// Checks that it left no file behind.
    pub(crate) fn nothing_is_left(&self) {
        let left: Vec<_> = fs::read_dir(self.directory.path()).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
