//! The status as a table for a terminal. Pure.
//!
//! What fails comes first, then what waits. Every text that others wrote is escaped and cut.

use std::fmt::Write as _;

use csi_provisioner::{
    controller::model::overview::Stage,
    plain_text::{cut, escaped},
    status::{Blocked, LastCalls, LastFailure, ListedClaim, ListedVolume, Status},
};

use super::Shown;
use crate::{
    duration::{duration, when},
    subcommand,
};

/// The longest text of a driver that is shown, in bytes: a line of a wide terminal.
const MAX_TEXT: usize = 160;

/// The most claims without a pod that are listed.
const MAX_WAITING: usize = 20;

/// The table of this status.
pub(super) fn text(shown: &Shown) -> String {
    let Shown { status, without_consumer, unlisted } = shown;
    let mut text = head(status);
    let (claims, volumes) = (&status.work.claims, &status.work.volumes);
    text += &missing_permissions(&status.missing_permissions);
    let counts = claims.by_stage.iter().map(|(stage, count)| format!("{count} {}", words(*stage)));
    let counts = counts.collect::<Vec<_>>().join(", ");
    if !counts.is_empty() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\nClaims: {counts}");
    }
    let columns = ["CLAIM", "CLASS", "STATE", "AGE", "ATTEMPTS", "NEXT", "WHY"];
    text += &table(&columns, claims.listed.iter().map(claim), claims.more);
    let waiting = without_consumer.as_deref().unwrap_or_default();
    let row = |claim: &String| [claim.clone(), "until a pod uses it".to_owned()];
    let more = waiting.len().saturating_sub(MAX_WAITING);
    text += &table(&["CLAIM", "WAITS"], waiting.iter().take(MAX_WAITING).map(row), more);
    if let Some(why) = unlisted {
        let _ = writeln!(text, "\nClaims that wait for a pod cannot be read: {}", escaped(why));
    }
    let columns = ["VOLUME TO DELETE", "STATE", "ATTEMPT", "NEXT", "WHY"];
    text += &table(&columns, volumes.listed.iter().map(volume), volumes.more);
    text
}

/// The facts about the process.
fn head(status: &Status) -> String {
    let leader = &status.leader;
    let leads = match (leader.leads, leader.lease.as_str()) {
        (_, "") => "works without leader election".to_owned(),
        (true, lease) => format!("leads by the Lease {lease}"),
        (false, lease) => format!("stands by; the Lease {lease} names the leader"),
    };
    let rows = [
        ("Process", format!("{} {leads}", leader.identity)),
        ("Driver", driver(status)),
        ("Lists", status.not_ready.clone().unwrap_or_else(|| "complete".to_owned())),
        ("Version", status.version.clone()),
        ("Time", status.time.clone()),
    ];
    let row = |(name, value): &(&str, String)| format!("{name:9}{}\n", shown(value.trim()));
    rows.iter().map(row).collect()
}

/// The driver's connection, and how it answered last.
fn driver(status: &Status) -> String {
    let connected = if status.driver.is_connected { "connected" } else { "not connected" };
    let LastCalls { answered_seconds_ago, failure } = &status.driver.last_calls;
    let mut text = format!("{}, {connected}", status.driver.name);
    // Writing to a string cannot fail.
    if let Some(seconds) = answered_seconds_ago {
        let _ = write!(text, "; last success {} ago", duration(*seconds));
    }
    if let Some(LastFailure { code, message, seconds_ago }) = failure {
        let _ = write!(text, "; last failure {} ago, {code}: {message}", duration(*seconds_ago));
    }
    text
}

