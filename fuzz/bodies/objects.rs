//! The fuzz target of lists and watches: any answer, as kube-rs reads it.

use kube::{api::WatchEvent, core::ObjectList};
use serde_json::value::RawValue;

use super::Tolerant;
use crate::kube::objects::{Claim, View, Volume};

/// Checks that no object, whatever it is, ends the list or the watch that it comes in.
///
/// # Panics
/// If one does.
pub fn objects(data: &[u8]) {
    objects_of::<Claim>(data);
    objects_of::<Volume>(data);
}

fn objects_of<V: View>(data: &[u8]) {
    if let Ok(whole) = serde_json::from_slice::<ObjectList<Box<RawValue>>>(data) {
        let list = serde_json::from_slice::<ObjectList<Tolerant<V>>>(data);
        let count = list.map(|list| list.items.len());
        assert!(count.as_ref().is_ok_and(|count| *count == whole.items.len()), "{count:?}");
    }
    for line in data.split(|byte| *byte == b'\n') {
        if serde_json::from_slice::<WatchEvent<Box<RawValue>>>(line).is_ok() {
            let event = serde_json::from_slice::<WatchEvent<Tolerant<V>>>(line);
            assert!(event.is_ok(), "{:?}", event.err());
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_object_ends_a_list_or_a_watch() {
        crate::fuzzing::run("objects", 400, super::objects);
    }
}
