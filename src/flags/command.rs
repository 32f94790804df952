//! From arguments to typed values: pflag's syntax in front, clap behind it.
//!
//! Owns the clap command built from the tables, and the mapping of clap's refusals to pflag's
//! words. Promises typed values by flag name ([`Values`]); leaves their meaning to the parent.

use std::{collections::BTreeMap, sync::Arc};

use clap::{
    Arg, ArgAction, ArgMatches, Command,
    builder::ValueParser,
    error::{ContextKind, ContextValue},
    parser::ValueSource,
};

use super::{
    ClaimProtection, duration, gates,
    go::{self, Refused, Voice},
    retired,
    syntax::{self, Given, Shape, Stop},
    table::{FLAGS, Flag, Takes},
};
use crate::go_fmt::quote;

/// Labels of the Lease, as one value of `--leader-election-labels` gives them.
pub(super) type Labels = BTreeMap<String, String>;
/// `--vmodule`: log levels by file pattern.
pub(super) type Vmodule = Vec<(String, u32)>;

/// The values of all flags.
pub(super) struct Values(ArgMatches);

/// Why there are no values.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoValues {
    /// Help was asked for.
    Help,
    /// pflag's text about the first argument that is no good.
    Error(String),
}

/// Reads the arguments (without the program's name).
pub(super) fn read(args: &[String]) -> Result<Values, NoValues> {
    let (given, stop) = syntax::read(args, shape);
    // What comes before the stop is judged first: the first error counts.
    let values = matches(&given).map_err(NoValues::Error)?;
    match stop {
        Stop::End => Ok(Values(values)),
        Stop::Help => Err(NoValues::Help),
        Stop::Error(error) => Err(NoValues::Error(error)),
    }
}

/// The usage, as printed for help and before errors.
pub(super) fn usage(program: &str) -> String {
    format!(
        "Usage of {program}:\n{}\n\nFlags and feature gates of earlier releases are accepted with a warning.\n",
        command().render_help().to_string().trim_end()
    )
}

fn shape(name: &str) -> Option<Shape> {
    let implied = |switch: bool| switch.then_some("true");
    let current = FLAGS.iter().find(|flag| flag.name == name).map(|flag| Shape {
        name: flag.name,
        implied: implied(matches!(flag.takes, Takes::Bool(_) | Takes::CapacitySwitch)),
    });
    let retired = || {
        let flag = retired::RETIRED.iter().find(|flag| flag.name == name)?;
        Some(Shape { name: flag.name, implied: implied(flag.takes == retired::Takes::Switch) })
    };
    current.or_else(retired)
}

fn matches(given: &[Given]) -> Result<ArgMatches, String> {
    let args = given.iter().map(|given| format!("--{}={}", given.name, given.value));
    command().try_get_matches_from(args).map_err(|error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        let context = |kind| match error.get(kind) {
            Some(ContextValue::String(text)) => text.clone(),
            _ => String::new(),
        };
        let arg = context(ContextKind::InvalidArg);
        let name = arg.split_whitespace().next().unwrap_or_default().trim_start_matches('-');
        syntax::invalid_value(name, &context(ContextKind::InvalidValue), &cause)
    })
}

fn command() -> Command {
    let retired = retired::RETIRED.iter().map(|flag| {
        let parser = match flag.takes {
            retired::Takes::Switch => {
                ValueParser::from(|text: &str| go::boolean(text, Voice::Pflag))
            }
            retired::Takes::Value => ValueParser::string(),
        };
        arg(flag.name, parser).hide(true)
    });
    Command::new("csi-provisioner")
        .no_binary_name(true)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args_override_self(true)
        .help_template("{all-args}")
        .args(FLAGS.iter().map(argument))
        .args(retired)
}

fn arg(name: &'static str, parser: ValueParser) -> Arg {
    Arg::new(name).long(name).num_args(1).action(ArgAction::Set).value_parser(parser)
}

fn argument(flag: &Flag) -> Arg {
    let help = if flag.takes == Takes::Gates {
        format!("{}:\n{}", flag.help, gates::help())
    } else {
        flag.help.to_owned()
    };
    let arg = arg(flag.name, parser(flag.takes))
        .help(help)
        .help_heading(flag.group)
        .value_name(kind(flag.takes));
    let arg = match flag.takes {
        Takes::Gates | Takes::Labels | Takes::Vmodule => arg.action(ArgAction::Append),
        _ => arg,
    };
    if flag.default.is_empty() { arg } else { arg.default_value(flag.default) }
}

pub(super) fn kind(takes: Takes) -> &'static str {
    match takes {
        Takes::Text => "string",
        Takes::Bool(_) | Takes::CapacitySwitch => "bool",
        Takes::Int(_) => "int",
        Takes::Uint => "uint",
        Takes::Float(_) => "float",
        Takes::Duration(_) => "duration",
        Takes::Level => "level",
        Takes::Vmodule => "pattern=N,...",
        Takes::Bytes => "quantity",
        Takes::Gates => "name=bool,...",
        Takes::Labels => "key:value,...",
        Takes::Protection => "mode",
    }
}

