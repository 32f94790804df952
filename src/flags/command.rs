//! From the command line to [`Arguments`]: the syntax is pflag's, clap parses the values.
//!
//! [`syntax`](super::syntax) splits the command line into flags and values, which clap then receives as
//! `--name=value`. Errors have pflag's texts, and the first one on the command line counts.

use clap::{
    Arg, ArgAction, Command, CommandFactory as _, FromArgMatches as _,
    builder::ValueParser,
    error::{ContextKind, ContextValue, Error},
};

use super::{
    arguments::Arguments,
    retired::{RETIRED, Retired, Takes},
    syntax::{self, Given, Stop},
    values::boolean,
};

/// The parsed command line.
#[derive(Debug)]
pub(super) struct CommandLine {
    pub(super) arguments: Arguments,
    /// The flags of earlier releases on it.
    pub(super) retired: Vec<&'static Retired>,
}

/// Why there are no arguments.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoArguments {
    /// Help was requested.
    Help,
    /// pflag's text about the first wrong argument.
    Error(String),
}

/// Parses `args`, which do not include the program's name.
pub(super) fn parse(args: &[String]) -> Result<CommandLine, NoArguments> {
    let command = command();
    let (given, stop) = syntax::read(args, |name| takes(&command, name));
    // The flags before the wrong argument come first, also with their errors.
    let arguments = values(command, &given).map_err(NoArguments::Error)?;
    match stop {
        Stop::End => Ok(CommandLine { arguments, retired: retired(&given) }),
        Stop::Help => Err(NoArguments::Help),
        Stop::Error(error) => Err(NoArguments::Error(error)),
    }
}

/// The usage, as printed for help and before errors.
pub(super) fn usage(program: &str) -> String {
    format!(
        "Usage of {program}:\n{}\n\nFlags and feature gates of earlier releases are accepted with a warning.\n",
        with_values(command()).render_help().to_string().trim_end()
    )
}

/// The command: all flags, also those of earlier releases that are ignored.
pub(super) fn command() -> Command {
    let ignored = RETIRED.iter().filter_map(|flag| {
        let arg = Arg::new(flag.name).long(flag.name).hide(true);
        match flag.ignored? {
            Takes::Value => Some(arg),
            Takes::Switch => {
                Some(arg.action(ArgAction::SetTrue).value_parser(ValueParser::from(boolean)))
            }
        }
    });
    Arguments::command().args(ignored)
}

/// What the flag takes; `None` if there is no such flag.
fn takes(command: &Command, name: &str) -> Option<Takes> {
    let arg = command.get_arguments().find(|arg| arg.get_long() == Some(name))?;
    Some(if is_switch(arg) { Takes::Switch } else { Takes::Value })
}

/// The flags of `args`, each with why its value is refused, if it is, and the errors about what is no flag.
pub(super) fn parse_each(args: &[String]) -> (Vec<(Given, Option<String>)>, Vec<String>) {
    let (given, errors) = syntax::read_all(args, |name| takes(&command(), name));
    let judged = |given: Given| {
        let error = values(command(), std::slice::from_ref(&given)).err();
        (given, error)
    };
    (given.into_iter().map(judged).collect(), errors)
}

/// Whether the flag may be given without a value.
fn is_switch(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

/// The command with a value for each switch: `--name` becomes `--name=true` before clap parses it.
fn with_values(command: Command) -> Command {
    command.mut_args(|arg| if is_switch(&arg) { arg.action(ArgAction::Set) } else { arg })
}

fn values(command: Command, given: &[Given]) -> Result<Arguments, String> {
    let args = given.iter().map(|given| format!("--{}={}", given.name, given.value));
    let matches = with_values(command).try_get_matches_from(args);
    let arguments = matches.and_then(|matches| Arguments::from_arg_matches(&matches));
    arguments.map_err(|error| invalid_value(&error))
}

/// clap's error about a value, in pflag's words.
fn invalid_value(error: &Error) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    let arg = context(ContextKind::InvalidArg);
    let name = arg.split_whitespace().next().unwrap_or_default().trim_start_matches('-');
    syntax::invalid_value(name, context(ContextKind::InvalidValue), &cause)
}

fn retired(given: &[Given]) -> Vec<&'static Retired> {
    RETIRED.iter().filter(|flag| given.iter().any(|given| given.name == flag.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_sound() {
        with_values(command()).debug_assert();
    }

    #[test]
    fn defaults_are_values_of_their_flags() {
        assert!(parse(&[]).is_ok());
    }

    #[test]
    fn the_usage_groups_the_flags_and_hides_retired_ones() {
        let usage = usage("/csi-provisioner");
        assert!(usage.starts_with("Usage of /csi-provisioner:\n"));
        for part in
            ["Leader election:", "--timeout <duration>", "[default: 10s]", "ALPHA - default=false"]
        {
            assert!(usage.contains(part), "missing {part:?} in:\n{usage}");
        }
        for retired in ["logtostderr", "enable-leader-election"] {
            assert!(!usage.contains(retired));
        }
    }

    #[test]
    fn every_retired_flag_is_a_flag_and_hidden() {
        let command = command();
        for flag in &RETIRED {
            let arg = command.get_arguments().find(|arg| arg.get_long() == Some(flag.name));
            assert!(arg.is_some_and(Arg::is_hide_set), "{}", flag.name);
        }
    }
}
