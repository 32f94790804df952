//! clap's command, which parses as pflag does.
//!
//! A switch takes a value only after `=`, any other flag takes the argument that follows, whatever it is.
//! Words are ignored. Errors have pflag's texts, and the first one on the command line counts.

use clap::{
    Arg, ArgAction, ArgMatches, Command, CommandFactory as _, FromArgMatches as _,
    builder::ValueParser,
    error::{ContextKind, ContextValue, Error, ErrorKind},
    parser::ValueSource,
};
use go_fmt::{parse_bool, quote};

use super::{
    Flags,
    retired::{RETIRED, Takes},
};

/// A flag on a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// Its name.
    pub name: String,
    /// Its value as it is spelled, of several the last one.
    pub value: String,
}

/// Why there are no flags; errors have pflag's texts.
#[derive(Debug, PartialEq, Eq)]
pub enum NoFlags {
    /// Help was requested.
    Help,
    /// The last argument is a flag without its value.
    NoValue(String),
    /// An argument is no flag.
    Unknown(String),
    /// A flag does not take its value.
    Value(String),
}

/// Parses `args`, which do not include the program's name; returns the flags on them as well.
pub(super) fn parse(args: &[String]) -> Result<(Flags, Vec<Given>), NoFlags> {
    let matches = matches(args).map_err(|last| {
        // clap looks at what follows a flag before it judges the flag's value, so this may not be the first.
        let errors = (1..=args.len()).filter_map(|end| matches(args.get(..end)?).err());
        errors.into_iter().find(|error| !matches!(error, NoFlags::NoValue(_))).unwrap_or(last)
    })?;
    let flags = Flags::from_arg_matches(&matches).map_err(|error| no_flags(&error, ""))?;
    Ok((flags, given(&matches)))
}

/// Parses `args`, which do not include the program's name.
///
/// # Errors
/// What is wrong with them.
pub fn matches(args: &[String]) -> Result<ArgMatches, NoFlags> {
    let help = Arg::new("help").long("help").short('h').action(ArgAction::Help);
    let words = Arg::new("words").num_args(0..).action(ArgAction::Append);
    let command = command().mut_args(|arg| {
        if is_switch(&arg) {
            let arg = arg.action(ArgAction::Set).num_args(0..=1);
            arg.require_equals(true).default_missing_value("true")
        } else {
            arg.allow_hyphen_values(true)
        }
    });
    let last = args.last().map(String::as_str).unwrap_or_default();
    let parsed = command.args([help, words]).try_get_matches_from(args);
    parsed.map_err(|error| no_flags(&error, last))
}

/// The flags that were given.
pub fn given(matches: &ArgMatches) -> Vec<Given> {
    let given = |arg: &Arg| {
        let id = arg.get_id().as_str();
        if matches.value_source(id) != Some(ValueSource::CommandLine) {
            return None;
        }
        let value = matches.get_raw(id)?.next_back()?.to_string_lossy().into_owned();
        Some(Given { name: arg.get_long()?.to_owned(), value })
    };
    command().get_arguments().filter_map(given).collect()
}

/// The usage, as printed for help and before errors. Switches are shown as pflag shows them.
pub(super) fn usage(program: &str) -> String {
    let mut command = command().mut_args(|arg| {
        let is_on = is_switch(&arg) && arg.get_default_values().iter().any(|it| it == "true");
        let Some(help) = arg.get_help().filter(|_| is_on) else { return arg };
        let help = format!("{help} [default: true]");
        arg.help(help)
    });
    format!(
        "Usage of {program}:\n{}\n\nFlags and feature gates of earlier releases are accepted with a warning.\n",
        command.render_help().to_string().trim_end()
    )
}

/// All flags, also those of earlier releases, which are hidden.
pub fn command() -> Command {
    let ignored = RETIRED.iter().filter_map(|flag| {
        let arg = Arg::new(flag.name).long(flag.name).hide(true);
        match flag.ignored? {
            Takes::Value => Some(arg),
            Takes::Switch => {
                Some(arg.action(ArgAction::SetTrue).value_parser(ValueParser::from(parse_bool)))
            }
        }
    });
    Flags::command().args(ignored)
}

/// Whether the flag may be given without a value.
fn is_switch(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

/// clap's error in pflag's words; `last` is the last argument.
fn no_flags(error: &Error, last: &str) -> NoFlags {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::TooManyValues => NoFlags::Help,
        ErrorKind::InvalidValue if last.starts_with("--") => {
            NoFlags::NoValue(format!("flag needs an argument: {last}"))
        }
        ErrorKind::InvalidValue => {
            NoFlags::NoValue(format!("flag needs an argument: 'v' in {last}"))
        }
        ErrorKind::UnknownArgument => NoFlags::Unknown(unknown(last)),
        _ => NoFlags::Value(invalid_value(error)),
    }
}

