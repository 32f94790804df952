//! Label and field selectors, with the real server's words for those it refuses.

use serde_json::Value;

use super::{resources::Kind, status::Status, tree};

/// What a list or a watch selects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    labels: Vec<LabelRequirement>,
    fields: Vec<FieldRequirement>,
}

impl Selection {
    /// Reads both selectors; an absent or empty one selects everything.
    pub(crate) fn parse(
        labels: Option<&str>,
        fields: Option<&str>,
        kind: &Kind,
    ) -> Result<Self, Status> {
        Ok(Self {
            labels: parse_labels(labels.unwrap_or_default()).map_err(|why| {
                Status::bad_request(format!("unable to parse requirement: {why}"))
            })?,
            fields: parse_fields(fields.unwrap_or_default(), kind)?,
        })
    }

    /// Whether everything is selected.
    pub(crate) fn is_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether the object is selected.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = tree::at(object, &["metadata", "labels"]);
        self.labels.iter().all(|r| r.matches(labels))
            && self.fields.iter().all(|r| r.matches(object))
    }
}

// === Labels ===

#[derive(Debug, Clone, PartialEq, Eq)]
struct LabelRequirement {
    key: String,
    test: LabelTest,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum LabelTest {
    Equal(String),
    /// Also met by objects without the label.
    Unequal(String),
    Exists,
    Absent,
}

impl LabelRequirement {
    fn matches(&self, labels: &Value) -> bool {
        let label = tree::at(labels, &[&self.key]).as_str();
        match &self.test {
            LabelTest::Equal(value) => label == Some(value),
            LabelTest::Unequal(value) => label != Some(value),
            LabelTest::Exists => label.is_some(),
            LabelTest::Absent => label.is_none(),
        }
    }
}

fn parse_labels(text: &str) -> Result<Vec<LabelRequirement>, String> {
    text.split(',').map(str::trim).filter(|term| !term.is_empty()).map(parse_label).collect()
}

/// Reads one term. Sets (`in`, `notin`), which nobody here uses, are refused rather than overlooked.
fn parse_label(term: &str) -> Result<LabelRequirement, String> {
    let (key, test) = if let Some(key) = term.strip_prefix('!') {
        (key, LabelTest::Absent)
    } else if let Some((key, value)) = term.split_once("!=") {
        (key, LabelTest::Unequal(value.trim().to_owned()))
    } else if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        (key, LabelTest::Equal(value.trim().to_owned()))
    } else {
        (term, LabelTest::Exists)
    };
    let key = key.trim();
    if key.is_empty() || key.contains(char::is_whitespace) {
        return Err(format!("found '{term}', expected: !, identifier, or 'end of string'"));
    }
    Ok(LabelRequirement { key: key.to_owned(), test })
}

// === Fields ===

#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldRequirement {
    path: Vec<String>,
    value: String,
    equal: bool,
}

impl FieldRequirement {
    fn matches(&self, object: &Value) -> bool {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        let field = match tree::at(object, &path) {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        (field == self.value) == self.equal
    }
}

fn parse_fields(text: &str, kind: &Kind) -> Result<Vec<FieldRequirement>, Status> {
    text.split(',')
        .filter(|term| !term.is_empty())
        .map(|term| parse_field(text, term, kind))
        .collect()
}

fn parse_field(text: &str, term: &str, kind: &Kind) -> Result<FieldRequirement, Status> {
    let split = term.split_once("!=").map(|(field, value)| (field, value, false));
    let split = split.or_else(|| {
        term.split_once("==").or_else(|| term.split_once('=')).map(|(f, v)| (f, v, true))
    });
    let Some((field, value, equal)) = split else {
        return Err(Status::bad_request(format!(
            "invalid selector: '{text}'; can't understand '{term}'"
        )));
    };
    if !selectable(kind, field) {
        return Err(unsupported(kind, field));
    }
    // An event's source has been called so since before the field had its place.
    let path = if kind.is("", "Event") && field == "source" { "source.component" } else { field };
    Ok(FieldRequirement {
        path: path.split('.').map(str::to_owned).collect(),
        value: value.to_owned(),
        equal,
    })
}

fn unsupported(kind: &Kind, field: &str) -> Status {
    let quoted = go_fmt::quote(field);
    Status::bad_request(if kind.custom || kind.group.is_empty() {
        format!("field label not supported: {field}")
    } else {
        format!(
            "{quoted} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        )
    })
}

/// Whether objects of the kind are selected by the field: of built-in kinds' own fields, only events' are known here.
fn selectable(kind: &Kind, field: &str) -> bool {
    const OF_EVENTS: [&str; 11] = [
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ];
    field == "metadata.name"
        || field == "metadata.namespace" && kind.namespaced
        || kind.is("", "Event") && OF_EVENTS.contains(&field)
}
