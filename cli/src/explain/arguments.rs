//! The arguments of the subcommand.
//!
//! Flags that the controller has as well have its names, types and defaults: they are parsed as the
//! controller's command line.

use std::{ffi::OsString, fmt};

use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches, error::ErrorKind};

use csi_provisioner::flags::Flags;

use crate::subcommand::Format;

/// The flags of the controller that count here, and whether each is a switch.
const CONTROLLER_FLAGS: [(&str, bool, &str); 13] = [
    ("kubeconfig", false, "Path of a kubeconfig file"),
    ("master", false, "URL of the API server"),
    ("status-endpoint", false, "Address of the leader's status, asked for what only it knows"),
    ("volume-name-prefix", false, "As of the controller"),
    ("volume-name-uuid-length", false, "As of the controller"),
    ("default-fstype", false, "As of the controller"),
    ("feature-gates", false, "As of the controller"),
    ("node-deployment", true, "As of the controller, on any node"),
    ("strict-topology", true, "As of the controller"),
    ("immediate-topology", true, "As of the controller"),
    ("prevent-volume-mode-conversion", true, "As of the controller"),
    ("extra-create-metadata", true, "As of the controller"),
    ("controller-publish-readonly", true, "As of the controller"),
];

/// The parsed arguments.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// What to explain.
    pub object: Object,
    /// `--driver`: the driver; otherwise the one that the object names.
    pub driver: Option<String>,
    /// `--leader-election-namespace`: the namespace of the Lease.
    pub lease_namespace: Option<String>,
    /// Whether the output is JSON.
    pub is_json: bool,
    /// The flags of the controller.
    pub flags: Flags,
}

/// What to explain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    /// The claim of this namespace and name. The namespace is empty without `--namespace`, until
    /// [`Request::in_namespace`] names it.
    Claim(String, String),
    /// The PersistentVolume of this name.
    Volume(String),
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(namespace, name) => write!(f, "PersistentVolumeClaim {namespace}/{name}"),
            Self::Volume(name) => write!(f, "PersistentVolume {name}"),
        }
    }
}

impl Request {
    /// The same, with a claim that no `--namespace` places in `namespace`.
    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        if let Object::Claim(unnamed, _) = &mut self.object
            && unnamed.is_empty()
        {
            *unnamed = namespace.into();
        }
        self
    }
}

impl Args for Request {
    fn augment_args(command: Command) -> Command {
        Format::augment_args(command)
            .after_help("Exit code: 0 served, 1 waiting, 2 something is wrong, 3 unknown")
            .args(object_arguments())
            .args(own_flags())
            .args(
                CONTROLLER_FLAGS
                    .map(|(name, is_switch, help)| controller_flag(name, is_switch, help)),
            )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Request {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let text = |name| matches.get_one::<String>(name).cloned();
        let name = text("name").unwrap_or_default();
        let object = match text("kind").as_deref() {
            Some("pv" | "persistentvolume") => Object::Volume(name),
            _ => Object::Claim(text("namespace").unwrap_or_default(), name),
        };
        Ok(Self {
            object,
            lease_namespace: text("leader-election-namespace"),
            driver: text("driver"),
            is_json: Format::from_arg_matches(matches)?.is_json,
            flags: controller_flags(matches)?,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The flags that the controller has as well.
fn controller_flags(matches: &ArgMatches) -> Result<Flags, Error> {
    let given = CONTROLLER_FLAGS.iter().filter_map(|(name, ..)| {
        let value = matches.get_one::<String>(name)?;
        Some(OsString::from(format!("--{name}={value}")))
    });
    let args = [OsString::from("csi-provisioner")].into_iter().chain(given);
    // The node's name is needed by the controller alone.
    let environment = |name: &str| (name == "NODE_NAME").then(|| OsString::from("any"));
    let parsed = Flags::parse(args, environment);
    parsed.map(|parsed| parsed.flags).map_err(|refusal| {
        let error = refusal.text.lines().last().unwrap_or_default();
        Error::raw(ErrorKind::ValueValidation, format!("{error}\n"))
    })
}

fn object_arguments() -> [Arg; 3] {
    let kinds = ["pvc", "persistentvolumeclaim", "pv", "persistentvolume"];
    let kind = Arg::new("kind").value_parser(kinds).hide_possible_values(true);
    let name = Arg::new("name").help("Name of the claim or of the PersistentVolume");
    let namespace = Arg::new("namespace").long("namespace").short('n').value_name("name");
    [
        kind.required(true).help("`pvc` or `pv`"),
        name.required(true),
        namespace
            .help("Namespace of the claim [default: the kubeconfig context's, else the pod's]"),
    ]
}

fn own_flags() -> [Arg; 2] {
    let flag = |name, value, help| Arg::new(name).long(name).value_name(value).help(help);
    let driver = "The CSI driver [default: the one that the object names]";
    let namespace = "Namespace of the Lease [default: the pod's, else the only one that has it]";
    [flag("driver", "name", driver), flag("leader-election-namespace", "name", namespace)]
}

fn controller_flag(name: &'static str, is_switch: bool, help: &'static str) -> Arg {
    let flag = Arg::new(name).long(name).help(help).help_heading("Flags of the controller");
    if is_switch {
        flag.num_args(0..=1).require_equals(true).default_missing_value("true")
    } else {
        flag
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{subcommand, testing};

    fn parse(args: &[&str]) -> Request {
        let parsed = testing::parse("explain", args).unwrap();
        let subcommand::Command::Explain(request) = parsed else { panic!("{args:?}") };
        *request
    }

    /// Workers, back-offs and sweeps change when something is done, and not what.
    #[test]
    fn each_flag_that_changes_what_a_claim_gets_is_taken() {
        let controller = csi_provisioner::flags::command::command();
        let flags = controller.get_arguments();
        let flags = flags.filter(|flag| flag.get_help_heading() == Some("Provisioning"));
        let names = flags.filter_map(|flag| flag.get_long());
        let pace = ["retry", "threads", "interval"];
        let missing = names
            .filter(|name| !pace.iter().any(|word| name.contains(word)))
            .filter(|name| !CONTROLLER_FLAGS.iter().any(|(taken, ..)| taken == name));
        assert_eq!(missing.collect::<Vec<_>>(), [""; 0]);
    }

    #[test]
    fn a_namespace_that_is_given_wins_over_the_contexts() {
        for (args, namespace) in [
            (&["pvc", "data"][..], "team"),
            (&["pvc", "data", "-n=shop"], "shop"),
            (&["--namespace=shop", "persistentvolumeclaim", "data"], "shop"),
        ] {
            let claim = Object::Claim(namespace.to_owned(), "data".to_owned());
            assert_eq!(parse(args).in_namespace("team").object, claim, "{args:?}");
        }
    }

    #[test]
    fn flags_of_the_controller_have_its_defaults_and_values() {
        let defaults = parse(&["pvc", "data"]).flags;
        assert_eq!(defaults.naming.prefix, "pvc");
        assert!(defaults.provisioning.immediate_topology && defaults.node_deployment().is_none());
        let given = ["--volume-name-prefix", "csi", "--strict-topology", "--node-deployment"];
        let flags =
            parse(&[&["pvc", "data", "--status-endpoint=:8090"], &given[..]].concat()).flags;
        assert_eq!(flags.naming.prefix, "csi");
        assert!(flags.provisioning.strict_topology && flags.node_deployment().is_some());
        assert_eq!(flags.http.status.as_deref(), Some("127.0.0.1:8090"));
    }
}
