//! The claims in work, as the status gets them.

use super::*;
use crate::controller::model::overview::{Claims, Stage};

fn names(claims: &Claims) -> Vec<&str> {
    claims.listed.iter().map(|claim| &*claim.name).collect()
}

#[tokio::test(start_paused = true)]
async fn failing_claims_come_first_and_then_the_oldest() {
    let index = leading_index();
    for uid in ["a", "b", "c", "d"] {
        index.on_event(InformerEvent::Apply(claim(uid)));
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    index.on_outcome("c", &Outcome::NotPrepared(Failure::new("no secret").into()));
    index.update("d", |it| it.blocked("no class", Duration::ZERO));
    let all = index.in_work(10, |_| true);
    assert_eq!(names(&all), ["c", "d", "a", "b"]);
    assert_eq!(all.by_stage, [(Stage::Waiting, 4)].into());
    let some = index.in_work(3, |_| true);
    assert_eq!((names(&some), some.more), (vec!["c", "d", "a"], 1));
    assert_eq!(names(&index.in_work(3, |claim| claim.name() == "b")), ["b"]);
    assert_eq!(all.listed[1].blocked.as_ref().unwrap().reason, "no class");
    index.on_volume(&provisioned_pv("pvc-a", "a"));
    assert_eq!(names(&index.in_work(10, |_| true)), ["c", "d", "b"], "it has its volume");
}

#[tokio::test(start_paused = true)]
async fn attempts_are_counted_and_the_last_failure_is_kept() {
    let index = leading_index();
    index.on_event(InformerEvent::Apply(claim("a")));
    let claim = || index.in_work(1, |_| true).listed.remove(0);
    assert_eq!(claim().attempts, 0);
    index.on_outcome("a", &Outcome::NotPrepared(Failure::new("no secret").into()));
    assert!(index.start_call("a", &request("a")));
    let long = "x".repeat(5000);
    index.on_outcome("a", &Outcome::Background(Failure::new(&long).of_kind("DeadlineExceeded")));
    let failure = claim().last_failure.unwrap();
    assert_eq!((claim().attempts, &*failure.code), (2, "DeadlineExceeded"));
    assert!(failure.message.len() <= 1024 && failure.message.ends_with("(cut, 5000 bytes)"));
    assert_eq!(index.in_work(1, |_| true).by_stage, [(Stage::Background, 1)].into());
}
