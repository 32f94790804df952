//! kube-rs's watcher, with what it leaves to its user.
//!
//! [`watcher`] lists in pages, watches, opens a watch again where the last one ended, and lists again
//! when the server has forgotten the version of an open watch. Added here: failures are reported and
//! waited out; a version that the server refuses at the opening of a watch, or five times in a row, is
//! given up.

use std::sync::Arc;

use futures::{StreamExt as _, stream::BoxStream};
use kube::{
    Api,
    runtime::watcher::{self, Event, watcher},
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{
    InformerEvent, Listed,
    backoff::InformerBackoff,
    failure::Failure,
    reporter::Reporter,
    tolerant::{Tolerant, Unreadable},
};
use crate::{
    kube::{
        client::Client,
        objects::{self, Metadata, View, kind::Kind},
        scope::Scope,
        url::segment,
    },
    runtime::Random,
};

/// The server ends a watch after so many seconds, which load balancers allow. One that is silent for five
/// seconds longer is dead.
const WATCH_SECONDS: u32 = 240;

/// After so many refused watches in a row everything is listed again: a server may refuse a version
/// that it has forgotten, or does not know yet, with other codes than 410.
const MAX_REFUSALS: u32 = 5;

/// Yields the objects of a kind, then their changes, for ever.
pub(super) struct ListWatch<V: View> {
    scope: Scope,
    page_size: u32,
    api: Api<Tolerant<V>>,
    events: Events<V>,
    /// What the list in progress has shown.
    listed: Listed,
    /// How often in a row a watch was refused.
    refusals: u32,
    backoff: InformerBackoff,
    random: Arc<dyn Random>,
    reporter: Reporter,
}

type Events<V> = BoxStream<'static, watcher::Result<Event<Tolerant<V>>>>;

impl<V: View> ListWatch<V> {
    /// Begins with a list of the objects in `scope`.
    pub(super) fn new(
        client: &Client,
        scope: Scope,
        page_size: u32,
        random: Arc<dyn Random>,
        reporter: Reporter,
    ) -> Self {
        let api = api(client, &scope, page_size);
        let events = events(&api, &scope, page_size);
        let backoff = InformerBackoff::default();
        let listed = Listed::default();
        Self { scope, page_size, api, events, listed, refusals: 0, backoff, random, reporter }
    }

    /// Begins again with a list, whatever is under way.
    fn relist(&mut self) {
        self.refusals = 0;
        self.events = events(&self.api, &self.scope, self.page_size);
    }

    /// Waits for the next event. Failures are reported and waited out.
    pub(super) async fn next(&mut self) -> InformerEvent<V> {
        loop {
            match self.events.next().await {
                Some(Ok(event)) => {
                    if let Some(event) = self.event(event) {
                        return event;
                    }
                }
                Some(Err(error)) => {
                    self.recover(&Failure::of(error, &Kind::of::<V>().resource())).await;
                }
                // The watcher never ends.
                None => self.relist(),
            }
        }
    }

    /// The event of what the watcher yields; none if it changes no object.
    fn event(&mut self, event: Event<Tolerant<V>>) -> Option<InformerEvent<V>> {
        match &event {
            // Whatever an earlier list has shown before it broke off.
            Event::Init => self.listed = Listed::default(),
            Event::InitApply(object) => self.listed.add(object.metadata()),
            Event::InitDone => self.refusals = 0,
            Event::Apply(_) | Event::Delete(_) => {
                self.refusals = 0;
                self.reporter.report_watched();
            }
        }
        Some(match event {
            Event::Init => return None,
            Event::InitApply(object) => self.event_of(object, InformerEvent::InitApply),
            Event::InitDone => InformerEvent::InitDone(self.listed.take()),
            Event::Apply(object) => self.event_of(object, InformerEvent::Apply),
            Event::Delete(Tolerant { object: Ok(object), .. }) => InformerEvent::Delete(object),
            Event::Delete(Tolerant { object: Err(unreadable), .. }) => {
                self.reporter.report_unreadable(&unreadable.metadata, &unreadable.fault);
                // For a deletion the names are enough.
                return named(&unreadable.metadata).map(InformerEvent::Delete);
            }
        })
    }

    /// Makes the `event` of an object. If the object cannot be read, reports that and makes the event
    /// that says so.
    fn event_of(
        &mut self,
        object: Tolerant<V>,
        event: fn(V) -> InformerEvent<V>,
    ) -> InformerEvent<V> {
        match object.object {
            Ok(object) => event(object),
            Err(Unreadable { metadata, fault }) => {
                self.reporter.report_unreadable(&metadata, &fault);
                InformerEvent::Unreadable {
                    namespace: metadata.namespace.unwrap_or_default().into(),
                    name: metadata.name.unwrap_or_default().into(),
                    uid: metadata.uid.unwrap_or_default().to_string(),
                }
            }
        }
    }

    /// Reports a failure and waits. The watcher begins its list again, or opens its watch at the version
    /// it had, unless that is given up here.
    async fn recover(&mut self, failure: &Failure) {
        self.reporter.report_failure(failure);
        self.refusals += u32::from(failure.is_refused_watch());
        if failure.loses_version() || self.refusals >= MAX_REFUSALS {
            self.relist();
        }
        sleep(self.backoff.wait(Instant::now(), self.random.unit())).await;
    }
}

/// Where the objects in `scope` are requested, in pages of so many objects.
fn api<V: View>(client: &Client, scope: &Scope, page_size: u32) -> Api<Tolerant<V>> {
    let client = client.for_watcher(page_size);
    match &scope.namespace {
        Some(namespace) => Api::namespaced_with(client, &segment(namespace), &()),
        None => Api::all(client),
    }
}

/// The events of a new watcher. Its list names no version, so the server reads consistently.
fn events<V: View>(api: &Api<Tolerant<V>>, scope: &Scope, page_size: u32) -> Events<V> {
    let config = watcher::Config {
        label_selector: scope.labels.clone(),
        field_selector: scope.fields.clone(),
        timeout: Some(WATCH_SECONDS),
        page_size: Some(page_size),
        ..watcher::Config::default()
    };
    watcher(api.clone(), config).boxed()
}

/// A view that holds nothing but these names.
fn named<V: View>(metadata: &Metadata) -> Option<V> {
    let Metadata { name, namespace, uid, resource_version, .. } = metadata;
    let names = json!({
        "name": name, "namespace": namespace, "uid": uid, "resourceVersion": resource_version,
    });
    objects::of_json(&json!({"metadata": names})).ok()
}
