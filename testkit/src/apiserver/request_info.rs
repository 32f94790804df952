//! What a request asks for, read from its path, method and query as apiserver's `RequestInfoFactory` does.

use http::{Method, Uri};
use percent_encoding::percent_decode_str;

use super::parameters::Query;

/// A request in Kubernetes' terms.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// Whether the path is that of a resource.
    pub is_resource: bool,
    /// The path as sent, without the query.
    pub path: String,
    /// The path and the query as sent.
    pub uri: String,
    /// `get`, `list`, `watch`, `create`, ...; for other paths the method in lower case.
    pub verb: String,
    /// The API group.
    pub group: String,
    /// The API version.
    pub version: String,
    /// The namespace; empty for none.
    pub namespace: String,
    /// The resource's plural.
    pub resource: String,
    /// The subresource; empty for none.
    pub subresource: String,
    /// The object's name; empty for none.
    pub name: String,
}

impl RequestInfo {
    /// Reads a request's method and URI.
    pub fn parse(method: &Method, uri: &Uri) -> Self {
        let mut info = Self {
            path: uri.path().to_owned(),
            uri: uri.path_and_query().map_or_else(|| uri.path().to_owned(), ToString::to_string),
            verb: method.as_str().to_lowercase(),
            ..Self::default()
        };
        let parts: Vec<String> = uri.path().trim_matches('/').split('/').map(decoded).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        if let Some(rest) = info.take_api(&parts) {
            info.is_resource = true;
            verb(method).clone_into(&mut info.verb);
            info.take_resource(rest);
            info.refine_verb(&Query::parse(uri.query()));
        }
        info
    }

    /// The group and version, and the rest of a resource's path.
    fn take_api<'a>(&mut self, parts: &'a [&'a str]) -> Option<&'a [&'a str]> {
        let (group, version, rest) = match parts {
            ["api", version, rest @ ..] => ("", version, rest),
            ["apis", group, version, rest @ ..] => (*group, version, rest),
            _ => return None,
        };
        if rest.is_empty() {
            return None;
        }
        group.clone_into(&mut self.group);
        (*version).clone_into(&mut self.version);
        Some(rest)
    }

    fn take_resource(&mut self, parts: &[&str]) {
        let parts = match parts {
            ["namespaces", namespace, rest @ ..] => {
                (*namespace).clone_into(&mut self.namespace);
                // A namespace's own subresources are no resources in it.
                if matches!(rest, [] | ["status" | "finalize", ..]) { parts } else { rest }
            }
            all => all,
        };
        for (target, part) in
            [&mut self.resource, &mut self.name, &mut self.subresource].into_iter().zip(parts)
        {
            (*part).clone_into(target);
        }
    }

    fn refine_verb(&mut self, query: &Query) {
        if !self.name.is_empty() {
            return;
        }
        match self.verb.as_str() {
            "get" => {
                let verb = if query.flag("watch") { "watch" } else { "list" };
                verb.clone_into(&mut self.verb);
                self.name = name_selected(query.get("fieldSelector"));
            }
            "delete" => "deletecollection".clone_into(&mut self.verb),
            _ => {}
        }
    }
}

fn decoded(part: &str) -> String {
    percent_decode_str(part).decode_utf8_lossy().into_owned()
}

fn verb(method: &Method) -> &'static str {
    match method.as_str() {
        "POST" => "create",
        "GET" | "HEAD" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

/// The one name a field selector asks for: a list of one object is authorized by its name.
fn name_selected(selector: Option<&str>) -> String {
    let terms = selector.unwrap_or_default().split(',');
    let mut names = terms
        .filter_map(|term| term.strip_prefix("metadata.name="))
        .map(|name| name.trim_start_matches('='));
    names.next().unwrap_or_default().to_owned()
}
