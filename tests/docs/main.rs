//! What stands beside the code says the same as the code: pages, manifests, alerts, and the picture of the
//! modules.

// Helpers panic, as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::{
    fs,
    path::{Path, PathBuf},
};

mod deployment;
mod differences;
mod kustomize;
mod links;
mod metrics;
mod modules;
mod rights;
mod safety;
mod troubleshooting;

/// A file or folder of the project.
fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The files at or below a path.
fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| files(&path)).collect()
}

/// The sources of the program below a folder, without files of tests and without the tests at the end of others.
fn shipped(folder: &str) -> Vec<String> {
    let folder = here(folder);
    let is_test = |path: &PathBuf| {
        let below = path.strip_prefix(&folder).unwrap();
        let mut parts = below.iter().filter_map(|part| part.to_str()?.split('.').next());
        parts.any(|part| ["tests", "testing"].contains(&part))
    };
    let files = files(&folder).into_iter().filter(|path| !is_test(path));
    let texts = files.map(|path| fs::read_to_string(path).unwrap());
    texts.map(|text| text.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned()).collect()
}
