//! Lists that changes do not wait for.

use std::collections::BTreeMap;

use proptest::{collection::vec, option, prelude::*, strategy::Strategy};

use super::*;

/// Lists `a`, then `b` seconds later, and says `watch` meanwhile.
fn slow_list(watch: Answer) -> impl Fn(usize, &Seen) -> Answer + Send + Sync + 'static {
    move |_, seen| match asked(&seen.url).as_str() {
        "page" => page(&["a"], "next"),
        "page next" => page(&["b"], "").after(10),
        _ => watch.clone(),
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_born_while_the_list_runs_is_shown_at_once() {
    let born = Answer::watch().event(1, "ADDED", &claim("new", 21)).event(
        1,
        "MODIFIED",
        &claim("new", 22),
    );
    let run = reflect_with(Way::Overlapped, 100, slow_list(born)).await;
    assert_eq!(
        run.words(),
        ["restarted", "listed a", "applied new", "applied new", "listed b", "complete"]
    );
    assert_eq!(run.shown.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 0, 1, 2, 10, 10]);
    assert_eq!(run.asked(), ["page", "watch 20", "page next"], "one watch from the first page on");
    assert_eq!(query(&run.server.seen()[1].url, "allowWatchBookmarks"), "true");
    assert_eq!(query(&run.server.seen()[1].url, "timeoutSeconds"), "240");
}

