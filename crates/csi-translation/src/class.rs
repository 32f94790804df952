//! Shared by the translations of several plugins' classes: file system, zones, topology keys.
//!
//! Keys of parameters are case-insensitive, as in the plugins.

use std::mem::take;

use k8s_openapi::api::core::v1::{TopologySelectorLabelRequirement, TopologySelectorTerm};

use crate::{Class, Untranslatable, topology};

/// The provisioner's parameter for the file system.
pub(crate) const CSI_FS_TYPE: &str = "csi.storage.k8s.io/fstype";
/// The plugins' parameter for the file system.
pub(crate) const FS_TYPE: &str = "fstype";

/// Renames the plugin's file system parameter to the provisioner's.
pub(crate) fn rename_fs_type(class: &mut Class<'_>) {
    for value in take_parameter(class, FS_TYPE) {
        class.parameters.insert(CSI_FS_TYPE.to_owned(), value);
    }
}

/// Removes a parameter, in any case of its key; returns its values.
fn take_parameter(class: &mut Class<'_>, key: &str) -> Vec<String> {
    let (taken, kept): (Vec<_>, Vec<_>) =
        take(class.parameters).into_iter().partition(|(name, _)| name.to_lowercase() == key);
    *class.parameters = kept.into_iter().collect();
    taken.into_iter().map(|(_, value)| value).collect()
}

/// Converts the parameters `zone` and `zones` to an allowed topology with the driver's key, or
/// otherwise renames the key of the class's allowed topologies.
///
/// # Errors
/// The class has both.
pub(crate) fn zones_to_topologies(
    class: &mut Class<'_>,
    driver_key: &str,
) -> Result<(), Untranslatable> {
    let one = take_parameter(class, "zone").into_iter().map(|zone| vec![zone]);
    let several = take_parameter(class, "zones");
    // Split as the plugins do: a space after a comma belongs to the zone.
    let several = several.iter().map(|zones| zones.split(',').map(str::to_owned).collect());
    match one.chain(several).last() {
        // Ambiguous.
        Some(_) if !class.allowed_topologies.is_empty() => Err(Untranslatable::invalid(
            "cannot simultaneously set allowed topologies and zone/zones parameters",
        )),
        Some(values) => {
            let only = TopologySelectorLabelRequirement { key: driver_key.to_owned(), values };
            *class.allowed_topologies =
                vec![TopologySelectorTerm { match_label_expressions: Some(vec![only]) }];
            Ok(())
        }
        None => {
            rename_zone_keys(class, driver_key);
            Ok(())
        }
    }
}

/// Renames Kubernetes' zone keys in the allowed topologies to the driver's; others stay.
pub(crate) fn rename_zone_keys(class: &mut Class<'_>, driver_key: &str) {
    for expression in expressions(class) {
        if [topology::ZONE, topology::BETA_ZONE].contains(&&*expression.key) {
            driver_key.clone_into(&mut expression.key);
        }
    }
}

/// All expressions of the allowed topologies.
pub(crate) fn expressions<'a>(
    class: &'a mut Class<'_>,
) -> impl Iterator<Item = &'a mut TopologySelectorLabelRequirement> {
    let terms = class.allowed_topologies.iter_mut();
    terms.flat_map(|term| term.match_label_expressions.iter_mut().flatten())
}
