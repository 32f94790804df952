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

    #[test]
    fn verb_resource_and_name_follow_from_method_and_url() {
        for (request, verb, about) in [
            ("GET /api/v1/persistentvolumes?limit=500", Verb::List, "persistentvolumes"),
            ("GET /api/v1/nodes?a=b&watch=true&c=d", Verb::Watch, "nodes"),
            ("GET /api/v1/nodes/n", Verb::Get, "nodes n"),
            ("PUT /api/v1/namespaces/ns/secrets/s", Verb::Update, "secrets s"),
            ("POST /api/v1/namespaces/ns/events", Verb::Create, "events"),
            ("PATCH /apis/g.io/v1/things/t", Verb::Patch, "things.g.io t"),
            ("DELETE /api/v1/nodes/n", Verb::Delete, "nodes n"),
            ("GET /api/v1/namespaces/ns", Verb::Get, "namespaces ns"),
            ("GET /version", Verb::List, ""),
            ("OPTIONS /", Verb::Other, ""),
        ] {
            let (method, url) = request.split_once(' ').unwrap();
            let (method, url) = (method.parse().unwrap(), url.parse().unwrap());
            let target = Target::parse(&method, &url);
            assert_eq!((target.verb, &*target.about()), (verb, about), "{request}");
        }
    }
}
