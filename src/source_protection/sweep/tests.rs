//! One sweep over a scripted API server.

use super::*;
use crate::{
    kube::testing::{Answer, Server},
    logging::testing::logged,
    source_protection::testing::{SETTINGS, protection},
};

/// The kind may be installed later, and permissions granted.
#[tokio::test]
async fn a_missing_kind_is_ignored_and_a_missing_right_logged_once() {
    for (code, reason, lines) in [(404, "NotFound", 0), (403, "Forbidden", 1)] {
        let (log, _guard) = logged();
        let server = Server::new(move |_, _| Answer::refusal(code, reason, "no"));
        let protection = protection(&server, SETTINGS);
        let mut reported = false;
        for _ in 0..3 {
            log_list_error(
                &protection.sweep_once(&mut Observed::default()).await.unwrap_err(),
                &mut reported,
            );
        }
        assert_eq!(log.text().lines().count(), lines, "{}", log.text());
    }
}

#[test]
fn sidecars_do_not_sweep_in_step() {
    let interval = Duration::from_secs(300);
    assert_eq!(jittered(interval, 0.0), Duration::from_secs(270));
    assert!(jittered(interval, 0.999) < Duration::from_secs(330));
}
