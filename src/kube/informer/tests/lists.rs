//! Lists: their pages, what follows the first one, and the watch after them.

use super::*;

#[tokio::test(start_paused = true)]
async fn the_watch_begins_at_the_lists_version_once_the_list_is_complete() {
    let changes = Answer::watch()
        .event(1, "ADDED", &claim("new", 21))
        .event(1, "MODIFIED", &claim("a", 22))
        .event(1, "DELETED", &claim("b", 23));
    let run = run(100, move |_, seen| match request(&seen.url).as_str() {
        "page" => page(&["a"], "next"),
        "page next" => page(&["b"], "").after(10),
        _ => changes.clone(),
    })
    .await;
    assert_eq!(run.words(), [&LISTED_AB[..], &["apply new", "apply a", "delete b"]].concat());
    assert_eq!(run.requests(), ["page", "page next", "watch 20"]);
    assert_eq!(run.server.times(), [0, 0, 10]);
    assert_eq!(query(&run.server.requests()[0].url, "limit"), "2");
    assert_eq!(query(&run.server.requests()[0].url, "resourceVersion"), "", "a consistent read");
    assert_eq!(query(&run.server.requests()[2].url, "allowWatchBookmarks"), "true");
    assert_eq!(query(&run.server.requests()[2].url, "timeoutSeconds"), "240");
}

#[tokio::test(start_paused = true)]
async fn objects_are_yielded_while_their_page_is_received() {
    let objects = format!("{},", claim("a", 5));
    let run = run(100, move |_, seen| match request(&seen.url).as_str() {
        "page" => Answer::status(200)
            .chunk(0, "{\"metadata\":{\"resourceVersion\":\"20\"},\"items\":[")
            .chunk(1, objects.clone())
            .chunk(9, format!("{}]}}", claim("b", 5))),
        _ => Answer::watch(),
    })
    .await;
    assert_eq!(run.words(), LISTED_AB);
    assert_eq!(run.events.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 1, 10, 10]);
}

#[tokio::test(start_paused = true)]
async fn after_a_broken_page_the_list_begins_again() {
    for end in [End::Closed, End::Broken] {
        let run = run(100, move |number, seen| match (number, request(&seen.url).as_str()) {
            (0, _) => Answer::status(200)
                .chunk(0, "{\"metadata\":{\"resourceVersion\":\"20\"},\"items\":[")
                .chunk(0, format!("{},", claim("a", 5)))
                .end(end),
            (_, "page") => page(&["a", "b"], ""),
            _ => Answer::watch(),
        })
        .await;
        assert_eq!(run.words(), [&["init", "init-apply a"][..], &LISTED_AB].concat());
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_failed_page_the_list_begins_again() {
    for failure in
        [Answer::status(500), Answer::refusal(410, "Expired", "continue"), Answer::none()]
    {
        let run = run(100, move |number, seen| match (number, request(&seen.url).as_str()) {
            (_, "page") => page(&["a"], "next"),
            (1, _) => failure.clone().after(1),
            (_, "page next") => page(&["b"], ""),
            _ => Answer::watch(),
        })
        .await;
        assert_eq!(run.words(), [&["init", "init-apply a"][..], &LISTED_AB].concat());
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_watch_the_list_is_complete_all_the_same() {
    let run = run(60, |_, seen| match request(&seen.url).as_str() {
        "page" => page(&["a"], "next"),
        "page next" => page(&["b"], "").after(1),
        _ => Answer::refusal(403, "Forbidden", "cannot watch"),
    })
    .await;
    assert_eq!(run.words()[..4], LISTED_AB);
    assert_eq!(run.events[3].0, 1, "no page waits for the watch");
}

/// The whole list of `names`.
fn whole(names: &[&str], version: u64) -> Answer {
    let items: Vec<_> = names.iter().map(|name| claim(name, 5)).collect();
    let metadata = json!({"resourceVersion": version.to_string()});
    Answer::json(200, &json!({"metadata": metadata, "items": items}))
}

#[tokio::test(start_paused = true)]
async fn what_follows_the_first_page_is_listed_at_once() {
    let run = run_with(Rest::AtOnce, 100, |_, seen| match request(&seen.url).as_str() {
        "page" => page(&["gone", "b"], "next"),
        "whole 20" => whole(&["b", "c", "d"], 30).after(10),
        "watch 30" => Answer::watch().event(1, "MODIFIED", &claim("d", 31)),
        other => panic!("{other}"),
    })
    .await;
    let words = ["init", "init-apply b", "init-apply c", "init-apply d", "init-done", "apply d"];
    assert_eq!(run.words(), words, "only the version of the first page counts");
    assert_eq!(run.requests(), ["page", "whole 20", "watch 30"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_of_one_page_costs_one_request() {
    let run = run_with(Rest::AtOnce, 100, |_, seen| match request(&seen.url).as_str() {
        "page" => page(&["a", "b"], ""),
        _ => Answer::watch(),
    })
    .await;
    assert_eq!(run.words(), ["init", "init-apply a", "init-apply b", "init-done"]);
    assert_eq!(run.requests(), ["page", "watch 20"]);
}

/// A server that cannot give so much at once, or not in time.
#[tokio::test(start_paused = true)]
async fn if_the_rest_cannot_be_listed_at_once_it_is_listed_in_pages() {
    let refused = Answer::refusal(504, "Timeout", "Too large resource version");
    let cut = Answer::status(200)
        .chunk(0, "{\"metadata\":{\"resourceVersion\":\"30\"},\"items\":[")
        .end(End::Broken);
    for failure in [refused, cut, Answer::none()] {
        let run = run_with(Rest::AtOnce, 20, move |_, seen| match request(&seen.url).as_str() {
            "page" => page(&["a"], "next"),
            "page next" => page(&["b"], ""),
            "whole 20" => failure.clone(),
            _ => Answer::watch(),
        })
        .await;
        assert_eq!(run.words(), [&["init"][..], &LISTED_AB].concat());
        let mut requests = run.requests();
        requests.retain(|request| !request.starts_with("watch"));
        assert_eq!(requests, ["page", "whole 20", "page", "page next"]);
    }
}

/// They cannot be compared.
#[tokio::test(start_paused = true)]
async fn if_versions_are_no_numbers_the_rest_is_listed_in_pages() {
    let run = run_with(Rest::AtOnce, 20, |_, seen| match request(&seen.url).as_str() {
        "page" => {
            let metadata = json!({"resourceVersion": "x", "continue": "next"});
            Answer::json(200, &json!({"metadata": metadata, "items": [claim("a", 5)]}))
        }
        "page next" => page(&["b"], ""),
        _ => Answer::watch(),
    })
    .await;
    assert_eq!(run.words(), ["init", "init-apply a", "init-apply b", "init-done"]);
}

#[tokio::test(start_paused = true)]
async fn list_once_tries_until_the_list_is_complete_and_returns_its_version() {
    let server = Server::new(|number, seen| match (number, request(&seen.url).as_str()) {
        (0, _) => Answer::status(500),
        (_, "page") => page(&["a", "b"], "next"),
        (2, "whole 20") => Answer::none(),
        (_, "page next") => page(&["c"], ""),
        other => panic!("{other:?}"),
    });
    let informer = informer::<Claim>(&server, &Metrics::new());
    let informer = informer.with_settings(Rest::AtOnce.settings());
    let mut words = Vec::new();
    let version = informer.list_once(|event| words.push(word(&event))).await;
    assert_eq!(
        (version, words),
        (Some(20), vec!["init-apply a".into(), "init-apply b".into(), "init-apply c".into()])
    );
}
