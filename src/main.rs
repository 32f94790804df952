//! The sidecar's binary: parses the flags and runs the program.

use std::{env, process::ExitCode};

use csi_provisioner::{
    app::{self, process},
    flags::Flags,
    logging,
};

fn main() -> ExitCode {
    logging::escape_panics();
    process::run(Flags::parse(env::args_os(), |name| env::var_os(name)), app::run)
}
