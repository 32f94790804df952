//! AWS EBS.

use go_fmt::quote;
use k8s_openapi::api::core::v1::{
    AWSElasticBlockStoreVolumeSource, CSIPersistentVolumeSource, PersistentVolume,
};

use crate::{
    Class, InTreeSource, Plugin, Translated, Untranslatable, Volume, attribute, class,
    partition::{self, PARTITION},
    spec, topology,
};

const DRIVER: &str = "ebs.csi.aws.com";
const ZONE: &str = "topology.ebs.csi.aws.com/zone";
/// The IOPS of the volume for each GiB.
const IOPS_PER_GB: &str = "iopspergb";
/// The plugin raised IOPS that were too low for a volume; the driver does so only with this
/// parameter.
const RAISE_IOPS: &str = "allowautoiopspergbincrease";

pub(crate) const PLUGIN: Plugin = Plugin {
    driver: DRIVER,
    in_tree: "kubernetes.io/aws-ebs",
    class_to_csi,
    to_in_tree,
    to_csi,
    node_affinity: |volume| topology::zones_to_csi(volume, ZONE),
};

fn class_to_csi(class: &mut Class<'_>) -> Result<(), Untranslatable> {
    class::rename_fs_type(class);
    if class.parameters.keys().any(|key| key.to_lowercase() == IOPS_PER_GB) {
        class.parameters.insert(RAISE_IOPS.to_owned(), "true".to_owned());
    }
    class::zones_to_topologies(class, ZONE)
}

fn to_in_tree(
    csi: &CSIPersistentVolumeSource,
    volume: &mut PersistentVolume,
) -> Result<(), Untranslatable> {
    let partition = attribute(csi, PARTITION);
    let partition = partition.map(|text| partition::parse(text, "failed")).transpose()?;
    topology::zones_to_in_tree(volume, ZONE, Some(region_of))?;
    spec(volume).aws_elastic_block_store = Some(AWSElasticBlockStoreVolumeSource {
        volume_id: csi.volume_handle.clone(),
        fs_type: csi.fs_type.clone(),
        read_only: csi.read_only,
        partition,
    });
    Ok(())
}

fn to_csi(_: &Volume<'_>, source: &InTreeSource) -> Option<Translated> {
    let InTreeSource::AwsEbs(ebs) = source else { return None };
    let partition = ebs.partition.map(|partition| (PARTITION.to_owned(), partition.to_string()));
    Some(volume_id(&ebs.volume_id).map(|id| (id, partition.into_iter().collect())))
}

/// EBS' own id of a volume that Kubernetes calls `aws://<zone>/<id>`, `aws:///<id>` or by its id.
///
/// Anything else that Go reads as a URL with a path, such as one with a port, is refused.
fn volume_id(id: &str) -> Result<String, Untranslatable> {
    let Some(rest) = id.strip_prefix("aws://") else { return Ok(id.to_owned()) };
    let invalid = |why| {
        Untranslatable::invalid(format!(
            "failed to translate Kubernetes ID to EBS Volume ID Invalid {why}"
        ))
    };
    let (zone, path) = rest.split_once('/').unwrap_or((rest, ""));
    if let Some(odd) =
        zone.chars().find(|c| !c.is_ascii_alphanumeric() && !"-_.~!$&'()*+,;=".contains(*c))
    {
        let (url, odd) = (quote(id), quote(&odd.to_string()));
        return Err(invalid(format!(
            "disk name ({id}): parse {url}: invalid character {odd} in host name"
        )));
    }
    let own = path.trim_matches('/');
    let is_own = own
        .strip_prefix("vol-")
        .is_some_and(|rest| !rest.contains(|c: char| "/?#%".contains(c) || c.is_control()));
    if is_own { Ok(own.to_owned()) } else { Err(invalid(format!("format for AWS volume ({id})"))) }
}

/// The region of all zones.
fn region_of(zones: &[&str]) -> Result<String, Untranslatable> {
    topology::only_region(zones, |zone| {
        region(zone).ok_or_else(|| {
            Untranslatable::invalid(format!(
                "Unexpected zone format: {zone} is not a valid AWS zone"
            ))
        })
    })
}

/// The region of a zone such as us-west-2a and us-gov-east-1a, of a local one such as
/// us-west-2-lax-1a, or of one such as us-east-1-wl1-bos-wlz-1.
fn region(zone: &str) -> Option<String> {
    let parts: Vec<&str> = zone.split('-').collect();
    match parts.as_slice() {
        [head @ .., last] if [3, 4].contains(&parts.len()) && last.len() == 2 => {
            Some([head, &[last.get(..1)?]].concat().join("-"))
        }
        [a, b, c, _, _] | [a, b, c, _, _, _, _] => Some([*a, b, c].join("-")),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
