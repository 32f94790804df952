//! The manifest: which of its containers run the provisioner, and how.
//!
//! Reads YAML or JSON of one or several objects, as `kubectl get`, `helm template` and files have it, with
//! the grammar that kubectl takes. A document that cannot be read is reported, and the others are read.
//! Arguments are expanded as by the kubelet. Of Secrets nothing is read.

use std::collections::BTreeMap;

use serde::Deserialize as _;
use serde_json::Value;

const NO_PROVISIONER: &str = "no container in the manifest runs the provisioner: give the Deployment with a container or an image named csi-provisioner or external-provisioner";

/// The objects of the manifests.
#[derive(Debug)]
pub(super) struct Manifest {
    objects: Vec<Value>,
    /// What could not be read.
    unreadable: Vec<String>,
    /// The namespace of objects that name none.
    namespace: String,
}

impl Manifest {
    pub(super) fn parse(texts: &[String], namespace: &str) -> Self {
        let (mut objects, mut unreadable) = (Vec::new(), Vec::new());
        for (line, text) in texts.iter().flat_map(|text| documents(text)) {
            for document in serde_yaml_ng::Deserializer::from_str(&text) {
                match Value::deserialize(document) {
                    Ok(mut object) => {
                        merge(&mut object);
                        objects.extend(flattened(object));
                    }
                    Err(error) => {
                        let at = error.location();
                        let line = line + at.as_ref().map_or(0, |at| at.line().saturating_sub(1));
                        let column = at.map_or(1, |at| at.column());
                        unreadable.push(format!(
                            "the manifest is not valid YAML at line {line}, column {column}: correct it there"
                        ));
                        // The reader cannot go on after an error.
                        break;
                    }
                }
            }
        }
        Self { objects, unreadable, namespace: namespace.to_owned() }
    }

    /// The documents that could not be read.
    pub(super) fn unreadable(&self) -> &[String] {
        &self.unreadable
    }

    pub(super) fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |object| text(object, "/kind") == kind)
    }

    /// The namespace of a namespaced object.
    pub(super) fn namespace<'a>(&'a self, object: &'a Value) -> &'a str {
        match text(object, "/metadata/namespace") {
            "" => &self.namespace,
            namespace => namespace,
        }
    }

    /// The workloads that run the provisioner.
    pub(super) fn workloads(&self) -> Result<Vec<Workload>, String> {
        let workloads = self.objects.iter().filter_map(|object| {
            let pod = if text(object, "/kind") == "Pod" { "/spec" } else { "/spec/template/spec" };
            Workload::read(object, object.pointer(pod)?, self.namespace(object))
        });
        let workloads: Vec<Workload> = workloads.collect();
        match self.unreadable.first() {
            _ if !workloads.is_empty() => Ok(workloads),
            Some(unreadable) => Err(unreadable.clone()),
            None => Err(NO_PROVISIONER.to_owned()),
        }
    }
}

/// The documents of a file, each with the number of its first line. They are separated by lines that begin
/// with `---`, as kubectl separates them, so that one that cannot be read does not hide the next.
fn documents(text: &str) -> Vec<(usize, String)> {
    let mut documents = vec![(1, String::new())];
    for (number, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let content = match line.strip_prefix("---") {
            Some(rest) if rest.is_empty() || rest.starts_with([' ', '\t']) => {
                documents.push((number + 1, String::new()));
                rest
            }
            _ => line,
        };
        if let Some((_, document)) = documents.last_mut() {
            document.push_str(content);
            document.push('\n');
        }
    }
    documents
}

/// Puts what a mapping's YAML key `<<` names into the mapping, whose own keys win.
fn merge(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(merge),
        Value::Object(fields) => {
            let sources = match fields.remove("<<") {
                Some(Value::Array(sources)) => sources,
                source => source.into_iter().collect(),
            };
            fields.values_mut().for_each(merge);
            for mut source in sources {
                merge(&mut source);
                let Value::Object(source) = source else { continue };
                for (key, value) in source {
                    fields.entry(key).or_insert(value);
                }
            }
        }
        _ => {}
    }
}

