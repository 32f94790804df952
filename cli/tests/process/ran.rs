//! What a run of the program came to.

use std::{
    ffi::OsStr,
    io::Write as _,
    process::{Command, Stdio},
};

/// The exit code, and what was printed.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs it with these arguments, and this on stdin.
pub(crate) fn run(arguments: &[impl AsRef<OsStr>], stdin: &str) -> Ran {
    let mut process = Command::new(env!("CARGO_BIN_EXE_kubectl-csi_provisioner"))
        .args(arguments)
        // A KUBECONFIG in the environment would win.
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may have ended without reading.
    let _ = process.stdin.take().unwrap().write_all(stdin.as_bytes());
    let output = process.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran {
        code: output.status.code().unwrap(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}
