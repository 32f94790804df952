//! Parsers of the flags' values, with the error texts that users know from external-provisioner. Numbers
//! and durations are [`go_fmt`]'s, feature gates are in [`gates`](super::gates).

use std::{collections::BTreeMap, error::Error, time::Duration};

use go_fmt::{
    DurationError, Fault, NumError, parse_bool, parse_decimal, parse_duration, parse_uint,
    quantity::{Quantity, QuantityError},
    quote,
};

use super::ClaimProtection;

/// Why a value is refused.
pub(super) type Refused = Box<dyn Error + Send + Sync>;

/// Shortens the errors of `parse`: external-provisioner registers some flags with Go's own `flag`
/// package instead of pflag.
pub(super) fn goflag<T, E: Into<Refused>>(
    parse: impl Fn(&str) -> Result<T, E> + Clone,
) -> impl Fn(&str) -> Result<T, Refused> + Clone {
    move |text: &str| {
        parse(text).map_err(|error| match error.into().downcast_ref::<NumError>() {
            Some(NumError { fault: Fault::Range, .. }) => "value out of range".into(),
            _ => "parse error".into(),
        })
    }
}

/// A text; none if it is empty.
#[allow(clippy::unnecessary_wraps)] // clap's form of a parser
pub(super) fn optional<T: From<String>>(text: &str) -> Result<Option<T>, Refused> {
    Ok((!text.is_empty()).then(|| text.to_owned().into()))
}

/// An address; without a host it is for this machine or pod only, unlike that of the metrics.
pub(super) fn local_address(text: &str) -> Result<Option<String>, Refused> {
    let with_host =
        if text.starts_with(':') { format!("127.0.0.1{text}") } else { text.to_owned() };
    optional(&with_host)
}

pub(super) fn uint(text: &str) -> Result<usize, NumError> {
    Ok(usize::try_from(parse_uint(text)?).unwrap_or(usize::MAX))
}

/// A duration that code can wait for: a negative one becomes zero.
pub(super) fn duration(text: &str) -> Result<Duration, DurationError> {
    Ok(Duration::from_nanos(u64::try_from(parse_duration(text)?).unwrap_or(0)))
}

/// A duration; none if it is zero or negative.
pub(super) fn optional_duration(text: &str) -> Result<Option<Duration>, DurationError> {
    Ok(Some(duration(text)?).filter(|duration| !duration.is_zero()))
}

pub(super) fn quantity(text: &str) -> Result<Quantity, QuantityError> {
    Quantity::parse(text)
}

/// The older spelling `central` of `--enable-capacity`, from a release candidate's manifests.
pub(super) const CENTRAL: &str = "central";

/// `--enable-capacity`.
pub(super) fn capacity_switch(text: &str) -> Result<bool, NumError> {
    if text == CENTRAL { Ok(true) } else { parse_bool(text) }
}

/// Log levels by file pattern, as one `--vmodule` gives them.
pub(super) type Vmodule = Vec<(String, u32)>;

pub(super) fn vmodule(text: &str) -> Result<Vmodule, Refused> {
    text.split(',').filter(|item| !item.is_empty()).map(vmodule_item).collect()
}

fn vmodule_item(item: &str) -> Result<(String, u32), Refused> {
    let parts = item
        .split_once('=')
        .filter(|(file, level)| !file.is_empty() && !level.is_empty() && !level.contains('='));
    let (file, level) =
        parts.ok_or_else(|| format!("{} does not have the pattern=N format", quote(item)))?;
    let level = parse_decimal(level)
        .map_err(|why| format!("parsing verbosity in {}: {why}", quote(item)))?;
    Ok((file.to_owned(), level))
}

/// Labels, as one `--leader-election-labels` gives them.
pub(super) type Labels = BTreeMap<String, String>;

pub(super) fn labels(text: &str) -> Result<Labels, Refused> {
    let pair = |item: &str| {
        let pair = item.split_once(':').filter(|(_, value)| !value.contains(':'));
        pair.map(|(key, value)| (key.to_owned(), value.to_owned()))
            .ok_or_else(|| format!("malformed item in list of labels: {item}").into())
    };
    text.split(',').map(pair).collect()
}

pub(super) fn claim_protection(text: &str) -> Result<ClaimProtection, Refused> {
    match text {
        "auto" => Ok(ClaimProtection::Auto),
        "always" => Ok(ClaimProtection::Always),
        "off" => Ok(ClaimProtection::Off),
        _ => Err("must be auto, always or off".into()),
    }
}
