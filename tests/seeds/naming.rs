//! How volumes are named: `--volume-name-prefix` and `--volume-name-uuid-length`.

use super::{dice::Dice, storage::name_of};

/// What a process names volumes by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Naming {
    prefix: &'static str,
    /// How many digits of the UID; none for all of it, with its dashes.
    length: Option<usize>,
}

/// Every way there is here.
pub(crate) const NAMINGS: [Naming; 4] = [
    Naming { prefix: "pvc", length: None },
    Naming { prefix: "tank", length: None },
    Naming { prefix: "pool", length: Some(32) },
    // Two claims' names are often the same.
    Naming { prefix: "cut", length: Some(1) },
];

/// How the processes of a seed name volumes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Names {
    /// By default.
    Usual,
    /// Otherwise after each restart, always by the whole UID: a record of a call says which.
    Changing,
    /// By so little of the UID that names collide.
    Cut,
}

impl Naming {
    /// The flags' defaults.
    pub(crate) const USUAL: Self = NAMINGS[0];

    /// What a process that starts now names volumes by.
    pub(crate) fn of(names: Names, dice: &Dice) -> Self {
        match names {
            Names::Usual => Self::USUAL,
            Names::Changing => *dice.pick(&NAMINGS[..3]),
            Names::Cut => NAMINGS[3],
        }
    }

    /// The name of the volume of the claim with this UID.
    pub(crate) fn name(&self, uid: &str) -> String {
        let part = match self.length {
            None => uid.to_owned(),
            Some(length) => uid.replace('-', "").get(..length).unwrap_or_default().to_owned(),
        };
        format!("{}-{part}", self.prefix)
    }

    pub(crate) fn flags(&self) -> Vec<String> {
        let mut flags = vec![format!("--volume-name-prefix={}", self.prefix)];
        flags.extend(self.length.map(|length| format!("--volume-name-uuid-length={length}")));
        flags
    }
}

/// Whether a claim's volume may have this name, under whatever prefix and on whatever node.
pub(crate) fn may_be_of(name: &str, uid: &str) -> bool {
    let name = name_of(name);
    let prefix = name.strip_suffix(uid).filter(|_| !uid.is_empty());
    prefix.is_some_and(|prefix| prefix.len() > 1 && prefix.ends_with('-'))
        || !uid.is_empty() && NAMINGS.iter().any(|naming| naming.name(uid) == name)
}
