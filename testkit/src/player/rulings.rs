//! Where the project does better than the reference, and by which ruling.
//!
//! Owns the reading of the rulings' table (`README.md` beside the scenarios) and of the files in
//! `differences/`: comment lines at the top, each a row of the table, then an `expect`, and an `or`
//! where the scenario's own requests race each other. Promises that no expectation is replaced
//! without rows that allow it.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{
    outcome::Outcome,
    yaml::{self, YamlError},
};

/// The header of the table of rulings.
const HEADER: &str = "| quirk | ruling |";

/// Why a difference is not allowed, or cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RulingError {
    /// A file cannot be read.
    #[error("{path}: {source}")]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A difference is not YAML.
    #[error("{path}: {source}")]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: YamlError,
    },
    /// The table is not where it should be.
    #[error("{0} has no table with the header {HEADER:?}")]
    NoTable(PathBuf),
    /// A difference does not say what it rests on.
    #[error("{0}: the first lines must be comments that each name a row of the rulings' table")]
    NoRow(PathBuf),
    /// A difference rests on a row that does not exist.
    #[error("{path}: the rulings' table has no row {row:?}")]
    UnknownRow {
        /// Which file.
        path: PathBuf,
        /// What one of its first lines names.
        row: String,
    },
    /// A difference rests on a row that allows none.
    #[error("{path}: the ruling on {row:?} is {ruling:?}, which allows no difference")]
    NotAllowed {
        /// Which file.
        path: PathBuf,
        /// What one of its first lines names.
        row: String,
        /// What is ruled there.
        ruling: String,
    },
    /// A difference changes more than the expectation.
    #[error("{0}: a difference holds `expect`, and maybe `or`, and nothing else")]
    OnlyExpect(PathBuf),
}

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

fn read(path: &Path) -> Result<String, RulingError> {
    fs::read_to_string(path)
        .map_err(|source| RulingError::Unreadable { path: path.to_owned(), source })
}

impl Rulings {
    /// Reads the table beside the scenarios.
    pub fn load(conformance: &Path) -> Result<Self, RulingError> {
        let path = conformance.join("README.md");
        let rows = table(&read(&path)?);
        if rows.is_empty() {
            return Err(RulingError::NoTable(path));
        }
        Ok(Self { rows, directory: conformance.join("differences") })
    }

    /// The expectation that stands in for that of the scenario file `scenario`, if there is one.
    pub fn on(&self, scenario: &Path) -> Result<Option<Ruled>, RulingError> {
        let Some(name) = scenario.file_name() else { return Ok(None) };
        let path = self.directory.join(name);
        if !path.exists() {
            return Ok(None);
        }
        let text = read(&path)?;
        let (expect, or) = expectation(&text, &path)?;
        Ok(Some(Ruled { rows: self.rows(&text, &path)?, expect, or }))
    }

    /// The rows that the first lines of a difference name, if they all allow one.
    fn rows(&self, text: &str, path: &Path) -> Result<Vec<String>, RulingError> {
        let named: Vec<_> = text.lines().map_while(|line| line.strip_prefix('#')).collect();
        if named.is_empty() || named.iter().any(|row| row.trim().is_empty()) {
            return Err(RulingError::NoRow(path.to_owned()));
        }
        named.into_iter().map(|row| self.row(row.trim(), path)).collect()
    }

    /// The row called `named`, if it allows a difference.
    fn row(&self, named: &str, path: &Path) -> Result<String, RulingError> {
        let row = named.to_owned();
        match self.rows.get(named) {
            None => Err(RulingError::UnknownRow { path: path.to_owned(), row }),
            Some(ruling) if !allows(ruling) => {
                let ruling = ruling.clone();
                Err(RulingError::NotAllowed { path: path.to_owned(), row, ruling })
            }
            Some(_) => Ok(row),
        }
    }
}

/// The rows of the table of rulings. Each quirk of a row that lists several stands for itself, too.
fn table(readme: &str) -> BTreeMap<String, String> {
    let body = readme.lines().skip_while(|line| line.trim() != HEADER).skip(2);
    let mut rows = BTreeMap::new();
    for line in body.take_while(|line| line.starts_with('|')) {
        let Some((quirk, ruling)) = cells(line) else { continue };
        for part in std::iter::once(quirk).chain(quirk.split(';')) {
            rows.insert(part.trim().to_owned(), ruling.to_owned());
        }
    }
    rows
}

