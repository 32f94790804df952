//! Objects as the tables kubectl prints.
//!
//! Owns the columns of each kind (`columns`) and the making of a `meta.k8s.io/v1` Table from
//! objects. Promises the column names, order and priorities of
//! kube-apiserver's printers for the kinds listed there, and NAME and AGE for all others. Pure:
//! ages are counted from the time passed in. Leaves to the verbs when a client wants a table.

mod columns;

use jiff::Timestamp;
use serde_json::{Value, json};

use std::sync::Arc;

use self::columns::{Column, columns};
use super::{WallClock, hooks::Tables, object::Object, resources::Kind, tree};

/// Makes tables; the clock is for ages.
#[derive(Clone)]
pub(super) struct Printer {
    clock: WallClock,
}

impl Printer {
    /// A printer whose ages are counted by `clock`.
    pub(super) fn new(clock: WallClock) -> Self {
        Self { clock }
    }
}

impl Tables for Printer {
    fn table(&self, kind: &Kind, objects: &[Arc<Object>], metadata: Value) -> Value {
        let values = objects.iter().map(|object| object.value());
        table(kind, values, &metadata, (self.clock)())
    }
}

/// The Table of `objects` of `kind`, with a list's `metadata`.
///
/// Each row carries its whole object, where the real server by default leaves all but the metadata
/// out: what sorts by a field (`--sort-by`) asks for the whole one.
pub(super) fn table<'a>(
    kind: &Kind,
    objects: impl IntoIterator<Item = &'a Value>,
    metadata: &Value,
    now: Timestamp,
) -> Value {
    let columns = columns(kind);
    let rows: Vec<Value> =
        objects.into_iter().map(|object| row(kind, &columns, object, now)).collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": columns.iter().map(Column::definition).collect::<Vec<_>>(),
        "rows": rows,
    })
}

fn row(kind: &Kind, columns: &[Column], object: &Value, now: Timestamp) -> Value {
    let cells: Vec<Value> = columns.iter().map(|column| column.cell(object, now)).collect();
    json!({"cells": cells, "object": with_type(kind, object)})
}

/// An object may be stored without its type; in a row it has one.
fn with_type(kind: &Kind, object: &Value) -> Value {
    let mut object = object.clone();
    tree::set(&mut object, &["kind"], kind.kind.as_str().into());
    tree::set(&mut object, &["apiVersion"], kind.api_version().into());
    object
}

/// How long ago `stamp` was, as kubectl shows it: `5s`, `3m20s`, `2d4h`, `<unknown>`.
fn age(stamp: &str, now: Timestamp) -> String {
    stamp.parse::<Timestamp>().map_or_else(
        |_| "<unknown>".to_owned(),
        |then| human_duration(now.as_second() - then.as_second()),
    )
}

/// apimachinery's `HumanDuration`: two units at most, the finer one only while it is significant.
fn human_duration(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let years = days / 365;
    match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1..=0 => "0s".to_owned(),
        _ if seconds < 120 => format!("{seconds}s"),
        _ if minutes < 10 => two((minutes, 'm'), (seconds % 60, 's')),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two((hours, 'h'), (minutes % 60, 'm')),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 24 * 8 => two((days, 'd'), (hours % 24, 'h')),
        _ if days < 2 * 365 => format!("{days}d"),
        _ if days < 8 * 365 => two((years, 'y'), (days % 365, 'd')),
        _ => format!("{years}y"),
    }
}

fn two((coarse, unit): (i64, char), (fine, fine_unit): (i64, char)) -> String {
    if fine == 0 { format!("{coarse}{unit}") } else { format!("{coarse}{unit}{fine}{fine_unit}") }
}

#[cfg(test)]
mod tests;
