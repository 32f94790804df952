//! How long a claim needs the source of its volume.

use super::*;

/// The index of a leader with the claim `u`, and the UIDs for which it called `closed`.
fn with_closings() -> (ClaimIndex, Arc<Mutex<Vec<String>>>) {
    let closed: Arc<Mutex<Vec<String>>> = Arc::default();
    let calls = Arc::clone(&closed);
    let identity = ProvisionerIdentity::of_driver(DRIVER);
    let index = lead(ClaimIndex::new(identity, move |uid| calls.lock().push(uid.to_owned())));
    index.on_event(InformerEvent::Apply(claim("u")));
    (index, closed)
}

/// The source is needed until the volume is saved, or until the claim is withdrawn and no call is
/// open.
#[tokio::test(start_paused = true)]
async fn closed_is_called_when_the_source_is_no_longer_needed() {
    type Steps<'a> = &'a [&'a dyn Fn(&ClaimIndex)];
    let saved = |index: &ClaimIndex| {
        index.on_outcome("u", &Outcome::Provisioned(Box::default()));
        index.update("u", Entry::saved);
    };
    let gone = |index: &ClaimIndex| drop(index.on_event(InformerEvent::Delete(claim("u"))));
    let refused = |index: &ClaimIndex| {
        index.on_outcome("u", &Outcome::Refused(Failure::new("no"), Next::Retry));
    };
    let unknown = |index: &ClaimIndex| {
        index.on_outcome("u", &background());
    };
    let table: [(Steps<'_>, bool); 8] = [
        (&[], false),
        (&[&saved], true),
        (&[&unknown], false),
        (&[&refused], false),
        (&[&refused, &gone], true),
        (&[&gone], false),
        (&[&unknown, &gone], false),
        (&[&gone, &refused], true),
    ];
    for (number, (steps, expected)) in table.into_iter().enumerate() {
        let (index, closed) = with_closings();
        assert!(index.start_call("u", &request("u")));
        for step in steps {
            step(&index);
        }
        assert_eq!(closed.lock().contains(&"u".to_owned()), expected, "row {number}");
    }
}
