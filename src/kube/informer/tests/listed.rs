//! Long lists, which are read while they come.

use std::collections::BTreeMap;

use proptest::{collection::vec, option, prelude::*, strategy::Strategy};

use super::*;

#[tokio::test(start_paused = true)]
async fn the_watch_begins_at_the_lists_version_once_the_list_is_whole() {
    let changes = Answer::watch()
        .event(1, "ADDED", &claim("new", 21))
        .event(1, "MODIFIED", &claim("a", 22))
        .event(1, "DELETED", &claim("b", 23));
    let run = reflect_with(Service::Listed, 100, move |_, seen| match asked(&seen.url).as_str() {
        "page" => page(&["a"], "next"),
        "page next" => page(&["b"], "").after(10),
        _ => changes.clone(),
    })
    .await;
    assert_eq!(run.words(), [&PAGED[..], &["applied new", "applied a", "deleted b"]].concat());
    assert_eq!(run.asked(), ["page", "page next", "watch 20"]);
    assert_eq!(run.server.times(), [0, 0, 10]);
    assert_eq!(query(&run.server.seen()[2].url, "allowWatchBookmarks"), "true");
    assert_eq!(query(&run.server.seen()[2].url, "timeoutSeconds"), "240");
}

#[tokio::test(start_paused = true)]
async fn objects_are_shown_while_their_page_comes() {
    let objects = format!("{},", claim("a", 5));
    let run = reflect_with(Service::Listed, 100, move |_, seen| match asked(&seen.url).as_str() {
        "page" => Answer::status(200)
            .chunk(0, "{\"metadata\":{\"resourceVersion\":\"20\"},\"items\":[")
            .chunk(1, objects.clone())
            .chunk(9, format!("{}]}}", claim("b", 5))),
        _ => Answer::watch(),
    })
    .await;
    assert_eq!(run.words(), PAGED);
    assert_eq!(run.shown.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 1, 10, 10]);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_breaks_off_begins_the_list_anew() {
    for end in [End::Closed, End::Broken] {
        let run = reflect_with(Service::Listed, 100, move |number, seen| {
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
async fn a_page_that_fails_begins_the_list_anew() {
    for failure in
        [Answer::status(500), Answer::refusal(410, "Expired", "continue"), Answer::none()]
    {
        let run = reflect_with(Service::Listed, 100, move |number, seen| {
            match (number, asked(&seen.url).as_str()) {
                (_, "page") => page(&["a"], "next"),
                (1, _) => failure.clone().after(1),
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
        let run = reflect_with(Service::Listed, 20, move |number, seen| {
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
    let run = reflect_with(Service::Listed, 60, |_, seen| match asked(&seen.url).as_str() {
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
    let run = reflect_with(Service::Listed, 300, |_, seen| match asked(&seen.url).as_str() {
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
    let run = reflect_with(Service::AtOnce, 100, |_, seen| match asked(&seen.url).as_str() {
        "page" => page(&["gone", "b"], "next"),
        "whole 20" => whole(&["b", "c", "d"], 30).after(10),
        "watch 30" => Answer::watch().event(1, "MODIFIED", &claim("d", 31)),
        other => panic!("{other}"),
    })
    .await;
    let words = ["restarted", "listed b", "listed c", "listed d", "complete", "applied d"];
    assert_eq!(run.words(), words, "of the first page the version counts");
    assert_eq!(run.asked(), ["page", "whole 20", "watch 30"]);
}

#[tokio::test(start_paused = true)]
async fn what_fits_on_the_first_page_costs_one_request() {
    let run = reflect_with(Service::AtOnce, 100, |_, seen| match asked(&seen.url).as_str() {
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
        let run =
            reflect_with(Service::AtOnce, 20, move |_, seen| match asked(&seen.url).as_str() {
                "page" => page(&["a"], "next"),
                "page next" => page(&["b"], ""),
                "whole 20" => failure.clone(),
                _ => Answer::watch(),
            })
            .await;
        assert_eq!(run.words(), [&["restarted"][..], &PAGED].concat());
        let mut asked = run.asked();
        asked.retain(|asked| !asked.starts_with("watch"));
        assert_eq!(asked, ["page", "whole 20", "page", "page next"]);
    }
}

/// Versions that nobody can compare don't say what is newer.
#[tokio::test(start_paused = true)]
async fn where_versions_are_no_numbers_the_rest_comes_in_pages() {
    let run = reflect_with(Service::AtOnce, 20, |_, seen| match asked(&seen.url).as_str() {
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

#[tokio::test(start_paused = true)]
async fn a_list_alone_is_tried_until_it_is_whole_and_gives_its_version() {
    let server = Server::new(|number, seen| match (number, asked(&seen.url).as_str()) {
        (0, _) => Answer::status(500),
        (_, "page") => page(&["a", "b"], "next"),
        (2, "whole 20") => Answer::none(),
        (_, "page next") => page(&["c"], ""),
        other => panic!("{other:?}"),
    });
    let metrics = Metrics::new().unwrap();
    let gate = Gate::open(Arc::new(SystemClock));
    let lanes = Lanes::new(server.transport, LaneSettings::default(), gate, random(), &metrics);
    let settings = Service::AtOnce.settings();
    let reflector =
        Informer::<Claim>::new(&lanes.objects, Scope::all(), settings, random(), &metrics);
    let mut shown = Vec::new();
    let version = reflector.list_once(|event| shown.push(word(&event))).await;
    assert_eq!(
        (version, shown),
        (Some(20), vec!["listed a".into(), "listed b".into(), "listed c".into()])
    );
}

/// What happens on the server while it lists: to the object of this number.
#[derive(Debug, Clone, Copy)]
struct Deed {
    object: u8,
    deletes: bool,
}

fn deed() -> impl Strategy<Value = Deed> {
    (0..8_u8, any::<bool>()).prop_map(|(object, deletes)| Deed { object, deletes })
}

/// A server's objects by number, each with UID and version, and what happened to them.
#[derive(Default)]
struct History {
    now: BTreeMap<u8, Value>,
    version: u64,
    /// Events with their versions.
    events: Vec<(u64, &'static str, Value)>,
}

impl History {
    /// Those objects stand, and nothing has happened since.
    fn of(stand: &[bool]) -> Self {
        let mut history = Self { version: 100, ..Self::default() };
        for (object, _) in (0..).zip(stand).filter(|(_, stands)| **stands) {
            history.carry_out(Deed { object, deletes: false });
        }
        history.events.clear();
        history
    }

    fn carry_out(&mut self, deed: Deed) {
        let before = self.now.remove(&deed.object);
        if deed.deletes && before.is_none() {
            return;
        }
        self.version += 1;
        let uid = json!(format!("o{}-{}", deed.object, self.version));
        let mut object = before.clone().unwrap_or_else(|| {
            let mut object = claim(&format!("o{}", deed.object), self.version);
            object["metadata"]["uid"] = uid;
            object
        });
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let kind = match (deed.deletes, before) {
            (true, _) => "DELETED",
            (false, Some(_)) => "MODIFIED",
            (false, None) => "ADDED",
        };
        if !deed.deletes {
            self.now.insert(deed.object, object.clone());
        }
        self.events.push((self.version, kind, object));
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
        let items: Vec<_> = self.now.values().collect();
        Answer::json(200, &json!({"metadata": metadata, "items": items}))
    }
}

/// What was seen of objects: version by UID.
type Versions = BTreeMap<String, u64>;

fn version_of(claim: &Claim) -> u64 {
    claim.metadata.resource_version.as_deref().unwrap().parse().unwrap()
}

/// What a reflector shows where `stand` stood and `deeds` happened; what is there in the end. What
/// does not fit on the first page comes in pages, or whole as it was after so many deeds.
async fn shown(
    stand: &[bool],
    deeds: Vec<Deed>,
    at_once: Option<usize>,
) -> (Vec<InformerEvent<Claim>>, Versions) {
    let mut history = History::of(stand);
    let pages = history.pages();
    let mut whole = history.whole();
    for (number, deed) in deeds.into_iter().enumerate() {
        history.carry_out(deed);
        if at_once.is_some_and(|seen| number < seen) {
            whole = history.whole();
        }
    }
    let events = history.events.clone();
    let watch = move |from: u64| {
        let later = events.iter().filter(|(version, ..)| *version > from);
        later.fold(Answer::watch(), |watch, (_, kind, object)| watch.event(0, kind, object))
    };
    let server = Server::new(move |_, seen| match query(&seen.url, "watch") {
        "true" => watch(query(&seen.url, "resourceVersion").parse().unwrap()),
        _ if query(&seen.url, "resourceVersionMatch") == "NotOlderThan" => whole.clone(),
        _ => match query(&seen.url, "continue").parse::<usize>() {
            Ok(number) => pages[number].clone(),
            Err(_) => pages[0].clone(),
        },
    });
    let metrics = Metrics::new().unwrap();
    let gate = Gate::open(Arc::new(SystemClock));
    let lanes = Lanes::new(server.transport, LaneSettings::default(), gate, random(), &metrics);
    let settings = Settings { page_size: 2, first_page: at_once.map(|_| 2), ..Settings::default() };
    let reflector =
        Informer::<Claim>::new(&lanes.objects, Scope::all(), settings, random(), &metrics);
    let events = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&events);
    let observer = move |event| sink.lock().push(event);
    let _ = tokio::time::timeout(Duration::from_secs(100), reflector.run_listed(observer)).await;
    let events = std::mem::take(&mut *events.lock());
    (events, history.versions())
}

/// What an observer knows in the end.
fn followed(events: Vec<InformerEvent<Claim>>) -> Versions {
    let (mut known, mut whole) = (Versions::new(), false);
    for event in events {
        match event {
            InformerEvent::Init => assert!(known.is_empty(), "there is one list"),
            InformerEvent::InitApply(claim) | InformerEvent::Apply(claim) => {
                let older = known.insert(claim.uid().to_owned(), version_of(&claim));
                assert!(older.is_none_or(|older| older < version_of(&claim)), "it goes back");
            }
            InformerEvent::Delete(claim) => drop(known.remove(claim.uid())),
            InformerEvent::InitDone => whole = true,
            InformerEvent::Unreadable { name, .. } => panic!("{name} can be read"),
        }
    }
    assert!(whole);
    known
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever happens while the list runs, whoever follows what is shown ends with the truth.
    #[test]
    fn lists_and_changes_lead_to_the_truth(
        stand in vec(any::<bool>(), 8),
        deeds in vec(deed(), 0..24),
        at_once in option::of(0..25_usize),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all().start_paused(true).build().unwrap();
        let (events, truth) = runtime.block_on(shown(&stand, deeds, at_once));
        prop_assert_eq!(followed(events), truth);
    }
}
