//! The claims that wait now, and why.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Event;

use super::finding::{Finding, Severity};
use csi_provisioner::{
    controller::{
        claims::{plan::waits_for_a_node, record_status},
        ownership::{ProvisionerIdentity, class_of_claim},
    },
    kube::objects::{Claim, StorageClass, View as _},
};

use crate::objects::last_time;

/// How many claims are listed by name.
pub(super) const LISTED: usize = 20;

/// Why a claim has no volume yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Waiting {
    OpenCall,
    Deleted,
    NoClass,
    ClassGone,
    OtherClass,
    NoConsumer,
    Provisioning,
}

impl Waiting {
    /// Whether the claim's events say more.
    pub(super) fn has_events(self) -> bool {
        self == Self::Provisioning
    }

    /// In words.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::OpenCall => "has the record of an open call, which is followed to its end",
            Self::Deleted => "is being deleted: gets no volume here, unless a call is open",
            Self::NoClass => "names no class: gets an event",
            Self::ClassGone => "its class does not exist: gets an event",
            Self::OtherClass => "its class is another provisioner's: gets an event",
            Self::NoConsumer => "no node is chosen: waits for a pod that uses it",
            Self::Provisioning => "is being provisioned, or fails",
        }
    }
}

/// Those of some unbound claims that are the driver's, with the reason, which they are sorted by.
pub(crate) fn waiting<'a>(
    identity: &ProvisionerIdentity,
    claims: &'a [Claim],
    classes: &[StorageClass],
) -> Vec<(Waiting, &'a Claim)> {
    let class = |claim: &Claim| classes.iter().find(|class| class.name() == class_of_claim(claim));
    let mut waiting: Vec<(Waiting, &Claim)> = claims
        .iter()
        .filter_map(|claim| Some((reason(identity, claim, class(claim))?, claim)))
        .collect();
    waiting.sort_by_key(|(why, claim)| (*why, claim.namespace(), claim.name()));
    waiting
}

/// The message of the last warning among some events.
pub(super) fn last_warning(events: &[Event]) -> Option<&str> {
    let warnings = events.iter().filter(|event| event.type_.as_deref() == Some("Warning"));
    warnings.max_by_key(|event| last_time(event))?.message.as_deref()
}

/// The findings about the waiting claims. `messages` has events by the claims' UIDs.
pub(super) fn findings(
    waiting: &[(Waiting, &Claim)],
    messages: &BTreeMap<String, String>,
) -> Vec<Finding> {
    let mut counts: BTreeMap<Waiting, usize> = BTreeMap::new();
    for (why, _) in waiting {
        *counts.entry(*why).or_default() += 1;
    }
    if counts.is_empty() {
        return vec![finding("none", "no claim of the driver waits")];
    }
    let counted =
        counts.into_iter().map(|(why, count)| finding(&format!("{count} in all"), why.text()));
    let listed = waiting.iter().take(LISTED).map(|(why, claim)| {
        let message = messages.get(claim.uid()).map_or_else(|| why.text(), String::as_str);
        finding(&format!("{}/{}", claim.namespace(), claim.name()), message)
    });
    counted.chain(listed).collect()
}

fn finding(subject: &str, text: &str) -> Finding {
    Finding::new("claims", Severity::Note, subject, text)
}

/// Why the unbound claim waits; `None` if another provisioner serves it.
fn reason(
    identity: &ProvisionerIdentity,
    claim: &Claim,
    class: Option<&StorageClass>,
) -> Option<Waiting> {
    let is_own_class = class.is_some_and(|class| identity.is_own_name(&class.provisioner));
    if !identity.is_for_driver(claim) && (identity.is_for_another(claim) || !is_own_class) {
        return None;
    }
    Some(if record_status::read(claim).is_some() {
        Waiting::OpenCall
    } else if claim.is_terminating() {
        Waiting::Deleted
    } else if class_of_claim(claim).is_empty() {
        Waiting::NoClass
    } else if class.is_none() {
        Waiting::ClassGone
    } else if !is_own_class {
        Waiting::OtherClass
    } else if class.is_some_and(|class| waits_for_a_node(claim, class)) {
        Waiting::NoConsumer
    } else {
        Waiting::Provisioning
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const DRIVER: &str = "d.example.com";

    fn identity() -> ProvisionerIdentity {
        ProvisionerIdentity::of_driver(DRIVER)
    }

    fn claim(name: &str, class: &str, annotations: &Value) -> Claim {
        let metadata = json!({"namespace": "ns", "name": name, "annotations": annotations});
        let spec = json!({"storageClassName": class});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    fn class(name: &str, provisioner: &str, mode: &str) -> StorageClass {
        serde_json::from_value(json!({
            "metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode,
        }))
        .unwrap()
    }

    fn classes() -> Vec<StorageClass> {
        vec![
            class("now", DRIVER, "Immediate"),
            class("late", DRIVER, "WaitForFirstConsumer"),
            class("other", "o.example.com", "Immediate"),
        ]
    }

    #[test]
    fn a_claim_waits_for_the_first_reason_that_holds() {
        let ours = json!({"volume.kubernetes.io/storage-provisioner": DRIVER});
        let chosen = json!({"volume.kubernetes.io/storage-provisioner": DRIVER,
                            "volume.kubernetes.io/selected-node": "n"});
        let theirs = json!({"volume.kubernetes.io/storage-provisioner": "o.example.com"});
        for (name, annotations, expected) in [
            ("now", &ours, Some(Waiting::Provisioning)),
            ("now", &json!({}), Some(Waiting::Provisioning)),
            ("now", &theirs, None),
            ("late", &json!({}), Some(Waiting::NoConsumer)),
            ("late", &chosen, Some(Waiting::Provisioning)),
            ("other", &ours, Some(Waiting::OtherClass)),
            ("other", &json!({}), None),
            ("gone", &ours, Some(Waiting::ClassGone)),
            ("gone", &json!({}), None),
            ("", &ours, Some(Waiting::NoClass)),
        ] {
            let classes = classes();
            let class = classes.iter().find(|class| class.name() == name);
            let found = reason(&identity(), &claim("a", name, annotations), class);
            assert_eq!(found, expected, "{name} {annotations}");
        }
    }

    #[test]
    fn all_are_counted_and_some_are_listed() {
        let mut claims: Vec<Claim> =
            (0..50).map(|n| claim(&format!("c{n:02}"), "now", &json!({}))).collect();
        claims[1].metadata.uid = Some("u".into());
        let messages = BTreeMap::from([("u".to_owned(), "no space".to_owned())]);
        let found = findings(&waiting(&identity(), &claims, &classes()), &messages);
        assert_eq!((found.len(), found[0].subject.as_str()), (1 + LISTED, "50 in all"));
        assert_eq!((found[2].subject.as_str(), found[2].text.as_str()), ("ns/c01", "no space"));
        assert_eq!(findings(&[], &messages)[0].subject, "none");
    }
}