/// The object, or the objects of a list. Those of a `DeploymentList` and the like name no kind.
fn flattened(mut object: Value) -> Vec<Value> {
    let Some(kind) = text(&object, "/kind").strip_suffix("List").map(str::to_owned) else {
        return vec![object];
    };
    let Some(Value::Array(mut items)) = object.get_mut("items").map(Value::take) else {
        return vec![object];
    };
    for item in items.iter_mut().filter_map(Value::as_object_mut) {
        item.entry("kind").or_insert_with(|| kind.clone().into());
    }
    items
}

/// The containers of a pod, with those that start before the others and run beside them.
fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let sidecars = list(pod, "/initContainers").iter();
    let sidecars = sidecars.filter(|it| text(it, "/restartPolicy") == "Always");
    list(pod, "/containers").iter().chain(sidecars)
}

/// The text at a JSON pointer; empty if there is none.
pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The list at a JSON pointer; empty if there is none.
pub(super) fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// A Deployment or another object with a pod that runs the provisioner.
#[derive(Debug)]
pub(super) struct Workload {
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) service_account: String,
    /// The container that runs the provisioner.
    pub(super) provisioner: Container,
    /// The driver and the other sidecars.
    pub(super) others: Vec<Container>,
    /// Whether an old pod ends before a new one starts.
    pub(super) replaces_in_place: bool,
    /// `terminationGracePeriodSeconds`.
    pub(super) grace_seconds: u64,
}

impl Workload {
    /// `None` if no container runs the provisioner.
    fn read(object: &Value, pod: &Value, namespace: &str) -> Option<Self> {
        let mut others: Vec<Container> =
            containers(pod).map(|container| Container::read(container, namespace)).collect();
        let at = others.iter().position(Container::is_provisioner)?;
        let kind = text(object, "/kind");
        let or_default = |text: &str| if text.is_empty() { "default" } else { text }.to_owned();
        Some(Self {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: text(object, "/metadata/name").to_owned(),
            service_account: or_default(match text(pod, "/serviceAccountName") {
                "" => text(pod, "/serviceAccount"), // its old name
                account => account,
            }),
            provisioner: others.remove(at),
            others,
            replaces_in_place: kind != "Deployment"
                || text(object, "/spec/strategy/type") == "Recreate",
            grace_seconds: pod
                .pointer("/terminationGracePeriodSeconds")
                .and_then(Value::as_u64)
                .unwrap_or(30),
        })
    }

    pub(super) fn title(&self) -> String {
        let Self { kind, namespace, name, provisioner, .. } = self;
        let Container { name: container, image, .. } = provisioner;
        format!("{kind} {namespace}/{name}, container {container}, image {image}")
    }

    /// Whether the pod has a sidecar of this kind.
    pub(super) fn has_sidecar(&self, kind: &str) -> bool {
        self.others.iter().any(|it| it.name.contains(kind) || it.image_name().contains(kind))
    }

    /// The driver's name: an argument of another container, or the manifest's only `CSIDriver`.
    pub(super) fn driver(&self, manifest: &Manifest) -> Option<String> {
        let flags = ["--drivername=", "--driver-name=", "-drivername=", "--provisioner="];
        let containers = [&self.provisioner].into_iter().chain(&self.others);
        let mut args = containers.flat_map(Container::known_args);
        let named = args.find_map(|arg| flags.iter().find_map(|flag| arg.strip_prefix(flag)));
        let mut drivers = manifest.of_kind("CSIDriver").map(|it| text(it, "/metadata/name"));
        let only = drivers.next().filter(|_| drivers.next().is_none());
        named.or(only).filter(|name| !name.is_empty()).map(str::to_owned)
    }
}

/// A container with its command line.
#[derive(Debug)]
pub(super) struct Container {
    pub(super) name: String,
    pub(super) image: String,
    /// Without the program's name, after the kubelet's expansion.
    pub(super) args: Vec<Result<String, Unknown>>,
    /// The variables; `None` if the value is elsewhere, such as in a Secret, or too long.
    pub(super) env: BTreeMap<String, Option<String>>,
}

/// What containers and images that run it are called.
const PROVISIONERS: [&str; 2] = ["csi-provisioner", "external-provisioner"];

/// An argument that names a variable whose value the manifest does not have, or which makes it longer than
/// [`MAX_LENGTH`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unknown {
    pub(super) spelled: String,
    pub(super) variable: String,
}

