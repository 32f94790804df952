//! Sets the User-Agent of every request.
//!
//! The server takes the name of a field's manager from the part before the slash; audit logs and
//! priority rules use it too.

use http::{HeaderValue, header};

use super::{Layer, Outcome};
use crate::kube::connection::transport::{Request, Service};

/// The program and its version.
const PROGRAM: &str = concat!("csi-provisioner/v", env!("CARGO_PKG_VERSION"));

/// The User-Agent in the shape of Kubernetes' own: program, version, system and machine.
fn user_agent() -> String {
    format!("{PROGRAM} ({}/{})", std::env::consts::OS, goarch(std::env::consts::ARCH))
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

/// Sets the User-Agent.
pub(crate) struct UserAgent(HeaderValue);

impl Default for UserAgent {
    fn default() -> Self {
        Self(
            HeaderValue::try_from(user_agent())
                .unwrap_or_else(|_| HeaderValue::from_static(PROGRAM)),
        )
    }
}

impl Layer for UserAgent {
    fn apply(
        &self,
        request: &mut Request,
        next: &impl Service,
    ) -> impl Future<Output = Outcome> + Send {
        request.headers_mut().insert(header::USER_AGENT, self.0.clone());
        next.send(request)
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::kube::{
        stack::layer,
        testing::{Answer, Server, request, send},
    };

    #[tokio::test]
    async fn every_request_has_the_user_agent() {
        let server = Server::new(|_, _| Answer::status(200));
        let service = layer(UserAgent::default(), server.transport.clone());
        send(&service, request(Method::GET, "/api/v1/nodes")).await.unwrap();
        let (requests, own) = (server.requests(), user_agent());
        assert_eq!(requests[0].header("user-agent"), own);
        assert!(own.starts_with("csi-provisioner/v0.") && own.contains(" (linux/"), "{own}");
    }

    #[test]
    fn architectures_have_gos_names() {
        for (arch, name) in
            [("x86_64", "amd64"), ("aarch64", "arm64"), ("s390x", "s390x"), ("riscv64", "riscv64")]
        {
            assert_eq!(goarch(arch), name);
        }
    }
}
