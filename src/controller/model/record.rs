//! The content of a record of an open call.
//!
//! A record is one line of JSON in an annotation. The user can edit the annotation, so a record
//! only restricts: each of its fields is compared with what follows from claim, class and flags,
//! and no request is made from it. It has no source, reclaim policy, parameters or secrets. Any
//! text can be decoded; fields that older versions wrote are ignored.

use serde::{Deserialize as _, Serialize};
use serde_json::{Map, Value};

use super::{
    request::ProvisionRequest,
    topology::{Pinned, Recorded, Requirement},
};
use crate::{
    controller::ownership::ProvisionerIdentity,
    kube::{name::is_dns_subdomain, objects::View as _},
};

/// The longest record that is written: all annotations of an object share 256 KiB.
pub const MAX_BYTES: usize = 8 * 1024;

/// The record of an open call. Fields that are missing or malformed are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The driver that was called.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver: String,
    /// The name of the volume, which is that of the PersistentVolume.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub volume: String,
    /// With node deployment, the node whose process made the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The UID of the storage class.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub class_uid: String,
    /// The requested topology, for drivers that have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<Box<Recorded>>,
    /// A digest that identifies the request and reveals nothing of it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub digest: String,
}

impl Record {
    /// The record of `request`, which has this digest and is made by this process.
    pub fn of(request: &ProvisionRequest, by: &ProvisionerIdentity, digest: String) -> Self {
        let topology = request.topology.as_deref().map(|pinned| match pinned {
            Pinned::Requested(asked) => Requirement::record(asked.as_ref()),
            Pinned::Recorded(recorded) => recorded.clone(),
        });
        let mut record = Self {
            driver: by.driver.clone(),
            volume: request.name().to_owned(),
            node: by.node.clone(),
            class_uid: request.class.uid().to_owned(),
            topology: topology.map(Box::new),
            digest,
        };
        if record.encode().is_none() {
            record.topology = record.topology.map(|recorded| Box::new(recorded.shortened()));
        }
        record
    }

    /// The text of the record. `None`: it would be too long, or has too many topology terms.
    pub fn encode(&self) -> Option<String> {
        if self.topology.as_ref().is_some_and(|recorded| recorded.is_too_large()) {
            return None;
        }
        serde_json::to_string(self).ok().filter(|text| text.len() <= MAX_BYTES)
    }

    /// Reads a record. `None`: the text is not a JSON object, or too long. Of a topology that is too
    /// large the preferred term is read, or nothing.
    pub fn decode(text: &str) -> Option<Self> {
        if text.len() > MAX_BYTES {
            return None;
        }
        let fields: Map<String, Value> = serde_json::from_str(text).ok()?;
        let text = |field: &str| fields.get(field).and_then(Value::as_str).map(str::to_owned);
        let topology = fields.get("topology").and_then(|it| Recorded::deserialize(it).ok());
        let topology = topology.and_then(Recorded::bounded);
        Some(Self {
            driver: text("driver").unwrap_or_default(),
            volume: text("volume").unwrap_or_default(),
            node: text("node"),
            class_uid: text("classUid").unwrap_or_default(),
            topology: topology.map(Box::new),
            digest: text("digest").unwrap_or_default(),
        })
    }

    /// Whether the class of `request` is the one that the call was made with, or was created again
    /// with the same content.
    pub fn is_of_class(&self, request: &ProvisionRequest, digest: &str) -> bool {
        let says_nothing = self.class_uid.is_empty() && self.digest.is_empty();
        says_nothing || self.class_uid == request.class.uid() || self.digest == digest
    }

    /// Whether the record is of another driver. One that names no driver is not.
    pub fn is_of_other_driver(&self, identity: &ProvisionerIdentity) -> bool {
        !self.driver.is_empty() && self.driver != identity.driver
    }

    /// Whether the record is of our driver, and of the process of another node.
    pub fn is_of_other_node(&self, identity: &ProvisionerIdentity) -> bool {
        let is_other = |node: &str| identity.node.is_some() && !identity.is_on(node);
        !self.is_of_other_driver(identity) && self.node.as_deref().is_some_and(is_other)
    }

    /// The volume's name if it is a DNS name, else an empty text: the record is the user's text.
    pub fn printable_volume(&self) -> &str {
        dns_name_or_empty(&self.volume)
    }

    /// The driver's name if it is a DNS name, else an empty text.
    pub fn printable_driver(&self) -> &str {
        dns_name_or_empty(&self.driver)
    }

    /// The node's name if it is a DNS name, else an empty text.
    pub fn printable_node(&self) -> &str {
        self.node.as_deref().map(dns_name_or_empty).unwrap_or_default()
    }
}

/// Returns the text if it is a DNS name, else an empty text. Nothing else of a record is printed.
pub fn dns_name_or_empty(text: &str) -> &str {
    if is_dns_subdomain(text) { text } else { "" }
}

