//! The arguments that manifests in the field give are understood, and what is retired is said.

use csi_provisioner::flags::{Flags, Parsed};

/// What manifests in the field give.
const FIELD: &str = include_str!("../fixtures/manifests.txt");

fn parsed<'a>(arguments: impl Iterator<Item = &'a str>) -> Parsed {
    let words = ["csi-provisioner"].into_iter().chain(arguments).map(Into::into);
    Flags::parse(words, |_| None).unwrap_or_else(|refusal| panic!("{refusal:?}"))
}

#[test]
fn manifests_in_the_field_elect_a_leader_and_hear_of_what_is_retired() {
    let manifests = FIELD.split("\n\n").skip(1);
    assert_eq!(manifests.clone().count(), 16);
    for manifest in manifests {
        let [of, arguments, retired] = manifest.lines().collect::<Vec<_>>().try_into().unwrap();
        let retired = retired.strip_prefix("retired:").unwrap().split_whitespace();
        let filled = arguments.replace("$(POD_IP)", "10.0.0.1");
        let Parsed { flags, mut warnings } = parsed(filled.split_whitespace());
        let election = flags.leader_election().unwrap_or_else(|| panic!("{of}: nobody leads"));
        let namespace = arguments.contains("=rook-ceph").then_some("rook-ceph");
        assert_eq!(election.namespace.as_deref(), namespace, "{of}");
        warnings.retain(|warning| warning.contains(" is retired"));
        assert_eq!(warnings.len(), retired.clone().count(), "{of}: {warnings:#?}");
        for retired in retired {
            let warned = warnings.iter().any(|line| names(line, retired));
            assert!(warned, "{of}: nothing about {retired} in {warnings:#?}");
        }
    }
}

/// Whether the line is about this flag or gate, and not one whose name only begins like it.
fn names(line: &str, retired: &str) -> bool {
    line.split_once(retired).is_some_and(|(_, rest)| rest.starts_with(' '))
}
