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

use super::{adversary, core::Core};

/// Listens on this thread until the guard is dropped.
pub(crate) fn listen(core: &Arc<Core>) -> DefaultGuard {
    tracing::subscriber::set_default(Listener(Arc::clone(core)))
}

/// What is logged of a record that is void.
const UNFOLLOWED: &str = "a record of an open call is not followed";

struct Listener(Arc<Core>);

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        if adversary::is_printed_in(&line.text) {
            self.0.ledger.wrong(&format!("a record's text is logged: {:?}", line.text));
        }
        let is_error = *event.metadata().level() == Level::ERROR;
        if is_error && line.text.contains("suspected leak") {
            let (is_new, plan) = (self.0.ledger.suspected(&line.text), &self.0.plan);
            // Of several processes only the one whose write lets a claim go says so, where it knows of that.
            if !is_new && plan.local && plan.unanswered + plan.hung == 0 {
                self.0.ledger.wrong(&format!("reported twice: {}", line.text));
            }
        } else if is_error && line.text.contains("this is a bug") {
            self.0.ledger.wrong(&line.text);
        } else if let Some(volume) = line.volume.filter(|_| line.text.contains(UNFOLLOWED)) {
            self.0.ledger.unfollowed(&volume);
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
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
