//! Which scenarios a test run plays.

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

/// The files that a list of due scenarios names: a name or glob (`*` and `?`) a line, `#` begins a
/// comment. Told as well: the lines that name nothing, which are mistakes.
pub fn due<'a>(list: &'a str, files: &[PathBuf]) -> (Vec<PathBuf>, Vec<&'a str>) {
    let lines = list.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    let name = |file: &PathBuf| {
        file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned()
    };
    let named = |line: &str, file: &PathBuf| fits(line.as_bytes(), name(file).as_bytes());
    let chosen = files.iter().filter(|file| lines.iter().any(|line| named(line, file))).cloned();
    let idle = lines.iter().filter(|line| !files.iter().any(|file| named(line, file))).copied();
    (chosen.collect(), idle.collect())
}

/// Whether a glob fits a whole name.
fn fits(glob: &[u8], name: &[u8]) -> bool {
    match (glob.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => {
            fits(rest, name) || name.split_first().is_some_and(|(_, later)| fits(glob, later))
        }
        (Some((b'?', glob)), Some((_, name))) => fits(glob, name),
        (Some((a, glob)), Some((b, name))) => a == b && fits(glob, name),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_globs_choose_and_idle_lines_are_told() {
        let files = ["x/a-one.yaml", "x/a-two.yaml", "y/b.yaml"].map(PathBuf::from);
        let (chosen, idle) = due("# all of a\na-*  # here\n\nc\nb?\n", &files);
        assert_eq!(chosen, files[..2]);
        assert_eq!(idle, ["c", "b?"]);
        assert_eq!(due("b\n*-two\n", &files).0, [files[1].clone(), files[2].clone()]);
        assert_eq!(due("", &files).0, Vec::<PathBuf>::new());
    }

    #[test]
    fn the_recorded_scenarios_are_found_without_manifests() {
        let conformance = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/conformance");
        let files = scenario_files(&conformance).unwrap();
        assert!(files.len() >= 229, "{}", files.len());
        assert!(!files.iter().any(|file| file.ends_with("crds.yaml")));
    }
}