fn parser(takes: Takes) -> ValueParser {
    match takes {
        Takes::Text => ValueParser::string(),
        Takes::Bool(voice) => ValueParser::from(move |text: &str| boolean(text, voice)),
        Takes::CapacitySwitch => ValueParser::from(capacity_switch),
        Takes::Int(voice) => ValueParser::from(move |text: &str| go::int(text, voice)),
        Takes::Uint => ValueParser::from(go::uint),
        Takes::Float(voice) => ValueParser::from(move |text: &str| go::float(text, voice)),
        Takes::Duration(voice) => ValueParser::from(move |text: &str| duration_in(text, voice)),
        Takes::Level => ValueParser::from(go::level),
        Takes::Vmodule => ValueParser::from(vmodule),
        Takes::Bytes => ValueParser::from(is_some_bytes),
        Takes::Gates => ValueParser::from(|text: &str| gates::parse(text).map(Arc::new)),
        Takes::Labels => ValueParser::from(labels),
        Takes::Protection => ValueParser::from(protection),
    }
}

fn boolean(text: &str, voice: Voice) -> Result<bool, Refused> {
    go::boolean(text, voice)
}

fn capacity_switch(text: &str) -> Result<bool, Refused> {
    if text == "central" { Ok(true) } else { go::boolean(text, Voice::Pflag) }
}

fn duration_in(text: &str, voice: Voice) -> Result<i64, Refused> {
    duration::parse(text).map_err(|error| match voice {
        Voice::Pflag => Refused(error.to_string()),
        Voice::Goflag => Refused("parse error".to_owned()),
    })
}

fn vmodule(text: &str) -> Result<Vmodule, Refused> {
    text.split(',').filter(|item| !item.is_empty()).map(vmodule_item).collect()
}

fn vmodule_item(item: &str) -> Result<(String, u32), Refused> {
    let parts = item
        .split_once('=')
        .filter(|(file, level)| !file.is_empty() && !level.is_empty() && !level.contains('='));
    let (file, level) = parts
        .ok_or_else(|| Refused(format!("{} does not have the pattern=N format", quote(item))))?;
    let level = go::level(level)
        .map_err(|why| Refused(format!("parsing verbosity in {}: {why}", quote(item))))?;
    Ok((file.to_owned(), level))
}

/// Whether a quantity is more than nothing. That is all that counts: such a buffer is refused.
fn is_some_bytes(text: &str) -> Result<bool, Refused> {
    let number = text.trim_start_matches(['+', '-']);
    if !number.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        let pattern = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$";
        return Err(Refused(format!("quantities must match the regular expression '{pattern}'")));
    }
    let end = number.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(number.len());
    Ok(number.chars().take(end).any(|c| ('1'..='9').contains(&c)))
}

fn labels(text: &str) -> Result<Labels, Refused> {
    text.split(',')
        .map(|item| {
            let pair = item.split_once(':').filter(|(_, value)| !value.contains(':'));
            let (key, value) =
                pair.ok_or_else(|| Refused(format!("malformed item in list of labels: {item}")))?;
            Ok((key.to_owned(), value.to_owned()))
        })
        .collect()
}

fn protection(text: &str) -> Result<ClaimProtection, Refused> {
    match text {
        "auto" => Ok(ClaimProtection::Auto),
        "always" => Ok(ClaimProtection::Always),
        "off" => Ok(ClaimProtection::Off),
        _ => Err(Refused("must be auto, always or off".to_owned())),
    }
}

impl Values {
    /// The flag's value or default. The tables say what type each has, and the tests that each
    /// arrives; a flag without a value and default reads as its type's default.
    pub(super) fn get<T: Clone + Default + Send + Sync + 'static>(&self, name: &str) -> T {
        self.0.try_get_one::<T>(name).ok().flatten().cloned().unwrap_or_default()
    }

    /// The flag's text; `None` when it is empty.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        Some(self.get::<String>(name)).filter(|text| !text.is_empty())
    }

    /// The flag's duration; negative ones are none.
    pub(super) fn duration(&self, name: &str) -> std::time::Duration {
        duration::clamped(self.get(name))
    }

    /// Whether the flag stood on the command line.
    pub(super) fn is_given(&self, name: &str) -> bool {
        self.0.value_source(name) == Some(ValueSource::CommandLine)
    }

    /// The flag's value as it was given.
    pub(super) fn spelled(&self, name: &str) -> Option<&str> {
        self.0.try_get_raw(name).ok().flatten()?.next_back()?.to_str()
    }

    /// All `--feature-gates` together; later ones win.
    pub(super) fn gates(&self) -> gates::Map {
        self.all::<Arc<gates::Map>>("feature-gates").flat_map(|map| (**map).clone()).collect()
    }

    /// All `--leader-election-labels` together; later ones win.
    pub(super) fn labels(&self) -> Labels {
        self.all::<Labels>("leader-election-labels").flat_map(Clone::clone).collect()
    }

    /// All `--vmodule` together, in order.
    pub(super) fn vmodule(&self) -> Vmodule {
        self.all::<Vmodule>("vmodule").flatten().cloned().collect()
    }

    fn all<T: Clone + Send + Sync + 'static>(&self, name: &str) -> impl Iterator<Item = &T> {
        self.0.try_get_many::<T>(name).ok().flatten().into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn defaults_in_the_tables_are_values_of_their_flags() {
        assert!(read(&[]).is_ok());
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
        assert!(!usage.contains("logtostderr"));
    }

    #[test]
    fn quantities_of_nothing() {
        for (text, some) in
            [("0", false), ("0Ki", false), ("-0.0", false), ("1Ki", true), ("0.5", true)]
        {
            assert_eq!(is_some_bytes(text), Ok(some), "{text}");
        }
        assert!(is_some_bytes("lots").is_err());
    }
}
