//! Whom a request comes from: the bearer tokens the server knows, fixed ones and those it makes for service accounts.

use std::{collections::BTreeMap, fmt};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use http::{HeaderMap, header::AUTHORIZATION};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use crate::apiserver::{User, status::Status};

/// The group of everyone who has shown a valid token.
const AUTHENTICATED: &str = "system:authenticated";

/// The tokens a server knows, and whose they are.
#[derive(Default)]
pub struct Tokens {
    known: Mutex<BTreeMap<String, Holder>>,
}

struct Holder {
    user: User,
    expires: Option<Timestamp>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("known", &self.known.lock().len()).finish()
    }
}

impl Tokens {
    /// Knows `token` as `user`'s for good.
    pub fn add(&self, token: &str, user: User) {
        self.known.lock().insert(token.to_owned(), Holder { user, expires: None });
    }

    /// From now on nobody's token.
    pub fn revoke(&self, token: &str) {
        self.known.lock().remove(token);
    }

    /// Makes a token for `user` that is valid for `lifetime`; gives it and when it ends.
    pub fn issue(
        &self,
        user: User,
        lifetime: SignedDuration,
        now: Timestamp,
    ) -> Result<(String, Timestamp), Status> {
        let token = random_token()?;
        let expires = now.saturating_add(lifetime).unwrap_or(Timestamp::MAX);
        self.known.lock().insert(token.clone(), Holder { user, expires: Some(expires) });
        Ok((token, expires))
    }

    /// The user a request's headers speak for; who shows no token is `system:anonymous`.
    pub fn user(&self, headers: &HeaderMap, now: Timestamp) -> Result<User, Status> {
        let Some(value) = headers.get(AUTHORIZATION) else { return Ok(anonymous()) };
        let token = value.to_str().ok().and_then(bearer).ok_or_else(unauthorized)?;
        let known = self.known.lock();
        let holder = known.get(token).ok_or_else(unauthorized)?;
        match holder.expires {
            Some(expires) if expires <= now => Err(unauthorized()),
            _ => Ok(holder.user.clone()),
        }
    }
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

fn unauthorized() -> Status {
    Status::new(401, "Unauthorized", "Unauthorized")
}

fn random_token() -> Result<String, Status> {
    let mut bytes = [0; 32];
    rustls::crypto::ring::default_provider()
        .secure_random
        .fill(&mut bytes)
        .map_err(|_| Status::internal("no randomness for a token"))?;
    Ok(BASE64_URL_SAFE_NO_PAD.encode(bytes))
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