fn unknown(arg: &str) -> String {
    let name = arg.split('=').next().unwrap_or_default();
    if arg.starts_with("---") || arg.starts_with("--=") {
        format!("bad flag syntax: {arg}")
    } else if name.starts_with("--") {
        format!("unknown flag: {name}")
    } else {
        let letter = name.chars().nth(1).unwrap_or_default();
        format!("unknown shorthand flag: '{letter}' in {arg}")
    }
}

fn invalid_value(error: &Error) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    let flag = context(ContextKind::InvalidArg).split([' ', '[']).next().unwrap_or_default();
    let flag = if flag == "--v" { "-v, --v" } else { flag };
    format!(
        "invalid argument {} for {} flag: {cause}",
        quote(context(ContextKind::InvalidValue)),
        quote(flag)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(args: &[&str]) -> Result<Vec<(String, String)>, NoFlags> {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        let (_, given) = parse(&args)?;
        Ok(given.into_iter().map(|given| (given.name, given.value)).collect())
    }

    #[test]
    fn the_command_is_sound_and_defaults_are_values_of_their_flags() {
        command().debug_assert();
        assert_eq!(run(&[]), Ok(vec![]));
    }

    #[test]
    fn flags_in_all_their_spellings() {
        for (args, name, value) in [
            (&["--csi-address=5s"][..], "csi-address", "5s"),
            (&["--csi-address", "5s"], "csi-address", "5s"),
            (&["--csi-address="], "csi-address", ""),
            (&["--csi-address=a=b"], "csi-address", "a=b"),
            (&["--csi-address", "--strict-topology"], "csi-address", "--strict-topology"),
            (&["--csi-address", "--"], "csi-address", "--"),
            (&["--csi-address", "-v"], "csi-address", "-v"),
            (&["--strict-topology"], "strict-topology", "true"),
            (&["--strict-topology", "false"], "strict-topology", "true"),
            (&["--strict-topology=false"], "strict-topology", "false"),
            (&["--logtostderr"], "logtostderr", "true"),
            (&["-v5"], "v", "5"),
            (&["-v=5"], "v", "5"),
            (&["-v", "5"], "v", "5"),
            (&["--v=5"], "v", "5"),
            (&["-", "word", "-v5", "more", "", "-v6", "words"], "v", "6"),
            (&["-v5", "--", "--nosuch"], "v", "5"),
        ] {
            assert_eq!(run(args), Ok(vec![(name.to_owned(), value.to_owned())]), "{args:?}");
        }
    }

    #[test]
    fn the_first_error_counts_and_has_pflags_words() {
        let cause = "time: invalid duration \"x\"";
        for (args, error) in [
            (&["--nosuch"][..], "unknown flag: --nosuch"),
            (&["--nosuch=1"], "unknown flag: --nosuch"),
            (&["--nosuch", "--help"], "unknown flag: --nosuch"),
            (&["--timeout"], "flag needs an argument: --timeout"),
            (&["-v"], "flag needs an argument: 'v' in -v"),
            (&["--v"], "flag needs an argument: --v"),
            (&["-csi-address=x"], "unknown shorthand flag: 'c' in -csi-address=x"),
            (&["-timeout"], "unknown shorthand flag: 't' in -timeout"),
            (&["-5"], "unknown shorthand flag: '5' in -5"),
            (&["word", "---x=1"], "bad flag syntax: ---x=1"),
            (&["--=x"], "bad flag syntax: --=x"),
            (
                &["--timeout", "x", "--nosuch"],
                &format!("invalid argument \"x\" for \"--timeout\" flag: {cause}"),
            ),
            (
                &["--timeout", "x", "--help"],
                &format!("invalid argument \"x\" for \"--timeout\" flag: {cause}"),
            ),
            (
                &["--strict-topology=", "--help"],
                "invalid argument \"\" for \"--strict-topology\" flag: strconv.ParseBool: parsing \"\": invalid syntax",
            ),
        ] {
            let found = match run(args) {
                Err(NoFlags::NoValue(text) | NoFlags::Unknown(text) | NoFlags::Value(text)) => text,
                other => format!("{other:?}"),
            };
            assert_eq!(found, error, "{args:?}");
        }
        for help in [&["--help", "--nosuch"][..], &["-h"], &["-help"], &["--help=x"]] {
            assert_eq!(run(help), Err(NoFlags::Help), "{help:?}");
        }
    }

    #[test]
    fn the_usage_groups_the_flags_and_shows_switches_without_a_value() {
        let usage = usage("/csi-provisioner");
        assert!(usage.starts_with("Usage of /csi-provisioner:\n"));
        for part in
            ["Leader election:", "--timeout <duration>", "[default: 10s]", "ALPHA - default=false"]
        {
            assert!(usage.contains(part), "missing {part:?} in:\n{usage}");
        }
        let help =
            |flag: &str| usage.split_once(flag).unwrap().1.trim_start().lines().next().unwrap();
        assert_eq!(help("--strict-topology"), "With a selected node, ask for its topology only");
        assert!(help("--immediate-topology").ends_with("driver [default: true]"));
        for hidden in ["logtostderr", "enable-leader-election", "words"] {
            assert!(!usage.contains(hidden), "{hidden}");
        }
    }
}
