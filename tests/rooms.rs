//! The picture of the rooms is true: each uses only those that stand in rows below its own.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is tests

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

const PAGE: &str = include_str!("../docs/architecture.md");

/// The row of each room in the picture, counted from above; a room's name stands at the start of
/// its cell.
fn picture() -> BTreeMap<&'static str, usize> {
    let lines = PAGE.lines().filter(|line| line.starts_with('│') || line.starts_with('├'));
    let mut rooms = BTreeMap::new();
    let mut row = 0;
    for line in lines {
        row += usize::from(line.starts_with('├'));
        for cell in line.split('│') {
            let name = cell.strip_prefix(' ').unwrap_or_default().split(' ').next();
            rooms.extend(name.filter(|name| !name.is_empty()).map(|name| (name, row)));
        }
    }
    rooms
}

/// The rooms of the library that a source names, its own among them.
fn named(source: &str) -> BTreeSet<String> {
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = code.collect::<Vec<_>>().join("\n");
    code.split("crate::").skip(1).flat_map(first_names).collect()
}

/// What stands first in a path, or in each path of a group in braces.
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

/// Every source below a directory, with the room that it is of.
fn sources(directory: &Path, room: Option<&str>) -> Vec<(String, String)> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let room = room.unwrap_or(&stem);
            if path.is_dir() {
                sources(&path, Some(room))
            } else {
                vec![(room.to_owned(), fs::read_to_string(&path).unwrap())]
            }
        })
        .collect()
}

#[test]
fn each_room_uses_only_those_below_it() {
    let picture = picture();
    for (room, source) in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), None) {
        if room == "lib" {
            continue;
        }
        let row =
            |name: &str| *picture.get(name).unwrap_or_else(|| panic!("no {name} in the picture"));
        for used in named(&source).iter().filter(|used| **used != room) {
            assert!(row(used) > row(&room), "{room} uses {used}, which stands no lower");
        }
    }
}

#[test]
fn the_picture_shows_the_rooms_of_the_library_and_no_others() {
    let library = include_str!("../src/lib.rs");
    let modules = library.lines().filter_map(|line| {
        line.strip_prefix("pub ").unwrap_or(line).strip_prefix("mod ")?.strip_suffix(';')
    });
    let expected: BTreeSet<_> = modules.chain(["main"]).collect();
    assert_eq!(picture().into_keys().collect::<BTreeSet<_>>(), expected);
}

#[test]
fn names_are_found_in_paths_and_groups() {
    let source =
        "//! [`crate::app`]\nuse crate::{\n    a::{b, c},\n    d,\n};\nlet x = crate::e::f();";
    assert_eq!(named(source), ["a", "d", "e"].map(str::to_owned).into());
}
