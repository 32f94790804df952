//! What the first lists tell of claims that stood.

use super::*;

/// A PersistentVolume of another name may have gone past before its claim, also where the claims' list
/// was whole first.
#[test]
fn a_volume_of_another_name_is_remembered_until_its_claim_was_compared() {
    let book = working_while_listing();
    book.volume_passes(&volume("odd", "a"));
    book.observe(Sighting::Listed(claim("a")));
    book.observe(Sighting::Complete);
    assert_eq!(book.volumes_listed(), ["a"]);
    assert_eq!(book.glance("a").unwrap().doubt, Doubt::AnyVolume);
}

/// A book that works, while the claims of which the list was asked for at second 7, and all
/// PersistentVolumes, are listed.
fn working_while_listing() -> ClaimBook {
    let identity = Identity { driver: DRIVER.into(), in_tree: None, node: None };
    let book = ClaimBook::new(identity, |uid| Some(format!("pvc-{uid}")), |_| {});
    book.start_working();
    book.claims_asked(Duration::from_secs(7));
    book.observe(Sighting::Restarted);
    book.volumes_restarted();
    book
}

/// What the first lists tell of a claim that stood counts until anything else is heard of it.
#[test]
fn a_claim_that_stood_is_compared_with_all_volumes_listed_before_and_after_it() {
    let book = working_while_listing();
    book.volume_passes(&volume("pvc-early", "early"));
    let claims = ["early", "free", "gone", "late", "strange", "unread"];
    for uid in claims {
        book.observe(Sighting::Listed(claim(uid)));
    }
    book.volume_passes(&volume("pvc-late", "late"));
    book.volume_passes(&volume("pvc-strange", "somebody"));
    book.volumes_listed();
    book.observe(Sighting::Complete);
    let look = |uid| book.glance(uid).unwrap().look;
    let listed = Some(Duration::from_secs(7));
    assert_eq!(look("free"), FirstLook { listed, compared: true });
    assert_eq!(look("early"), FirstLook { listed, compared: false });
    assert!(!look("strange").compared, "its name is somebody else's");
    book.volume_passes(&volume("pvc-gone", "gone"));
    book.volume_gone(&volume("pvc-gone", "gone"));
    book.unreadable_volume_passes("pvc-unread");
    assert_eq!(["gone", "unread"].map(look), [FirstLook::default(); 2], "in doubt since");
    book.observe(Sighting::Applied(claim("born")));
    assert_eq!(look("born"), FirstLook::default());
}

/// While it was looked up, something was heard of it.
#[test]
fn what_is_in_doubt_since_a_glance_is_not_settled_by_it() {
    let book = working_while_listing();
    book.observe(Sighting::Listed(claim("u")));
    book.volumes_listed();
    let glance = book.glance("u").unwrap();
    book.volume_passes(&volume("pvc-u", "somebody"));
    book.looked_up(&glance);
    assert_eq!(book.glance("u").unwrap().doubt, Doubt::VolumeAndClaim);
    book.looked_up(&book.glance("u").unwrap());
    assert_eq!(book.glance("u").unwrap().doubt, Doubt::None);
}
