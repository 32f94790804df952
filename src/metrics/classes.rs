//! The values of the label `class` of what is told of claims.
//!
//! Users choose their claims' class freely. Promises the name of each class that exists, and of the
//! first [`MOST`] others that a process comes across, as in the original; all further ones that do
//! not exist share one value, so that nobody can make series without end.

use std::{collections::BTreeSet, sync::Arc};

use parking_lot::Mutex;

/// So many names of classes that do not exist are values of their own.
const MOST: usize = 64;

/// The value that stands for all others.
const UNKNOWN: &str = "unknown";

/// Which names are values. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct ClassLabels(Arc<Mutex<Names>>);

#[derive(Debug, Default)]
struct Names {
    existing: BTreeSet<String>,
    others: BTreeSet<String>,
}

impl ClassLabels {
    /// A class of this name came, or went.
    pub(super) fn exists(&self, class: &str, exists: bool) {
        let existing = &mut self.0.lock().existing;
        if exists {
            existing.insert(class.to_owned());
        } else {
            existing.remove(class);
        }
    }

    /// The value for a claim that names this class; one that names none says so as it is.
    pub(super) fn label<'a>(&self, class: &'a str) -> &'a str {
        let Names { existing, others } = &mut *self.0.lock();
        if class.is_empty() || existing.contains(class) || others.contains(class) {
            return class;
        }
        if others.len() >= MOST {
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
    fn a_class_that_exists_and_none_at_all_keep_their_values() {
        let labels = ClassLabels::default();
        (0..300).for_each(|n| _ = labels.label(&format!("wrong-{n}")));
        labels.exists("fast", true);
        let values = ["fast", "", "wrong-63", "wrong-64"].map(|class| labels.label(class));
        assert_eq!(values, ["fast", "", "wrong-63", UNKNOWN]);
        labels.exists("fast", false);
        labels.exists("wrong-64", true);
        assert_eq!(["fast", "wrong-64"].map(|class| labels.label(class)), [UNKNOWN, "wrong-64"]);
    }
}
