//! Azure's file shares.

use go_fmt::quote;
use k8s_openapi::api::core::v1::{
    AzureFilePersistentVolumeSource, CSIPersistentVolumeSource, PersistentVolume,
};

use crate::{InTreeSource, Plugin, Translated, Untranslatable, Volume, attributes, kept, spec};

const DRIVER: &str = "file.csi.azure.com";
/// The annotation with the resource group of a PersistentVolume's share.
const RESOURCE_GROUP: &str = "kubernetes.io/azure-file-resource-group";
/// The default namespace of secrets.
const DEFAULT_NAMESPACE: &str = "default";

// The driver's volume attributes.
const SHARE_NAME: &str = "sharename";
const SECRET_NAME: &str = "secretname";
const SECRET_NAMESPACE: &str = "secretnamespace";

pub(crate) const PLUGIN: Plugin = Plugin {
    driver: DRIVER,
    in_tree: "kubernetes.io/azure-file",
    // The driver supports the plugin's parameters.
    class_to_csi: |_| Ok(()),
    to_in_tree,
    to_csi,
    node_affinity: kept,
};

fn to_in_tree(
    csi: &CSIPersistentVolumeSource,
    volume: &mut PersistentVolume,
) -> Result<(), Untranslatable> {
    let mut share = AzureFilePersistentVolumeSource {
        read_only: csi.read_only,
        ..AzureFilePersistentVolumeSource::default()
    };
    for (key, value) in csi.volume_attributes.iter().flatten() {
        match &*key.to_lowercase() {
            SHARE_NAME => share.share_name.clone_from(value),
            SECRET_NAME => share.secret_name.clone_from(value),
            SECRET_NAMESPACE => share.secret_namespace = Some(value.clone()),
            _ => {}
        }
    }
    let staging = csi.node_stage_secret_ref.clone().unwrap_or_default();
    if let Some(name) = staging.name.filter(|name| !name.is_empty()) {
        share.secret_name = name;
        share.secret_namespace = Some(staging.namespace.unwrap_or_default());
    }
    if share.share_name.is_empty() || share.secret_name.is_empty() {
        fill_by_id(&csi.volume_handle, &mut share, volume)?;
    }
    share.secret_namespace.get_or_insert_with(|| DEFAULT_NAMESPACE.to_owned());
    spec(volume).azure_file = Some(share);
    Ok(())
}

/// Fills missing fields from an id such as `group#account#share`.
fn fill_by_id(
    id: &str,
    share: &mut AzureFilePersistentVolumeSource,
    volume: &mut PersistentVolume,
) -> Result<(), Untranslatable> {
    let mut parts = id.split('#');
    let (Some(group), Some(account), Some(name)) = (parts.next(), parts.next(), parts.next())
    else {
        let quoted = quote(id);
        return Err(Untranslatable::invalid(format!(
            "error parsing volume id: {quoted}, should at least contain two #"
        )));
    };
    if share.share_name.is_empty() {
        name.clone_into(&mut share.share_name);
    }
    if share.secret_name.is_empty() {
        share.secret_name = format!("azure-storage-account-{account}-secret");
    }
    if !group.is_empty() {
        let annotations = volume.metadata.annotations.get_or_insert_default();
        annotations.insert(RESOURCE_GROUP.to_owned(), group.to_owned());
    }
    Ok(())
}

fn to_csi(volume: &Volume<'_>, source: &InTreeSource) -> Option<Translated> {
    let InTreeSource::AzureFile(share) = source else { return None };
    Some(source_of(volume, share))
}

fn source_of(volume: &Volume<'_>, share: &AzureFilePersistentVolumeSource) -> Translated {
    let namespace = share.secret_namespace.as_deref().unwrap_or(volume.claim_namespace);
    if namespace.is_empty() {
        return Err(Untranslatable::invalid(
            "could not find a secret namespace in PersistentVolumeSource or ClaimRef",
        ));
    }
    let group = volume.annotation(RESOURCE_GROUP);
    let account = account(&share.secret_name).unwrap_or(&share.secret_name);
    let handle = [group, account, &share.share_name, volume.name, namespace].join("#");
    Ok((handle, attributes([(SHARE_NAME, share.share_name.clone())])))
}

/// The storage account in a secret's name.
fn account(secret: &str) -> Option<&str> {
    let (_, behind) = secret.split_once("azure-storage-account-")?;
    let (account, _) = behind.rsplit_once("-secret")?;
    Some(account).filter(|account| !account.is_empty())
}

#[cfg(test)]
mod tests;
