//! The processes of one run: started, signalled, waited for, and none left behind.

use std::{
    collections::BTreeMap, fs::File, os::unix::process::ExitStatusExt as _, path::Path,
    process::Stdio, time::Duration,
};

use go_fmt::parse_duration;
use rustix::process::Signal;
use tokio::process::Command;

use super::{
    PlayError,
    api::NAMESPACE,
    scenario::{Launch, ProcessName, Scenario},
};
use crate::program::Program;

/// How long a process may take to end when it gets a signal, and when it is asked to at the end.
const PATIENCE: Duration = Duration::from_secs(10);
const GRACE: Duration = Duration::from_secs(3);

/// The flags every process gets, unless a scenario gives all of them itself. It logs as much as it can (the reference
/// player: 5), so that every run shows that no secret is logged.
const BASE_FLAGS: [&str; 8] = [
    "--v=10",
    "--timeout=3s",
    "--retry-interval-start=100ms",
    "--retry-interval-max=2s",
    "--worker-threads=10",
    "--kube-api-qps=1000",
    "--kube-api-burst=1000",
    "--http-endpoint=127.0.0.1:{http}",
];

/// The name of the process that is meant when none is named.
pub(super) const MAIN: &str = "main";

/// Where the parts of one run are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places<'a> {
    pub(super) socket: &'a str,
    /// The port that the main process serves its metrics on.
    pub(super) http: u16,
    pub(super) kubeconfig: &'a Path,
}

/// One start of the binary: its arguments, its whole environment, and the host name that it sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Invocation {
    pub(super) arguments: Vec<String>,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) hostname: Option<String>,
}

impl Invocation {
    /// How `launch` starts a process in `scenario`.
    pub(super) fn new(scenario: &Scenario, launch: &Launch, places: Places<'_>) -> Self {
        let mut arguments = vec![format!("--csi-address=unix://{}", places.socket)];
        arguments.extend(flags(scenario, launch, places));
        let path = std::env::var("PATH").unwrap_or_default();
        let kubeconfig = places.kubeconfig.display().to_string();
        let common = [
            ("PATH", path.as_str()),
            ("KUBECONFIG", &kubeconfig),
            ("NAMESPACE", NAMESPACE),
            ("POD_NAMESPACE", NAMESPACE),
        ];
        let mut all: BTreeMap<String, Option<String>> =
            common.map(|(key, value)| (key.to_owned(), Some(value.to_owned()))).into();
        all.extend(scenario.env.clone());
        all.extend(launch.env.clone());
        Self {
            arguments,
            environment: all.into_iter().filter_map(|(key, value)| Some((key, value?))).collect(),
            hostname: launch.hostname.as_ref().or(scenario.hostname.as_ref()).cloned(),
        }
    }
}

fn flags(scenario: &Scenario, launch: &Launch, places: Places<'_>) -> Vec<String> {
    let fill = |flag: &str| {
        flag.replace("{http}", &places.http.to_string()).replace("{sock}", places.socket)
    };
    let raw = launch.raw_flags.as_ref().or(scenario.raw_flags.as_ref());
    let mut flags: Vec<String> = match raw {
        None => {
            let own = scenario.flags.iter().chain(&launch.flags).map(String::as_str);
            BASE_FLAGS.into_iter().chain(own).map(fill).collect()
        }
        Some(raw) => {
            let metrics = (!scenario.no_http).then_some("--http-endpoint=127.0.0.1:{http}");
            let given = raw.iter().map(String::as_str).chain(metrics).map(fill);
            given.chain(launch.flags.iter().cloned()).collect()
        }
    };
    let is_main = launch.process.as_deref().is_none_or(|process| process == MAIN);
    if !is_main || launch.http == Some(false) {
        flags.retain(|flag| !flag.starts_with("--http-endpoint"));
    }
    flags
}

/// How often something is tried within a time, by the back-off of the scenario's flags.
pub(super) fn tries_within(time: Duration, scenario: &Scenario) -> u32 {
    let flag = |name: &str| {
        let flags = BASE_FLAGS.into_iter().chain(scenario.flags.iter().map(String::as_str));
        let text = flags.filter_map(|flag| flag.strip_prefix(name)).next_back().unwrap_or_default();
        let nanos = parse_duration(text).ok().and_then(|nanos| u64::try_from(nanos).ok());
        Duration::from_nanos(nanos.unwrap_or_default()).max(Duration::from_millis(1))
    };
    let (start, longest) = (flag("--retry-interval-start="), flag("--retry-interval-max="));
    let (mut tries, mut wait, mut left) = (1, start, time);
    while let Some(rest) = left.checked_sub(wait) {
        (tries, left, wait) = (tries + 1, rest, (2 * wait).min(longest));
    }
    tries
}

