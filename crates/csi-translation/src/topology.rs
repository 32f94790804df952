//! A volume's zones and regions: Kubernetes' labels, and the drivers' topology keys.
//!
//! Translates node affinity and labels of a PersistentVolume. Labels repeat the affinity,
//! for programs that select volumes by label; several zones are a list in one label.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume, VolumeNodeAffinity,
};

use crate::{Untranslatable, Volume, spec};

/// Kubernetes' label for zones.
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
/// Its older name.
pub(crate) const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
/// Kubernetes' label for regions.
pub(crate) const REGION: &str = "topology.kubernetes.io/region";
/// Its older name.
pub(crate) const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
/// Separates the zones in a label.
pub(crate) const SEPARATOR: &str = "__";

/// The keys that a volume uses for zone and region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) zone: &'static str,
    pub(crate) region: &'static str,
}

const NEW: Keys = Keys { zone: ZONE, region: REGION };
const BETA: Keys = Keys { zone: BETA_ZONE, region: BETA_REGION };

/// The keys that a volume uses: affinity before labels, newer before older.
fn keys(affinity: Option<&VolumeNodeAffinity>, has_label: impl Fn(&str) -> bool) -> Keys {
    let in_affinity = |keys: &Keys| expressions(affinity).any(|it| it.key == keys.zone);
    let mut known = [NEW, BETA].into_iter();
    let found = known.clone().find(in_affinity);
    found.or_else(|| known.find(|keys| has_label(keys.zone))).unwrap_or(NEW)
}

/// Every expression of every term.
fn expressions(
    affinity: Option<&VolumeNodeAffinity>,
) -> impl Iterator<Item = &NodeSelectorRequirement> {
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    let terms = required.into_iter().flat_map(|required| &required.node_selector_terms);
    terms.flat_map(|term| term.match_expressions.iter().flatten())
}

/// The values of a key in all terms, sorted and unique.
fn values(affinity: Option<&VolumeNodeAffinity>, key: &str) -> BTreeSet<String> {
    let of_key = expressions(affinity).filter(|it| it.key == key);
    of_key.flat_map(|it| it.values.iter().flatten().cloned()).collect()
}

/// Every term, mutable.
fn terms(affinity: &mut Option<VolumeNodeAffinity>) -> &mut [NodeSelectorTerm] {
    let required = affinity.as_mut().and_then(|affinity| affinity.required.as_mut());
    required.map(|required| &mut *required.node_selector_terms).unwrap_or_default()
}

fn rename(affinity: &mut Option<VolumeNodeAffinity>, old: &str, new: &str) {
    for term in terms(affinity) {
        for expression in term.match_expressions.iter_mut().flatten().filter(|it| it.key == old) {
            new.clone_into(&mut expression.key);
        }
    }
}

/// Adds to every term (creating one if there is none) the requirement that `key` has one of the
/// values; empty values are ignored.
fn add<'a>(
    affinity: &mut Option<VolumeNodeAffinity>,
    key: &str,
    values: impl IntoIterator<Item = &'a str>,
) {
    let values: BTreeSet<&str> =
        values.into_iter().map(str::trim).filter(|it| !it.is_empty()).collect();
    if values.is_empty() {
        return;
    }
    let required = affinity.get_or_insert_default().required.get_or_insert_default();
    if required.node_selector_terms.is_empty() {
        required.node_selector_terms.push(NodeSelectorTerm::default());
    }
    for term in &mut required.node_selector_terms {
        term.match_expressions.get_or_insert_default().push(is_in(key, values.iter().copied()));
    }
}

fn is_in<'a>(key: &str, values: impl IntoIterator<Item = &'a str>) -> NodeSelectorRequirement {
    NodeSelectorRequirement {
        key: key.to_owned(),
        operator: "In".to_owned(),
        values: Some(values.into_iter().map(str::to_owned).collect()),
    }
}

/// Sets a label unless it is there.
fn label(volume: &mut PersistentVolume, key: &str, value: impl FnOnce() -> String) {
    let labels = volume.metadata.labels.get_or_insert_default();
    labels.entry(key.to_owned()).or_insert_with(value);
}

// === CSI to in-tree ===

/// Finds the region that zones are in.
pub(crate) type RegionOf = fn(&[&str]) -> Result<String, Untranslatable>;

/// The region of all zones, given the region of each.
pub(crate) fn only_region(
    zones: &[&str],
    region_of: impl Fn(&str) -> Result<String, Untranslatable>,
) -> Result<String, Untranslatable> {
    let regions = zones.iter().map(|zone| region_of(zone)).collect::<Result<BTreeSet<_>, _>>()?;
    let mut found = regions.iter();
    match (found.next(), found.next()) {
        (None, _) => Err(Untranslatable::invalid("no zones specified")),
        (Some(only), None) => Ok(only.clone()),
        _ => {
            let set: Vec<String> = regions.iter().map(|region| format!("{region}:{{}}")).collect();
            Err(Untranslatable::invalid(format!(
                "multiple or no regions gotten from zones, got: map[{}]",
                set.join(" ")
            )))
        }
    }
}

