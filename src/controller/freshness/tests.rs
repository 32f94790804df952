use std::collections::VecDeque;

use futures::future::{join, join_all};
use proptest::{collection::vec, prelude::*};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::*;

/// What happens, with the second at which it does.
#[derive(Debug, Clone)]
enum Happening {
    /// The answer to what we sent that many seconds ago came: this version.
    Written {
        ago: u64,
        version: u64,
    },
    /// That many seconds ago a write to `a` was sent.
    Asked(u64),
    /// The answer came: it was there.
    Stood,
    Shown(Shown),
}
use Happening::{Asked, Shown as Sees, Stood, Written};
use Shown::{Complete, Gone, Restarted, Version};

fn sees(version: u64) -> Happening {
    Sees(Version(Some(version)))
}

/// The watch shows the end of this one.
fn ends(uid: &str, version: u64) -> Happening {
    Sees(Gone(uid.to_owned(), Some(version)))
}

/// Sent when the watch had shown nothing.
fn sent(at: Duration) -> Sent {
    Sent { at, shown: 0 }
}

fn after(happenings: &[Happening], now: u64) -> Proof {
    let mut proof = Proof::default();
    for happening in happenings {
        match happening {
            Written { ago, version } => {
                proof.written(sent(Duration::from_secs(now - ago)), *version);
            }
            Asked(ago) => proof.ending("a", sent(Duration::from_secs(now - ago))),
            Stood => proof.stood("a"),
            Sees(shown) => proof.shown(shown.clone()),
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
    check(&table);
}

fn check(table: &[(&str, Vec<Happening>, bool)]) {
    let now = 100;
    for (case, happenings, proven) in table {
        let proof = after(happenings, now);
        let got = proof.is_younger(FRESH, Duration::from_secs(now));
        assert_eq!(got, *proven, "{case}");
    }
}

/// The answer to the write that brings it about has the version before.
#[test]
fn the_end_of_what_a_write_has_found_is_as_new_as_that_write() {
    let seen = |happenings: &[Happening]| [&[Sees(Complete)], happenings].concat();
    check(&[
        ("answered, then shown", seen(&[Asked(1), Stood, ends("a", 5)]), true),
        ("shown, then answered", seen(&[Asked(1), ends("a", 5), Stood]), true),
        ("not shown", seen(&[Asked(1), Stood, sees(9)]), false),
        ("another one's end", seen(&[Asked(1), Stood, ends("b", 5)]), false),
        ("it may have been gone before", seen(&[Asked(1), ends("a", 5)]), false),
        ("nothing was asked", seen(&[Stood, ends("a", 5)]), false),
        ("shown before it was asked", seen(&[ends("a", 5), Asked(1), Stood]), false),
        ("sent two seconds ago", seen(&[Asked(2), Stood, ends("a", 5)]), false),
        ("asked again", seen(&[Asked(2), Stood, Asked(1), Stood, ends("a", 5)]), true),
        ("again in vain", seen(&[Asked(1), Stood, Asked(0), ends("a", 5)]), false),
        ("no number", seen(&[Asked(1), Stood, Sees(Gone("a".into(), None))]), false),
        ("the list is not whole", vec![Asked(1), Stood, ends("a", 5)], false),
        ("it is", vec![Asked(1), Stood, ends("a", 5), Sees(Complete)], true),
    ]);
}

#[test]
fn what_cannot_prove_anything_any_more_is_not_kept() {
    let mut proof = Proof::default();
    for second in 0..100 {
        proof.written(sent(Duration::from_secs(second)), second + 1);
        proof.ending(&second.to_string(), sent(Duration::from_secs(second)));
        proof.stood(&second.to_string());
    }
    assert!(proof.awaited.len() <= 2, "{}", proof.awaited.len());
    assert!(proof.ends.len() <= 2, "{}", proof.ends.len());
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

/// How long each of so many waits who come at once, for a proof that comes after `proof`.
async fn waits(count: usize, proof: Duration) -> Vec<Duration> {
    let freshness = Freshness::new(crate::kube_api::testing::paused_clock());
    freshness.shown(Complete);
    let start = Instant::now();
    let one = || async {
        freshness.wait().await;
        start.elapsed()
    };
    let proves = async {
        sleep(proof).await;
        freshness.ending("a");
        freshness.stood("a");
        freshness.shown(Gone("a".into(), Some(5)));
    };
    let (waited, ()) = join(join_all((0..count).map(|_| one())), proves).await;
    waited
}

#[tokio::test(start_paused = true)]
async fn the_first_to_come_do_not_wait_and_the_others_until_the_view_is_proven() {
    let soon = Duration::from_millis(100);
    let waited = waits(100, soon).await;
    assert_eq!(waited[..FIRST], [Duration::ZERO; FIRST]);
    assert_eq!(waited[FIRST..], [soon; 100 - FIRST]);
    let waited = waits(100, Duration::from_secs(30)).await;
    assert_eq!(waited[FIRST..], [PATIENCE; 100 - FIRST], "not for ever");
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_when_few_others_do_does_not_wait() {
    let freshness = Freshness::new(crate::kube_api::testing::paused_clock());
    for _ in 0..10 * FIRST {
        let start = Instant::now();
        freshness.wait().await;
        assert_eq!(start.elapsed(), Duration::ZERO);
        sleep(PATIENCE / u32::try_from(FIRST).unwrap()).await;
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
    /// A write of ours that helps an object to its end is sent, and carried out after this time:
    /// that is its end, or others still hold it.
    Remove(u64, bool),
    /// The others let go of what they hold longest.
    LetGo,
    /// What has ended so long ago is asked to, of which the watch may still have to tell.
    TooLate(u64),
    /// The oldest write that has no answer yet gets it.
    Answered,
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
        2 => (0..15_u64, any::<bool>()).prop_map(|(there, held)| Deed::Remove(there, held)),
        1 => Just(Deed::LetGo),
        1 => (1..40_u64).prop_map(Deed::TooLate),
        2 => Just(Deed::Answered),
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
    /// Whose end a version is.
    ends: BTreeMap<u64, String>,
    /// What others hold, and what was not answered yet.
    held: VecDeque<String>,
    unanswered: VecDeque<String>,
    count: u64,
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

    /// Sends a write for an object that stands, or that ended so long ago.
    fn ask(&mut self, ended: u64) -> String {
        self.count += 1;
        let uid = self.count.to_string();
        if ended > 0 {
            self.end(uid.clone());
            self.write();
            self.now += ended;
        }
        self.proof.ending(&uid, Sent { at: self.now(), shown: self.proof.shown });
        uid
    }

    fn end(&mut self, uid: String) {
        let version = self.write();
        self.ends.insert(version, uid);
    }

    fn show(&mut self, version: u64) {
        let shown = match self.ends.get(&version) {
            Some(uid) => Gone(uid.clone(), Some(version)),
            None => Version(Some(version)),
        };
        self.proof.shown(shown);
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
            Deed::Remove(there, held) => {
                let uid = self.ask(0);
                self.now += there;
                self.unanswered.push_back(uid.clone());
                if held {
                    self.held.push_back(uid);
                } else {
                    self.end(uid);
                }
            }
            Deed::LetGo => {
                if let Some(uid) = self.held.pop_front() {
                    self.end(uid);
                }
            }
            Deed::TooLate(ago) => drop(self.ask(ago)),
            Deed::Answered => {
                if let Some(uid) = self.unanswered.pop_front() {
                    self.proof.stood(&uid);
                }
            }
            Deed::Shows(changes) => {
                for _ in 0..changes {
                    if self.shown < self.written.len() {
                        self.shown += 1;
                        self.show(self.shown as u64);
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
