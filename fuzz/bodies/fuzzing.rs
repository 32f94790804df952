//! Shared by the fuzz targets' bodies.
//!
//! Splits a body's input and, in tests, provides the cases that it runs with: random bytes, and
//! mutations of the examples in `fuzz/seeds/`, so that a property is also checked on nearly valid
//! input. Each body is a function in a file of its own here. It is compiled as a module of the code that
//! it checks, so that it may look inside, and only in tests and with the feature `fuzzing`;
//! `fuzz/fuzz_targets` runs them under libFuzzer.

#![allow(dead_code)] // each crate uses a part of it

use std::borrow::Cow;

/// The bytes as text; invalid UTF-8 is replaced.
pub(crate) fn text(data: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(data)
}

/// The first lines of the text; the last one holds the rest. Missing lines are empty.
pub(crate) fn lines<const N: usize>(text: &str) -> [&str; N] {
    let mut parts = text.splitn(N, '\n');
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}

/// Whether the text is a DNS subdomain, checked independently of the code under test: it may name
/// an object, and is safe in a log or a shell.
pub(crate) fn is_dns_name(text: &str) -> bool {
    let is_part = |part: &str| {
        let bytes = part.as_bytes();
        let plain =
            bytes.iter().all(|byte| b"abcdefghijklmnopqrstuvwxyz0123456789-".contains(byte));
        plain && !matches!((bytes.first(), bytes.last()), (None | Some(b'-'), _) | (_, Some(b'-')))
    };
    text.len() <= 253 && text.split('.').all(is_part)
}

#[cfg(test)]
pub(crate) use self::cases::run;

#[cfg(test)]
mod cases {
    use std::{fs, path::Path};

    use proptest::{
        collection::vec,
        prelude::*,
        sample::Index,
        strategy::Union,
        test_runner::{Config, TestError, TestRunner},
    };

    /// A mutation of an example.
    #[derive(Debug, Clone)]
    enum Change {
        /// Replaces the byte at this index.
        Set(Index, u8),
        /// Inserts these bytes before this index.
        Insert(Index, Vec<u8>),
        /// Removes the byte at this index and some after it.
        Remove(Index, usize),
        /// Inserts a part of another example before this index.
        Splice(Index, Index, Index, usize),
    }

    /// Bytes that are special to some parser.
    const TOKENS: [&str; 24] = [
        "\n",
        "\r\n",
        "\"",
        "\\",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "/",
        "..",
        "$",
        "${pvc.namespace}",
        "${pvc.name}",
        "null",
        "-1",
        "9223372036854775808",
        "\u{1b}[2J",
        "\u{202e}",
        "\u{fffd}",
        "%2f",
        "*",
        "\0",
    ];

    /// Runs a body with its examples unchanged, then with `cases` mutations of them and random
    /// inputs.
    pub(crate) fn run(name: &str, cases: u32, body: impl Fn(&[u8])) {
        let examples = examples(name);
        for example in &examples {
            body(example);
        }
        let config = Config { cases, failure_persistence: None, ..Config::default() };
        let checked = TestRunner::new(config).run(&inputs(examples), |input| {
            body(&input);
            Ok(())
        });
        match checked {
            Err(TestError::Fail(why, input)) => panic!("{why}: {}", input.escape_ascii()),
            checked => checked.unwrap(),
        }
    }

    fn examples(name: &str) -> Vec<Vec<u8>> {
        let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        let directory = above.map(|it| it.join("fuzz/seeds").join(name)).find(|it| it.is_dir());
        let mut paths: Vec<_> =
            fs::read_dir(directory.unwrap()).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths.iter().map(|path| fs::read(path).unwrap()).collect()
    }

    fn inputs(examples: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
        let mutated = (any::<Index>(), vec(change(), 1..5)).prop_map(move |(which, changes)| {
            let start = which.get(&examples).clone();
            changes.iter().fold(start, |input, change| change.made(input, &examples))
        });
        prop_oneof![1 => vec(any::<u8>(), 0..64), 5 => mutated]
    }

    fn change() -> impl Strategy<Value = Change> {
        let token = prop::sample::select(&TOKENS[..]).prop_map(|token| token.as_bytes().to_vec());
        let bytes = Union::new([token.boxed(), vec(any::<u8>(), 1..4).boxed()]);
        let place = any::<Index>;
        prop_oneof![
            (place(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
            (place(), bytes).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
            (place(), 1..9_usize).prop_map(|(at, count)| Change::Remove(at, count)),
            (place(), place(), place(), 1..40_usize)
                .prop_map(|(at, of, from, count)| Change::Splice(at, of, from, count)),
        ]
    }

    impl Change {
        fn made(&self, mut input: Vec<u8>, examples: &[Vec<u8>]) -> Vec<u8> {
            let place = |at: &Index, length: usize| at.index(length + 1);
            match self {
                Self::Set(at, byte) => {
                    if !input.is_empty() {
                        *at.get_mut(&mut input) = *byte;
                    }
                }
                Self::Insert(at, bytes) => {
                    let at = place(at, input.len());
                    input.splice(at..at, bytes.iter().copied());
                }
                Self::Remove(at, count) => {
                    let at = place(at, input.len());
                    input.drain(at..(at + count).min(input.len()));
                }
                Self::Splice(at, of, from, count) => {
                    let (at, other) = (place(at, input.len()), of.get(examples));
                    let from = place(from, other.len());
                    let part = &other[from..(from + count).min(other.len())];
                    input.splice(at..at, part.iter().copied());
                }
            }
            input
        }
    }
}
