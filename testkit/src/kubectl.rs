//! The kubectl binaries that tests are to be played with.

use std::{
    env,
    io::{self, Write as _},
    path::PathBuf,
    sync::Once,
};

/// The files that `TESTKIT_KUBECTL` names, separated by colons. Where it is not set there are none: what needs
/// them is skipped, and says so.
///
/// # Panics
/// One of them is missing.
pub fn named() -> Vec<PathBuf> {
    static SKIPPED: Once = Once::new();
    let Some(list) = env::var_os("TESTKIT_KUBECTL") else {
        // Past what the harness captures.
        SKIPPED.call_once(|| {
            let _ = writeln!(
                io::stderr(),
                "SKIPPED what needs kubectl: TESTKIT_KUBECTL names none (see .ci/kubectl)"
            );
        });
        return Vec::new();
    };
    let named: Vec<PathBuf> = env::split_paths(&list).collect();
    assert!(
        !named.is_empty() && named.iter().all(|file| file.is_file()),
        "TESTKIT_KUBECTL names what is not there: {named:?}"
    );
    named
}
