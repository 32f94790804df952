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
        assert_eq!(run.words(), LISTED_AB, "a page is read whole");
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
        assert_eq!(run.words(), [&["init-apply a"][..], &LISTED_AB].concat());
    }
}

/// Any user can create claims of more than a megabyte.
#[tokio::test(start_paused = true)]
async fn a_page_that_is_too_large_is_requested_again_and_the_list_goes_on() {
    let run = run(20, |_, seen| match request(&seen.url).as_str() {
        "page" if query(&seen.url, "limit") == "2" => {
            let mut large = claim("a", 5);
            large["metadata"]["annotations"] = json!({"a": "x".repeat(8 << 20)});
            page_of(&[large, claim("b", 5)], "")
        }
        "page" => page(&["a"], "next"),
        "page next" => page(&["b"], ""),
        _ => Answer::watch(),
    })
    .await;
    assert_eq!(run.words(), LISTED_AB);
    assert_eq!(run.requests(), ["page", "page", "page next", "watch 20"]);
    assert_eq!(run.server.times(), [0, 0, 0, 0]);
    let requests = run.server.requests();
    let limits = requests[..3].iter().map(|request| query(&request.url, "limit"));
    assert_eq!(limits.collect::<Vec<_>>(), ["2", "1", "2"], "the page after it is as usual");
}

#[tokio::test(start_paused = true)]
async fn what_only_a_broken_list_has_shown_has_vanished() {
    let server = Server::new(|number, seen| match (number, request(&seen.url).as_str()) {
        (0, _) => page(&["shown"], "next"),
        (1, _) => Answer::refusal(410, "Expired", "continue"),
        (_, "page") => page_of(&[claim("a", 5), unreadable_claim("bad", 5, "none")], "next"),
        (_, "page next") => page(&["b"], ""),
        _ => Answer::watch(),
    });
    let metrics = Metrics::new();
    let lists = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&lists);
    let handler = move |event| {
        if let InformerEvent::InitDone(listed) = event {
            sink.lock().push(listed);
        }
    };
    let informer = informer(&server, &metrics);
    let _ = tokio::time::timeout(Duration::from_secs(60), informer.run(handler)).await;
    let lists = lists.lock();
    assert_eq!(lists.len(), 1);
    for (uid, is_there) in
        [("uid-a", true), ("uid-bad", true), ("uid-b", true), ("uid-shown", false)]
    {
        assert_eq!(lists[0].contains(uid), is_there, "{uid}");
    }
}
