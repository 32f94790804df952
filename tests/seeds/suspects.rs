//! What the program logs of volumes that may be left behind, of records that it does not follow, and of
//! bugs: read from its log.

use std::{
    fmt::{self, Write as _},
    sync::Arc,
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
    subscriber::DefaultGuard,
};

use super::{adversary, core::Core, ledger::text};

/// Listens on this thread until the guard is dropped.
pub(crate) fn listen(core: &Arc<Core>) -> DefaultGuard {
    let shows_all = std::env::var_os("SEED_LOG").is_some();
    tracing::subscriber::set_default(Listener { core: Arc::clone(core), shows_all })
}

/// What is logged of a record that is void.
const UNFOLLOWED: &str = "a record of an open call is not followed";

struct Listener {
    core: Arc<Core>,
    /// `SEED_LOG` is set: every line goes into the trace.
    shows_all: bool,
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && (self.shows_all || *metadata.level() <= Level::WARN)
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let (ledger, plan) = (&self.core.ledger, &self.core.plan);
        if self.shows_all {
            ledger.log(&format!("{}: {}", event.metadata().target(), line.text));
        }
        if adversary::is_printed_in(&line.text) {
            ledger.wrong(&format!("a record's text is logged: {:?}", line.text));
        }
        let is_error = *event.metadata().level() == Level::ERROR;
        if is_error && line.text.contains("suspected leak") {
            // Of several processes only the one whose write lets a claim go says so, where it knows of that,
            // or all whose write may have.
            // A live claim may lose one node with a call after the other.
            // And each node's process reports the call of its own driver.
            let is_own = line.text.contains("has a volume from elsewhere");
            let is_let_go = !is_live(&self.core, &line.text) && !is_own;
            let is_new = ledger.suspected(&line.text, is_let_go);
            // Who is shown nothing for a while may take one that has gone for live.
            let all_know = plan.unanswered + plan.hung + plan.refused == 0 && !plan.disruptions;
            if !is_new && plan.local && all_know {
                ledger.wrong(&format!("reported twice: {}", line.text));
            }
        } else if is_error && line.text.contains("this is a bug") {
            ledger.wrong(&line.text);
        } else if let Some(volume) = line.volume.filter(|_| line.text.contains(UNFOLLOWED)) {
            ledger.unfollowed(&volume);
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Whether the claim that the line is about stands, and nobody deletes it.
fn is_live(core: &Core, line: &str) -> bool {
    let claims = core.api.list("PersistentVolumeClaim", "");
    let mut wanted = claims.iter().filter(|it| text(it, "/metadata/deletionTimestamp").is_empty());
    wanted.any(|claim| line.contains(text(claim, "/metadata/uid")))
}

/// An event's fields in a line.
#[derive(Default)]
struct Line {
    text: String,
    /// The field of this name.
    volume: Option<String>,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.text, "{}={value:?} ", field.name());
        if field.name() == "volume" {
            self.volume = Some(format!("{value:?}").trim_matches('"').to_owned());
        }
    }
}
