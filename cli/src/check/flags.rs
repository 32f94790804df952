//! The flags: what becomes of each, and whether the program starts with them.

use std::ffi::OsString;

use super::{
    finding::{Finding, Severity},
    manifest::{Container, Unknown},
    review::{Review, review},
};
use csi_provisioner::flags::{Flags, Parsed, Refusal};

/// The command line as this program reads it.
pub(super) struct CommandLine {
    /// `None` if the program does not start with it.
    pub(super) flags: Option<Flags>,
    /// Whether a flag or gate of it is retired.
    pub(super) has_retired: bool,
    pub(super) findings: Vec<Finding>,
}

/// Checks the command line of the provisioner.
pub(super) fn check(provisioner: &Container, driver: Option<&str>) -> CommandLine {
    let args: Vec<String> = provisioner.known_args().map(str::to_owned).collect();
    let Review { mut findings, has_retired } = review(&args);
    let changed = changed_defaults(provisioner, driver, &findings);
    let is_refused = findings.iter().any(|it| it.severity == Severity::Fatal);
    let unknown = provisioner.args.iter().filter_map(|arg| arg.as_ref().err()).map(unknown);
    findings.extend(unknown.chain(changed));
    let flags = match parse(provisioner, args) {
        Ok(Parsed { flags, warnings }) => {
            // The review has what is retired.
            let others = warnings.iter().filter(|warning| !warning.contains(" is retired"));
            findings.extend(others.map(|it| finding(Severity::Note, "warning", it)));
            Some(flags)
        }
        Err(refusal) => {
            // Unless a finding about one flag says why.
            findings.extend((!is_refused).then(|| refused(&refusal)));
            None
        }
    };
    CommandLine { flags, has_retired, findings }
}

pub(super) fn finding(severity: Severity, subject: &str, text: &str) -> Finding {
    Finding::new("flags", severity, subject, text)
}

/// A default that external-provisioner has changed, with consequences for claims.
struct Changed {
    /// How the flag or gate begins.
    flag: &'static str,
    /// The major version with the new default.
    since: u32,
    /// Parts of the names of drivers that do not care.
    indifferent: &'static [&'static str],
    text: &'static str,
}

/// external-provisioner's `HonorPVReclaimPolicy`, which cannot be turned off here.
pub(super) const HONORED: &str = "off by default before v5.0, always on here: a volume whose PersistentVolume is deleted before its claim is deleted too; give PersistentVolumes whose volumes are to stay the reclaim policy Retain";

/// Drivers for NFS report no topology, and they and ceph-csi's for files give out a shared file system.
const CHANGED: [Changed; 4] = [
    Changed {
        flag: "--default-fstype",
        since: 2,
        indifferent: &["nfs.csi.", "cephfs.csi."],
        text: "ext4 before v2.0, none since: where a class names no file system, the driver chooses it and the volume may not be given to the pod's fsGroup; add --default-fstype=ext4, but not for shared file systems",
    },
    Changed {
        flag: "--prevent-volume-mode-conversion",
        since: 4,
        indifferent: &["nfs.csi.", "cephfs.csi."],
        text: "false before v4.0, true since: a claim that restores a snapshot into the other volume mode, as backup tools do, is refused unless an annotation of the snapshot's content allows it; add --prevent-volume-mode-conversion=false to allow it",
    },
    Changed {
        flag: "--feature-gates=HonorPVReclaimPolicy",
        since: 5,
        indifferent: &[],
        text: HONORED,
    },
    Changed {
        flag: "--feature-gates=Topology",
        since: 5,
        indifferent: &["nfs.csi."],
        text: "off by default before v5.0, on since: if the driver reports VOLUME_ACCESSIBILITY_CONSTRAINTS, claims wait until nodes have topology keys; add --feature-gates=Topology=false to keep it off, or =true",
    },
];

/// The defaults that have changed since the release that the image's tag names, where no flag decides.
/// Without such a tag, that they are not known.
fn changed_defaults(
    provisioner: &Container,
    driver: Option<&str>,
    reviewed: &[Finding],
) -> Vec<Finding> {
    let matters = |changed: &&Changed| {
        let is_given = reviewed.iter().any(|flag| flag.subject.starts_with(changed.flag));
        let cares = |driver: &str| changed.indifferent.iter().all(|part| !driver.contains(part));
        !is_given && driver.is_none_or(cares)
    };
    let changed = CHANGED.iter().filter(matters);
    if let Some(major) = provisioner.release() {
        let changed = changed.filter(|changed| major < changed.since);
        return changed.map(|it| finding(Severity::ToDo, it.flag, it.text)).collect();
    }
    let flags: Vec<&str> = changed.map(|it| it.flag).collect();
    if flags.is_empty() {
        return Vec::new();
    }
    let text = format!(
        "the image's tag names no release of external-provisioner: before v5.0 the defaults of {} were others, so look them up for yours",
        flags.join(", ")
    );
    vec![finding(Severity::Unchecked, "release", &text)]
}

