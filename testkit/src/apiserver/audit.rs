//! The record of all requests, in the order of their answers, also of those that a fault struck. A server that runs
//! for days forgets the oldest.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::{User, request_info::RequestInfo};

/// What is remembered of a request.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Who sent it.
    pub user: User,
    /// What it asked for.
    pub info: RequestInfo,
    /// The answer's HTTP code; 0 when the connection was cut instead.
    pub code: u16,
    /// When it came.
    pub received: jiff::Timestamp,
    /// When its answer was known.
    pub answered: jiff::Timestamp,
}

impl Recorded {
    /// `verb resource/subresource`, as scenarios count requests.
    pub fn what(&self) -> String {
        let info = &self.info;
        match (info.is_resource, info.subresource.as_str()) {
            (false, _) => format!("{} {}", info.verb, info.path),
            (true, "") => format!("{} {}", info.verb, info.resource),
            (true, subresource) => format!("{} {}/{subresource}", info.verb, info.resource),
        }
    }
}

/// How many requests are remembered: more than any test sends.
const REMEMBERED: usize = 400_000;

/// All requests since the start, or since they were last cleared; the latest 400 000 of them.
#[derive(Debug, Default)]
pub struct Requests(Mutex<VecDeque<Recorded>>);

impl Requests {
    /// Adds one.
    pub fn record(&self, recorded: Recorded) {
        let mut requests = self.0.lock();
        if requests.len() == REMEMBERED {
            requests.pop_front();
        }
        requests.push_back(recorded);
    }

    /// All of them.
    pub fn all(&self) -> Vec<Recorded> {
        self.0.lock().iter().cloned().collect()
    }

    /// Those of a verb on a resource: `matching("create", "persistentvolumes")`.
    pub fn matching(&self, verb: &str, resource: &str) -> Vec<Recorded> {
        let all = self.0.lock();
        all.iter().filter(|r| r.info.verb == verb && r.info.resource == resource).cloned().collect()
    }

    /// How many there were of a verb on a resource.
    pub fn count(&self, verb: &str, resource: &str) -> usize {
        let all = self.0.lock();
        all.iter().filter(|r| r.info.verb == verb && r.info.resource == resource).count()
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.0.lock().clear();
    }
}
