//! docs/differences.md lists exactly the differences that have an expectation in `tests/conformance`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use testkit::player::{Rulings, scenario_files};

use crate::here;

fn conformance() -> PathBuf {
    here("tests/conformance")
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap().to_string_lossy().into_owned()
}

/// Every recorded scenario, by name.
fn scenarios() -> BTreeMap<String, PathBuf> {
    let files = scenario_files(&conformance()).unwrap();
    files.into_iter().map(|file| (stem(&file), file)).collect()
}

/// The scenarios that have an expectation by ruling.
fn ruled() -> BTreeSet<String> {
    let files = fs::read_dir(conformance().join("differences")).unwrap();
    files.map(|file| stem(&file.unwrap().path())).collect()
}

/// What the last column of a page's tables names.
fn named(page: &str) -> BTreeSet<String> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix('|'));
    let last = rows.filter_map(|row| row.rsplit('|').next());
    let names = last.flat_map(|cell| cell.split(',')).map(str::trim);
    names.filter_map(|name| name.strip_prefix('`')?.strip_suffix('`')).map(str::to_owned).collect()
}

#[test]
fn the_page_names_every_difference_and_nothing_else() {
    let page = fs::read_to_string(here("docs/differences.md")).unwrap();
    assert_eq!(named(&page), ruled());
}

#[test]
fn every_difference_is_about_a_recorded_scenario_and_rests_on_rulings() {
    let scenarios = scenarios();
    let rulings = Rulings::load(&conformance()).unwrap();
    for name in ruled() {
        let scenario = scenarios.get(&name).unwrap_or_else(|| panic!("no scenario {name}"));
        let ruled = rulings.on(scenario).unwrap().unwrap();
        assert!(!ruled.rows.is_empty() && !ruled.expect.is_empty(), "{name}");
    }
}
