//! Turns `proto/csi.proto` into the messages and clients that `src/csi` includes, and lists the fields that
//! the CSI spec marks secret, so that no log line can print them.

use std::{env, error::Error, fmt::Write as _, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto/csi.proto");
    let out = PathBuf::from(env::var("OUT_DIR")?);

    // protox parses the file itself: no protoc is needed on the machine that builds this.
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).open_file("csi.proto")?;
    let descriptors = compiler.file_descriptor_set();

    tonic_prost_build::configure()
        // Over a connection of our own (src/csi/link.rs), not over tonic's `Channel`.
        .build_client(true)
        .build_transport(false)
        .build_server(false)
        // Sorted maps: the same request has the same bytes, whatever the hasher's seed.
        .btree_map(".")
        // Comments of a .proto would be read as doctests.
        .disable_comments(["."])
        // Messages that carry secrets get a Debug of their own (src/csi/redact.rs).
        .skip_debug([".csi.v1.CreateVolumeRequest", ".csi.v1.DeleteVolumeRequest"])
        .compile_fds(descriptors)?;
    fs::write(out.join("secret_fields.rs"), secret_fields(&compiler)?)?;
    Ok(())
}

/// Rust source of a table: (message, field) of every field with `[(csi_secret) = true]`.
fn secret_fields(compiler: &protox::Compiler) -> Result<String, Box<dyn Error>> {
    let pool = compiler.descriptor_pool();
    let extension = pool
        .get_extension_by_name("csi.v1.csi_secret")
        .ok_or("proto/csi.proto does not declare csi_secret")?;
    let mut source = String::from("&[\n");
    for message in pool.all_messages() {
        for field in message.fields() {
            if field.options().get_extension(&extension).as_bool() == Some(true) {
                writeln!(source, "    ({:?}, {:?}),", message.full_name(), field.name())?;
            }
        }
    }
    source.push(']');
    Ok(source)
}