/// The longest argument or variable that Linux starts a process with, in bytes (`MAX_ARG_STRLEN`).
const MAX_LENGTH: usize = 128 << 10;

impl Container {
    pub(super) fn read(container: &Value, namespace: &str) -> Self {
        let mut env = BTreeMap::new();
        let is_whole = list(container, "/envFrom").is_empty();
        for variable in list(container, "/env") {
            let value = env_value(variable, namespace, &env, is_whole);
            env.insert(text(variable, "/name").to_owned(), value);
        }
        // The first word of the command is the program.
        let command = list(container, "/command").iter().skip(1);
        let args = command.chain(list(container, "/args")).filter_map(Value::as_str);
        let args = args.map(|arg| {
            let unknown = |variable| Unknown { spelled: arg.to_owned(), variable };
            expand(arg, &env, is_whole).map_err(unknown)
        });
        Self {
            name: text(container, "/name").to_owned(),
            image: text(container, "/image").to_owned(),
            args: args.collect(),
            env,
        }
    }

    /// The last part of the image's path, without tag and digest.
    fn image_name(&self) -> &str {
        let last = self.image.rsplit('/').next().unwrap_or_default();
        last.split([':', '@']).next().unwrap_or_default()
    }

    /// The major version of external-provisioner that the image's tag names.
    ///
    /// Not of images such as `ose-csi-external-provisioner`, whose tags count otherwise.
    pub(super) fn release(&self) -> Option<u32> {
        let image = self.image_name();
        if !PROVISIONERS.contains(&image) && !image.ends_with("csi-provisioner") {
            return None;
        }
        let tag = self.image.rsplit('/').next()?.split('@').next()?.split_once(':')?.1;
        tag.strip_prefix('v')?.split_once('.')?.0.parse().ok()
    }

    /// Not `nfs-subdir-external-provisioner` and the like, which have nothing to do with CSI.
    fn is_provisioner(&self) -> bool {
        let image = self.image_name();
        PROVISIONERS.contains(&self.name.as_str())
            || PROVISIONERS.contains(&image)
            || image.ends_with("csi-external-provisioner")
    }

    /// The arguments whose values the manifest has.
    pub(super) fn known_args(&self) -> impl Iterator<Item = &str> {
        self.args.iter().flatten().map(String::as_str)
    }
}

/// The value of a variable. What only a pod has, such as its name, reads as the field's path.
fn env_value(
    variable: &Value,
    namespace: &str,
    env: &BTreeMap<String, Option<String>>,
    is_whole: bool,
) -> Option<String> {
    let Some(source) = variable.get("valueFrom") else {
        return expand(text(variable, "/value"), env, is_whole).ok();
    };
    match text(source, "/fieldRef/fieldPath") {
        "" => None,
        "metadata.namespace" => Some(namespace.to_owned()),
        field => Some(field.to_owned()),
    }
}

/// Replaces `$(NAME)` as the kubelet does: `$$` stands for `$`, and a name that is not set stays. `is_whole`:
/// `env` has all variables but those that the kubelet makes of Services.
///
/// # Errors
/// The variable whose value is unknown, or with which it becomes too long: variables may name others, each
/// several times.
fn expand(
    text: &str,
    env: &BTreeMap<String, Option<String>>,
    is_whole: bool,
) -> Result<String, String> {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        expanded += before;
        let name = after.strip_prefix('(').and_then(|after| after.split_once(')'));
        rest = match (after.strip_prefix('$'), name) {
            (Some(after), _) => {
                expanded.push('$');
                after
            }
            (None, Some((name, after))) => {
                match env.get(name) {
                    Some(Some(value)) if expanded.len() + value.len() <= MAX_LENGTH => {
                        expanded += value;
                    }
                    Some(_) => return Err(name.to_owned()),
                    None if !is_whole || is_of_service(name) => return Err(name.to_owned()),
                    None => expanded += &["$(", name, ")"].concat(),
                }
                after
            }
            (None, None) => {
                expanded.push('$');
                after
            }
        };
    }
    Ok(expanded + rest)
}

fn is_of_service(name: &str) -> bool {
    name.ends_with("_SERVICE_HOST") || name.ends_with("_SERVICE_PORT")
}

#[cfg(test)]
mod tests;
