//! The syntax of the command line, as in pflag.
//!
//! Splits the arguments into flags with their values: `--name=value`, `--name value`, `--name` alone for
//! a switch, the shorthand `-v`, words (ignored) and `--` (the end).
//! Stops at the first error, with pflag's text. The values are parsed by [`command`](super::command).

use go_fmt::quote;

use super::retired::Takes;

/// A flag with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) name: String,
    pub(super) value: String,
}

/// Why reading stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stop {
    /// The end of the arguments.
    End,
    /// Help was requested.
    Help,
    /// pflag's text about a wrong argument.
    Error(String),
}

/// Reads `args`, which do not include the program's name. Returns the flags before the stop, and the stop.
/// `known` says what a flag takes.
pub(super) fn read(args: &[String], known: impl Fn(&str) -> Option<Takes>) -> (Vec<Given>, Stop) {
    let mut reader = Reader::new(args, known);
    let stop = reader.find_map(Result::err).unwrap_or(Stop::End);
    (reader.given, stop)
}

/// Reads all of `args`, also after errors. Returns the flags, and the errors.
pub(super) fn read_all(
    args: &[String],
    known: impl Fn(&str) -> Option<Takes>,
) -> (Vec<Given>, Vec<String>) {
    let mut reader = Reader::new(args, known);
    let mut errors = Vec::new();
    loop {
        match reader.next() {
            None | Some(Err(Stop::End)) => return (reader.given, errors),
            Some(Err(Stop::Error(error))) => errors.push(error),
            Some(Err(Stop::Help)) => {
                errors.push("help requested: the program would end".to_owned());
            }
            Some(Ok(())) => {}
        }
    }
}

/// Yields for each argument, with the value that follows it, whether it is valid.
struct Reader<'a, F> {
    args: std::slice::Iter<'a, String>,
    known: F,
    given: Vec<Given>,
}

impl<F: Fn(&str) -> Option<Takes>> Iterator for Reader<'_, F> {
    type Item = Result<(), Stop>;

    fn next(&mut self) -> Option<Self::Item> {
        let arg = self.args.next()?;
        Some(match (arg.strip_prefix("--"), arg.strip_prefix('-')) {
            (Some(""), _) => Err(Stop::End),
            (Some(long), _) => self.long(long, arg),
            // As in external-provisioner.
            (None, None | Some("")) => Ok(()),
            (None, Some(short)) => self.short(short),
        })
    }
}

impl<'a, F: Fn(&str) -> Option<Takes>> Reader<'a, F> {
    fn new(args: &'a [String], known: F) -> Self {
        Self { args: args.iter(), known, given: Vec::new() }
    }

    fn long(&mut self, long: &str, arg: &str) -> Result<(), Stop> {
        if long.starts_with(['-', '=']) {
            return Err(Stop::Error(format!("bad flag syntax: {arg}")));
        }
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (long, None),
        };
        let Some(takes) = (self.known)(name) else {
            return Err(match name {
                "help" => Stop::Help,
                _ => Stop::Error(format!("unknown flag: --{name}")),
            });
        };
        let missing = || format!("flag needs an argument: --{name}");
        self.give(name, takes, value.map(str::to_owned), missing)
    }

    /// The only shorthand with a meaning is `-v`, whose value may follow at once (`-v5`, `-v=5`).
    fn short(&mut self, short: &str) -> Result<(), Stop> {
        let Some(rest) = short.strip_prefix('v') else {
            let letter = short.chars().next().unwrap_or_default();
            return Err(match letter {
                'h' => Stop::Help,
                _ => Stop::Error(format!("unknown shorthand flag: '{letter}' in -{short}")),
            });
        };
        // A lone `=` is the value itself, as in pflag.
        let value = rest.strip_prefix('=').filter(|value| !value.is_empty()).unwrap_or(rest);
        let value = (!value.is_empty()).then(|| value.to_owned());
        self.give("v", Takes::Value, value, || format!("flag needs an argument: 'v' in -{short}"))
    }

    fn give(
        &mut self,
        name: &str,
        takes: Takes,
        value: Option<String>,
        missing: impl Fn() -> String,
    ) -> Result<(), Stop> {
        let value = value.or_else(|| match takes {
            Takes::Switch => Some("true".to_owned()),
            Takes::Value => self.args.next().cloned(),
        });
        let value = value.ok_or_else(|| Stop::Error(missing()))?;
        self.given.push(Given { name: name.to_owned(), value });
        Ok(())
    }
}

