//! The durable record of an open call: a finalizer and an annotation on the claim itself.
//!
//! Owns their names. A claim that carries the finalizer may have a volume at the driver that no
//! PersistentVolume names, so it is kept in sight even when it is bound or handed on.

/// On a claim while its CreateVolume may still be running and nobody has saved its outcome.
pub const FINALIZER: &str = "provisioner.storage.kubernetes.io/provisioning-protection";