fn unknown(Unknown { spelled, variable }: &Unknown) -> Finding {
    let text = format!(
        "the manifest has no value of {variable} that a process could start with: write the value in its place"
    );
    finding(Severity::Unchecked, spelled, &text)
}

fn parse(provisioner: &Container, args: Vec<String>) -> Result<Parsed, Refusal> {
    let args = ["csi-provisioner".to_owned()].into_iter().chain(args).map(OsString::from);
    let env = |name: &str| {
        let value = provisioner.env.get(name)?;
        Some(value.as_deref().unwrap_or("unknown").into())
    };
    Flags::parse(args, env)
}

/// Why the program ends with these flags.
fn refused(refusal: &Refusal) -> Finding {
    let error = refusal.text.lines().last().unwrap_or_default();
    finding(Severity::Fatal, "flags together", &format!("the program ends: {error}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn container(args: &[&str]) -> Container {
        Container {
            name: String::new(),
            image: "csi-provisioner:v6.3.0".to_owned(),
            args: args.iter().map(|arg| Ok((*arg).to_owned())).collect(),
            env: BTreeMap::new(),
        }
    }

    #[test]
    fn each_flag_has_its_severity() {
        for (arg, severity, starts) in [
            ("--leader-election", Severity::Ok, true),
            ("--feature-gates=HonorPVReclaimPolicy=true", Severity::Note, true),
            ("--provisioner=x", Severity::Note, true),
            ("--metrics-address=:80", Severity::Note, true),
            ("--nosuch", Severity::Fatal, false),
            ("--worker-threads=0", Severity::Fatal, false),
            ("--node-deployment", Severity::Fatal, false),
        ] {
            let line = check(&container(&[arg]), None);
            let worst = line.findings.iter().map(|it| it.severity).max();
            assert_eq!((worst, line.flags.is_some()), (Some(severity), starts), "{arg}");
        }
    }

    #[test]
    fn an_error_is_reported_once() {
        let line = check(&container(&["--nosuch", "--timeout=1s"]), None);
        let fatal = line.findings.iter().filter(|it| it.severity == Severity::Fatal);
        assert_eq!(fatal.count(), 1);
    }

    #[test]
    fn a_default_that_has_changed_since_the_release_in_the_image_is_to_do() {
        let registry = "registry.k8s.io/sig-storage/csi-provisioner";
        let (fstype, topology) = ("--default-fstype", "--feature-gates=Topology");
        let (mode, honor) =
            ("--prevent-volume-mode-conversion", "--feature-gates=HonorPVReclaimPolicy");
        let gates = "--feature-gates=HonorPVReclaimPolicy=true,Topology=true";
        let all_given = [gates, "--default-fstype=ext4", "--prevent-volume-mode-conversion=true"];
        let off = "--feature-gates=HonorPVReclaimPolicy=false";
        let (rbd, nfs) = (Some("rbd.csi.ceph.com"), Some("rook-ceph.nfs.csi.ceph.com"));
        for (tag, args, driver, expected) in [
            (":v1.6.0@sha256:12", &[][..], rbd, &[fstype, mode, honor, topology][..]),
            (":v1.6.0", &["--default-fstype=xfs"], None, &[mode, honor, topology]),
            (":v1.6.0", &["--feature-gates=Topology=true"], Some("cephfs.csi.ceph.com"), &[honor]),
            (":v1.6.0", &[], nfs, &[honor]),
            (":v3.6.4", &["--prevent-volume-mode-conversion=true"], nfs, &[honor]),
            (":v4.0.0", &[], rbd, &[honor, topology]),
            (
                ":v3.6.4-eks-1",
                &["--feature-gates=HonorPVReclaimPolicy=true"],
                rbd,
                &[mode, topology],
            ),
            (":v4.0.0", &["--feature-gates=Topology=false"], rbd, &[honor]),
            (":v4.0.0", &[], Some("nfs.csi.k8s.io"), &[honor]),
            (":v5.0.1", &[], rbd, &[]),
            (":v5.0.1", &["--feature-gates=HonorPVReclaimPolicy=false"], rbd, &[off]),
            (":v10.0.0", &[], rbd, &[]),
            // Not known as a release of external-provisioner.
            (":canary", &[], rbd, &["release"]),
            ("@sha256:12", &[], rbd, &["release"]),
            (":canary", &all_given, rbd, &[]),
        ] {
            let container = Container { image: format!("{registry}{tag}"), ..container(args) };
            let line = check(&container, driver);
            let to_do = line.findings.iter().filter(|it| it.severity > Severity::Note);
            let to_do: Vec<&str> = to_do.map(|it| it.subject.as_str()).collect();
            assert_eq!(to_do, expected, "{tag} {args:?} {driver:?}");
        }
    }

    #[test]
    fn a_value_that_the_manifest_does_not_have_is_not_checked() {
        let mut container = container(&["--leader-election"]);
        let (spelled, variable) = ("--timeout=$(T)".to_owned(), "T".to_owned());
        container.args.push(Err(Unknown { spelled, variable }));
        let line = check(&container, None);
        assert_eq!(line.findings.last().map(|it| it.severity), Some(Severity::Unchecked));
        assert!(line.flags.is_some());
    }
}
