//! `each`: list entries that stand for several.

use super::{
    python,
    yaml::{Node, YamlError},
};

/// Replaces, in every list outside `expect`, an entry with `each: [...]` or `each: N` by one entry
/// per value, with `{x}` standing for the value and `{lx}` for it in lower case with dashes.
pub fn expand(node: Node) -> Result<Node, YamlError> {
    Ok(match node {
        Node::Map(entries) => {
            let expanded = entries.into_iter().map(|(key, value)| {
                let value = if key == "expect" { value } else { expand(value)? };
                Ok((key, value))
            });
            Node::Map(expanded.collect::<Result<_, YamlError>>()?)
        }
        Node::List(items) => {
            let mut out = Vec::new();
            for item in items {
                unfold(item, &mut out)?;
            }
            Node::List(out)
        }
        plain => plain,
    })
}

/// Expands one entry of a list into `out`.
fn unfold(item: Node, out: &mut Vec<Node>) -> Result<(), YamlError> {
    let Some(each) = item.get("each").cloned() else {
        out.push(expand(item)?);
        return Ok(());
    };
    let Node::Map(entries) = item else { return Ok(()) };
    let rest: Vec<_> = entries.into_iter().filter(|(key, _)| key != "each").collect();
    for value in values(each)? {
        let entry = rest.iter().map(|(k, v)| (value.fill(k), value.fill_node(v))).collect();
        out.push(expand(Node::Map(entry))?);
    }
    Ok(())
}

/// What `{x}` and `{lx}` stand for.
struct Placeholder {
    x: String,
    lx: String,
}

fn values(each: Node) -> Result<Vec<Placeholder>, YamlError> {
    let texts: Vec<String> = match each {
        Node::List(items) => items.into_iter().map(|item| python::text(&item.into())).collect(),
        Node::Number(count) => {
            (0..count.as_u64().unwrap_or(0)).map(|place| place.to_string()).collect()
        }
        _ => return Err(YamlError::Shape("each: wants a list or a number".to_owned())),
    };
    texts.into_iter().map(Placeholder::new).collect()
}

impl Placeholder {
    fn new(x: String) -> Result<Self, YamlError> {
        if x.contains(['"', '\\', '\n']) {
            return Err(YamlError::Shape(format!("each: {x:?} would need escaping")));
        }
        let lx = x.to_lowercase().replace('_', "-");
        Ok(Self { x, lx })
    }

    fn fill(&self, text: &str) -> String {
        text.replace("{x}", &self.x).replace("{lx}", &self.lx)
    }

    fn fill_node(&self, node: &Node) -> Node {
        match node {
            Node::Text(text) => Node::Text(self.fill(text)),
            Node::List(items) => Node::List(items.iter().map(|i| self.fill_node(i)).collect()),
            Node::Map(entries) => Node::Map(
                entries.iter().map(|(k, v)| (self.fill(k), self.fill_node(v))).collect(),
            ),
            plain => plain.clone(),
        }
    }
}
