//! docs/architecture.md draws the modules in layers: each module uses only modules of lower layers. It also says
//! that every `select!` is `biased`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use crate::{files, here};

const PAGE: &str = include_str!("../../docs/architecture.md");

/// The layer of each module in the picture, counted from the top. A module's name is the first word
/// of its cell.
fn layers() -> BTreeMap<&'static str, usize> {
    let lines = PAGE.lines().filter(|line| line.starts_with('│') || line.starts_with('├'));
    let mut layers = BTreeMap::new();
    let mut layer = 0;
    for line in lines {
        layer += usize::from(line.starts_with('├'));
        for cell in line.split('│') {
            let name = cell.strip_prefix(' ').unwrap_or_default().split(' ').next();
            layers.extend(name.filter(|name| !name.is_empty()).map(|name| (name, layer)));
        }
    }
    layers
}

/// The modules of the library that a source file names, its own included.
fn modules_used(source: &str) -> BTreeSet<String> {
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = code.collect::<Vec<_>>().join("\n");
    code.split("crate::").skip(1).flat_map(first_names).collect()
}

/// The first segment of a path, or of each path of a group in braces.
fn first_names(path: &str) -> Vec<String> {
    let Some(group) = path.strip_prefix('{') else { return vec![identifier(path)] };
    let mut depth = 1;
    let mut names = vec![identifier(group.trim_start())];
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => names.push(identifier(group[at + 1..].trim_start())),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

fn identifier(text: &str) -> String {
    text.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
}

/// Every source file of the library and the binary: its path below `src`, and its text.
fn sources() -> Vec<(PathBuf, String)> {
    let directory = here("src");
    let below = |path: &Path| path.strip_prefix(&directory).unwrap().to_owned();
    let files = files(&directory).into_iter();
    files.map(|path| (below(&path), fs::read_to_string(path).unwrap())).collect()
}

/// The names of the directories and of the file in a path, without endings.
fn names(path: &Path) -> Vec<String> {
    path.with_extension("").iter().map(|name| name.to_str().unwrap().to_owned()).collect()
}

#[test]
fn each_module_uses_only_modules_of_lower_layers() {
    let layers = layers();
    let mut found = 0;
    for (path, source) in sources() {
        let module = names(&path).remove(0);
        if module == "lib" {
            continue;
        }
        let layer =
            |name: &str| *layers.get(name).unwrap_or_else(|| panic!("no {name} in the picture"));
        let used = modules_used(&source);
        let modules = used.iter().filter(|it| **it != module);
        for used in modules {
            found += 1;
            assert!(
                layer(used) > layer(&module),
                "{module} uses {used}, which is in no lower layer"
            );
        }
    }
    assert!(found >= 100, "the uses were not found");
}

/// The parts of a module that each of its parts uses, its own left out. Only `use` lines count.
fn parts_used(module: &str) -> BTreeMap<String, BTreeSet<String>> {
    let sources = sources().into_iter().filter_map(|(path, source)| {
        let names = names(&path);
        let is_test = names.iter().any(|name| name == "tests" || name == "testing");
        (names[0] == module && names.len() > 1 && !is_test).then_some((names, product(&source)))
    });
    let sources: Vec<(Vec<String>, String)> = sources.collect();
    let parts: BTreeSet<String> = sources.iter().map(|(names, _)| names[1].clone()).collect();
    let mut used: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (names, source) in &sources {
        let paths = source.split("use ").skip(1).flat_map(|rest| {
            let tree = rest.split(';').next().unwrap_or_default();
            paths(&tree.split_whitespace().collect::<String>())
        });
        let here = paths.filter_map(|path| whole(names, &path));
        let of_module = here.filter(|path| path[0] == module && path.len() > 1);
        let other = of_module.map(|mut path| path.remove(1)).filter(|it| *it != names[1]);
        let known = other.filter(|it| parts.contains(it));
        used.entry(names[1].clone()).or_default().extend(known);
    }
    used
}

/// The paths of a `use` tree without spaces.
fn paths(tree: &str) -> Vec<String> {
    let Some((before, group)) = tree.split_once('{') else { return vec![tree.to_owned()] };
    let group = group.strip_suffix('}').unwrap_or(group);
    let mut depth = 0;
    let items = group.split(|letter| {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        letter == ',' && depth == 0
    });
    items.flat_map(paths).map(|path| format!("{before}{path}")).collect()
}

/// The path from the library's root, if it is one of the library, as `names` writes it.
fn whole(names: &[String], path: &str) -> Option<Vec<String>> {
    let mut segments: Vec<String> = path.split("::").map(str::to_owned).collect();
    let mut base = match segments[0].as_str() {
        "crate" => Vec::new(),
        "self" | "super" => names.to_vec(),
        _ => return None,
    };
    while ["crate", "self", "super"]
        .iter()
        .any(|word| segments.first().is_some_and(|it| it == word))
    {
        if segments.remove(0) == "super" {
            base.pop();
        }
    }
    base.extend(segments);
    Some(base)
}

#[test]
fn no_parts_of_controller_and_kube_use_each_other() {
    for module in ["controller", "kube"] {
        let mut left = parts_used(module);
        assert!(left.len() > 5, "{module}: {left:?}");
        // Parts that use none of those that are left go, until none is left.
        while !left.is_empty() {
            let before = left.len();
            let names: BTreeSet<String> = left.keys().cloned().collect();
            left.retain(|_, used| used.iter().any(|it| names.contains(it)));
            assert!(left.len() < before, "parts of {module} use each other: {left:?}");
        }
    }
}

#[test]
fn the_picture_shows_every_module_of_the_library_and_no_others() {
    let library = include_str!("../../src/lib.rs");
    let modules = library.lines().filter_map(|line| {
        line.strip_prefix("pub ").unwrap_or(line).strip_prefix("mod ")?.strip_suffix(';')
    });
    let expected: BTreeSet<_> = modules.chain(["main"]).collect();
    assert_eq!(layers().into_keys().collect::<BTreeSet<_>>(), expected);
}

/// The code of a source file that is part of the product: without comments and tests.
fn product(source: &str) -> String {
    let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_select_is_biased() {
    let is_test = |name: &String| ["tests", "testing", "fake"].contains(&name.as_str());
    let mut found = 0;
    for (path, source) in sources() {
        if names(&path).iter().any(is_test) {
            continue;
        }
        for select in product(&source).split("select!").skip(1) {
            found += 1;
            let is_biased = select.trim_start_matches([' ', '{', '\n']).starts_with("biased;");
            assert!(is_biased, "{} has a select! without `biased;`", path.display());
        }
    }
    assert!(found >= 10, "the selects were not found");
}
