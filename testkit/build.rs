//! Turns the product's `proto/csi.proto` into server code and messages for the test drivers, and
//! keeps the descriptors, by which requests are written down as JSON.

use std::{env, error::Error, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=../proto/csi.proto");
    let mut compiler = protox::Compiler::new(["../proto"])?;
    compiler.include_imports(true).open_file("csi.proto")?;
    fs::write(
        PathBuf::from(env::var("OUT_DIR")?).join("csi_descriptors.bin"),
        compiler.encode_file_descriptor_set(),
    )?;
    tonic_prost_build::configure()
        .btree_map(".")
        .disable_comments(["."])
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
