//! The processes of one run: started, signalled, waited for, and none left behind.

use std::{
    fs::File,
    io,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    process::{Child, Command},
    time::sleep,
};

use super::{
    invocation::{Invocation, MAIN},
    scenario::ProcessName,
};

/// How often a process is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// What went wrong with a process.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It could not be started.
    #[error("cannot start {program}: {source}")]
    NotStarted {
        /// What should have run.
        program: String,
        /// Why it does not.
        source: io::Error,
    },
    /// Host names cannot be changed here.
    #[error(
        "a scenario with `hostname` needs `unshare -u` (as root) or `unshare -Uru`; both are refused here"
    )]
    NoHostNames,
    /// No such process was started.
    #[error("the scenario names a process that it did not start: {0}")]
    Unknown(String),
    /// The scenario names an unknown signal.
    #[error("unknown signal {0:?}")]
    UnknownSignal(String),
}

/// All processes of a run; those still running are killed with it.
#[derive(Default)]
pub(super) struct Processes {
    all: Vec<Process>,
}

struct Process {
    name: String,
    child: Mutex<Child>,
    log: PathBuf,
}

impl Processes {
    /// Starts `binary`; what it prints goes to a file in `directory`.
    pub(super) async fn start(
        &mut self,
        name: &str,
        binary: &Path,
        invocation: &Invocation,
        directory: &Path,
    ) -> Result<(), ProcessError> {
        let failed =
            |source| ProcessError::NotStarted { program: binary.display().to_string(), source };
        let log = directory.join(format!("{name}.log"));
        let output = File::create(&log).map_err(failed)?;
        let errors = output.try_clone().map_err(failed)?;
        let mut command = match &invocation.hostname {
            Some(hostname) => renamed(hostname, binary).await?,
            None => Command::new(binary),
        };
        let child = command
            .args(&invocation.arguments)
            .env_clear()
            .envs(&invocation.environment)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        self.all.push(Process { name: name.to_owned(), child: Mutex::new(child), log });
        Ok(())
    }

    fn find(&self, name: &ProcessName) -> Option<&Process> {
        let last = |name: &str| self.all.iter().rev().find(|process| process.name == name);
        match name {
            ProcessName::Main => last(MAIN).or_else(|| self.all.last()),
            ProcessName::Named(name) => last(name),
        }
    }

    /// The exit code of a process, negative where a signal ended it; `None` while it runs or when
    /// there is none.
    pub(super) fn exit(&self, name: &ProcessName) -> Option<i32> {
        self.find(name).and_then(Process::exit)
    }

    /// Sends a signal and, unless asked not to, waits up to ten seconds for the end.
    pub(super) async fn signal(
        &self,
        name: &ProcessName,
        signal: &str,
        nowait: bool,
    ) -> Result<(), ProcessError> {
        let process = self.find(name).ok_or_else(|| ProcessError::Unknown(name.to_string()))?;
        process.send(number(signal)?);
        if !nowait {
            process.ended_within(200).await;
        }
        Ok(())
    }

    /// Ends a process: first politely, after three seconds not.
    pub(super) async fn end(&self, name: &ProcessName) {
        if let Some(process) = self.find(name) {
            process.end().await;
        }
    }

    /// Ends them all.
    pub(super) async fn end_all(&self) {
        for process in &self.all {
            process.end().await;
        }
    }

    /// Suspends them all, or lets them go on.
    pub(super) fn suspend(&self, suspended: bool) {
        for process in &self.all {
            process.send(if suspended { Signal::STOP } else { Signal::CONT });
        }
    }

    /// Each process with what it printed so far.
    pub(super) fn logs(&self) -> impl Iterator<Item = (&str, String)> {
        self.all.iter().map(|process| {
            let log = std::fs::read(&process.log).unwrap_or_default();
            (process.name.as_str(), String::from_utf8_lossy(&log).into_owned())
        })
    }

    /// What the last started process printed so far.
    pub(super) fn last_log(&self) -> String {
        let log = self.all.last().and_then(|process| std::fs::read(&process.log).ok());
        String::from_utf8_lossy(&log.unwrap_or_default()).into_owned()
    }
}

impl Process {
    fn exit(&self) -> Option<i32> {
        let status = self.child.lock().try_wait().ok()??;
        status.code().or_else(|| status.signal().map(|signal| -signal))
    }