fn keys_of(volume: &PersistentVolume) -> Keys {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    let labels = volume.metadata.labels.as_ref();
    keys(affinity, |key| labels.is_some_and(|labels| labels.contains_key(key)))
}

/// The values of a key, in the affinity of a PersistentVolume.
fn values_of(volume: &PersistentVolume, key: &str) -> BTreeSet<String> {
    values(volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref()), key)
}

/// Renames the driver's zone key to Kubernetes', sets the label, and adds the region.
///
/// # Errors
/// The zones do not determine a region.
pub(crate) fn zones_to_in_tree(
    volume: &mut PersistentVolume,
    driver_key: &str,
    region_of: Option<RegionOf>,
) -> Result<(), Untranslatable> {
    let keys = keys_of(volume);
    rename(&mut spec(volume).node_affinity, driver_key, keys.zone);
    if let Some(region_of) = region_of {
        let name = volume.metadata.name.clone().unwrap_or_default();
        add_regions(volume, keys, region_of).map_err(|why| {
            Untranslatable::invalid(format!(
                "failed to translate topology. PV:{name}. Error:Failed to handle region topology. error: {why}"
            ))
        })?;
    }
    let zones = values_of(volume, keys.zone);
    if !zones.is_empty() {
        label(volume, keys.zone, || Vec::from_iter(zones).join(SEPARATOR));
    }
    Ok(())
}

/// Adds to each term without a region the region of its zones.
fn add_regions(
    volume: &mut PersistentVolume,
    keys: Keys,
    region_of: RegionOf,
) -> Result<(), Untranslatable> {
    for term in terms(&mut spec(volume).node_affinity) {
        let known = term.match_expressions.get_or_insert_default();
        if known.iter().any(|it| it.key == keys.region) {
            continue;
        }
        let zones = known.iter().filter(|it| it.key == keys.zone);
        let zones: Vec<&str> =
            zones.flat_map(|it| it.values.iter().flatten()).map(String::as_str).collect();
        let region = region_of(&zones)?;
        known.push(is_in(keys.region, [&*region]));
    }
    let regions = values_of(volume, keys.region);
    if regions.len() == 1 {
        label(volume, keys.region, || regions.into_iter().collect());
    }
    Ok(())
}

/// Renames the driver's zone and region keys to Kubernetes'; the labels get the first value of
/// each.
pub(crate) fn zones_and_regions_to_in_tree(volume: &mut PersistentVolume, driver: [&str; 2]) {
    let Keys { zone, region } = keys_of(volume);
    let pairs = || driver.into_iter().zip([zone, region]);
    for (driver_key, key) in pairs() {
        rename(&mut spec(volume).node_affinity, driver_key, key);
    }
    for (_, key) in pairs() {
        if let Some(first) = values_of(volume, key).into_iter().next() {
            label(volume, key, || first);
        }
    }
}

// === In-tree to CSI ===

/// The volume's node affinity with the driver's zone key; without affinity, the zones of the label.
pub(crate) fn zones_to_csi(volume: &Volume<'_>, driver_key: &str) -> Option<VolumeNodeAffinity> {
    let (mut affinity, keys) = affinity_and_keys(volume);
    to_driver(&mut affinity, keys.zone, driver_key, || {
        volume.label(keys.zone).into_iter().flat_map(|zones| zones.split(SEPARATOR)).collect()
    });
    // Newer nodes lack the older label.
    if keys.region == BETA_REGION {
        rename(&mut affinity, BETA_REGION, REGION);
    }
    affinity
}

/// The volume's node affinity with the driver's zone and region keys; a label holds one value of
/// each.
pub(crate) fn zones_and_regions_to_csi(
    volume: &Volume<'_>,
    driver: [&str; 2],
) -> Option<VolumeNodeAffinity> {
    let (mut affinity, keys) = affinity_and_keys(volume);
    for (driver_key, key) in driver.into_iter().zip([keys.zone, keys.region]) {
        to_driver(&mut affinity, key, driver_key, || volume.label(key).into_iter().collect());
    }
    affinity
}

fn affinity_and_keys(volume: &Volume<'_>) -> (Option<VolumeNodeAffinity>, Keys) {
    let affinity = volume.node_affinity.cloned();
    let keys = keys(affinity.as_ref(), |key| volume.label(key).is_some());
    (affinity, keys)
}

fn to_driver<'a>(
    affinity: &mut Option<VolumeNodeAffinity>,
    key: &str,
    driver_key: &str,
    labelled: impl FnOnce() -> Vec<&'a str>,
) {
    if values(affinity.as_ref(), key).is_empty() {
        add(affinity, driver_key, labelled());
    } else {
        rename(affinity, key, driver_key);
    }
}
