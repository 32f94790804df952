//! Selects the objects of a list or a watch.

use super::name::{BadName, check_namespace};

/// A namespace and selectors; by default all objects of a kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    pub(super) namespace: Option<String>,
    pub(super) labels: Option<String>,
    pub(super) fields: Option<String>,
}

impl Scope {
    /// All objects of the kind.
    pub fn all() -> Self {
        Self::default()
    }

    /// The objects in `namespace`.
    ///
    /// # Errors
    /// [`BadName`] if it cannot be a path segment.
    pub fn namespace(namespace: &str) -> Result<Self, BadName> {
        check_namespace(namespace)?;
        Ok(Self { namespace: Some(namespace.to_owned()), ..Self::default() })
    }

    /// Only objects whose labels match `selector`.
    #[must_use]
    pub fn labelled(self, selector: &str) -> Self {
        Self { labels: Some(selector.to_owned()), ..self }
    }

    /// Only the object named `name`.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { fields: Some(format!("metadata.name={}", field_value(name))), ..self }
    }
}

/// A value in a field selector, escaped as by apimachinery's `fields.EscapeValue`.
fn field_value(text: &str) -> String {
    text.replace('\\', r"\\").replace(',', r"\,").replace('=', r"\=")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_term_of_the_field_selector() {
        let selector = |name| Scope::all().named(name).fields.unwrap();
        assert_eq!(selector("snap-1.a"), "metadata.name=snap-1.a");
        assert_eq!(selector(r"a,metadata.name!=b\"), r"metadata.name=a\,metadata.name!\=b\\");
    }
}
