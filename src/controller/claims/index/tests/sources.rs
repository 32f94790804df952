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

#[test]
fn a_claim_that_waits_needs_its_source_until_it_is_deleted_or_has_its_volume() {
    let terminating = claim_with("u", |claim| {
        claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    let ends: [&dyn Fn(&ClaimIndex); 4] = [
        &|index| drop(index.on_event(InformerEvent::Apply(terminating.clone()))),
        &|index| drop(index.on_event(InformerEvent::Apply(bound("u")))),
        &|index| drop(index.on_event(InformerEvent::Delete(claim("u")))),
        &|index| drop(index.on_volume(&volume("pvc-u", "u"))),
    ];
    for end in ends {
        let (index, closed) = with_closings();
        index.on_event(InformerEvent::Apply(claim("u")));
        assert!(closed.lock().is_empty());
        end(&index);
        assert_eq!(*closed.lock(), ["u"]);
    }
}

/// A process that begins to lead knows the call only from its record.
#[test]
fn a_claim_with_a_record_needs_its_source_until_the_record_is_removed() {
    let closed: Arc<Mutex<Vec<String>>> = Arc::default();
    let calls = Arc::clone(&closed);
    let identity = ProvisionerIdentity::of_driver(DRIVER);
    let index = ClaimIndex::new(identity, move |uid| calls.lock().push(uid.to_owned()));
    let mut deleted = with_record("u", DRIVER);
    deleted.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    index.on_event(InformerEvent::InitApply(deleted));
    assert!(closed.lock().is_empty());
    index.update("u", |it| it.advance(Transition::GivenUp));
    assert_eq!(*closed.lock(), ["u"]);
}