/// A digest of the request: the class's provisioner, parameters and mount options, the names of the
/// secrets, size and modes. Flags are not part of it, since an admin could not restore them for one
/// claim.
pub fn digest(request: &ProvisionRequest, secret_names: &[String]) -> String {
    let (spec, class) = (&request.claim.spec, &*request.class);
    // JSON keeps the parts apart. Cannot fail: all of them are texts.
    let parts = serde_json::to_vec(&(
        (&class.provisioner, &class.parameters, &class.mount_options, secret_names),
        (&spec.resources.requests.storage, &spec.volume_mode, &spec.access_modes),
    ))
    .unwrap_or_default();
    // FNV-1a: unlike the hashes of the standard library it is the same in every release.
    let add = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", parts.iter().fold(0xcbf2_9ce4_8422_2325, add))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::collection::vec;
    use serde_json::json;

    use super::*;
    use crate::controller::model::topology::Segments;

    const UID: &str = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";

    fn request() -> ProvisionRequest {
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

    fn identity(node: Option<&str>) -> ProvisionerIdentity {
        ProvisionerIdentity { node: node.map(str::to_owned), ..ProvisionerIdentity::of_driver("d") }
    }

    fn record() -> Record {
        Record::of(&request(), &identity(None), "0123".into())
    }

    #[test]
    fn a_record_has_the_request_and_nothing_of_the_class_content() {
        let written: Value = serde_json::from_str(&record().encode().unwrap()).unwrap();
        let expected = json!({
            "driver": "d", "volume": format!("pvc-{UID}"), "classUid": "class-1", "digest": "0123",
        });
        assert_eq!(written, expected);
        let on_node = Record::of(&request(), &identity(Some("n1")), String::new());
        assert_eq!(on_node.node.as_deref(), Some("n1"));
    }

    #[test]
    fn records_of_other_versions_are_read_as_far_as_possible() {
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
    fn the_topology_is_recorded_in_full_or_shortened() {
        let zones = |count: usize| {
            let zone = |n| Segments::from([("zone".to_owned(), format!("zone-{n}"))]);
            Requirement::new((0..count).map(zone).collect(), 1)
        };
        for (asked, in_full) in [
            (zones(3), true),
            (None, true),
            (zones(256), true),
            (zones(2000), false),
            (zones(257), false),
        ] {
            let topology = Some(Arc::new(Pinned::Requested(asked.clone())));
            let request = ProvisionRequest { topology, ..request() };
            let record = Record::of(&request, &identity(None), String::new());
            let read = Record::decode(&record.encode().unwrap()).unwrap();
            assert_eq!(read, record);
            let recorded = *read.topology.unwrap();
            assert_eq!(matches!(recorded, Recorded::Terms { .. }), in_full);
            assert_eq!(recorded.restrict(asked.as_ref()), Ok(asked));
        }
    }

    /// A term takes half a kilobyte of memory, however short its text is. What drivers have fits.
    #[test]
    fn of_many_terms_the_preferred_one_is_kept_and_of_many_keys_none() {
        let read = |topology: &Value| {
            let text = json!({"driver": "d", "topology": topology}).to_string();
            let record = Record::decode(&text).unwrap();
            assert_eq!(record.driver, "d");
            record.topology.map(|it| serde_json::to_value(it).unwrap())
        };
        let zone = |zone: &str| json!({"topology.example.com/zone": zone});
        let keys =
            |count: usize| (0..count).map(|key| (key.to_string(), json!(""))).collect::<Value>();
        let count = (MAX_BYTES - 60) / (zone("a").to_string().len() + 1);
        let zones = json!({"terms": vec![zone("a"); count], "first": count - 1});
        assert_eq!(read(&zones), Some(zones));
        for (terms, first, kept) in [
            (vec![json!({}); 256], 0, Some(json!({"terms": vec![json!({}); 256], "first": 0}))),
            (vec![json!({}); 257], 0, Some(json!({"best": {}}))),
            (vec![keys(2); 128], 1, Some(json!({"terms": vec![keys(2); 128], "first": 1}))),
            ([vec![keys(2); 128], vec![keys(1)]].concat(), 128, Some(json!({"best": keys(1)}))),
            (vec![keys(1), keys(257)], 0, Some(json!({"best": keys(1)}))),
            (vec![keys(1), keys(257)], 1, None),
        ] {
            assert_eq!(read(&json!({"terms": terms, "first": first})), kept, "{}", terms.len());
        }
        assert_eq!(read(&json!({"best": keys(256)})), Some(json!({"best": keys(256)})));
        assert_eq!(read(&json!({"best": keys(257)})), None);
    }

    #[test]
    fn only_the_class_of_the_recorded_call_fits() {
        let with = |uid: &str| {
            let mut request = request();
            Arc::make_mut(&mut request.class).metadata.uid = Some(uid.into());
            request
        };
        assert!(record().is_of_class(&with("class-1"), "anything"));
        assert!(record().is_of_class(&with("class-2"), "0123"), "made again as it was");
        assert!(!record().is_of_class(&with("class-2"), "4567"));
        let silent = Record { class_uid: String::new(), digest: String::new(), ..record() };
        assert!(silent.is_of_class(&with("class-2"), "4567"), "it restricts nothing");
    }

    #[test]
    fn only_dns_names_are_printed() {
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
            assert_eq!(Record { volume: name.into(), ..record() }.printable_volume(), expected);
            assert_eq!(Record { node: Some(name.into()), ..record() }.printable_node(), expected);
        }
        assert_eq!(dns_name_or_empty(&"x".repeat(254)), "");
    }

    proptest::proptest! {
        /// The same texts in other places have another digest.
        #[test]
        fn the_digest_depends_on_the_borders_of_parts(
            a in vec("[ab\",]{0,3}", 0..3), b in vec("[ab\",]{0,3}", 0..3),
            c in vec("[ab\",]{0,3}", 0..3), d in vec("[ab\",]{0,3}", 0..3),
        ) {
            let of = |mount_options: &Vec<String>, secret_names: &[String]| {
                let mut request = request();
                Arc::make_mut(&mut request.class).mount_options.clone_from(mount_options);
                digest(&request, secret_names)
            };
            proptest::prop_assert_eq!(of(&a, &b) == of(&c, &d), (a, b) == (c, d));
        }
    }
}
