//! Selects the objects of a list or a watch.

use super::{
    client::name::{BadName, check_namespace},
    connection::url::query,
};

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
        // As apimachinery's `fields.EscapeValue`.
        let name = name.replace('\\', r"\\").replace(',', r"\,").replace('=', r"\=");
        Self { fields: Some(format!("metadata.name={name}")), ..self }
    }

    /// Only events of the type `Warning` about the object with `uid`.
    #[must_use]
    pub fn warnings_about(self, uid: &str) -> Self {
        Self { fields: Some(format!("involvedObject.uid={uid},type=Warning")), ..self }
    }

    /// Only events about the object of this kind and name.
    #[must_use]
    pub fn about(self, kind: &str, name: &str) -> Self {
        let name = Self::default().named(name).fields.unwrap_or_default();
        let name = name.trim_start_matches("metadata.");
        let fields = format!("involvedObject.kind={kind},involvedObject.{name}");
        Self { fields: Some(fields), ..self }
    }

    /// The scope's query parameters, each with a leading `&`.
    pub(super) fn query(&self) -> String {
        let labels = self.labels.iter().map(|text| ("&labelSelector=", text));
        let fields = self.fields.iter().map(|text| ("&fieldSelector=", text));
        labels.chain(fields).flat_map(|(name, text)| [name.into(), query(text)]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_term_of_the_field_selector() {
        let query = |name| Scope::all().named(name).query();
        assert_eq!(query("snap-1.a"), "&fieldSelector=metadata.name%3Dsnap-1.a");
        assert_eq!(
            query(r"a,metadata.name!=b\"),
            r"&fieldSelector=metadata.name%3Da%5C%2Cmetadata.name%21%5C%3Db%5C%5C"
        );
    }
}