/// All processes of a run; those still running are killed with it.
#[derive(Default)]
pub(super) struct Processes {
    all: Vec<Process>,
}

struct Process {
    name: String,
    program: Program,
}

impl Processes {
    /// Starts `binary`; what it prints goes to a file in `directory`.
    pub(super) async fn start(
        &mut self,
        name: &str,
        binary: &Path,
        invocation: &Invocation,
        directory: &Path,
    ) -> Result<(), PlayError> {
        let log = directory.join(format!("{name}.log"));
        // Not what an earlier one of this name printed.
        File::create(&log)?;
        let mut command = match &invocation.hostname {
            Some(hostname) => renamed(hostname, binary).await?,
            None => Command::new(binary),
        };
        command.args(&invocation.arguments).env_clear().envs(&invocation.environment);
        let program = Program::start(&mut command, log)
            .map_err(|source| format!("cannot start {}: {source}", binary.display()))?;
        self.all.push(Process { name: name.to_owned(), program });
        Ok(())
    }

    fn find(&self, name: &ProcessName) -> Option<&Program> {
        let last = |name: &str| self.all.iter().rev().find(|process| process.name == name);
        let process = match name {
            ProcessName::Main(_) => last(MAIN).or_else(|| self.all.last()),
            ProcessName::Named(name) => last(name),
        };
        process.map(|process| &process.program)
    }

    /// The exit code of a process, negative where a signal ended it; `None` while it runs or when there is none.
    pub(super) fn exit(&self, name: &ProcessName) -> Option<i32> {
        let status = self.find(name)?.ended()?;
        status.code().or_else(|| status.signal().map(|signal| -signal))
    }

    /// Sends a signal and, unless asked not to, waits up to ten seconds for the end.
    pub(super) async fn signal(
        &self,
        name: &ProcessName,
        signal: &str,
        nowait: bool,
    ) -> Result<(), PlayError> {
        let program = self.find(name).ok_or_else(|| format!("no process {name:?} was started"))?;
        program.send(match signal {
            "TERM" => Signal::TERM,
            "KILL" => Signal::KILL,
            "INT" => Signal::INT,
            "QUIT" => Signal::QUIT,
            "HUP" => Signal::HUP,
            "USR1" => Signal::USR1,
            "USR2" => Signal::USR2,
            "STOP" => Signal::STOP,
            "CONT" => Signal::CONT,
            _ => return Err(format!("unknown signal {signal:?}").into()),
        });
        if !nowait {
            program.ended_within(PATIENCE).await;
        }
        Ok(())
    }

    /// Ends a process: first politely, after three seconds not.
    pub(super) async fn end(&self, name: &ProcessName) {
        if let Some(program) = self.find(name) {
            program.end(GRACE).await;
        }
    }

    /// Ends them all.
    pub(super) async fn end_all(&self) {
        for process in &self.all {
            process.program.end(GRACE).await;
        }
    }

    /// Suspends them all, or lets them go on.
    pub(super) fn suspend(&self, suspended: bool) {
        for process in &self.all {
            process.program.send(if suspended { Signal::STOP } else { Signal::CONT });
        }
    }

    /// Each process with what it printed so far, the last started one last.
    pub(super) fn logs(&self) -> impl Iterator<Item = (&str, String)> {
        self.all.iter().map(|process| (process.name.as_str(), process.program.log()))
    }
}

/// Runs `binary` where the host has another name.
async fn renamed(hostname: &str, binary: &Path) -> Result<Command, PlayError> {
    for how in ["-u", "-Uru"] {
        let allowed = Command::new("unshare").args([how, "true"]).stderr(Stdio::null()).status();
        if allowed.await.is_ok_and(|status| status.success()) {
            let mut command = Command::new("unshare");
            let script = format!("hostname {hostname}; exec \"$@\"");
            command.args([how, "sh", "-c", &script, "sh"]).arg(binary);
            return Ok(command);
        }
    }
    Err("a scenario with `hostname` needs `unshare -u` (as root) or `unshare -Uru`; both are refused here".into())
}
