//! The command line: every flag with its default and its check.
//!
//! Syntax and texts are pflag's. There are external-provisioner's 51 flags with their defaults, our own
//! additions, and the flags and gates of earlier releases. `groups` describes them all, `command` has clap
//! parse them as pflag does, `check` refuses what contradicts itself, with external-provisioner's exit codes
//! and in its order. [`Flags`] is what comes out: its values are consistent. Environment variables are read
//! through a function, and `main` ends the process.

mod check;
pub mod command;
pub mod gates;
mod groups;
pub mod retired;
mod values;

use std::ffi::OsString;

use clap::Parser;

pub use self::{
    check::LEADER_ELECTION_CHECK,
    gates::Gates,
    groups::{
        Capacity, ClaimProtection, Driver, Http, Kubernetes, LeaderElection, Logging,
        NodeDeployment, Provisioning, RateLimit, Safety, VolumeNaming,
    },
};
use self::{
    command::NoFlags,
    groups::{LogOutput, Miscellaneous, RetiredFlags},
};

/// This program's version.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// The commands of `kubectl-csi_provisioner`. What is meant for it must not start a controller.
const CLI_COMMANDS: [&str; 6] =
    ["check", "explain", "release-claims", "shadow", "shadow-report", "status"];

/// The parsed command line.
#[derive(Debug, Clone, PartialEq, Parser)]
#[command(no_binary_name = true, disable_help_flag = true, disable_version_flag = true)]
#[command(args_override_self = true, help_template = "{all-args}")]
pub struct Flags {
    /// The connection to the API server.
    #[command(flatten)]
    pub kubernetes: Kubernetes,
    /// The connection to the driver.
    #[command(flatten)]
    pub driver: Driver,
    /// The names of PersistentVolumes.
    #[command(flatten)]
    pub naming: VolumeNaming,
    /// Provisioning.
    #[command(flatten)]
    pub provisioning: Provisioning,
    #[command(flatten)]
    capacity: Capacity,
    #[command(flatten)]
    node_deployment: NodeDeployment,
    #[command(flatten)]
    leader_election: LeaderElection,
    /// The HTTP servers.
    #[command(flatten)]
    pub http: Http,
    /// Logging.
    #[command(flatten)]
    pub logging: Logging,
    #[command(flatten)]
    log_output: LogOutput,
    #[command(flatten)]
    miscellaneous: Miscellaneous,
    /// Safety.
    #[command(flatten)]
    pub safety: Safety,
    #[command(flatten)]
    retired: RetiredFlags,
    /// Feature gates.
    #[arg(skip = Gates::new(&gates::Map::new()))]
    pub gates: Gates,
}

/// Flags, and warnings for the user.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// The flags.
    pub flags: Flags,
    /// Warnings, to be logged after logging is set up.
    pub warnings: Vec<String>,
}

/// The process does not start: the text to print, to stdout if it was asked for, and the exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The text, without a newline at its end.
    pub text: String,
    /// external-provisioner's exit code; 0 for help and version.
    pub exit_code: u8,
}

impl Flags {
    /// Parses the command line, which begins with the program's name. `env` looks up environment variables.
    ///
    /// # Errors
    /// A [`Refusal`] if the process must not start.
    pub fn parse(
        args: impl Iterator<Item = OsString>,
        env: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Parsed, Refusal> {
        // No flag takes anything but text.
        let mut args = args.map(|arg| arg.to_string_lossy().into_owned());
        let program = args.next().unwrap_or_else(|| "csi-provisioner".to_owned());
        let args: Vec<String> = args.collect();
        if let Some(command) = args.first().filter(|first| CLI_COMMANDS.contains(&first.as_str())) {
            return Err(Refusal::new(&moved(command), 2));
        }
        let (mut flags, given) = command::parse(&args).map_err(|why| match why {
            NoFlags::Help => Refusal::printed(command::usage(&program).trim_end()),
            NoFlags::NoValue(error) | NoFlags::Unknown(error) | NoFlags::Value(error) => {
                Refusal::new(&format!("{}{error}", command::usage(&program)), 2)
            }
        })?;
        flags.complete(&env);
        let mut warnings = check::before_version(&flags)?;
        if flags.miscellaneous.version {
            return Err(Refusal::printed(&format!("{program} {VERSION}")));
        }
        check::after_version(&flags)?;
        warnings.extend(check::warnings(&flags, &given));
        for workers in
            [&mut flags.provisioning.cloning_protection_workers, &mut flags.capacity.workers]
        {
            *workers = (*workers).max(1);
        }
        Ok(Parsed { flags, warnings })
    }

    /// Sets what follows from the environment and from other flags.
    fn complete(&mut self, env: &impl Fn(&str) -> Option<OsString>) {
        let variable = |name| env(name).unwrap_or_default().to_string_lossy().into_owned();
        self.node_deployment.node_name = variable("NODE_NAME");
        self.capacity.namespace = variable("NAMESPACE");
        self.capacity.pod = variable("POD_NAME");
        self.gates = Gates::new(&self.feature_gates());
        self.leader_election.leader_election |= self.retired.enable_leader_election;
        self.capacity.enable_capacity |= self.retired.capacity_controller_deployment_mode.is_some();
    }

    /// The feature gates as they are set.
    fn feature_gates(&self) -> gates::Map {
        let gates = self.miscellaneous.feature_gates.iter().flatten();
        gates.map(|(gate, value)| (gate.clone(), *value)).collect()
    }

    /// `CSIStorageCapacity` objects; `None` without `--enable-capacity`.
    pub fn capacity(&self) -> Option<&Capacity> {
        self.capacity.enable_capacity.then_some(&self.capacity)
    }

    /// Node deployment; `None` without `--node-deployment`.
    pub fn node_deployment(&self) -> Option<&NodeDeployment> {
        self.node_deployment.node_deployment.then_some(&self.node_deployment)
    }

    /// Leader election; `None` without `--leader-election`.
    pub fn leader_election(&self) -> Option<&LeaderElection> {
        self.leader_election.leader_election.then_some(&self.leader_election)
    }

    /// Whether external-provisioner v1 with these flags locks an Endpoints object, not a Lease.
    pub fn locks_endpoints(&self) -> bool {
        match self.retired.leader_election_type.as_deref() {
            None => self.retired.enable_leader_election,
            Some(kind) => kind == "endpoints",
        }
    }
}

impl Refusal {
    fn new(text: &str, exit_code: u8) -> Self {
        Self { text: text.to_owned(), exit_code }
    }

    /// What was asked for, such as help.
    fn printed(text: &str) -> Self {
        Self::new(text, 0)
    }
}

/// Says where a command went.
fn moved(command: &str) -> String {
    format!(
        "{command} is a command of kubectl-csi_provisioner, which is beside this program in the image: kubectl-csi_provisioner {command} --help"
    )
}

#[cfg(test)]
mod tests;
