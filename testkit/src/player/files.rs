//! Where scenarios are found.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Folders beside the scenarios that hold something else.
const NOT_SCENARIOS: [&str; 2] = ["cluster", "differences"];

/// All scenario files in a directory and its folders, in order of their paths.
pub fn scenario_files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut entries: Vec<_> = fs::read_dir(directory)?.collect::<io::Result<_>>()?;
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        let path = entry.path();
        if path.is_dir() {
            if !NOT_SCENARIOS.iter().any(|name| entry.file_name() == *name) {
                files.extend(scenario_files(&path)?);
            }
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    Ok(files)
}
