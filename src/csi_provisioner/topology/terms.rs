//! Topology terms: order, containment, and how messages print them.
//!
//! external-provisioner's rules. Pure.

use std::cmp::Ordering;

use k8s_openapi::api::core::v1::TopologySelectorTerm;

use crate::controller::model::topology::Segments;

/// The order of terms in requests: shorter ones first, then by keys and values.
pub(super) fn order(a: &Segments, b: &Segments) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

/// Whether `whole` has all segments of `part`.
pub(super) fn is_subset(part: &Segments, whole: &Segments) -> bool {
    part.iter().all(|(key, value)| whole.get(key) == Some(value))
}

/// The terms that a class allows: for each alternative, all combinations of values, in
/// external-provisioner's order.
pub(super) fn allowed(alternatives: &[TopologySelectorTerm]) -> Vec<Segments> {
    alternatives.iter().flat_map(combinations).collect()
}

/// All combinations of one alternative's values; the first key's values change fastest. A key
/// without values, which the API rejects, drops the combinations before it.
fn combinations(alternative: &TopologySelectorTerm) -> Vec<Segments> {
    let no_terms = Vec::new();
    alternative.match_label_expressions.iter().flatten().fold(no_terms, |before, expression| {
        let starts = if before.is_empty() { vec![Segments::new()] } else { before };
        let with = |value: &String| {
            let key = expression.key.clone();
            let value = value.clone();
            starts.iter().map(move |start| {
                let mut term = start.clone();
                term.insert(key.clone(), value.clone());
                term
            })
        };
        expression.values.iter().flat_map(with).collect()
    })
}

/// Prints a term for messages: `[{key value} {key value}]`.
pub(super) fn show(term: &Segments) -> String {
    let segments: Vec<String> =
        term.iter().map(|(key, value)| format!("{{{key} {value}}}")).collect();
    format!("[{}]", segments.join(" "))
}

/// Prints a list of terms for messages.
pub(super) fn show_all(terms: &[Segments]) -> String {
    let terms: Vec<String> = terms.iter().map(show).collect();
    format!("[{}]", terms.join(" "))
}

/// How many labels a message shows. A kubelet may give its Node tens of thousands.
const MOST_SHOWN: usize = 128;

/// Prints labels for messages: `map[key:value key:value]`.
pub(super) fn show_labels(labels: &Segments) -> String {
    let more = (labels.len() > MOST_SHOWN).then(|| "...".to_owned());
    let shown = labels.iter().take(MOST_SHOWN).map(|(key, value)| format!("{key}:{value}"));
    format!("map[{}]", shown.chain(more).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn term(segments: &[(&str, &str)]) -> Segments {
        segments.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn flattened(alternatives: &[Value]) -> String {
        let alternatives: Vec<TopologySelectorTerm> = alternatives
            .iter()
            .map(|expressions| {
                let expressions: Vec<Value> = expressions
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|pair| json!({"key": pair[0], "values": pair[1]}))
                    .collect();
                serde_json::from_value(json!({"matchLabelExpressions": expressions})).unwrap()
            })
            .collect();
        show_all(&allowed(&alternatives))
    }

    #[test]
    fn shorter_terms_come_first_then_keys_and_values_decide() {
        let mut terms = vec![
            term(&[("rack", "r1"), ("zone", "a")]),
            term(&[("zone", "b")]),
            term(&[("zone", "B")]),
            term(&[("rack", "r2")]),
            term(&[("rack", "r10"), ("zone", "z")]),
        ];
        terms.sort_by(order);
        assert_eq!(
            show_all(&terms),
            "[[{rack r2}] [{zone B}] [{zone b}] [{rack r1} {zone a}] [{rack r10} {zone z}]]"
        );
    }

    #[test]
    fn a_subset_demands_no_more_and_nothing_else() {
        let whole = term(&[("rack", "r7"), ("zone", "b")]);
        assert!(is_subset(&term(&[]), &whole) && is_subset(&term(&[("zone", "b")]), &whole));
        assert!(is_subset(&whole, &whole));
        assert!(!is_subset(&term(&[("zone", "a")]), &whole));
        assert!(!is_subset(&term(&[("host", "h")]), &whole));
        assert!(!is_subset(&whole, &term(&[("zone", "b")])));
    }

    #[test]
    fn allowed_topologies_are_expanded_in_external_provisioners_order() {
        assert_eq!(
            flattened(&[json!([["zone", ["z1", "z2"]], ["rack", ["r1", "r2"]]])]),
            "[[{rack r1} {zone z1}] [{rack r1} {zone z2}] [{rack r2} {zone z1}] [{rack r2} {zone z2}]]"
        );
        assert_eq!(
            flattened(&[json!([["zone", ["z2", "z1"]]]), json!([]), json!([["rack", ["r"]]])]),
            "[[{zone z2}] [{zone z1}] [{rack r}]]"
        );
        assert_eq!(flattened(&[json!([["a", ["1"]], ["b", []], ["c", ["3"]]])]), "[[{c 3}]]");
        assert_eq!(flattened(&[json!([["a", ["1"]], ["b", []]])]), "[]");
    }

    #[test]
    fn labels_and_keys_print_as_in_go() {
        assert_eq!(show_labels(&term(&[])), "map[]");
        assert_eq!(show_labels(&term(&[("b", ""), ("a", "x")])), "map[a:x b:]");
        let many = (0..60_000).map(|number| (number.to_string(), String::new())).collect();
        let shown = show_labels(&many);
        assert!(shown.len() < 2000 && shown.ends_with(" ...]"), "{shown}");
    }
}
