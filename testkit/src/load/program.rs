//! The measured provisioner, as a process of its own, and what it uses as `/proc` reports it (`proc_pid_stat(5)`,
//! `proc_pid_status(5)`). It doesn't outlive this value.

use std::{
    fs,
    ops::Sub,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Serialize;
use tokio::process::Command;

use super::{LoadError, report::rounded};
use crate::program::{self, last_lines};

/// How long it may take to end when asked to.
const LAST_WORK: Duration = Duration::from_secs(25);

/// How many lines of its log are shown when it has ended.
const LAST_LINES: usize = 20;

/// The running provisioner.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    process: program::Program,
    pid: u32,
}

impl Program {
    /// Starts `program`, by default `csi-provisioner` beside this one; `log` gets what it prints.
    pub(super) fn start(
        program: Option<&Path>,
        kubeconfig: &Path,
        socket: &Path,
        arguments: &[String],
        log: PathBuf,
    ) -> Result<Self, LoadError> {
        let path = match program {
            Some(path) => path.to_owned(),
            None => std::env::current_exe()?.with_file_name("csi-provisioner"),
        };
        let shown = path.display();
        if !path.is_file() {
            let how = "build it (cargo build --release), or name another with --program";
            return Err(format!("there is no program {shown}: {how}").into());
        }
        let mut command = Command::new(&path);
        command
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--csi-address={}", socket.display()))
            .args(arguments);
        let process = program::Program::start(&mut command, log)
            .map_err(|source| format!("can't start {shown}: {source}"))?;
        let pid = process.id().ok_or("the provisioner has no process number")?;
        Ok(Self { path, process, pid })
    }

    /// An error once it has ended.
    pub(super) fn check(&self) -> Result<(), LoadError> {
        let Some(status) = self.process.ended() else { return Ok(()) };
        let log = self.last_words();
        Err(format!("the provisioner ended ({status}); the end of its log:\n{log}").into())
    }

    /// The last lines it wrote.
    pub(super) fn last_words(&self) -> String {
        last_lines(&self.process.log(), LAST_LINES)
    }

    /// Asks it to end, and waits until it has; in the end it is killed.
    pub(super) async fn stop(&self) {
        self.process.end(LAST_WORK).await;
    }

    /// Its processor time so far.
    pub(super) fn cpu(&self) -> Result<Cpu, LoadError> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.pid))?;
        Ok(cpu(&text).ok_or("/proc/PID/stat is not in the kernel's format")?)
    }

    /// Its memory now.
    pub(super) fn memory(&self) -> Result<Memory, LoadError> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        Ok(memory(&text).ok_or("/proc/PID/status is not in the kernel's format")?)
    }
}

/// `USER_HZ`, which is 100 on every architecture this program is built for.
const TICKS_PER_SECOND: f64 = 100.0;

/// Processor time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Cpu {
    user_seconds: f64,
    system_seconds: f64,
}

impl Sub for Cpu {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            user_seconds: rounded(self.user_seconds - earlier.user_seconds),
            system_seconds: rounded(self.system_seconds - earlier.system_seconds),
        }
    }
}

/// Memory in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[expect(clippy::struct_field_names, reason = "the report's names say the unit")]
pub(super) struct Memory {
    rss_kib: u64,
    /// What of it belongs to no file (`RssAnon`).
    anonymous_kib: u64,
    /// The most that was resident so far (`VmHWM`).
    #[serde(skip)]
    pub(super) peak_kib: u64,
}

/// Fields 14 and 15; what comes before may hold anything, for it holds the program's name.
fn cpu(stat: &str) -> Option<Cpu> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let mut seconds = || Some(f64::from(fields.next()?.parse::<u32>().ok()?) / TICKS_PER_SECOND);
    Some(Cpu { user_seconds: seconds()?, system_seconds: seconds()? })
}

fn memory(status: &str) -> Option<Memory> {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix(" kB")?.trim().parse().ok()
    };
    let (rss_kib, anonymous_kib, peak_kib) = (field("VmRSS")?, field("RssAnon")?, field("VmHWM")?);
    Some(Memory { rss_kib, anonymous_kib, peak_kib })
}
