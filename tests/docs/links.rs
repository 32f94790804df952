//! Every link of a page leads somewhere, and README.md leads to every page.

use std::{collections::BTreeSet, fs, path::Path};

use crate::{files, here};

/// What is read by people, beside docs/.
const OTHERS: [&str; 5] =
    ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "deploy/README.md"];

/// The anchors of a page: those that are written down, and those of its headings.
pub(super) fn anchors(page: &str) -> Vec<String> {
    let written = page.split("<a id=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
    let mut is_code = false;
    let headings = page.lines().filter_map(|line| {
        is_code ^= line.starts_with("```");
        line.strip_prefix('#').filter(|_| !is_code)
    });
    let slugs = headings.map(|heading| slug(heading.trim_start_matches('#').trim()));
    written.map(str::to_owned).chain(slugs).collect()
}

/// The anchor that GitHub gives a heading.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// The targets of the links of a page, without those to other hosts.
fn links(page: &str) -> impl Iterator<Item = &str> {
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://"))
}

/// Whether the target of a link of the page at `path` exists.
fn leads_somewhere(path: &Path, link: &str) -> bool {
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if file.is_empty() { path.to_owned() } else { path.with_file_name(file) };
    let has =
        |anchor: &str| anchors(&fs::read_to_string(&target).unwrap()).iter().any(|it| it == anchor);
    target.exists() && (anchor.is_empty() || has(anchor))
}

#[test]
fn links_lead_somewhere() {
    let mut pages = files(&here("docs"));
    pages.extend(OTHERS.map(here));
    let mut found = 0;
    for path in pages.iter().filter(|path| path.extension().is_some_and(|it| it == "md")) {
        let page = fs::read_to_string(path).unwrap();
        for link in links(&page) {
            found += 1;
            assert!(leads_somewhere(path, link), "{}: {link}", path.display());
        }
    }
    assert!(found >= 200, "the links were not found: {found}");
}

#[test]
fn the_readme_leads_to_every_page() {
    let readme = fs::read_to_string(here("README.md")).unwrap();
    let linked: BTreeSet<_> =
        links(&readme).filter_map(|it| it.split('#').next()).map(here).collect();
    for page in fs::read_dir(here("docs")).unwrap().map(|page| page.unwrap().path()) {
        assert!(
            page.is_dir() || linked.contains(&page),
            "README.md does not lead to {}",
            page.display()
        );
    }
}
