use proptest::{collection::vec, prelude::*};
use serde_json::json;

use super::*;

/// What happens, with the second at which it does.
#[derive(Debug, Clone, Copy)]
enum Happening {
    /// The answer to what we sent that many seconds ago came: this version.
    Written {
        ago: u64,
        version: u64,
    },
    Shown(Shown),
}
use Happening::{Shown as Sees, Written};
use Shown::{Complete, Restarted, Version};

fn sees(version: u64) -> Happening {
    Sees(Version(Some(version)))
}

/// Sent when the watch had shown nothing.
fn sent(at: Duration) -> Sent {
    Sent { at, shown: 0 }
}

fn after(happenings: &[Happening], now: u64) -> Proof {
    let mut proof = Proof::default();
    for happening in happenings {
        match *happening {
            Written { ago, version } => {
                proof.written(sent(Duration::from_secs(now - ago)), version);
            }
            Sees(shown) => proof.shown(shown),
        }
    }
    proof
}

#[test]
fn a_view_is_as_old_as_the_newest_write_that_was_shown() {
    let seen = |ago, version, shown| vec![Sees(Complete), Written { ago, version }, sees(shown)];
    let table = [
        ("nothing was written", vec![Sees(Complete), sees(9)], false),
        ("shown", seen(1, 5, 5), true),
        ("something newer was shown", seen(1, 5, 8), true),
        ("something older was shown", seen(1, 5, 4), false),
        ("sent two seconds ago", seen(2, 5, 5), false),
        (
            "shown before it was answered",
            vec![Sees(Complete), sees(5), Written { ago: 0, version: 5 }],
            true,
        ),
        (
            "the newest counts",
            vec![
                Sees(Complete),
                Written { ago: 0, version: 5 },
                Written { ago: 3, version: 4 },
                sees(6),
            ],
            true,
        ),
        (
            "the newest was not shown",
            vec![
                Sees(Complete),
                Written { ago: 3, version: 4 },
                Written { ago: 0, version: 5 },
                sees(4),
            ],
            false,
        ),
        (
            "no number",
            vec![Sees(Complete), Written { ago: 0, version: 5 }, Sees(Version(None))],
            false,
        ),
        ("the first list is not whole", vec![Written { ago: 0, version: 5 }, sees(5)], false),
        ("it is", vec![Written { ago: 0, version: 5 }, sees(5), Sees(Complete)], true),
        ("a new list begins", [seen(0, 5, 5), vec![Sees(Restarted), sees(4)]].concat(), false),
        (
            "and is older than what was shown",
            [seen(0, 5, 5), vec![Sees(Restarted), sees(4), Sees(Complete)]].concat(),
            false,
        ),
        (
            "and shows what was still to come",
            [seen(0, 5, 4), vec![Sees(Restarted), sees(6), Sees(Complete)]].concat(),
            true,
        ),
    ];
    let now = 100;
    for (case, happenings, proven) in table {
        let proof = after(&happenings, now);
        let got = proof.is_younger(FRESH, Duration::from_secs(now));
        assert_eq!(got, proven, "{case}");
    }
}

#[test]
fn what_cannot_prove_anything_any_more_is_not_kept() {
    let mut proof = Proof::default();
    for second in 0..100 {
        proof.written(sent(Duration::from_secs(second)), second + 1);
    }
    assert!(proof.awaited.len() <= 2, "{}", proof.awaited.len());
}

fn metadata(version: Option<&str>) -> ObjectMeta {
    serde_json::from_value(json!({"resourceVersion": version})).unwrap()
}

/// Its storage was put back from a backup: versions are counted again from there.
#[tokio::test(start_paused = true)]
async fn a_server_that_forgot_what_was_shown_proves_nothing() {
    let freshness = Freshness::new(crate::kube_api::testing::paused_clock());
    let made = |version: &str| -> Volume {
        serde_json::from_value(json!({"metadata": {"resourceVersion": version}})).unwrap()
    };
    freshness.shown(Complete);
    freshness.shown(Version(Some(20)));
    freshness.created(freshness.sending(), &made("12"));
    assert!(!freshness.is_proven());
    freshness.shown(Restarted);
    freshness.shown(Version(Some(12)));
    freshness.shown(Complete);
    freshness.created(freshness.sending(), &made("13"));
    freshness.shown(Version(Some(13)));
    assert!(freshness.is_proven());
}

