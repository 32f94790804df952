//! What is written on a claim about its open request.
//!
//! Owns the record's form (one line of JSON in an annotation) and rebuilding a request from it
//! (safety rule 4). The annotation is the user's to edit, so nothing in it is believed that a
//! claim's user could not ask for anyhow: class and size come from the claim and the cluster, a
//! volume name must be made of the claim's own UID, and what is recorded of the class only tells
//! whether the one that stands is the one that was asked with. The source's handle is passed on as
//! hearsay ([`PinnedSource::Recorded`]). Never holds a secret, nor
//! anything of a class's content. Whatever stands there, reading it neither fails nor loses the call.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    controller::{
        ownership::{self, Identity},
        provisioner::{Failure, Order},
        source::{PinnedSource, Source},
        topology::Recorded,
    },
    kube_api::views::{Claim, StorageClass, View as _},
};

/// More than this is not written: annotations of one object share 256 KiB.
pub const MAX_BYTES: usize = 8 * 1024;

const RETAIN: &str = "Retain";

/// A UID cut shorter than this may be another claim's as well.
const LEAST_DIGITS: usize = 8;

/// An open request, as a claim carries it. What a record lacks, or does not say readably, is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Record {
    /// The driver that was asked.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver: String,
    /// The volume's name: the PersistentVolume's, and the one that the driver was told.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub volume: String,
    /// The node that the scheduler had chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The class by name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub class: String,
    /// The class's UID.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub class_uid: String,
    /// Whether the class said that volumes are kept (safety rule 9).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub retain: bool,
    /// What the volume is made from.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "readable")]
    pub source: Option<Source>,
    /// Where the volume is asked to be, for drivers that know of places.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "readable")]
    pub topology: Option<Box<Recorded>>,
    /// Tells the request from others, without saying anything of it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// When it was recorded, in RFC 3339.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub since: String,
}

impl Record {
    /// The record of `order`, asked of `driver`.
    pub fn of(order: &Order, driver: &str, now: jiff::Timestamp) -> Self {
        let mut record = Self {
            driver: driver.to_owned(),
            volume: order.volume_name.clone().unwrap_or_default(),
            node: order.selected_node.clone(),
            class: order.class.name().to_owned(),
            class_uid: order.class.uid().to_owned(),
            retain: order.class.reclaim_policy.as_deref() == Some(RETAIN),
            source: order.source.as_ref().map(|pinned| pinned.source().clone()),
            topology: order.topology.as_ref().map(|pinned| Box::new(pinned.record())),
            digest: digest(order),
            since: now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        };
        if record.encode().is_none() {
            record.topology = record.topology.map(|recorded| Box::new(recorded.shortened()));
        }
        record
    }

    /// The record as it is written; `None` where it would be too long.
    pub fn encode(&self) -> Option<String> {
        serde_json::to_string(self).ok().filter(|text| text.len() <= MAX_BYTES)
    }

    /// Reads a record; what is no record at all, or too long for one, reads as an empty one.
    pub fn decode(text: &str) -> Self {
        if text.len() > MAX_BYTES {
            return Self::default();
        }
        serde_json::from_str(text).unwrap_or_default()
    }

    /// Whether both are of the same request, whenever they were written.
    pub fn is_same_request(&self, other: &Self) -> bool {
        let undated = |record: &Self| Self { since: String::new(), ..record.clone() };
        undated(self) == undated(other)
    }

    /// Whether another than `identity` made the request and follows it: another driver's
    /// provisioner, or that of another node.
    pub fn is_anothers(&self, identity: &Identity) -> bool {
        let other_node = |node: &String| identity.node.as_ref().is_some_and(|own| own != node);
        let other_driver = !self.driver.is_empty() && self.driver != identity.driver;
        other_driver || self.node.as_ref().is_some_and(other_node)
    }

    /// The volume's name, where it can only be that of the claim with this UID.
    pub fn volume_of(&self, uid: &str) -> Option<&str> {
        Some(self.volume.as_str()).filter(|name| is_made_of(name, uid))
    }
}

/// Reads a part of a record; one that says nothing readable is none.
fn readable<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(T::deserialize(value).ok())
}

/// Whether the name ends in a dash and the UID, or enough of its digits: a name of our making,
/// under whatever `--volume-name-prefix` and `--volume-name-uuid-length` it was.
fn is_made_of(name: &str, uid: &str) -> bool {
    if uid.is_empty() {
        return false;
    }
    if name.strip_suffix(uid).is_some_and(|rest| rest.len() > 1 && rest.ends_with('-')) {
        return true;
    }
    let Some((prefix, part)) = name.rsplit_once('-') else { return false };
    !prefix.is_empty() && part.len() >= LEAST_DIGITS && uid.replace('-', "").starts_with(part)
}

