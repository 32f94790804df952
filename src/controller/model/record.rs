//! What is written on a claim about its open request.
//!
//! Owns the record's form (one line of JSON in an annotation) and whether it is of a claim's class as
//! that is now ([`Record::is_of_class`]). The annotation is the user's to edit, so a record only restricts: each of its
//! fields is compared with what follows from claim, class and flags, and nothing of it is ever asked
//! for. It holds no source, no reclaim policy, no parameters and no secret. Whatever stands there,
//! reading it does not fail; fields that older versions wrote are ignored.

use serde::{Deserialize as _, Serialize};
use serde_json::{Map, Value};

use super::topology::{Pinned, Recorded, Requirement};
use crate::{
    controller::provisioner::{ProvisionRequest, Provisioner},
    kube::objects::View as _,
};

/// More than this is not written: annotations of one object share 256 KiB.
pub const MAX_BYTES: usize = 8 * 1024;

/// An open request, as a claim carries it. What a record lacks, or does not say readably, is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The driver that was asked.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver: String,
    /// The volume's name: the PersistentVolume's, and the one that the driver was told.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub volume: String,
    /// With node deployment, the node whose process made the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The class's UID.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub class_uid: String,
    /// Where the volume is asked to be, for drivers that know of places.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<Box<Recorded>>,
    /// Tells the request from others, without saying anything of it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub digest: String,
}

/// Who records a call.
#[derive(Debug, Clone, Copy)]
pub struct Recorder<'a> {
    /// The driver that is asked.
    pub driver: &'a str,
    /// With node deployment, this process's node.
    pub node: Option<&'a str>,
}

