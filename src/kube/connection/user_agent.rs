//! The User-Agent of every request.
//!
//! The server takes the name of a field's manager from the part before the slash; audit logs and
//! priority rules use it too.

use http::HeaderValue;

/// The program and its version.
const PROGRAM: &str = concat!("csi-provisioner/v", env!("CARGO_PKG_VERSION"));

/// The User-Agent in the shape of Kubernetes' own: program, version, system and machine.
pub(super) fn user_agent() -> HeaderValue {
    let (system, machine) = (std::env::consts::OS, goarch(std::env::consts::ARCH));
    HeaderValue::try_from(format!("{PROGRAM} ({system}/{machine})"))
        .unwrap_or_else(|_| HeaderValue::from_static(PROGRAM))
}

/// What Go calls the machine that Rust calls `arch`.
fn goarch(arch: &str) -> &str {
    match arch {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_have_gos_names() {
        for (arch, name) in
            [("x86_64", "amd64"), ("aarch64", "arm64"), ("s390x", "s390x"), ("riscv64", "riscv64")]
        {
            assert_eq!(goarch(arch), name);
        }
    }
}
