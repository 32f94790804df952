//! A claim's status as external-provisioner prints it: Go's `%v` of the whole structure.
//!
//! Users see this text in events about sources that are not Bound. It equals Go's where Go's is
//! deterministic; where Go prints a memory address, a constant is printed. Pure.

use std::{collections::BTreeMap, fmt};

use go_fmt::quantity::Quantity;
use k8s_openapi::{
    api::core::v1::{
        ModifyVolumeStatus, PersistentVolumeClaimCondition, PersistentVolumeClaimStatus,
    },
    apimachinery::pkg::{api::resource, apis::meta::v1::Time},
};

/// Prints a status as Go does.
pub(super) struct ClaimStatusText<'a>(pub(super) &'a PersistentVolumeClaimStatus);

impl fmt::Display for ClaimStatusText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PersistentVolumeClaimStatus {
            phase,
            access_modes,
            capacity,
            conditions,
            allocated_resources,
            allocated_resource_statuses,
            current_volume_attributes_class_name,
            modify_volume_status,
        } = self.0;
        let conditions: Vec<String> = conditions.iter().flatten().map(condition).collect();
        write!(
            f,
            "{{{} {} {} {} {} {} {} {}}}",
            text(phase.as_ref()),
            list(access_modes.as_deref().unwrap_or_default()),
            map(capacity.as_ref(), |resource::Quantity(text)| quantity(text)),
            list(&conditions),
            map(allocated_resources.as_ref(), |resource::Quantity(text)| quantity(text)),
            map(allocated_resource_statuses.as_ref(), String::clone),
            // Go prints the pointer's address.
            current_volume_attributes_class_name.as_deref().unwrap_or("<nil>"),
            modify_volume_status.as_ref().map_or_else(|| "nil".to_owned(), modification),
        )
    }
}

fn list(items: &[String]) -> String {
    format!("[{}]", items.join(" "))
}

fn map<V>(items: Option<&BTreeMap<String, V>>, value: impl Fn(&V) -> String) -> String {
    let items = items.into_iter().flatten();
    let items: Vec<String> = items.map(|(key, v)| format!("{key}:{}", value(v))).collect();
    format!("map{}", list(&items))
}

fn text(text: Option<&String>) -> &str {
    text.map_or("", String::as_str)
}

fn condition(condition: &PersistentVolumeClaimCondition) -> String {
    let PersistentVolumeClaimCondition {
        type_: kind,
        status,
        last_probe_time,
        last_transition_time,
        reason,
        message,
    } = condition;
    let (probed, changed) = (time(last_probe_time.as_ref()), time(last_transition_time.as_ref()));
    let (reason, message) = (text(reason.as_ref()), text(message.as_ref()));
    format!("{{{kind} {status} {probed} {changed} {reason} {message}}}")
}

/// A timestamp in UTC, the time zone of containers; Go's zero time is year 1.
fn time(time: Option<&Time>) -> String {
    let time = time.map(|time| time.0.strftime("%Y-%m-%d %H:%M:%S +0000 UTC").to_string());
    time.unwrap_or_else(|| "0001-01-01 00:00:00 +0000 UTC".to_owned())
}

fn modification(status: &ModifyVolumeStatus) -> String {
    let ModifyVolumeStatus { target_volume_attributes_class_name: target, status } = status;
    let target = text(target.as_ref());
    format!("&ModifyVolumeStatus{{TargetVolumeAttributesClassName:{target},Status:{status},}}")
}

/// A quantity: number and power of ten, the big-number form (never needed here), the cached text,
/// and the format.
fn quantity(text: &str) -> String {
    let Ok(quantity) = Quantity::parse(text) else { return text.to_owned() };
    let kept = if text == "0" { text } else { quantity.verbatim().unwrap_or_default() };
    let (number, power, format) = parts(text).unwrap_or_else(|| (quantity.value(), 0, "DecimalSI"));
    format!("{{{{{number} {power}}} {{<nil>}} {kept} {format}}}")
}

/// The parts of a whole number with a suffix, the usual form of sizes; other forms print their
/// value.
fn parts(text: &str) -> Option<(i64, u32, &'static str)> {
    let (number, suffix) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let number: i64 = number.parse().ok()?;
    if let Some(power) = ["k", "M", "G", "T", "P", "E"].iter().position(|&s| s == suffix) {
        return Some((number, 3 * (u32::try_from(power).ok()? + 1), "DecimalSI"));
    }
    let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|&s| s == suffix)?;
    let factor = 1_i64.checked_shl(10 * (u32::try_from(binary).ok()? + 1))?;
    Some((number.checked_mul(factor)?, 0, "BinarySI"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn printed(status: Value) -> String {
        ClaimStatusText(&serde_json::from_value(status).unwrap()).to_string()
    }

    #[test]
    fn a_status_prints_as_in_go() {
        let bare = "{Pending [] map[] [] map[] map[] <nil> nil}";
        assert_eq!(printed(json!({"phase": "Pending"})), bare);
        let lost = json!({
            "phase": "Lost", "accessModes": ["ReadWriteOnce", "ReadOnlyMany"], "capacity": {"storage": "1Gi"},
            "conditions": [{"type": "FileSystemResizePending", "status": "True"}],
        });
        assert_eq!(
            printed(lost),
            "{Lost [ReadWriteOnce ReadOnlyMany] map[storage:{{1073741824 0} {<nil>} 1Gi BinarySI}] \
             [{FileSystemResizePending True 0001-01-01 00:00:00 +0000 UTC 0001-01-01 00:00:00 +0000 UTC  }] \
             map[] map[] <nil> nil}"
        );
        let modified = json!({
            "phase": "Lost", "allocatedResources": {"storage": "2G"}, "allocatedResourceStatuses": {"storage": "NodeResizePending"},
            "conditions": [{"type": "Resizing", "status": "False", "lastTransitionTime": "2026-01-02T03:04:05Z", "reason": "r", "message": "m n"}],
            "currentVolumeAttributesClassName": "silver",
            "modifyVolumeStatus": {"targetVolumeAttributesClassName": "gold", "status": "InProgress"},
        });
        assert_eq!(
            printed(modified),
            "{Lost [] map[] [{Resizing False 0001-01-01 00:00:00 +0000 UTC 2026-01-02 03:04:05 +0000 UTC r m n}] \
             map[storage:{{2 9} {<nil>} 2G DecimalSI}] map[storage:NodeResizePending] silver \
             &ModifyVolumeStatus{TargetVolumeAttributesClassName:gold,Status:InProgress,}}"
        );
    }

    #[test]
    fn a_quantity_keeps_its_text_where_go_keeps_it() {
        for (text, expected) in [
            ("0", "{{0 0} {<nil>} 0 DecimalSI}"),
            ("1Gi", "{{1073741824 0} {<nil>} 1Gi BinarySI}"),
            // A multiple of eight may have a shorter form.
            ("8Gi", "{{8589934592 0} {<nil>}  BinarySI}"),
            ("5k", "{{5 3} {<nil>} 5k DecimalSI}"),
            ("3000M", "{{3000 6} {<nil>}  DecimalSI}"),
            ("1500000001", "{{1500000001 0} {<nil>} 1500000001 DecimalSI}"),
            ("9999Ei", "{{9223372036854775807 0} {<nil>}  DecimalSI}"),
            ("odd", "odd"),
        ] {
            assert_eq!(quantity(text), expected, "{text}");
        }
    }
}
