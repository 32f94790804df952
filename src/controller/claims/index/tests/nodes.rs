//! Claims of node deployments: whose a claim is, and who follows its open call.

use super::*;

/// The claim, with this node selected; marked, where `asked` names the node that was asked for it.
pub(super) fn on_node(uid: &str, selected: Option<&str>, asked: Option<&str>) -> Claim {
    claim_with(uid, |claim| {
        let annotations = &mut claim["metadata"]["annotations"];
        if let Some(node) = selected {
            annotations["volume.kubernetes.io/selected-node"] = json!(node);
        }
        if let Some(node) = asked {
            let record = json!({"driver": DRIVER, "volume": format!("pvc-{uid}"), "node": node});
            annotations[status::RECORD] = json!(record.to_string());
            claim["metadata"]["finalizers"] = json!([status::FINALIZER]);
        }
    })
}

#[tokio::test]
async fn a_node_keeps_no_claims_of_others() {
    let book = works(book_of(Some("n1")));
    book.observe(InformerEvent::Apply(on_node("others", Some("n2"), None)));
    assert!(book.is_empty());
    book.observe(InformerEvent::Apply(on_node("free", None, None)));
    book.observe(InformerEvent::Apply(on_node("ours", Some("n1"), None)));
    assert_eq!(book.all(), ["free", "ours"]);
    book.observe(InformerEvent::Apply(on_node("free", Some("n2"), None)));
    assert_eq!(book.all(), ["ours"], "another was faster");
}

#[tokio::test]
async fn a_claim_that_comes_back_from_another_node_is_looked_up() {
    let book = works(book_of(Some("n1")));
    for uid in ["first-here", "first-there"] {
        if uid == "first-here" {
            book.observe(InformerEvent::Apply(on_node(uid, None, None)));
        }
        book.observe(InformerEvent::Apply(on_node(uid, Some("n2"), None)));
        book.observe(InformerEvent::Apply(on_node(uid, Some("n1"), None)));
        assert_eq!(book.snapshot(uid).unwrap().verification, Verification::VolumeAndClaim, "{uid}");
    }
}

#[tokio::test]
async fn a_node_follows_its_own_open_calls_and_no_others() {
    let book = works(book_of(Some("n1")));
    // Whatever was chosen since: the call is where it was made.
    book.observe(InformerEvent::Apply(on_node("made-here", Some("n2"), Some("n1"))));
    book.observe(InformerEvent::Apply(on_node("made-there", Some("n1"), Some("n2"))));
    let open = |uid| book.standing(uid).unwrap().open;
    assert!(open("made-here") && !open("made-there"));
    assert_eq!(book.standing("made-here").unwrap().demand, Demand::Withdrawn);
    let woken = book.observe(InformerEvent::Apply(on_node("made-there", Some("n1"), None)));
    assert_eq!(woken, ["made-there"], "the other node's call is over");
}

/// The process of a node that is gone will not free its claims.
#[tokio::test]
async fn a_deleted_claim_that_another_node_has_marked_is_everybodys() {
    let book = works(book_of(Some("n1")));
    let mut claim = on_node("u", Some("n2"), Some("n2"));
    assert!(book.observe(InformerEvent::Apply(claim.clone())).is_empty() && book.is_empty());
    claim.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    assert_eq!(book.observe(InformerEvent::Apply(claim)), ["u"]);
    let snapshot = book.snapshot("u").unwrap();
    assert_eq!(snapshot.elsewhere.unwrap().node.as_deref(), Some("n2"));
    assert!(!book.standing("u").unwrap().open);
}

#[tokio::test]
async fn the_call_of_a_node_that_is_gone_is_followed_where_its_claim_was_selected_to() {
    let book = works(book_of(Some("n1")));
    book.observe(InformerEvent::Apply(on_node("u", Some("n1"), Some("n2"))));
    book.adopt("u", "n2");
    let snapshot = book.snapshot("u").unwrap();
    assert!(snapshot.recorded.is_some() && snapshot.elsewhere.is_none());
    assert_eq!(book.adopted("u").as_deref(), Some("n2"));
    let changed = on_node("u", Some("n1"), Some("n2"));
    book.observe(InformerEvent::Apply(changed));
    assert!(book.standing("u").unwrap().open, "its next event changes nothing of that");
}

/// Where each node has a driver of its own, another's volume tells nothing of what ours has made.
#[tokio::test]
async fn a_call_that_a_volume_of_another_node_closes_is_reported_once() {
    let seen_while = |node, answer: &dyn Fn(&ClaimIndex)| {
        let book = works(book_of(node));
        book.observe(InformerEvent::Apply(on_node("u", node, None)));
        looked_up(&book, "u", book.snapshot("u").unwrap().verification);
        assert!(book.called("u", &order("u")));
        answer(&book);
        book
    };
    let passes = |book: &ClaimIndex| book.volume_passes(&made_by_us("pvc-u", "u"));
    let answered = |book: &ClaimIndex| {
        book.answered("u", &background());
    };
    let book = seen_while(Some("n1"), &answered);
    book.observe(InformerEvent::Delete(on_node("u", Some("n1"), None)));
    assert_eq!(passes(&book).as_deref(), Some("u"), "looked at to be reported");
    assert!(book.take_superseded("u").is_some() && book.take_superseded("u").is_none());
    assert!(book.is_empty());

    let book = seen_while(Some("n1"), &|book| drop(passes(book)));
    answered(&book);
    assert!(book.take_superseded("u").is_some(), "seen before the answer came");

    let book = seen_while(None, &answered);
    passes(&book);
    assert!(book.take_superseded("u").is_none(), "one driver: it is the same volume");
}

/// It is bound, by what it says, to a volume that this process has not saved.
#[tokio::test]
async fn a_call_whose_claim_was_bound_unseen_is_reported_if_this_process_made_it() {
    let book = with_claim();
    book.called("u", &order("u"));
    book.answered("u", &background());
    book.was_saved("u");
    assert!(book.take_superseded("u").is_some());
}

#[tokio::test]
async fn a_finalizer_without_a_record_says_that_nothing_is_open() {
    let book = works(book_of(Some("n1")));
    for (uid, selected) in [("ours", Some("n1")), ("free", None)] {
        let mut claim = on_node(uid, selected, None);
        claim.metadata.finalizers = Some(vec![status::FINALIZER.to_owned()]);
        book.observe(InformerEvent::Apply(claim));
        assert!(!book.standing(uid).unwrap().open, "{uid}");
    }
}