/// pflag's text about a value that a flag does not take.
pub(super) fn invalid_value(name: &str, value: &str, cause: &str) -> String {
    let shown = if name == "v" { "-v, --v".to_owned() } else { format!("--{name}") };
    format!("invalid argument {} for {} flag: {cause}", quote(value), quote(&shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: &str) -> Option<Takes> {
        match name {
            "timeout" | "v" => Some(Takes::Value),
            "strict" => Some(Takes::Switch),
            _ => None,
        }
    }

    fn run(args: &[&str]) -> (Vec<(String, String)>, Stop) {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        let (given, stop) = read(&args, known);
        (given.into_iter().map(|g| (g.name, g.value)).collect(), stop)
    }

    #[test]
    fn flags_in_all_their_spellings() {
        for (args, name, value) in [
            (&["--timeout=5s"][..], "timeout", "5s"),
            (&["--timeout", "5s"], "timeout", "5s"),
            (&["--timeout="], "timeout", ""),
            (&["--timeout=a=b"], "timeout", "a=b"),
            (&["--timeout", "--strict"], "timeout", "--strict"),
            (&["--strict"], "strict", "true"),
            (&["--strict", "false"], "strict", "true"),
            (&["--strict=false"], "strict", "false"),
            (&["-v5"], "v", "5"),
            (&["-v=5"], "v", "5"),
            (&["-v", "5"], "v", "5"),
            (&["-v="], "v", "="),
            (&["--v=5"], "v", "5"),
            (&["-", "word", "-v5", "more"], "v", "5"),
            (&["-v5", "--", "--nosuch"], "v", "5"),
        ] {
            assert_eq!(
                run(args),
                (vec![(name.to_owned(), value.to_owned())], Stop::End),
                "{args:?}"
            );
        }
    }

    #[test]
    fn errors_in_pflags_words() {
        for (args, error) in [
            (&["--nosuch"][..], "unknown flag: --nosuch"),
            (&["--nosuch=1"], "unknown flag: --nosuch"),
            (&["--timeout"], "flag needs an argument: --timeout"),
            (&["-v"], "flag needs an argument: 'v' in -v"),
            (&["-csi-address=x"], "unknown shorthand flag: 'c' in -csi-address=x"),
            (&["-timeout"], "unknown shorthand flag: 't' in -timeout"),
            (&["---x"], "bad flag syntax: ---x"),
            (&["--=x"], "bad flag syntax: --=x"),
        ] {
            assert_eq!(run(args), (vec![], Stop::Error(error.to_owned())), "{args:?}");
        }
    }

    #[test]
    fn the_first_stop_counts() {
        assert_eq!(run(&["--help", "--nosuch"]).1, Stop::Help);
        assert_eq!(run(&["-h"]).1, Stop::Help);
        assert_eq!(
            run(&["--nosuch", "--help"]).1,
            Stop::Error("unknown flag: --nosuch".to_owned())
        );
        assert_eq!(run(&["--strict", "--nosuch"]).0, [("strict".to_owned(), "true".to_owned())]);
    }

    #[test]
    fn values_refused_in_pflags_words() {
        let text = invalid_value("timeout", "5", "why");
        assert_eq!(text, "invalid argument \"5\" for \"--timeout\" flag: why");
        assert_eq!(
            invalid_value("v", "x", "why"),
            "invalid argument \"x\" for \"-v, --v\" flag: why"
        );
    }
}
