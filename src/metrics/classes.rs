//! The values of the label `class` of metrics about claims.
//!
//! Users may write any class into a claim. As in external-provisioner the value is the name of the class,
//! for each class that exists and for the first [`MAX_UNKNOWN`] others. All others share one value, so
//! that the number of series is limited.

use std::{collections::BTreeSet, sync::Arc};

use parking_lot::Mutex;

/// How many names of classes that do not exist are used as values.
const MAX_UNKNOWN: usize = 64;

/// The value of all others.
const UNKNOWN: &str = "unknown";

/// The names that are used as values. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct ClassLabels(Arc<Mutex<Names>>);

#[derive(Debug, Default)]
struct Names {
    existing: BTreeSet<String>,
    others: BTreeSet<String>,
}

impl ClassLabels {
    /// Records whether a class of this name exists.
    pub(super) fn set_exists(&self, class: &str, exists: bool) {
        let existing = &mut self.0.lock().existing;
        if exists {
            existing.insert(class.to_owned());
        } else {
            existing.remove(class);
        }
    }

    /// The value for a claim of this class; empty for a claim without one.
    pub(super) fn label<'a>(&self, class: &'a str) -> &'a str {
        let Names { existing, others } = &mut *self.0.lock();
        if class.is_empty() || existing.contains(class) || others.contains(class) {
            return class;
        }
        if others.len() >= MAX_UNKNOWN {
            return UNKNOWN;
        }
        others.insert(class.to_owned());
        class
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_that_exist_and_the_empty_class_keep_their_values() {
        let labels = ClassLabels::default();
        (0..300).for_each(|n| _ = labels.label(&format!("wrong-{n}")));
        labels.set_exists("fast", true);
        let values = ["fast", "", "wrong-63", "wrong-64"].map(|class| labels.label(class));
        assert_eq!(values, ["fast", "", "wrong-63", UNKNOWN]);
        labels.set_exists("fast", false);
        labels.set_exists("wrong-64", true);
        assert_eq!(["fast", "wrong-64"].map(|class| labels.label(class)), [UNKNOWN, "wrong-64"]);
    }
}