/// Rebuilds the recorded request for `claim`. `class` is the class of the claim's class name, as
/// it stands, and `volume_name` the name that the claim would get now.
///
/// # Errors
/// The class is gone, or another has its name: the same request can't be made. The text tells the
/// claim's user.
pub fn reopen(
    record: &Record,
    claim: &Arc<Claim>,
    class: Option<Arc<StorageClass>>,
    volume_name: Result<String, Failure>,
) -> Result<Order, String> {
    let named = ownership::class_of_claim(claim);
    let gone = |what: &str| {
        let volume = &record.volume;
        format!(
            "an earlier CreateVolume for this claim may still run, and its storage class {named:?} {what}: restore the class, and the call is followed to its end; or delete the claim, and look for the volume {volume:?} at the driver by hand"
        )
    };
    let class = class.ok_or_else(|| gone("is gone"))?;
    let mut order = Order {
        claim: Arc::clone(claim),
        selected_node: ownership::selected_node(claim).map(str::to_owned),
        volume_name,
        class,
        source: None,
        topology: None,
    };
    let now = order.volume_name.as_deref().unwrap_or_default();
    let Some(name) =
        record.volume_of(claim.uid()).or_else(|| Some(now).filter(|now| *now == record.volume))
    else {
        // Lost, or another claim's: restored with the claim from a backup, or forged.
        return Ok(order);
    };
    order.volume_name = Ok(name.to_owned());
    order.selected_node.clone_from(&record.node);
    order.source = record.source.clone().map(PinnedSource::Recorded);
    order.topology = record.topology.clone().map(|recorded| Arc::new(recorded.pinned()));
    // A class that was made again just as it was serves as well.
    let same_class = record.class_uid.is_empty()
        || record.class_uid == order.class.uid()
        || record.digest == digest(&order);
    if !same_class {
        return Err(gone("was replaced by another"));
    }
    if record.retain {
        Arc::make_mut(&mut order.class).reclaim_policy = Some(RETAIN.to_owned());
    }
    Ok(order)
}

/// A digest of what makes a request what it is, but for its secrets. Flags that shape a request
/// are not in it: nobody could give them back.
fn digest(order: &Order) -> String {
    let (claim, class) = (&*order.claim, &*order.class);
    let mut digest = Fnv::new();
    digest.text(claim.uid());
    digest.text(order.volume_name.as_deref().unwrap_or_default());
    digest.text(order.selected_node.as_deref().unwrap_or_default());
    digest.text(claim.spec.volume_mode.as_deref().unwrap_or_default());
    digest.texts(&claim.spec.access_modes);
    digest.text(&class.provisioner);
    digest.texts(&class.mount_options);
    for (key, value) in &class.parameters {
        digest.text(key);
        digest.text(value);
    }
    digest.finish()
}

/// FNV-1a over texts, each with its length: the same in every release, unlike the standard
/// library's hashes.
pub(in crate::controller) struct Fnv(u64);

