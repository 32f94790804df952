//! Where the project does better than the reference, and by which ruling.
//!
//! A file in `differences/` begins with comment lines, each a row of the rulings' table (`README.md` beside the
//! scenarios) that allows a difference, and holds an `expect`, and an `or` where the scenario's own requests race each
//! other. No expectation is replaced without such rows.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{PlayError, outcome::Outcome, yaml};

/// The header of the table of rulings.
const HEADER: &str = "| quirk | ruling |";

/// The table of rulings: quirk to ruling.
#[derive(Debug, Clone, Default)]
pub struct Rulings {
    rows: BTreeMap<String, String>,
    directory: PathBuf,
}

/// An expectation in place of the recorded one.
#[derive(Debug, Clone)]
pub struct Ruled {
    /// The rows it rests on.
    pub rows: Vec<String>,
    /// What is expected instead.
    pub expect: Outcome,
    /// Another outcome that is as good, where the scenario's own requests race each other.
    pub or: Option<Outcome>,
}

impl Rulings {
    /// Reads the table beside the scenarios.
    pub fn load(conformance: &Path) -> Result<Self, PlayError> {
        let path = conformance.join("README.md");
        let rows = table(&fs::read_to_string(&path)?);
        if rows.is_empty() {
            return Err(
                format!("{} has no table with the header {HEADER:?}", path.display()).into()
            );
        }
        Ok(Self { rows, directory: conformance.join("differences") })
    }

    /// The expectation that stands in for that of the scenario file `scenario`, if there is one.
    pub fn on(&self, scenario: &Path) -> Result<Option<Ruled>, PlayError> {
        let Some(name) = scenario.file_name() else { return Ok(None) };
        let path = self.directory.join(name);
        if !path.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(&path)?;
        let failed = |why: PlayError| format!("{}: {why}", path.display());
        let (expect, or) = expectation(&text).map_err(failed)?;
        Ok(Some(Ruled { rows: self.rows(&text).map_err(failed)?, expect, or }))
    }

    /// The rows that the first lines of a difference name, if they all allow one.
    fn rows(&self, text: &str) -> Result<Vec<String>, PlayError> {
        let named: Vec<_> = text.lines().map_while(|line| line.strip_prefix('#')).collect();
        if named.is_empty() {
            let why = "the first lines must be comments that each name a row of the rulings' table";
            return Err(why.into());
        }
        let named = named.into_iter().map(str::trim);
        named
            .map(|row| match self.rows.get(row) {
                None => Err(format!("the rulings' table has no row {row:?}").into()),
                Some(ruling) if !allows(ruling) => {
                    Err(format!("the ruling on {row:?} is {ruling:?}, which allows no difference")
                        .into())
                }
                Some(_) => Ok(row.to_owned()),
            })
            .collect()
    }
}

/// The rows of the table of rulings. Each quirk of a row that lists several stands for itself, too.
fn table(readme: &str) -> BTreeMap<String, String> {
    let body = readme.lines().skip_while(|line| line.trim() != HEADER).skip(2);
    let mut rows = BTreeMap::new();
    for line in body.take_while(|line| line.starts_with('|')) {
        let cells = line.trim().trim_matches('|').split_once('|');
        let Some((quirk, ruling)) = cells else { continue };
        for part in std::iter::once(quirk).chain(quirk.split(';')) {
            rows.insert(part.trim().to_owned(), ruling.trim().to_owned());
        }
    }
    rows
}

/// Whether a ruling asks for something else than the reference does, at least sometimes.
fn allows(ruling: &str) -> bool {
    let same = ruling.strip_prefix("same");
    same.is_none_or(|rest| ["unless", "else", "better"].iter().any(|word| rest.contains(word)))
}

/// What a difference expects, and the outcome that is as good: the same but for what `or` holds.
fn expectation(text: &str) -> Result<(Outcome, Option<Outcome>), PlayError> {
    const WHY: &str = "a difference holds `expect`, and maybe `or`, and nothing else";
    let Value::Object(mut fields) = yaml::json(yaml::document(text)?)? else {
        return Err(WHY.into());
    };
    match (fields.remove("expect"), fields.remove("or"), fields.is_empty()) {
        (Some(Value::Object(expect)), None, true) => Ok((expect, None)),
        (Some(Value::Object(expect)), Some(Value::Object(or)), true) => {
            let other = expect.clone().into_iter().chain(or).collect();
            Ok((expect, Some(other)))
        }
        _ => Err(WHY.into()),
    }
}
