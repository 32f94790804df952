//! Parses a request's verb, resource and name from its method and URL.
//!
//! Layers use it for limits, metrics and messages. URLs are built in
//! [`objects::kind`](crate::kube::objects).

use http::{Method, Request, Uri};

/// A verb of RBAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    Other,
}

impl Verb {
    /// The verb's name in RBAC rules and metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::Other => "other",
        }
    }

    /// The verb of `request`.
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        Target::of(request).verb
    }

    /// Whether the verb changes something.
    pub(crate) fn writes(self) -> bool {
        matches!(self, Self::Create | Self::Update | Self::Patch | Self::Delete | Self::Other)
    }
}

/// The target of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    pub(crate) verb: Verb,
    /// API group; empty for core.
    pub(crate) group: &'a str,
    /// The resource's plural name; empty if the path names none.
    pub(crate) resource: &'a str,
    /// The object's name as in the URL; empty for collections.
    pub(crate) name: &'a str,
}

impl<'a> Target<'a> {
    /// The target of `request`.
    pub(crate) fn of<B>(request: &'a Request<B>) -> Self {
        Self::parse(request.method(), request.uri())
    }

    /// The target of a request with this method and URL.
    pub(crate) fn parse(method: &Method, uri: &'a Uri) -> Self {
        let mut segments = uri.path().split('/').skip(1);
        let group = match segments.next() {
            Some("apis") => segments.next().unwrap_or_default(),
            _ => "",
        };
        // After the version: [namespaces/<namespace>/]<resource>[/<name>].
        let mut rest = segments.skip(1);
        let (mut resource, mut name) =
            (rest.next().unwrap_or_default(), rest.next().unwrap_or_default());
        if resource == "namespaces"
            && let Some(inner) = rest.next()
        {
            (resource, name) = (inner, rest.next().unwrap_or_default());
        }
        let verb = verb(method, name, uri.query().unwrap_or_default());
        Self { verb, group, resource, name }
    }

    /// Resource and name for messages: `storageclasses.storage.k8s.io fast`.
    pub(crate) fn about(&self) -> String {
        let mut about = self.resource.to_owned();
        if !about.is_empty() && !self.group.is_empty() {
            about.push('.');
            about.push_str(self.group);
        }
        if !self.name.is_empty() {
            about.push(' ');
            about.push_str(self.name);
        }
        about
    }
}

fn verb(method: &Method, name: &str, query: &str) -> Verb {
    let is_watch =
        || query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1" | "watch"));
    match *method {
        Method::GET if is_watch() => Verb::Watch,
        Method::GET if name.is_empty() => Verb::List,
        Method::GET => Verb::Get,
        Method::POST => Verb::Create,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE => Verb::Delete,
        _ => Verb::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: &Method, uri: &str) -> (Verb, String) {
        let uri = uri.parse().unwrap();
        let target = Target::parse(method, &uri);
        (target.verb, target.about())
    }

    #[test]
    fn verb_resource_and_name_follow_from_method_and_url() {
        for (method, uri, verb, about) in [
            (Method::GET, "/api/v1/persistentvolumes?limit=500", Verb::List, "persistentvolumes"),
            (
                Method::GET,
                "/api/v1/persistentvolumes?a=b&watch=true&c=d",
                Verb::Watch,
                "persistentvolumes",
            ),
            (Method::GET, "/api/v1/persistentvolumes/pv", Verb::Get, "persistentvolumes pv"),
            (
                Method::PUT,
                "/api/v1/namespaces/ns/persistentvolumeclaims/c",
                Verb::Update,
                "persistentvolumeclaims c",
            ),
            (Method::POST, "/api/v1/namespaces/ns/events", Verb::Create, "events"),
            (
                Method::PATCH,
                "/apis/storage.k8s.io/v1/storageclasses/s",
                Verb::Patch,
                "storageclasses.storage.k8s.io s",
            ),
            (Method::DELETE, "/api/v1/persistentvolumes/pv", Verb::Delete, "persistentvolumes pv"),
            (Method::GET, "/api/v1/namespaces/ns", Verb::Get, "namespaces ns"),
            (Method::GET, "/version", Verb::List, ""),
            (Method::OPTIONS, "/", Verb::Other, ""),
        ] {
            assert_eq!(read(&method, uri), (verb, about.to_owned()), "{uri}");
        }
    }
}
