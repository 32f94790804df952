//! Whether the first list of a kind is complete. Work waits for it before it begins; later lists change
//! nothing.
//!
//! Those that wait go on in the order in which they came. With tokio's `watch` the order would be random, and
//! a simulation would not repeat itself.

use std::sync::Arc;

use tokio::sync::SetOnce;

use super::InformerEvent;

/// The first list of one kind. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct FirstList(Arc<SetOnce<()>>);

impl FirstList {
    /// `handler`, which completes the list once it has handled all its objects.
    pub fn completed_by<V>(
        self,
        mut handler: impl FnMut(InformerEvent<V>) + Send,
    ) -> impl FnMut(InformerEvent<V>) + Send {
        move |event| {
            let is_whole = matches!(event, InformerEvent::InitDone(_));
            handler(event);
            if is_whole {
                self.complete();
            }
        }
    }

    /// All objects there were are listed and handled.
    pub fn complete(&self) {
        // A later list completes it again.
        let _ = self.0.set(());
    }

    /// Waits until everything was listed.
    pub async fn whole(&self) {
        self.0.wait().await;
    }

    /// Whether everything was listed.
    pub fn is_whole(&self) -> bool {
        self.0.initialized()
    }
}