/// A patch that changes nothing is answered with a version of any age.
#[tokio::test(start_paused = true)]
async fn only_what_changed_since_the_request_before_proves_anything() {
    for (before, left, proven) in [
        (Some("4"), Some("5"), true),
        (Some("9"), Some("10"), true),
        (Some("5"), Some("5"), false),
        (None, Some("5"), false),
        (Some("4"), None, false),
        (Some("a"), Some("b"), false),
    ] {
        let freshness = Freshness::new(crate::kube_api::testing::paused_clock());
        freshness.shown(Complete);
        let sent = freshness.sending();
        freshness.shown(Version(Some(20)));
        freshness.changed(sent, &metadata(before), &metadata(left));
        assert_eq!(freshness.is_proven(), proven, "{before:?} {left:?}");
    }
}

/// What happens around a server; time passes between, in tenths of a second.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Passes(u64),
    /// Somebody else writes.
    Others,
    /// A POST of ours is sent, carried out and answered after these times.
    Post(u64, u64),
    /// A request of ours is carried out, then a second; between them others may write the object,
    /// and then the second may change nothing.
    Pair(u64, u64, bool),
    /// The watch shows so many more changes.
    Shows(u64),
    /// A list is told, as it was so many changes ago.
    Lists(u64),
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        3 => (0..30_u64).prop_map(Deed::Passes),
        3 => Just(Deed::Others),
        2 => (0..15_u64, 0..15_u64).prop_map(|(there, back)| Deed::Post(there, back)),
        2 => (0..15_u64, 0..15_u64, any::<bool>()).prop_map(|(a, b, c)| Deed::Pair(a, b, c)),
        4 => (0..6_u64).prop_map(Deed::Shows),
        1 => (0..6_u64).prop_map(Deed::Lists),
    ]
}

/// The server's history, and the program's view of it.
#[derive(Default)]
struct World {
    now: u64,
    /// When each version was written.
    written: Vec<u64>,
    shown: usize,
    proof: Proof,
}

impl World {
    fn now(&self) -> Duration {
        Duration::from_millis(100 * self.now)
    }

    fn write(&mut self) -> u64 {
        self.written.push(self.now);
        self.newest()
    }

    fn newest(&self) -> u64 {
        self.written.len() as u64
    }

    fn does(&mut self, deed: Deed) {
        match deed {
            Deed::Passes(time) => self.now += time,
            Deed::Others => drop(self.write()),
            Deed::Post(there, back) => {
                let sent = Sent { at: self.now(), shown: self.proof.shown };
                self.now += there;
                let version = self.write();
                self.now += back;
                self.proof.written(sent, version);
            }
            Deed::Pair(there, between, changes) => {
                let sent = Sent { at: self.now(), shown: self.proof.shown };
                self.now += there;
                let before = self.newest();
                self.now += between;
                let after = if changes { self.write() } else { self.newest() };
                if before < after {
                    self.proof.written(sent, after);
                }
            }
            Deed::Shows(changes) => {
                for _ in 0..changes {
                    if self.shown < self.written.len() {
                        self.shown += 1;
                        self.proof.shown(Version(Some(self.shown as u64)));
                    }
                }
            }
            Deed::Lists(ago) => {
                self.shown = self.written.len().saturating_sub(usize::try_from(ago).unwrap());
                self.proof.shown(Restarted);
                self.proof.shown(Version(Some(self.shown as u64)));
                self.proof.shown(Complete);
            }
        }
    }

    /// Whether all that was written two seconds ago was shown.
    fn is_fresh(&self) -> bool {
        self.written.iter().skip(self.shown).all(|at| at + 20 > self.now)
    }
}

proptest! {
    /// Whatever delays events and answers, and whoever writes: what counts as proven is fresh.
    #[test]
    fn what_is_proven_is_so(deeds in vec(deed(), 0..60)) {
        let mut world = World::default();
        world.proof.shown(Complete);
        for deed in deeds {
            world.does(deed);
            if world.proof.is_younger(FRESH, world.now()) {
                prop_assert!(world.is_fresh(), "{deed:?} at {}", world.now);
            }
        }
    }
}
