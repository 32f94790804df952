//! The measured provisioner, as a process of its own.
//!
//! Owns starting it, reading what it uses, and ending it. Promises that it doesn't outlive this
//! value, and that a Ctrl-C meant for the run doesn't reach it before the run has cleaned up.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    process::{Child, Command},
    time::{sleep, timeout},
};

use super::{
    error::LoadError,
    requests::Requests,
    usage::{self, Cpu, Memory},
};
use crate::{
    player::{last_lines, web},
    ports::free_port,
};

/// How long it may take to end when asked to.
const LAST_WORK: Duration = Duration::from_secs(25);

/// How often its end is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How many lines of its log are shown when it has ended.
const LAST_LINES: usize = 20;

/// How to start it.
#[derive(Debug)]
pub(super) struct Launch<'a> {
    /// What to run; `None` is `csi-provisioner` beside this program.
    pub program: Option<&'a Path>,
    pub kubeconfig: &'a Path,
    /// The driver's socket.
    pub socket: &'a Path,
    /// Whether it counts its requests itself.
    pub counts_requests: bool,
    pub arguments: &'a [String],
    /// The file for what it prints.
    pub log: PathBuf,
}

/// The running provisioner.
#[derive(Debug)]
pub(super) struct Program {
    path: PathBuf,
    pid: u32,
    child: Mutex<Child>,
    log: PathBuf,
    metrics: Option<u16>,
}

impl Program {
    pub(super) fn start(launch: Launch<'_>) -> Result<Self, LoadError> {
        let Launch { program, kubeconfig, socket, counts_requests, arguments, log } = launch;
        let path = program.map_or_else(beside, |path| Ok(path.to_owned()));
        let path = path.map_err(LoadError::Usage)?;
        if !path.is_file() {
            return Err(LoadError::NoProgram(path));
        }
        let failed = |source| LoadError::NotStarted { program: path.clone(), source };
        let metrics = counts_requests.then(free_port).transpose().map_err(failed)?;
        let output = fs::File::create(&log).map_err(failed)?;
        let errors = output.try_clone().map_err(failed)?;
        let child = Command::new(&path)
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--csi-address={}", socket.display()))
            .args(metrics.map(|port| format!("--http-endpoint=127.0.0.1:{port}")))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let pid = child.id().ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        Ok(Self { path, pid, child: Mutex::new(child), log, metrics })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// An error once it has ended.
    pub(super) fn check(&self) -> Result<(), LoadError> {
        match self.child.lock().try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(LoadError::Ended { status, log: self.last_words() }),
            Err(error) => Err(LoadError::Usage(error)),
        }
    }

    pub(super) fn cpu(&self) -> Result<Cpu, LoadError> {
        usage::cpu(self.pid).map_err(LoadError::Usage)
    }

    pub(super) fn memory(&self) -> Result<Memory, LoadError> {
        usage::memory(self.pid).map_err(LoadError::Usage)
    }

    /// The requests that it has counted; `None` if it was not configured to, or does not.
    pub(super) async fn requests(&self) -> Option<Requests> {
        let (_, page) = web::get(self.metrics?, "/metrics").await?;
        Requests::in_metrics(&page)
    }

    /// The last lines it wrote.
    pub(super) fn last_words(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        last_lines(&String::from_utf8_lossy(&log), LAST_LINES)
    }

    /// Asks it to end, and waits until it has; in the end it is killed.
    pub(super) async fn stop(&self) {
        if let (Ok(()), Some(pid)) = (self.check(), Pid::from_raw(self.pid.cast_signed())) {
            // One that has ended meanwhile needs no signal; it was not waited for, so its number
            // is nobody else's.
            let _ = kill_process(pid, Signal::TERM);
        }
        let ended = async {
            while self.check().is_ok() {
                sleep(POLL_INTERVAL).await;
            }
        };
        if timeout(LAST_WORK, ended).await.is_err() {
            // What can't be killed is dropped and left to the system.
            let _ = self.child.lock().start_kill();
        }
    }
}

/// `csi-provisioner` in the directory of this program.
fn beside() -> io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("csi-provisioner"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `/bin/true` stands in for a provisioner: it takes any flags, and ends.
    fn launched() -> Result<Program, LoadError> {
        let log = std::env::temp_dir().join(format!("load-program-{}", std::process::id()));
        let path = Path::new("/nowhere");
        Program::start(Launch {
            program: Some(Path::new("/bin/true")),
            kubeconfig: path,
            socket: path,
            counts_requests: false,
            arguments: &[],
            log,
        })
    }

    #[tokio::test]
    async fn a_program_that_has_ended_says_how() {
        let program = launched().unwrap();
        while program.check().is_ok() {
            sleep(POLL_INTERVAL).await;
        }
        let Err(LoadError::Ended { status, .. }) = program.check() else { panic!("it runs") };
        assert!(status.success());
        program.stop().await;
        fs::remove_file(&program.log).unwrap();
    }

    #[test]
    fn the_last_lines_are_shown_in_their_order() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("a\n", 2), "a");
        assert_eq!(last_lines("", 2), "");
    }
}