    fn send(&self, signal: Signal) {
        // A child that was not waited for still holds its number, so no other is hit.
        let running = self.child.lock().id();
        if let Some(pid) = running.and_then(|id| Pid::from_raw(id.cast_signed())) {
            // One that just ended needs no signal.
            let _ = kill_process(pid, signal);
        }
    }

    async fn ended_within(&self, polls: usize) -> bool {
        for _ in 0..polls {
            if self.exit().is_some() {
                return true;
            }
            sleep(POLL_INTERVAL).await;
        }
        self.exit().is_some()
    }

    async fn end(&self) {
        if self.exit().is_some() {
            return;
        }
        self.send(Signal::TERM);
        if !self.ended_within(60).await {
            self.send(Signal::KILL);
            self.ended_within(60).await;
        }
    }
}

/// The last `count` lines of what a process printed.
pub(crate) fn last_lines(log: &str, count: usize) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines.get(lines.len().saturating_sub(count)..).unwrap_or_default().join("\n")
}

fn number(signal: &str) -> Result<Signal, ProcessError> {
    Ok(match signal {
        "TERM" => Signal::TERM,
        "KILL" => Signal::KILL,
        "INT" => Signal::INT,
        "QUIT" => Signal::QUIT,
        "HUP" => Signal::HUP,
        "USR1" => Signal::USR1,
        "USR2" => Signal::USR2,
        "STOP" => Signal::STOP,
        "CONT" => Signal::CONT,
        _ => return Err(ProcessError::UnknownSignal(signal.to_owned())),
    })
}

/// Runs `binary` where the host has another name.
async fn renamed(hostname: &str, binary: &Path) -> Result<Command, ProcessError> {
    for how in ["-u", "-Uru"] {
        let allowed = Command::new("unshare").args([how, "true"]).stderr(Stdio::null()).status();
        if allowed.await.is_ok_and(|status| status.success()) {
            let mut command = Command::new("unshare");
            let script = format!("hostname {hostname}; exec \"$@\"");
            command.args([how, "sh", "-c", &script, "sh"]).arg(binary);
            return Ok(command);
        }
    }
    Err(ProcessError::NoHostNames)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn shell(script: &str) -> Invocation {
        Invocation {
            arguments: vec!["-c".to_owned(), script.to_owned()],
            environment: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
            hostname: None,
        }
    }

    async fn started(scripts: &[(&str, &str)]) -> Processes {
        let mut processes = Processes::default();
        for (name, script) in scripts {
            let (binary, directory) = (Path::new("/bin/sh"), std::env::temp_dir());
            let name = format!("{name}-{}", std::process::id());
            processes.start(&name, binary, &shell(script), &directory).await.unwrap();
            if let (Some(process), true) = (processes.all.last_mut(), name.starts_with(MAIN)) {
                process.name = MAIN.to_owned();
            }
        }
        processes
    }

    #[tokio::test]
    async fn exit_codes_tell_signals_from_codes() {
        let main = ProcessName::Main;
        let processes = started(&[("main-a", "exit 7")]).await;
        while processes.exit(&main).is_none() {
            sleep(POLL_INTERVAL).await;
        }
        assert_eq!(processes.exit(&main), Some(7));
        let processes = started(&[("main-b", "sleep 60")]).await;
        processes.signal(&main, "KILL", false).await.unwrap();
        assert_eq!(processes.exit(&main), Some(-9));
        assert!(processes.signal(&main, "NONE", false).await.is_err());
    }

    #[tokio::test]
    async fn main_is_the_last_started_while_none_is_called_so() {
        let processes = started(&[("x", "exit 1"), ("y", "echo said; exit 2")]).await;
        while processes.all.iter().any(|process| process.exit().is_none()) {
            sleep(POLL_INTERVAL).await;
        }
        assert_eq!(processes.exit(&ProcessName::Main), Some(2));
        assert_eq!(processes.last_log(), "said\n");
        assert_eq!(processes.exit(&ProcessName::Named("z".to_owned())), None);
    }

    #[tokio::test]
    async fn a_process_that_ignores_politeness_is_killed() {
        let processes = started(&[("main-c", "trap '' TERM; while :; do sleep 0.1; done")]).await;
        sleep(POLL_INTERVAL).await;
        processes.end_all().await;
        assert_eq!(processes.exit(&ProcessName::Main), Some(-9));
    }
}
