//! The arguments: the sidecar's own flags, and those that describe the driver.

use std::ffi::OsString;

use csi_provisioner::{
    csi::{
        Capabilities,
        proto::{controller_service_capability, plugin_capability},
    },
    flags::{Flags, Parsed, Refusal},
};

/// The flags that the sidecar does not have.
const USAGE: &str = "Compares what external-provisioner does with what csi-provisioner would do. Writes nothing.

      --driver <string>          The driver's name
      --capabilities <NAME,...>  The capabilities of the plug-in and of its controller service, as the CSI
                                 specification names them

All other flags are those of csi-provisioner.";

/// The exit code of wrong flags, as for those of the sidecar.
const WRONG: u8 = 2;

/// A driver as flags describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// `--driver`.
    pub name: String,
    /// `--capabilities`.
    pub capabilities: Capabilities,
}

/// Parses the arguments after the subcommand's name. `env` looks up environment variables.
///
/// # Errors
/// A [`Refusal`] if the process must not start.
pub fn parse(
    args: impl Iterator<Item = OsString>,
    env: impl Fn(&str) -> Option<OsString>,
) -> Result<(Parsed, Described), Refusal> {
    let (mut driver, mut capabilities) = (None, None);
    let mut others = vec!["kubectl-csi_provisioner shadow".into()];
    let mut args = args;
    while let Some(arg) = args.next() {
        let text = arg.to_string_lossy();
        let (name, value) = text.split_once('=').map_or((&*text, None), |(it, to)| (it, Some(to)));
        let own = match name {
            "--driver" => &mut driver,
            "--capabilities" => &mut capabilities,
            _ => {
                others.push(arg);
                continue;
            }
        };
        let next = || args.next().map(|value| value.to_string_lossy().into_owned());
        let value = value.map(str::to_owned).or_else(next);
        *own = Some(value.ok_or_else(|| refusal(format!("flag needs an argument: {name}")))?);
    }
    // --node-deployment is refused for its own sake, and not for want of a node's name.
    let env = |name: &str| if name == "NODE_NAME" { Some("any".into()) } else { env(name) };
    let parsed = Flags::parse(others.into_iter(), env).map_err(with_own_usage)?;
    if parsed.flags.node_deployment().is_some() {
        return Err(refusal(
            "shadow compares with one external-provisioner for all nodes; use it without --node-deployment",
        ));
    }
    let required = |flag| refusal(format!("flag is required: {flag}"));
    let name = driver.ok_or_else(|| required("--driver"))?;
    let capabilities = capabilities.ok_or_else(|| required("--capabilities"))?;
    let capabilities = capabilities_of(&capabilities)?;
    Ok((parsed, Described { name, capabilities }))
}

/// The capabilities with these names, separated by commas.
fn capabilities_of(names: &str) -> Result<Capabilities, Refusal> {
    let mut capabilities = Capabilities::default();
    for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let service = plugin_capability::service::Type::from_str_name(name);
        let rpc = controller_service_capability::rpc::Type::from_str_name(name);
        match (service, rpc) {
            (Some(service), _) => capabilities.plugin.insert(service),
            (None, Some(rpc)) => capabilities.controller.insert(rpc),
            (None, None) => {
                return Err(refusal(format!(
                    "--capabilities: the CSI specification has no capability {name:?}: use names such as CREATE_DELETE_VOLUME"
                )));
            }
        };
    }
    Ok(capabilities)
}

fn refusal(text: impl Into<String>) -> Refusal {
    Refusal { text: text.into(), exit_code: WRONG }
}

/// The sidecar's usage, after that of the flags that it does not have.
fn with_own_usage(refusal: Refusal) -> Refusal {
    let Refusal { text, exit_code } = refusal;
    let is_usage = text.starts_with("Usage of");
    Refusal { text: if is_usage { format!("{USAGE}\n\n{text}") } else { text }, exit_code }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> Result<(Parsed, Described), Refusal> {
        parse(args.iter().map(Into::into), |_| None)
    }

    #[test]
    fn what_it_cannot_compare_is_refused() {
        for (args, why) in [
            (&["--driver=d"][..], "flag is required: --capabilities"),
            (&["--capabilities=CLONE_VOLUME"], "flag is required: --driver"),
            (&["--driver"], "flag needs an argument: --driver"),
            (&["--driver=d", "--capabilities=FLY"], "--capabilities: the CSI specification has no"),
            (&["--node-deployment"], "without --node-deployment"),
            (&["--nosuch"], "unknown flag: --nosuch"),
        ] {
            let refused = parsed(args).unwrap_err();
            assert!(refused.exit_code == 2 && refused.text.contains(why), "{}", refused.text);
        }
        let help = parsed(&["--help"]).unwrap_err();
        assert_eq!(help.exit_code, 0);
        assert!(["--capabilities", "--csi-address"].iter().all(|it| help.text.contains(it)));
    }
}
