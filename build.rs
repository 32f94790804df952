//! Turns `proto/csi.proto` into the messages and clients that `src/csi` includes. Messages are logged as JSON
//! (`src/csi/shown.rs`), in which the fields that the CSI spec marks secret are stripped.

use std::error::Error;

/// The fields that are enumerations, with what serializes their names.
const NAMES: [(&str, &str); 3] = [
    ("csi.v1.VolumeCapability.AccessMode.mode", "access_mode"),
    ("csi.v1.PluginCapability.Service.type", "service"),
    ("csi.v1.ControllerServiceCapability.RPC.type", "rpc"),
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto/csi.proto");

    // protox parses the file itself: no protoc is needed on the machine that builds this.
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).open_file("csi.proto")?;
    let pool = compiler.descriptor_pool();
    let secret = pool
        .get_extension_by_name("csi.v1.csi_secret")
        .ok_or("proto/csi.proto does not declare csi_secret")?;

    let mut builder = tonic_prost_build::configure()
        // Over a connection of our own (src/csi/link.rs), not over tonic's `Channel`.
        .build_client(true)
        .build_transport(false)
        .build_server(false)
        // Sorted maps: the same request has the same bytes, whatever the hasher's seed.
        .btree_map(".")
        // Comments of a .proto would be read as doctests.
        .disable_comments(["."])
        .type_attribute(".csi.v1", "#[derive(serde::Serialize)]");
    for message in pool.all_messages().filter(|it| it.package_name() == "csi.v1") {
        let plain = message.fields().filter(|field| field.containing_oneof().is_none());
        let oneofs = message.oneofs().map(|oneof| oneof.full_name().to_owned());
        for field in plain.map(|field| field.full_name().to_owned()).chain(oneofs) {
            builder = builder.field_attribute(field, serde("skip_serializing_if", "is_unset"));
        }
        for field in message.fields() {
            if field.options().get_extension(&secret).as_bool() == Some(true) {
                // The message has no Debug that shows it, either.
                builder = builder
                    .skip_debug([message.full_name()])
                    .field_attribute(field.full_name(), serde("serialize_with", "stripped"));
            }
        }
    }
    for (field, by) in NAMES {
        builder = builder.field_attribute(field, serde("serialize_with", by));
    }
    builder.compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}

/// An attribute that names a function of `src/csi/shown.rs`.
fn serde(attribute: &str, function: &str) -> String {
    format!("#[serde({attribute} = \"crate::csi::shown::{function}\")]")
}
