//! Says who asks.
//!
//! Promises that every request carries the program's User-Agent: the server takes the name of a
//! field's manager from the part before the slash, audit logs and priority rules read it too.

use http::{HeaderValue, header};

use super::{Layer, Outcome};
use crate::kube::connection::transport::{Request, Service};

/// The program and its version.
const PROGRAM: &str = concat!("csi-provisioner/v", env!("CARGO_PKG_VERSION"));

/// The User-Agent in the shape of Kubernetes' own: program, version, system and machine.
fn user_agent() -> String {
    format!("{PROGRAM} ({}/{})", std::env::consts::OS, go_name(std::env::consts::ARCH))
}

/// What Go calls the machine that Rust calls `arch`.
fn go_name(arch: &str) -> &str {
    match arch {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
        other => other,
    }
}

/// Puts the User-Agent on requests.
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
    async fn every_request_says_who_asks() {
        let server = Server::new(|_, _| Answer::status(200));
        let service = layer(UserAgent::default(), server.transport.clone());
        send(&service, request(Method::GET, "/api/v1/nodes")).await.unwrap();
        let (seen, own) = (server.seen(), user_agent());
        assert_eq!(seen[0].header("user-agent"), own);
        assert!(own.starts_with("csi-provisioner/v0.") && own.contains(" (linux/"), "{own}");
    }

    #[test]
    fn machines_have_the_names_go_gives_them() {
        for (arch, name) in
            [("x86_64", "amd64"), ("aarch64", "arm64"), ("s390x", "s390x"), ("riscv64", "riscv64")]
        {
            assert_eq!(go_name(arch), name);
        }
    }
}