fn missing_permissions(permissions: &[String]) -> String {
    let mut text = String::new();
    for (index, permission) in permissions.iter().enumerate() {
        if index == 0 {
            text += "\nMissing permissions:\n";
        }
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {}", escaped(permission));
    }
    text
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

fn claim(claim: &ListedClaim) -> [String; 7] {
    let deleted = if claim.is_deleted { ", being deleted" } else { "" };
    [
        format!("{}/{}", claim.namespace, claim.name),
        claim.class.clone(),
        format!("{}{deleted}", words(claim.stage)),
        duration(claim.age_seconds),
        claim.attempts.to_string(),
        when(claim.next),
        why(claim.last_failure.as_ref(), claim.blocked.as_ref()),
    ]
}

/// Why there is no volume yet, or still one.
fn why(failure: Option<&LastFailure>, blocked: Option<&Blocked>) -> String {
    match (failure, blocked) {
        (Some(LastFailure { message, seconds_ago, .. }), _) => {
            format!("{} ago: {message}", duration(*seconds_ago))
        }
        (None, Some(Blocked { reason, seconds })) => {
            format!("for {}: {reason}", duration(*seconds))
        }
        (None, None) => String::new(),
    }
}

fn volume(volume: &ListedVolume) -> [String; 5] {
    let state = if volume.is_deleted_at_driver { "deleted at the driver" } else { "to be deleted" };
    let why = why(volume.last_failure.as_ref(), None);
    let attempt = volume.attempt.to_string();
    [volume.name.clone(), state.to_owned(), attempt, when(volume.next), why]
}

/// A text of others: on one line, escaped and cut.
fn shown(text: &str) -> String {
    escaped(&cut(text, MAX_TEXT)).to_string()
}

/// A table with these columns, and how many rows it lacks; nothing if it has no rows.
fn table<const N: usize>(
    columns: &[&str; N],
    rows: impl Iterator<Item = [String; N]>,
    more: usize,
) -> String {
    let rows: Vec<_> = rows.map(|row| row.map(|cell| shown(&cell))).collect();
    if rows.is_empty() {
        return String::new();
    }
    let more = match more {
        0 => String::new(),
        more => format!("{more} more are not listed.\n"),
    };
    format!("\n{}{more}", subcommand::table(columns, rows))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use csi_provisioner::{
        plain_text::is_odd,
        status::{Claims, DriverStatus, LeaderStatus, Overview, Place, Volumes},
    };

    use super::*;

    fn text(status: Status) -> String {
        let without_consumer = Some(vec!["shop/cache".into()]);
        super::text(&Shown { status, without_consumer, unlisted: None })
    }

    #[test]
    fn what_may_not_be_read_is_said_beside_the_rest() {
        let unlisted = || Some("claims is\u{1b} forbidden".to_owned());
        for (status, beside) in
            [(status(), "shop/data"), (Status::default(), "works without leader election")]
        {
            let shown = Shown { status, without_consumer: None, unlisted: unlisted() };
            let text = super::text(&shown);
            assert!(text.contains(r"pod cannot be read: claims is\u{1b} forbidden"), "{text}");
            assert!(text.contains(beside), "{text}");
        }
    }

    fn status() -> Status {
        let failure = |message: &str| LastFailure {
            code: "Internal".into(),
            message: message.into(),
            seconds_ago: 5,
        };
        let claim = ListedClaim {
            namespace: "shop".into(),
            name: "data".into(),
            class: "fast".into(),
            age_seconds: 125,
            attempts: 3,
            last_failure: Some(failure("rpc error: code = Internal desc = no")),
            next: Place::Delayed { seconds: 90 },
            ..ListedClaim::default()
        };
        let volume = ListedVolume {
            name: "pv-1".into(),
            attempt: 7,
            last_failure: Some(failure("has clones")),
            ..ListedVolume::default()
        };
        let by_stage = BTreeMap::from([(Stage::Waiting, 1), (Stage::InFlight, 2)]);
        let claims = Claims { by_stage, listed: vec![claim], more: 4 };
        let volumes = Volumes { listed: vec![volume], more: 0 };
        Status {
            version: "v0".into(),
            driver: DriverStatus {
                name: "d.example.com".into(),
                last_calls: LastCalls {
                    answered_seconds_ago: Some(61),
                    failure: Some(failure("full")),
                },
                ..DriverStatus::default()
            },
            leader: LeaderStatus { leads: true, identity: "pod".into(), lease: "csi/d".into() },
            missing_permissions: vec!["lacks this".into()],
            work: Overview { claims, volumes },
            ..Status::default()
        }
    }

    #[test]
    fn the_table_shows_what_there_is() {
        let text = text(status());
        for part in [
            "Process  pod leads by the Lease csi/d\n",
            "d.example.com, not connected; last success 1m01s ago; last failure 5s ago, Internal: full\n",
            "Claims: 1 without an open call, 2 with a running call\n",
            "CLAIM      CLASS  STATE                 AGE    ATTEMPTS  NEXT      WHY\n",
            "shop/data  fast   without an open call  2m05s  3         in 1m30s  5s ago: rpc error",
            "4 more are not listed.\n",
            "shop/cache  until a pod uses it\n",
            "Missing permissions:\n  lacks this\n",
            "pv-1              to be deleted  7        when something changes  5s ago: has clones\n",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }

    #[test]
    fn texts_of_others_are_escaped_and_cut() {
        let odd = format!("\u{1b}[2J\u{202e}{}", "x".repeat(2000));
        let mut status = status();
        let claim = &mut status.work.claims.listed[0];
        for text in [&mut claim.namespace, &mut claim.name, &mut claim.class] {
            odd.clone_into(text);
        }
        let failure = LastFailure { message: odd.clone(), ..LastFailure::default() };
        claim.last_failure = Some(failure.clone());
        status.driver.last_calls.failure = Some(failure);
        status.driver.name.clone_from(&odd);
        status.not_ready = Some(odd.clone());
        status.missing_permissions = vec![odd];
        let text = text(status);
        assert!(!text.chars().any(|c| c != '\n' && is_odd(c)), "{text}");
    }
}