impl Record {
    /// The record of `order`, with the digest of its request.
    pub fn of(order: &ProvisionRequest, by: Recorder<'_>, digest: String) -> Self {
        let topology = order.topology.as_deref().map(|pinned| match pinned {
            Pinned::Asked(asked) => Requirement::record(asked.as_ref()),
            Pinned::Recorded(recorded) => recorded.clone(),
        });
        let mut record = Self {
            driver: by.driver.to_owned(),
            volume: order.volume_name.clone().unwrap_or_default(),
            node: by.node.map(str::to_owned),
            class_uid: order.class.uid().to_owned(),
            topology: topology.map(Box::new),
            digest,
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

    /// Reads a record; `None` for what is no record at all, or too long for one.
    pub fn decode(text: &str) -> Option<Self> {
        if text.len() > MAX_BYTES {
            return None;
        }
        let fields: Map<String, Value> = serde_json::from_str(text).ok()?;
        let text = |field: &str| fields.get(field).and_then(Value::as_str).map(str::to_owned);
        let topology = fields.get("topology").and_then(|it| Recorded::deserialize(it).ok());
        Some(Self {
            driver: text("driver").unwrap_or_default(),
            volume: text("volume").unwrap_or_default(),
            node: text("node"),
            class_uid: text("classUid").unwrap_or_default(),
            topology: topology.map(Box::new),
            digest: text("digest").unwrap_or_default(),
        })
    }

    /// Whether the class of `order` is the one that the recorded call was made with, or was made again
    /// just as that was.
    pub fn is_of_class(&self, order: &ProvisionRequest, digest: &str) -> bool {
        let says_nothing = self.class_uid.is_empty() && self.digest.is_empty();
        says_nothing || self.class_uid == order.class.uid() || self.digest == digest
    }

    /// The volume's name, where it is one that may be shown: the record is the user's text.
    pub fn volume_shown(&self) -> &str {
        shown(&self.volume)
    }

    /// The node's name, where it is one that may be shown.
    pub fn node_shown(&self) -> &str {
        self.node.as_deref().map(shown).unwrap_or_default()
    }
}

/// The text, if it is a DNS name; nothing else of a record is printed.
pub fn shown(text: &str) -> &str {
    let is_inner = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    let is_name = bytes.len() <= 253
        && bytes.iter().copied().all(is_inner)
        && ends(bytes.first())
        && ends(bytes.last());
    if is_name { text } else { "" }
}

/// A digest of what makes the order's request what it is: the class's provisioner, parameters and
/// mount options, the names of the secrets as they resolve, size and modes. Flags that shape a request
/// are not in it: nobody could give them back.
pub fn digest(provisioner: &impl Provisioner, order: &ProvisionRequest) -> String {
    let (claim, class) = (&*order.claim, &*order.class);
    let mut digest = Fnv::new();
    digest.text(&class.provisioner);
    digest.texts(&class.mount_options);
    digest.texts(class.parameters.iter().flat_map(|(key, value)| [key, value]));
    digest.texts(&provisioner.secret_names(order));
    digest.text(claim.spec.resources.requests.storage.as_deref().unwrap_or_default());
    digest.text(claim.spec.volume_mode.as_deref().unwrap_or_default());
    digest.texts(&claim.spec.access_modes);
    digest.finish()
}

/// FNV-1a over texts, each with its length: the same in every release, unlike the standard
/// library's hashes.
struct Fnv(u64);

impl Fnv {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn text(&mut self, text: &str) {
        let length = (text.len() as u64).to_le_bytes();
        for byte in length.into_iter().chain(text.bytes()) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// The texts and how many they are, so that they are not mixed up with what follows.
    fn texts<'a>(&mut self, texts: impl IntoIterator<Item = &'a String>) {
        let mut count = 0_usize;
        for text in texts {
            self.text(text);
            count += 1;
        }
        self.text(&count.to_string());
    }

    fn finish(&self) -> String {
        format!("{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::controller::model::topology::Segments;

    const UID: &str = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";
    const RECORDER: Recorder<'static> = Recorder { driver: "d", node: None };

    fn order() -> ProvisionRequest {
        let claim = json!({"metadata": {"namespace": "ns", "name": "c", "uid": UID}, "spec": {"storageClassName": "fast"}});
        let class = json!({"metadata": {"name": "fast", "uid": "class-1"}, "provisioner": "d", "parameters": {"pool": "hdd"}});
        ProvisionRequest {
            claim: Arc::new(serde_json::from_value(claim).unwrap()),
            class: Arc::new(serde_json::from_value(class).unwrap()),
            volume_name: Ok(format!("pvc-{UID}")),
            selected_node: Some("node-1".into()),
            withdrawn: false,
            source: None,
            topology: None,
        }
    }

    fn record() -> Record {
        Record::of(&order(), RECORDER, "0123".into())
    }

    #[test]
    fn a_record_says_what_was_asked_for_and_nothing_of_the_classs_content() {
        let written: Value = serde_json::from_str(&record().encode().unwrap()).unwrap();
        let expected = json!({
            "driver": "d", "volume": format!("pvc-{UID}"), "classUid": "class-1", "digest": "0123",
        });
        assert_eq!(written, expected);
        let on_node =
            Record::of(&order(), Recorder { node: Some("n1"), ..RECORDER }, String::new());
        assert_eq!(on_node.node.as_deref(), Some("n1"));
    }

    #[test]
    fn what_other_versions_wrote_is_read_as_far_as_it_goes() {
        let expected =
            || Some(Record { driver: "d".into(), volume: "v".into(), ..Record::default() });
        for (text, read) in [
            (r#"{"driver": "d", "volume": "v", "topology": {"x": [1]}, "version": 7}"#, expected()),
            (r#"{"driver": "d", "volume": "v", "node": 7}"#, expected()),
            (
                r#"{"driver": "d", "volume": "v", "class": "fast", "retain": true, "since": "x",
                    "source": {"kind": "claim", "namespace": "n", "name": "m", "uid": "u", "handle": "h"}}"#,
                expected(),
            ),
            ("", None),
            ("null", None),
            ("[]", None),
            ("{}", Some(Record::default())),
            (r#"{"driver": "d", "volume": "v", "classUid": null, "digest": 7}"#, expected()),
            ("{", None),
            (r#"{"volume": 7}"#, Some(Record::default())),
            ("\u{0}", None),
        ] {
            assert_eq!(Record::decode(text), read, "{text:?}");
        }
        assert_eq!(Record::decode(&format!("{{}}{}", " ".repeat(MAX_BYTES))), None);
    }

    #[test]
    fn the_longest_names_fit_and_what_does_not_fit_is_not_written() {
        let long = |length: usize| "x".repeat(length);
        let longest = Record {
            driver: long(63),
            volume: long(253),
            node: Some(long(253)),
            class_uid: long(36),
            ..record()
        };
        assert!(longest.encode().is_some_and(|text| text.len() < 1500));
        assert_eq!(Record { node: Some(long(MAX_BYTES)), ..record() }.encode(), None);
    }

    #[test]
    fn where_the_volume_is_asked_to_be_is_recorded_in_full_or_in_short() {
        let zones = |count: usize| {
            let zone = |n| Segments::from([("zone".to_owned(), format!("zone-{n}"))]);
            Requirement::new((0..count).map(zone).collect(), 1)
        };
        for (asked, in_full) in [(zones(3), true), (None, true), (zones(2000), false)] {
            let topology = Some(Arc::new(Pinned::Asked(asked.clone())));
            let record =
                Record::of(&ProvisionRequest { topology, ..order() }, RECORDER, String::new());
            let read = Record::decode(&record.encode().unwrap()).unwrap();
            assert_eq!(read, record);
            let recorded = *read.topology.unwrap();
            assert_eq!(matches!(recorded, Recorded::Terms { .. }), in_full);
            assert_eq!(recorded.restrict(asked.as_ref()), Ok(asked));
        }
    }

    #[test]
    fn only_the_class_that_was_asked_with_serves() {
        let with = |uid: &str| {
            let mut order = order();
            Arc::make_mut(&mut order.class).metadata.uid = Some(uid.into());
            order
        };
        assert!(record().is_of_class(&with("class-1"), "anything"));
        assert!(record().is_of_class(&with("class-2"), "0123"), "made again as it was");
        assert!(!record().is_of_class(&with("class-2"), "4567"));
        let silent = Record { class_uid: String::new(), digest: String::new(), ..record() };
        assert!(silent.is_of_class(&with("class-2"), "4567"), "it restricts nothing");
    }

    #[test]
    fn only_dns_names_are_shown() {
        for (name, shows) in [
            ("pvc-0a1b", true),
            ("node-1.example.com", true),
            ("", false),
            ("-a", false),
            ("a.", false),
            ("Pvc", false),
            ("$(reboot)", false),
            ("a\u{1b}[31m", false),
            ("a b", false),
        ] {
            let expected = if shows { name } else { "" };
            assert_eq!(Record { volume: name.into(), ..record() }.volume_shown(), expected);
            assert_eq!(Record { node: Some(name.into()), ..record() }.node_shown(), expected);
        }
        assert_eq!(shown(&"x".repeat(254)), "");
    }

    proptest::proptest! {
        /// Whatever a record says comes back, and reading never fails.
        #[test]
        fn what_is_written_is_read_again(
            texts in proptest::collection::vec(".{0,60}", 4),
            node in proptest::option::of(".{0,60}"),
        ) {
            let [driver, volume, class_uid, digest] = texts.try_into().unwrap();
            let record = Record { driver, volume, node, class_uid, topology: None, digest };
            let text = record.encode().unwrap();
            proptest::prop_assert!(!text.contains('\n'));
            proptest::prop_assert_eq!(Record::decode(&text), Some(record));
        }

        #[test]
        fn any_text_is_read_or_refused_and_shows_only_names(text in ".{0,200}") {
            let volume = Record::decode(&text).unwrap_or_default().volume;
            let shown = shown(&volume);
            proptest::prop_assert!(shown.bytes().all(|byte| byte.is_ascii_graphic()));
        }

        /// Two lists of texts never make each other's digest.
        #[test]
        fn texts_are_told_apart_by_their_lengths_too(a in "[ab]{0,3}", b in "[ab]{0,3}", c in "[ab]{0,3}", d in "[ab]{0,3}") {
            let hash = |x: &str, y: &str| { let mut fnv = Fnv::new(); fnv.text(x); fnv.text(y); fnv.0 };
            proptest::prop_assert_eq!(hash(&a, &b) == hash(&c, &d), (a == c) && (b == d));
        }
    }
}