fn cells(line: &str) -> Option<(&str, &str)> {
    let (quirk, ruling) = line.trim().strip_prefix('|')?.strip_suffix('|')?.split_once('|')?;
    Some((quirk.trim(), ruling.trim()))
}

/// Whether a ruling asks for something else than the reference does, at least sometimes.
fn allows(ruling: &str) -> bool {
    let same = ruling.strip_prefix("same");
    same.is_none_or(|rest| ["unless", "else", "better"].iter().any(|word| rest.contains(word)))
}

/// What a difference expects, and the outcome that is as good: the same but for what `or` holds.
fn expectation(text: &str, path: &Path) -> Result<(Outcome, Option<Outcome>), RulingError> {
    let node = yaml::document(text)
        .map_err(|source| RulingError::Malformed { path: path.to_owned(), source })?;
    let Value::Object(mut fields) = Value::from(node) else {
        return Err(RulingError::OnlyExpect(path.to_owned()));
    };
    match (fields.remove("expect"), fields.remove("or"), fields.is_empty()) {
        (Some(Value::Object(expect)), None, true) => Ok((expect, None)),
        (Some(Value::Object(expect)), Some(Value::Object(or)), true) => {
            let other = expect.clone().into_iter().chain(or).collect();
            Ok((expect, Some(other)))
        }
        _ => Err(RulingError::OnlyExpect(path.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const README: &str = "# x\n| a | b |\n|---|---|\n| no | better |\n\ntext\n| quirk | ruling |\n\
        |---|---|\n| leak; crash, too | better: none |\n| texts | same |\n\
        | dumps | same where stable, else other |\n\n| later | better |\n";

    fn rulings() -> Rulings {
        Rulings { rows: table(README), directory: PathBuf::new() }
    }

    #[test]
    fn only_rows_of_the_rulings_table_that_allow_it_carry_a_difference() {
        let rows = |text: &str| rulings().rows(text, Path::new("d.yaml"));
        for named in ["leak; crash, too", "leak", "crash, too", "dumps"] {
            assert_eq!(rows(&format!("# {named}\nexpect: {{}}\n")).unwrap(), [named]);
        }
        assert_eq!(rows("# leak\n# dumps\nexpect: {}\n# no row\n").unwrap(), ["leak", "dumps"]);
        for same in ["# texts\n", "# leak\n# texts\n"] {
            assert!(matches!(rows(same), Err(RulingError::NotAllowed { .. })), "{same}");
        }
        for unknown in ["# no\n", "# later\n", "# lea\n", "# better: none\n", "# leak\n# no\n"] {
            assert!(matches!(rows(unknown), Err(RulingError::UnknownRow { .. })), "{unknown}");
        }
        for nameless in ["", "expect: {}\n", "#\nexpect: {}\n", "# leak\n#\n"] {
            assert!(matches!(rows(nameless), Err(RulingError::NoRow(_))), "{nameless:?}");
        }
    }

    #[test]
    fn a_difference_holds_an_expectation_and_nothing_else() {
        let read = |text: &str| expectation(text, Path::new("d.yaml"));
        let (expect, or) = read("# r\nexpect: {exit: 1}\n").unwrap();
        assert!(expect["exit"] == 1 && or.is_none());
        let (expect, or) = read("expect: {exit: 1, pvs: []}\nor: {exit: 2}\n").unwrap();
        assert_eq!(Value::from(expect), json!({"exit": 1, "pvs": []}));
        assert_eq!(or.map(Value::from), Some(json!({"exit": 2, "pvs": []})));
        let steps = "expect: {}\nsteps: []\n";
        for wrong in [steps, "steps: []\n", "expect: []\n", "[]\n", "expect: {}\nor: []\n"] {
            assert!(matches!(read(wrong), Err(RulingError::OnlyExpect(_))), "{wrong}");
        }
    }

    #[test]
    fn the_projects_own_table_is_found() {
        let conformance = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/conformance");
        let rulings = Rulings::load(&conformance).unwrap();
        assert!(rulings.rows.contains_key("DeleteVolume sent twice"));
        assert!(rulings.on(Path::new("x/no-such-scenario.yaml")).unwrap().is_none());
    }
}
