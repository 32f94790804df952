//! How long a claim needs the source of its volume.

use super::*;

/// The index of a leader with the claim `u`, and with what it called `closed` last.
fn with_closings() -> (ClaimIndex, Arc<Mutex<Option<bool>>>) {
    let closed: Arc<Mutex<Option<bool>>> = Arc::default();
    let calls = Arc::clone(&closed);
    let identity = ProvisionerIdentity::of_driver(DRIVER);
    let index =
        lead(ClaimIndex::new(identity, move |_, is_served| *calls.lock() = Some(is_served)));
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
    let table: [(Steps<'_>, Option<bool>); 8] = [
        (&[], None),
        (&[&saved], Some(true)),
        (&[&unknown], None),
        (&[&refused], None),
        (&[&refused, &gone], Some(false)),
        (&[&gone], None),
        (&[&unknown, &gone], None),
        (&[&gone, &refused], Some(false)),
    ];
    for (number, (steps, expected)) in table.into_iter().enumerate() {
        let (index, closed) = with_closings();
        assert!(index.start_call("u", &request("u")));
        for step in steps {
            step(&index);
        }
        assert_eq!(*closed.lock(), expected, "row {number}");
    }
}