#[tokio::test(start_paused = true)]
async fn what_stood_and_changes_while_the_list_runs_is_part_of_the_list_and_shown_once() {
    let changes = Answer::watch()
        .event(1, "MODIFIED", &claim("b", 21))
        .event(1, "MODIFIED", &claim("b", 22))
        .event(20, "MODIFIED", &claim("b", 23));
    let run = reflect_with(Way::Overlapped, 100, slow_list(changes)).await;
    assert_eq!(
        run.words(),
        ["restarted", "listed a", "listed b", "listed b", "complete", "applied b"]
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_deleted_while_the_list_runs_does_not_come_back_with_its_page() {
    let changes = Answer::watch()
        .event(1, "DELETED", &claim("b", 21))
        .event(1, "ADDED", &claim("short", 22))
        .event(1, "DELETED", &claim("short", 23));
    let run = reflect_with(Way::Overlapped, 100, slow_list(changes)).await;
    assert_eq!(
        run.words(),
        ["restarted", "listed a", "deleted b", "applied short", "deleted short", "complete"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_while_the_list_runs_is_resumed_where_it_ended() {
    let run = reflect_with(Way::Overlapped, 100, |_, seen| match asked(&seen.url).as_str() {
        "page" => page(&["a"], "next"),
        "page next" => page(&["b"], "").after(10),
        "watch 20" => Answer::watch().event(1, "ADDED", &claim("new", 21)).end(End::Closed),
        _ => Answer::watch().event(1, "ADDED", &claim("newer", 22)),
    })
    .await;
    assert_eq!(
        run.words(),
        ["restarted", "listed a", "applied new", "applied newer", "listed b", "complete"]
    );
    assert_eq!(run.asked(), ["page", "watch 20", "page next", "watch 21"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_fails_while_the_list_runs_goes_on_after_it() {
    for failure in [
        Answer::watch().end(End::Broken),
        Answer::none(),
        Answer::watch().event(0, "ERROR", &status(500, "InternalError")),
    ] {
        let run = reflect_with(Way::Overlapped, 100, move |number, seen| {
            match (number, asked(&seen.url).as_str()) {
                (_, "page") => page(&["a"], "next"),
                (_, "page next") => page(&["b"], "").after(10),
                (1, _) => failure.clone(),
                _ => Answer::watch().event(0, "ADDED", &claim("new", 21)),
            }
        })
        .await;
        assert_eq!(run.words(), ["restarted", "listed a", "listed b", "complete", "applied new"]);
        assert_eq!(run.asked(), ["page", "watch 20", "page next", "watch 20"]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_new_is_shown_before_the_rest_of_a_page_that_takes_its_time() {
    let objects = format!("{},", claim("a", 5));
    let run = reflect_with(Way::Overlapped, 100, move |_, seen| match asked(&seen.url).as_str() {
        "page" => Answer::status(200)
            .chunk(0, "{\"metadata\":{\"resourceVersion\":\"20\"},\"items\":[")
            .chunk(1, objects.clone())
            .chunk(9, format!("{}]}}", claim("b", 5))),
        _ => Answer::watch().event(2, "ADDED", &claim("new", 21)),
    })
    .await;
    assert_eq!(run.words(), ["restarted", "listed a", "applied new", "listed b", "complete"]);
    assert_eq!(run.shown.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 1, 2, 10, 10]);
    assert_eq!(run.asked(), ["page", "watch 20"], "the version stands before the objects");
}

#[tokio::test(start_paused = true)]
async fn the_next_page_is_asked_for_half_way_through_one() {
    let head = "{\"metadata\":{\"resourceVersion\":\"20\",\"continue\":\"next\"},\"items\":[";
    let run = reflect_with(Way::Overlapped, 100, move |_, seen| match asked(&seen.url).as_str() {
        "page" => Answer::status(200)
            .chunk(0, head)
            .chunk(5, format!("{},", claim("a", 5)))
            .chunk(10, format!("{}]}}", claim("b", 5))),
        "page next" => page(&["c"], "").after(2),
        _ => Answer::watch(),
    })
    .await;
    assert_eq!(run.words(), ["restarted", "listed a", "listed b", "listed c", "complete"]);
    assert_eq!(run.asked(), ["page", "watch 20", "page next"]);
    assert_eq!(run.server.times(), [0, 0, 5], "half of two objects were there");
    let shown: Vec<u64> = run.shown.iter().map(|(at, _)| *at).collect();
    assert_eq!(shown, [0, 5, 15, 15, 15], "nobody waited for it");
}

#[tokio::test(start_paused = true)]
async fn a_page_that_breaks_off_begins_the_list_anew() {
    for end in [End::Closed, End::Broken] {
        let run = reflect_with(Way::Overlapped, 100, move |number, seen| {
            match (number, asked(&seen.url).as_str()) {
                (0, _) => Answer::status(200)
                    .chunk(0, "{\"metadata\":{\"resourceVersion\":\"20\"},\"items\":[")
                    .chunk(0, format!("{},", claim("a", 5)))
                    .end(end),
                (_, "page") => page(&["a", "b"], ""),
                _ => Answer::watch(),
            }
        })
        .await;
        assert_eq!(run.words(), [&["restarted", "listed a"][..], &PAGED].concat());
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_forgotten_while_the_list_runs_begins_it_anew() {
    let refused = || Answer::refusal(410, "Expired", "too old resource version");
    let in_band = || Answer::watch().event(0, "ERROR", &status(410, "Expired"));
    for forgotten in [refused(), in_band()] {
        let run = reflect_with(Way::Overlapped, 100, move |number, seen| {
            match (number, asked(&seen.url).as_str()) {
                (_, "page") => page(&["a"], "next"),
                (1, _) => page(&["b"], "").after(10),
                (2, _) => forgotten.clone(),
                (_, "page next") => page(&["c"], ""),
                _ => Answer::watch(),
            }
        })
        .await;
        assert_eq!(
            run.words(),
            ["restarted", "listed a", "restarted", "listed a", "listed c", "complete"]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_fails_begins_the_list_anew() {
    for failure in
        [Answer::status(500), Answer::refusal(410, "Expired", "continue"), Answer::none()]
    {
        let run = reflect_with(Way::Overlapped, 100, move |number, seen| {
            match (number, asked(&seen.url).as_str()) {
                (_, "page") => page(&["a"], "next"),
                (2, _) => failure.clone().after(1),
                (_, "page next") => page(&["b"], ""),
                _ => Answer::watch(),
            }
        })
        .await;
        assert_eq!(run.words(), [&["restarted", "listed a"][..], &PAGED].concat());
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_forgotten_after_the_list_costs_a_list() {
    let at_start = Answer::refusal(410, "Expired", "too old resource version");
    let in_band = Answer::watch().event(0, "ERROR", &status(410, "Expired"));
    for forgotten in [at_start, in_band] {
        let run = reflect_with(Way::Overlapped, 20, move |number, seen| {
            match (number, asked(&seen.url).as_str()) {
                (0, _) => page(&["a"], ""),
                (1, _) => Answer::watch().event(1, "MODIFIED", &claim("a", 21)).end(End::Closed),
                (2, _) => forgotten.clone(),
                (_, "page") => page(&["b"], ""),
                _ => Answer::watch(),
            }
        })
        .await;
        assert_eq!(
            run.words(),
            ["restarted", "listed a", "complete", "applied a", "restarted", "listed b", "complete"]
        );
        assert_eq!(run.asked()[..4], ["page", "watch 20", "watch 21", "page"]);
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_watch_the_list_is_whole_nevertheless() {
    let run = reflect_with(Way::Overlapped, 60, |_, seen| match asked(&seen.url).as_str() {
        "page" => page(&["a"], "next"),
        "page next" => page(&["b"], "").after(1),
        _ => Answer::refusal(403, "Forbidden", "cannot watch"),
    })
    .await;
    assert_eq!(run.words()[..4], PAGED);
    assert_eq!(run.shown[3].0, 1, "no page waits for the watch");
}

#[tokio::test(start_paused = true)]
async fn a_dead_watch_is_noticed_and_quiet_ones_cost_no_list() {
    let run = reflect_with(Way::Overlapped, 300, |_, seen| match asked(&seen.url).as_str() {
        "page" => page(&["a"], ""),
        _ => Answer::watch(),
    })
    .await;
    assert_eq!(run.asked(), ["page", "watch 20", "watch 20"]);
    assert_eq!(run.server.times(), [0, 0, 245]);
}

/// The list of `names`, whole.
fn whole(names: &[&str], version: u64) -> Answer {
    let items: Vec<_> = names.iter().map(|name| claim(name, 5)).collect();
    let metadata = json!({"resourceVersion": version.to_string()});
    Answer::json(200, &json!({"metadata": metadata, "items": items}))
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_on_the_first_page_comes_at_once() {
    let run = reflect_with(Way::AtOnce, 100, |_, seen| match asked(&seen.url).as_str() {
        "page" => page(&["a", "b"], "next"),
        "whole 20" => whole(&["a", "b", "c", "d"], 30).after(10),
        "watch 20" => Answer::watch()
            .event(1, "ADDED", &claim("new", 21))
            .event(1, "MODIFIED", &claim("a", 22))
            .event(1, "DELETED", &claim("b", 23))
            // The watch is behind the list.
            .event(10, "MODIFIED", &claim("c", 29))
            .event(1, "DELETED", &claim("gone", 30))
            .event(1, "MODIFIED", &claim("d", 31)),
        other => panic!("{other}"),
    })
    .await;
    assert_eq!(
        run.words(),
        [
            "restarted",
            "listed a",
            "listed b",
            "applied new",
            "listed a",
            "deleted b",
            "listed c",
            "listed d",
            "complete",
            "deleted gone",
            "applied d",
        ]
    );
    assert_eq!(run.asked(), ["page", "watch 20", "whole 20"]);
}

#[tokio::test(start_paused = true)]
async fn what_fits_on_the_first_page_costs_one_request() {
    let run = reflect_with(Way::AtOnce, 100, |_, seen| match asked(&seen.url).as_str() {
        "page" => page(&["a", "b"], ""),
        _ => Answer::watch(),
    })
    .await;
    assert_eq!(run.words(), ["restarted", "listed a", "listed b", "complete"]);
    assert_eq!(run.asked(), ["page", "watch 20"]);
}

/// A server that cannot give so much at once, or not in time.
#[tokio::test(start_paused = true)]
async fn where_the_rest_does_not_come_at_once_it_comes_in_pages() {
    let refused = Answer::refusal(504, "Timeout", "Too large resource version");
    let cut = Answer::status(200)
        .chunk(0, "{\"metadata\":{\"resourceVersion\":\"30\"},\"items\":[")
        .end(End::Broken);
    for failure in [refused, cut, Answer::none()] {
        let run = reflect_with(Way::AtOnce, 20, move |_, seen| match asked(&seen.url).as_str() {
            "page" => page(&["a"], "next"),
            "page next" => page(&["b"], ""),
            "whole 20" => failure.clone(),
            _ => Answer::watch(),
        })
        .await;
        let words = ["restarted", "listed a", "restarted", "listed a", "listed b", "complete"];
        assert_eq!(run.words(), words);
        let mut asked = run.asked();
        asked.retain(|asked| !asked.starts_with("watch"));
        assert_eq!(asked, ["page", "whole 20", "page", "page next"]);
    }
}

/// The refusal may come before the end of the first page.
#[tokio::test(start_paused = true)]
async fn also_where_that_is_known_before_the_first_page_has_come() {
    let head = "{\"metadata\":{\"resourceVersion\":\"20\",\"continue\":\"next\"},\"items\":[";
    let run = reflect_with(Way::AtOnce, 100, move |_, seen| match asked(&seen.url).as_str() {
        "page" => Answer::status(200)
            .chunk(0, head)
            .chunk(0, format!("{},", claim("a", 5)))
            .chunk(5, format!("{}]}}", claim("b", 5))),
        "page next" => page(&["c"], ""),
        "whole 20" => Answer::refusal(504, "Timeout", "Too large resource version"),
        _ => Answer::watch(),
    })
    .await;
    let words = ["restarted", "listed a", "restarted", "listed a", "listed b", "listed c"];
    assert_eq!(run.words()[..6], words);
    assert_eq!(run.words().last(), Some(&"complete"));
}

/// Versions that nobody can compare don't say what is newer.
#[tokio::test(start_paused = true)]
async fn where_versions_are_no_numbers_the_rest_comes_in_pages() {
    let run = reflect_with(Way::AtOnce, 20, |_, seen| match asked(&seen.url).as_str() {
        "page" => {
            let metadata = json!({"resourceVersion": "x", "continue": "next"});
            Answer::json(200, &json!({"metadata": metadata, "items": [claim("a", 5)]}))
        }
        "page next" => page(&["b"], ""),
        _ => Answer::watch(),
    })
    .await;
    assert_eq!(run.words(), ["restarted", "listed a", "listed b", "complete"]);
}

/// What happens on the server while it lists: to the object of this number.
#[derive(Debug, Clone, Copy)]
struct Deed {
    object: u8,
    deletes: bool,
    /// How many pages have been sent before.
    page: usize,
}

fn deed() -> impl Strategy<Value = Deed> {
    (0..8_u8, any::<bool>(), 0..4_usize).prop_map(|(object, deletes, page)| Deed {
        object,
        deletes,
        page,
    })
}

/// A server's objects by number, each with UID and version, and what happened to them.
#[derive(Default)]
struct History {
    now: BTreeMap<u8, Value>,
    version: u64,
    /// Events, with the number of pages that were sent before.
    events: Vec<(usize, &'static str, Value)>,
}

impl History {
    fn carry_out(&mut self, deed: Deed) {
        self.version += 1;
        let version = json!(self.version.to_string());
        let event = match (deed.deletes, self.now.remove(&deed.object)) {
            (true, None) => return,
            (true, Some(mut gone)) => {
                gone["metadata"]["resourceVersion"] = version;
                ("DELETED", gone)
            }
            (false, Some(mut object)) => {
                object["metadata"]["resourceVersion"] = version;
                self.now.insert(deed.object, object.clone());
                ("MODIFIED", object)
            }
            (false, None) => {
                let mut object = claim(&format!("o{}", deed.object), self.version);
                object["metadata"]["uid"] = json!(format!("o{}-{}", deed.object, self.version));
                self.now.insert(deed.object, object.clone());
                ("ADDED", object)
            }
        };
        self.events.push((deed.page, event.0, event.1));
    }
}

/// What was seen of objects: version by UID.
type Versions = BTreeMap<String, u64>;

fn version_of(claim: &Claim) -> u64 {
    claim.metadata.resource_version.as_deref().unwrap().parse().unwrap()
}

impl History {
    /// Those objects stand, and nothing has happened since.
    fn of(stand: &[bool]) -> Self {
        let mut history = Self { version: 100, ..Self::default() };
        for (object, _) in (0..).zip(stand).filter(|(_, stands)| **stands) {
            history.carry_out(Deed { object, deletes: false, page: 0 });
        }
        history.events.clear();
        history
    }

    fn versions(&self) -> Versions {
        let claims =
            self.now.values().map(|object| serde_json::from_value(object.clone()).unwrap());
        claims.map(|claim: Claim| (claim.uid().to_owned(), version_of(&claim))).collect()
    }

    /// The pages of a list, two objects each.
    fn pages(&self) -> Vec<Answer> {
        let objects: Vec<&Value> = self.now.values().collect();
        let pages: Vec<_> = objects.chunks(2).collect();
        let answer = |number: usize| {
            let next =
                if number + 1 < pages.len() { (number + 1).to_string() } else { String::new() };
            let metadata = json!({"resourceVersion": self.version.to_string(), "continue": next});
            let items = pages.get(number).copied().unwrap_or_default();
            Answer::json(200, &json!({"metadata": metadata, "items": items}))
        };
        (0..pages.len().max(1)).map(answer).collect()
    }

    /// The whole list.
    fn whole(&self) -> Answer {
        let metadata = json!({"resourceVersion": self.version.to_string()});
        Answer::json(
            200,
            &json!({"metadata": metadata, "items": self.now.values().collect::<Vec<_>>()}),
        )
    }

    /// The watch: a page comes each ten seconds, and its deeds five seconds later.
    fn watch(&self) -> Answer {
        let (mut answer, mut last) = (Answer::watch(), 0);
        for (page, kind, object) in &self.events {
            let at = 10 * (*page as u64) + 5;
            answer = answer.event(at - last, kind, object);
            last = at;
        }
        answer
    }
}

/// How what does not fit on the first page comes, where not in pages: as it was after so many deeds,
/// and so many seconds after it was asked for.
type AtOnce = Option<(usize, u64)>;

/// What a reflector shows of a list of what `stand`, with `deeds` meanwhile; with what stood, and
/// what is there in the end.
async fn shown(
    stand: &[bool],
    mut deeds: Vec<Deed>,
    at_once: AtOnce,
) -> (Vec<Sighting<Claim>>, [Versions; 2]) {
    let mut history = History::of(stand);
    let (stood, pages) = (history.versions(), history.pages());
    deeds.sort_by_key(|deed| deed.page);
    let (seen, late) = at_once.unwrap_or_default();
    let later = deeds.split_off(seen.min(deeds.len()));
    for deed in deeds {
        history.carry_out(deed);
    }
    let whole = history.whole().after(late);
    for deed in later {
        history.carry_out(deed);
    }
    let watch = history.watch();
    let server = Server::new(move |_, seen| match query(&seen.url, "watch") {
        "true" => watch.clone(),
        _ if query(&seen.url, "resourceVersionMatch") == "NotOlderThan" => whole.clone(),
        _ => match query(&seen.url, "continue").parse::<usize>() {
            Ok(number) => pages[number].clone().after(10),
            Err(_) => pages[0].clone(),
        },
    });
    let metrics = Metrics::new().unwrap();
    let gate = Gate::open(Arc::new(SystemClock));
    let lanes = Lanes::new(server.transport, LaneSettings::default(), gate, random(), &metrics);
    let settings = Settings { page_size: 2, first_page: at_once.map(|_| 2), ..Settings::default() };
    let reflector =
        Reflector::<Claim>::new(&lanes.objects, Scope::all(), settings, random(), &metrics);
    let sightings = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&sightings);
    let observer = move |sighting| sink.lock().push(sighting);
    let _ =
        tokio::time::timeout(Duration::from_secs(100), reflector.run_overlapped(observer)).await;
    let sightings = std::mem::take(&mut *sightings.lock());
    (sightings, [stood, history.versions()])
}

/// What an observer knows in the end, who is told who stood and who was born, and nobody's past. A
/// list that comes at once may show who was born since its first page, too.
fn followed(sightings: Vec<Sighting<Claim>>, stood: &Versions, at_once: AtOnce) -> Versions {
    let (mut known, mut whole) = (Versions::new(), false);
    let learn = |known: &mut Versions, claim: &Claim| {
        let older = known.insert(claim.uid().to_owned(), version_of(claim));
        assert!(older.is_none_or(|older| older < version_of(claim)), "told older than before");
    };
    for sighting in sightings {
        match sighting {
            Sighting::Restarted => assert!(known.is_empty(), "there is one list"),
            Sighting::Listed(claim) => {
                let may_stand = stood.contains_key(claim.uid()) || at_once.is_some();
                assert!(!whole && may_stand, "it did not stand");
                learn(&mut known, &claim);
            }
            Sighting::Applied(claim) => {
                assert!(whole || !stood.contains_key(claim.uid()), "it was not born since");
                learn(&mut known, &claim);
            }
            Sighting::Deleted(claim) => drop(known.remove(claim.uid())),
            Sighting::Complete => whole = true,
            Sighting::Unreadable { name, .. } => panic!("{name} can be read"),
        }
    }
    assert!(whole);
    known
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever happens while the list runs, whoever follows what is told ends with the truth, and
    /// on the way knows who was born and hears of nobody's past.
    #[test]
    fn lists_and_changes_lead_to_the_truth(
        stand in vec(any::<bool>(), 8),
        deeds in vec(deed(), 0..24),
        at_once in option::of((0..25_usize, 0..29_u64)),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all().start_paused(true).build().unwrap();
        let (sightings, [stood, truth]) = runtime.block_on(shown(&stand, deeds, at_once));
        prop_assert_eq!(followed(sightings, &stood, at_once), truth);
    }
}
