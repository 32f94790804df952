//! Whom a request comes from: the bearer tokens the server knows, fixed ones and those it makes for service accounts.

use std::{collections::BTreeMap, fmt};

use http::{HeaderMap, header::AUTHORIZATION};
use parking_lot::Mutex;

use crate::apiserver::{User, status::Status};

/// The group of everyone who has shown a valid token.
const AUTHENTICATED: &str = "system:authenticated";

/// The tokens a server knows, and whose they are.
#[derive(Default)]
pub struct Tokens {
    known: Mutex<BTreeMap<String, User>>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("known", &self.known.lock().len()).finish()
    }
}

impl Tokens {
    /// Knows `token` as `user`'s for good.
    pub fn add(&self, token: &str, user: User) {
        self.known.lock().insert(token.to_owned(), user);
    }

    /// From now on nobody's token.
    pub fn revoke(&self, token: &str) {
        self.known.lock().remove(token);
    }

    /// Makes a token for `user`.
    pub fn issue(&self, user: User) -> String {
        let mut known = self.known.lock();
        let token = format!("token-{}-of-{}", known.len(), user.name);
        known.insert(token.clone(), user);
        token
    }

    /// The user a request's headers speak for; who shows no token is `system:anonymous`.
    pub fn user(&self, headers: &HeaderMap) -> Result<User, Status> {
        let Some(value) = headers.get(AUTHORIZATION) else { return Ok(anonymous()) };
        let token = value.to_str().ok().and_then(bearer).ok_or_else(unauthorized)?;
        self.known.lock().get(token).cloned().ok_or_else(unauthorized)
    }
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

fn unauthorized() -> Status {
    Status::new(401, "Unauthorized", "Unauthorized")
}

// === Users ===

fn anonymous() -> User {
    User { name: "system:anonymous".to_owned(), groups: vec!["system:unauthenticated".to_owned()] }
}

/// The user that may do everything.
pub fn admin() -> User {
    User {
        name: "admin".to_owned(),
        groups: vec![super::rbac::SUPERUSERS.to_owned(), AUTHENTICATED.to_owned()],
    }
}

/// The user a service account's token stands for.
pub fn service_account(namespace: &str, name: &str) -> User {
    User {
        name: format!("system:serviceaccount:{namespace}:{name}"),
        groups: vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            AUTHENTICATED.to_owned(),
        ],
    }
}
