//! The status page in HTML: one page without outside resources, readable on a phone.
//!
//! Pure. Every text that is not written here passes `in_html`, which escapes it.

use std::fmt::Write as _;

use super::{
    Blocked, LastFailure, ListedClaim, ListedVolume, Next, Overview, Progress, QueueState, Status,
};
use crate::{
    controller::claims::state::Stage,
    plain_text::in_html as text,
    shadow::{self, ShadowReport},
};

const STYLE: &str = "\
body{font:16px/1.4 system-ui,sans-serif;margin:0 auto;padding:0 1em 2em;max-width:70em;color:#111;background:#fff}\
h1{font-size:1.4em}h2{font-size:1.1em;margin:1.5em 0 .3em}\
table{border-collapse:collapse;width:100%}\
th,td{text-align:left;vertical-align:top;padding:.3em .6em .3em 0;border-top:1px solid #ccc;overflow-wrap:anywhere}\
th{white-space:nowrap}.bad{color:#a00}\
@media(max-width:40em){.list thead{display:none}.list,.list tbody,.list tr,.list td{display:block}\
.list tr{border-top:1px solid #999;padding:.4em 0}.list td{border:0;padding:.1em 0}\
.list td:empty{display:none}.list td::before{content:attr(data-name) \": \";color:#666}}\
@media(prefers-color-scheme:dark){body{color:#ddd;background:#111}th,td{border-color:#444}.bad{color:#f88}}";

/// The page about this status.
pub(super) fn page(status: &Status) -> String {
    if let Some(report) = &status.shadow {
        return shadow(status, report);
    }
    let Overview { claims, volumes, queues } = &status.work;
    let mut page = head(status);
    page += &summary(status);
    page += &missing_rights(&status.missing_rights);
    page += &stages(status);
    page += &list(
        "Claims in work",
        &["claim", "class", "state", "age", "attempts", "last error", "next"],
        claims.listed.iter().map(claim),
        claims.more,
    );
    page += &list(
        "Volumes to delete",
        &["volume", "state", "attempt", "next"],
        volumes.listed.iter().map(volume),
        volumes.more,
    );
    page += &list("Queues", &["queue", "ready", "in work", "later"], queues.iter().map(queue), 0);
    page += FOOT;
    page
}

const FOOT: &str = "<p><a href=\"status.json\">The same as JSON</a></p>\n";

/// The page of shadow mode.
fn shadow(status: &Status, report: &ShadowReport) -> String {
    let total = |it: &shadow::Total| {
        [it.subject.words().to_owned(), it.agreement.words().to_owned(), it.count.to_string()]
    };
    let columns = ["object", "compared", "agreement", "reasons", "time"];
    let mut page = head(status);
    page += &summary(status);
    page += &list(
        "Shadow mode",
        &["compared", "agreement", "number"],
        report.totals.iter().map(total),
        0,
    );
    let waiting = format!(
        "{} claims wait for a volume, {} PersistentVolumes for their deletion; {} could not be kept.",
        report.waiting_claims, report.due_deletions, report.not_kept
    );
    // Writing to a string cannot fail.
    let _ = writeln!(page, "<p>{}</p>", text(&waiting));
    page += &list("What is not the same", &columns, report.rows.iter().map(shadow_row), 0);
    page += FOOT;
    page
}

fn shadow_row(row: &shadow::Row) -> [String; 5] {
    let agreement = match &row.row {
        Some(documented) => format!("{}: {documented}", row.agreement.words()),
        None => row.agreement.words().to_owned(),
    };
    let subject = row.subject.words().to_owned();
    [row.object.clone(), subject, agreement, row.reasons.join("; "), row.time.clone()]
}

fn head(status: &Status) -> String {
    let name = text(&status.driver.name);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>csi-provisioner: {name}</title>\n<style>{STYLE}</style>\n<h1>csi-provisioner: {name}</h1>\n"
    )
}

/// The facts about the process.
fn summary(status: &Status) -> String {
    let Status { version, time, driver, leader, not_ready, .. } = status;
    let connected = if driver.is_connected { "connected" } else { "not connected" };
    let leads = match (leader.leads, leader.lease.is_empty()) {
        _ if status.shadow.is_some() => "compares, and writes nothing".to_owned(),
        (_, true) => "works without leader election".to_owned(),
        (true, false) => format!("leads by the Lease {}", leader.lease),
        (false, false) => format!("stands by; the Lease {} names the leader", leader.lease),
    };
    let capabilities = [&driver.plugin_capabilities[..], &driver.controller_capabilities];
    let rows = [
        ("This process", format!("{} {leads}", leader.identity), false),
        ("Driver", format!("{}, {connected}", driver.name), !driver.is_connected),
        ("Capabilities", capabilities.concat().join(", "), false),
        ("Lists", not_ready.clone().unwrap_or_else(|| "complete".to_owned()), not_ready.is_some()),
        ("Version", version.clone(), false),
        ("Time", time.clone(), false),
    ];
    let row = |(name, value, is_bad): &(&str, String, bool)| {
        let class = if *is_bad { " class=\"bad\"" } else { "" };
        format!("<tr><th>{name}<td{class}>{}\n", text(value.trim()))
    };
    format!("<table>\n{}</table>\n", rows.iter().map(row).collect::<String>())
}

