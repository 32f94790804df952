//! Names of PersistentVolumes. Pure.

use super::provisioner::Failure;
use crate::flags::VolumeNaming;

impl VolumeNaming {
    /// The name for the claim with this UID; always the same.
    ///
    /// # Errors
    /// external-provisioner's texts for an empty prefix, an empty UID, and a UID shorter than the
    /// length.
    pub fn name(&self, claim_uid: &str) -> Result<String, Failure> {
        if self.prefix.is_empty() {
            return Err(Failure::new("volume name prefix cannot be of length 0"));
        }
        if claim_uid.is_empty() {
            return Err(Failure::new("corrupted PVC object, it is missing UID"));
        }
        // Only -1 is no length.
        let Ok(length) = usize::try_from(self.uuid_length) else {
            return Ok(format!("{}-{claim_uid}", self.prefix));
        };
        let digits = claim_uid.replace('-', "");
        let part = digits.get(..length).ok_or_else(|| {
            Failure::new(format!(
                "--volume-name-uuid-length is {length}, but the claim's UID {claim_uid} has only {} digits",
                digits.len()
            ))
        })?;
        Ok(format!("{}-{part}", self.prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::name::is_dns_subdomain;

    const UID: &str = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";

    fn name(prefix: &str, uuid_length: i64, uid: &str) -> Result<String, String> {
        let naming = VolumeNaming { prefix: prefix.into(), uuid_length };
        naming.name(uid).map_err(|failure| failure.to_string())
    }

    #[test]
    fn what_gives_no_name_is_refused() {
        assert_eq!(name("", -1, UID), Err("volume name prefix cannot be of length 0".into()));
        assert_eq!(name("pvc", -1, ""), Err("corrupted PVC object, it is missing UID".into()));
        assert!(name("pvc", 33, UID).unwrap_err().contains("has only 32 digits"));
        assert!(name("pvc", 3, "äöü").is_err(), "cut inside a character");
    }

    proptest::proptest! {
        /// Every UID that Kubernetes assigns yields a name of the configured length.
        #[test]
        fn names_are_prefix_dash_and_part_of_the_uid(
            prefix in "[a-z]([-a-z0-9]{0,20}[a-z0-9])?",
            uid in "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
            length in 0_usize..=32,
        ) {
            let whole = name(&prefix, -1, &uid).unwrap();
            proptest::prop_assert_eq!(&whole, &format!("{prefix}-{uid}"));
            let cut = name(&prefix, i64::try_from(length).unwrap(), &uid).unwrap();
            let digits: String = uid.chars().filter(|c| *c != '-').take(length).collect();
            proptest::prop_assert_eq!(&cut, &format!("{prefix}-{digits}"));
            proptest::prop_assert!(is_dns_subdomain(&whole));
            proptest::prop_assert_eq!(is_dns_subdomain(&cut), length > 0);
        }
    }
}
