//! Programs that tests and the demo start: signalled, waited for, quoted, and killed when they are dropped.

use std::{
    fs::{self, File},
    io,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    process::{Child, Command},
    signal::unix::{SignalKind, signal},
    time::{sleep, timeout},
};

/// How often it is looked whether a program has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How long a killed program may take to be gone.
const DEATH: Duration = Duration::from_secs(3);

/// A program as a process.
#[derive(Debug)]
pub struct Program {
    child: Mutex<Child>,
    log: PathBuf,
}

impl Program {
    /// Starts a command; what it prints goes to the end of the file `log`.
    pub fn start(command: &mut Command, log: PathBuf) -> io::Result<Self> {
        let output = File::options().create(true).append(true).open(&log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        Ok(Self { child: Mutex::new(command.kill_on_drop(true).spawn()?), log })
    }

    /// Its process number, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.child.lock().id()
    }

    /// How it ended, if it did.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.child.lock().try_wait().ok().flatten()
    }

    /// Sends it a signal, if it runs.
    pub fn send(&self, signal: Signal) {
        // A child that was not waited for still holds its number, so no other is hit.
        if let Some(pid) = self.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
            // One that just ended needs no signal.
            let _ = kill_process(pid, signal);
        }
    }

    /// Waits until it has ended, but not longer than that.
    pub async fn ended_within(&self, patience: Duration) -> bool {
        let ended = async {
            while self.ended().is_none() {
                sleep(POLL_INTERVAL).await;
            }
        };
        timeout(patience, ended).await.is_ok()
    }

    /// Asks it to end, and kills it if it still runs after that time.
    pub async fn end(&self, grace: Duration) {
        if self.ended().is_none() {
            self.send(Signal::TERM);
            if !self.ended_within(grace).await {
                self.kill().await;
            }
        }
    }

    /// Kills it, and waits until it is dead.
    pub async fn kill(&self) {
        self.send(Signal::KILL);
        self.ended_within(DEATH).await;
    }

    /// What it has printed so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }
}

/// The last `count` lines of what a program printed.
pub fn last_lines(log: &str, count: usize) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines.get(lines.len().saturating_sub(count)..).unwrap_or_default().join("\n")
}

/// Waits for SIGTERM or SIGINT. From this call on neither ends the process by itself.
pub fn asked_to_end() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