fn missing_rights(lacks: &[String]) -> String {
    if lacks.is_empty() {
        return String::new();
    }
    let item = |lack: &String| format!("<li class=\"bad\">{}\n", text(lack));
    let items: String = lacks.iter().map(item).collect();
    format!("<h2>Missing permissions</h2>\n<ul>\n{items}</ul>\n")
}

/// The number of claims in each stage.
fn stages(status: &Status) -> String {
    let counts = status.work.claims.by_stage.iter();
    let counts: Vec<_> =
        counts.map(|(stage, count)| format!("{count} {}", words(*stage))).collect();
    let counts = if counts.is_empty() { "none".to_owned() } else { counts.join(", ") };
    format!("<h2>Claims</h2>\n<p>{}</p>\n", text(&counts))
}

/// A stage in words.
fn words(stage: Stage) -> &'static str {
    match stage {
        Stage::Waiting => "without an open call",
        Stage::Recorded => "with a call of an earlier process",
        Stage::InFlight => "with a running call",
        Stage::Background => "with a call of unknown outcome",
        Stage::Saving => "whose PersistentVolume is being saved",
        Stage::PvGone => "whose PersistentVolume is gone",
        Stage::Unusable => "with an unusable volume to remove",
        Stage::SuspectedLeak => "with a suspected leak",
        Stage::Done => "done",
    }
}

/// A table with these columns, with a heading; nothing if there are no rows.
fn list<const N: usize>(
    heading: &str,
    columns: &[&str; N],
    rows: impl Iterator<Item = [String; N]>,
    more: usize,
) -> String {
    let cell =
        |(name, value): (&&str, &String)| format!("<td data-name=\"{name}\">{}", text(value));
    let row = |row: [String; N]| {
        let cells: String = columns.iter().zip(&row).map(cell).collect();
        format!("<tr>{cells}\n")
    };
    let rows: String = rows.map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let head = columns.join("<th>");
    let heading = text(heading);
    let mut list = format!(
        "<h2>{heading}</h2>\n<table class=\"list\">\n<thead><tr><th>{head}</thead>\n<tbody>\n{rows}</tbody></table>\n"
    );
    if more > 0 {
        // Writing to a string cannot fail.
        let _ = writeln!(list, "<p>{more} more are not listed.</p>");
    }
    list
}

fn claim(claim: &ListedClaim) -> [String; 7] {
    let deleted = if claim.is_deleted { ", being deleted" } else { "" };
    [
        format!("{}/{}", claim.namespace, claim.name),
        claim.class.clone(),
        format!("{}{deleted}", words(claim.stage)),
        duration(claim.age_seconds),
        claim.attempts.to_string(),
        trouble(claim),
        next(claim.next),
    ]
}

/// Why the claim has no volume yet.
fn trouble(claim: &ListedClaim) -> String {
    match (&claim.last_failure, &claim.blocked) {
        (Some(LastFailure { message, seconds_ago, .. }), _) => {
            format!("{message} ({} ago)", duration(*seconds_ago))
        }
        (None, Some(Blocked { reason, seconds })) => {
            format!("{reason} (for {})", duration(*seconds))
        }
        (None, None) => String::new(),
    }
}

fn volume(volume: &ListedVolume) -> [String; 4] {
    let progress = match volume.progress {
        Progress::Pending => "to be deleted",
        Progress::Attached => "still attached",
        Progress::DeletedAtDriver => "deleted at the driver",
    };
    let attempt = volume.attempt.to_string();
    [volume.name.clone(), progress.to_owned(), attempt, next(volume.next)]
}

fn queue(queue: &QueueState) -> [String; 4] {
    let QueueState { name, ready, processing, delayed } = queue;
    [name.clone(), ready.to_string(), processing.to_string(), delayed.to_string()]
}

/// When an item is worked on next.
fn next(next: Next) -> String {
    match next {
        Next::OnChange => "when something changes".to_owned(),
        Next::Later { seconds } => format!("in {}", duration(seconds)),
        Next::Queued => "as soon as a worker is free".to_owned(),
        Next::Now { seconds } => format!("now, since {}", duration(seconds)),
    }
}

/// A duration in its two largest units.
pub(crate) fn duration(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m{:02}s", seconds % 60),
        3600..86_400 => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}