impl Fnv {
    pub(in crate::controller) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(in crate::controller) fn text(&mut self, text: &str) {
        let length = (text.len() as u64).to_le_bytes();
        for byte in length.into_iter().chain(text.bytes()) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn texts(&mut self, texts: &[String]) {
        for text in texts {
            self.text(text);
        }
    }

    pub(in crate::controller) fn finish(&self) -> String {
        format!("{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::controller::{
        source::SourceKind,
        topology::{Pinned, Requirement},
    };

    const UID: &str = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";

    fn claim() -> Arc<Claim> {
        let claim = json!({"metadata": {"namespace": "ns", "name": "c", "uid": UID}, "spec": {"storageClassName": "fast"}});
        Arc::new(serde_json::from_value(claim).unwrap())
    }

    fn class(uid: &str, pool: &str) -> Arc<StorageClass> {
        let class = json!({"metadata": {"name": "fast", "uid": uid}, "provisioner": "d", "parameters": {"pool": pool}});
        Arc::new(serde_json::from_value(class).unwrap())
    }

    fn order() -> Order {
        Order {
            claim: claim(),
            class: class("class-1", "hdd"),
            volume_name: Ok(format!("old-{UID}")),
            selected_node: Some("node-1".into()),
            source: None,
            topology: None,
        }
    }

    fn source() -> Source {
        let text = |text: &str| text.to_owned();
        Source {
            kind: SourceKind::Snapshot,
            namespace: text("ns"),
            name: text("s"),
            uid: text("u"),
            handle: text("h"),
        }
    }

    fn record() -> Record {
        Record::of(&order(), "d", jiff::Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_record_says_what_was_asked_for_and_nothing_of_the_classs_content() {
        let text = record().encode().unwrap();
        let written: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(written["volume"], format!("old-{UID}"));
        assert_eq!((&written["class"], &written["classUid"]), (&json!("fast"), &json!("class-1")));
        assert_eq!((&written["node"], &written["driver"]), (&json!("node-1"), &json!("d")));
        assert_eq!(written["since"], "1970-01-01T00:00:00Z");
        assert!(!text.contains("hdd") && !text.contains("pool"), "{text}");
    }

    #[test]
    fn a_newer_an_older_and_a_garbled_record_are_read_as_far_as_they_go() {
        let newer = r#"{"driver": "d", "volume": "v", "topology": {"x": [1]}, "version": 7}"#;
        let expected = Record { driver: "d".into(), volume: "v".into(), ..Record::default() };
        assert_eq!(Record::decode(newer), expected);
        for garbled in ["", "null", "[]", "{", r#"{"volume": 7}"#, "\u{0}"] {
            assert_eq!(Record::decode(garbled), Record::default(), "{garbled:?}");
        }
        assert_eq!(Record::decode(&format!("{newer}{}", " ".repeat(MAX_BYTES))), Record::default());
    }

    #[test]
    fn the_longest_names_fit_and_what_does_not_fit_is_not_written() {
        let long = |length: usize| "x".repeat(length);
        let longest = Record {
            driver: long(63),
            volume: long(253),
            node: Some(long(253)),
            class: long(253),
            class_uid: long(36),
            ..record()
        };
        assert!(longest.encode().is_some_and(|text| text.len() < 1500));
        assert_eq!(Record { node: Some(long(MAX_BYTES)), ..record() }.encode(), None);
    }

    #[test]
    fn the_request_is_rebuilt_with_the_recorded_name_and_node() {
        let now = || Ok("new-name".to_owned());
        let again = reopen(&record(), &claim(), Some(class("class-1", "hdd")), now()).unwrap();
        assert_eq!(again.volume_name, order().volume_name);
        assert_eq!(again.selected_node.as_deref(), Some("node-1"));
        let unknown =
            reopen(&Record::default(), &claim(), Some(class("any", "any")), now()).unwrap();
        assert_eq!(unknown.volume_name, now(), "a lost record loses no call");
        let restored =
            Record { volume: "pvc-0f0f0f0f-4e5f-6071-8293-a4b5c6d7e8f9".into(), ..record() };
        let restored = reopen(&restored, &claim(), Some(class("any", "any")), now()).unwrap();
        assert_eq!(
            (restored.volume_name, restored.selected_node),
            (now(), None),
            "another claim's"
        );
    }

    fn zones(count: usize) -> Pinned {
        let zone = |n| [("topology.example.com/zone".to_owned(), format!("zone-{n}"))].into();
        Pinned::Asked(Requirement::new((0..count).map(zone).collect(), 1))
    }

    #[test]
    fn where_the_volume_is_asked_to_be_is_recorded_in_full_or_in_short() {
        for (pin, in_full) in [(zones(3), true), (Pinned::Asked(None), true), (zones(2000), false)]
        {
            let asked = Order { topology: Some(Arc::new(pin.clone())), ..order() };
            let record = Record::of(&asked, "d", jiff::Timestamp::UNIX_EPOCH);
            let read = Record::decode(&record.encode().unwrap());
            assert_eq!(read, record);
            let class = Some(class("class-1", "hdd"));
            let again = reopen(&read, &claim(), class, Ok("n".into())).unwrap().topology.unwrap();
            let Pinned::Asked(requirement) = &pin else { unreachable!() };
            assert!(again.holds(requirement.as_ref()) && (*again == pin) == in_full);
        }
    }

    #[test]
    fn the_source_is_recorded_and_what_a_record_says_of_it_is_known_to_be_hearsay() {
        let asked = Order { source: Some(PinnedSource::Asked(source())), ..order() };
        let record = Record::of(&asked, "d", jiff::Timestamp::UNIX_EPOCH);
        let text = record.encode().unwrap();
        assert!(text.contains(r#""source":{"kind":"snapshot","namespace":"ns""#), "{text}");
        let reopened = |record: &Record| {
            let now = Ok("n".to_owned());
            reopen(record, &claim(), Some(class("class-1", "hdd")), now).unwrap().source
        };
        assert_eq!(reopened(&Record::decode(&text)), Some(PinnedSource::Recorded(source())));
        let foreign = Record { volume: "pvc-other".into(), ..record };
        assert_eq!(reopened(&foreign), None, "nothing of a record that is not this claim's");
        assert_eq!(order().source, None);
        assert!(!self::record().encode().unwrap().contains("source"));
    }

    #[test]
    fn only_the_class_that_was_asked_with_serves() {
        let with = |class| reopen(&record(), &claim(), class, Ok("n".into())).map(drop);
        assert_eq!(with(Some(class("class-1", "hdd"))), Ok(()));
        assert_eq!(with(Some(class("class-2", "hdd"))), Ok(()), "made again as it was");
        assert!(with(Some(class("class-2", "ssd"))).unwrap_err().contains("replaced by another"));
        assert!(with(None).unwrap_err().contains("\"fast\" is gone"));
    }

    #[test]
    fn a_class_that_said_retain_is_not_forgotten_when_it_was_made_again() {
        let policy = |policy: &str| {
            let mut class = (*class("class-2", "hdd")).clone();
            class.reclaim_policy = Some(policy.into());
            Arc::new(class)
        };
        for (then, now, expected) in [
            ("Delete", "Delete", "Delete"),
            ("Retain", "Delete", "Retain"),
            ("Delete", "Retain", "Retain"),
        ] {
            let asked = Order { class: policy(then), ..order() };
            let record = Record::of(&asked, "d", jiff::Timestamp::UNIX_EPOCH);
            let again = reopen(&record, &claim(), Some(policy(now)), Ok("n".into())).unwrap();
            assert_eq!(again.class.reclaim_policy.as_deref(), Some(expected), "{then} {now}");
        }
    }

    #[test]
    fn a_volume_name_is_believed_only_if_it_is_made_of_the_claims_uid() {
        let table = [
            (format!("pvc-{UID}"), true),
            (format!("a-b-{UID}"), true),
            ("k8s-0a1b2c3d".to_owned(), true),
            ("k8s-0a1b2c3d4e5f60718293a4b5c6d7e8f9".to_owned(), true),
            ("k8s-0a1b2c3".to_owned(), false),
            ("pvc-".to_owned(), false),
            (UID.to_owned(), false),
            (format!("-{UID}"), false),
            ("-0a1b2c3d".to_owned(), false),
            ("pvc-ffffffff-4e5f-6071-8293-a4b5c6d7e8f9".to_owned(), false),
            (format!("pvc-{UID}0"), false),
        ];
        for (name, believed) in table {
            let forged = Record { volume: name.clone(), ..record() };
            assert_eq!(forged.volume_of(UID).is_some(), believed, "{name}");
            assert_eq!(forged.volume_of(""), None);
        }
    }

    #[test]
    fn another_time_is_the_same_request_and_another_node_is_not() {
        let later = Record { since: "later".into(), ..record() };
        assert!(record().is_same_request(&later));
        assert!(!record().is_same_request(&Record { node: None, ..record() }));
    }

    proptest::proptest! {
        /// Whatever a record says comes back, and reading never fails.
        #[test]
        fn what_is_written_is_read_again(
            texts in proptest::collection::vec(".{0,60}", 6),
            node in proptest::option::of(".{0,60}"),
            retain: bool,
            copied: bool,
        ) {
            let [driver, volume, class, class_uid, digest, since] = texts.try_into().unwrap();
            let source = copied.then(|| Source { handle: volume.clone(), uid: class.clone(), ..source() });
            let record = Record { driver, volume, node, class, class_uid, retain, source, topology: None, digest, since };
            let text = record.encode().unwrap();
            proptest::prop_assert!(!text.contains('\n'));
            proptest::prop_assert_eq!(Record::decode(&text), record);
        }

        #[test]
        fn any_text_is_read_as_some_record(text in ".{0,200}") {
            let record = Record::decode(&text);
            let _ = record.volume_of(UID);
        }

        /// Two names never make each other's text.
        #[test]
        fn texts_are_told_apart_by_their_lengths_too(a in "[ab]{0,3}", b in "[ab]{0,3}", c in "[ab]{0,3}", d in "[ab]{0,3}") {
            let hash = |x: &str, y: &str| { let mut fnv = Fnv::new(); fnv.text(x); fnv.text(y); fnv.0 };
            proptest::prop_assert_eq!(hash(&a, &b) == hash(&c, &d), (a == c) && (b == d));
        }
    }
}
