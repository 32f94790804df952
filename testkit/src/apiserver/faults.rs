//! Faults on purpose: which requests something happens to, and what. The same requests in the same order meet the
//! same faults.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;

use super::{User, request_info::RequestInfo, status::Status};

/// What happens to a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// It is served after this time; rules that come later may strike it then.
    Delay(Duration),
    /// It is served at once, but answered after this time.
    DelayAfter(Duration),
    /// It is not served but answered so.
    Answer(Status),
    /// It is served, then answered so: the write took place.
    AnswerAfter(Status),
    /// The connection is cut before it is served.
    CutBefore,
    /// It is served, then the connection is cut: the write took place, its answer is lost.
    CutAfter,
    /// It is served, but the connection is cut after half of the answer's body. Watches are spared.
    Truncate,
    /// It is served, but each byte of the answer's body comes so much later than the one before. Watches
    /// are spared.
    Trickle(Duration),
    /// It is never answered.
    Hang,
    /// It is a watch, and this befalls its stream.
    Stream(StreamFault),
}

/// What befalls the stream of a watch, after so many events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // `after`: the events that still come
pub enum StreamFault {
    /// It ends in order.
    End { after: usize },
    /// The connection is cut.
    Cut { after: usize },
    /// Nothing more comes, not even its end.
    Stall { after: usize },
    /// It ends with an ERROR event that says 410 Expired.
    Expire { after: usize },
    /// A line begins that has no end.
    Endless { after: usize },
    /// Each event comes so much later than it could.
    Drag {
        after: usize,
        /// For how long each of the others is held up.
        by: Duration,
    },
}

impl StreamFault {
    /// How many events still come before it.
    pub fn after(self) -> usize {
        match self {
            Self::End { after }
            | Self::Cut { after }
            | Self::Stall { after }
            | Self::Expire { after }
            | Self::Endless { after }
            | Self::Drag { after, .. } => after,
        }
    }
}

/// Which requests a rule is about; what is not said matches all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Match {
    /// The verb; `write` stands for all that change something.
    pub verb: Option<String>,
    /// The resource's plural.
    pub resource: Option<String>,
    /// The object's name.
    pub name: Option<String>,
    /// The user's name.
    pub user: Option<String>,
}

impl Match {
    /// All requests of a verb on a resource.
    pub fn on(verb: &str, resource: &str) -> Self {
        Self { verb: Some(verb.to_owned()), resource: Some(resource.to_owned()), ..Self::default() }
    }

    fn fits(&self, user: &User, info: &RequestInfo) -> bool {
        let is = |wanted: &Option<String>, actual: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == actual)
        };
        let verb = self
            .verb
            .as_deref()
            .is_none_or(|verb| verb == info.verb || verb == "write" && writes(info));
        verb && is(&self.resource, &info.resource)
            && is(&self.name, &info.name)
            && is(&self.user, &user.name)
    }
}

fn writes(info: &RequestInfo) -> bool {
    matches!(info.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
}

/// A fault and when it strikes.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Which requests.
    pub when: Match,
    /// How many of those pass unharmed first.
    pub skip: usize,
    /// How many it strikes; none for all.
    pub times: Option<usize>,
    /// What happens.
    pub effect: Effect,
}

impl Rule {
    /// A rule that strikes every request of a verb on a resource.
    pub fn on(verb: &str, resource: &str, effect: Effect) -> Self {
        Self { when: Match::on(verb, resource), skip: 0, times: None, effect }
    }

    /// Striking so many requests only.
    #[must_use]
    pub fn times(mut self, times: usize) -> Self {
        self.times = Some(times);
        self
    }

    /// Letting so many requests pass first.
    #[must_use]
    pub fn skip(mut self, skip: usize) -> Self {
        self.skip = skip;
        self
    }

    /// Striking requests about one object only.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.when.name = Some(name.to_owned());
        self
    }

    /// Striking one user's requests only.
    #[must_use]
    pub fn of_user(mut self, user: &str) -> Self {
        self.when.user = Some(user.to_owned());
        self
    }
}

/// The rules of a server.
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<Mutex<Vec<Rule>>>);

impl Faults {
    /// Adds a rule; those before it have the first word.
    pub fn add(&self, rule: Rule) {
        self.0.lock().push(rule);
    }

    /// Takes all rules away.
    pub fn clear(&self) {
        self.0.lock().clear();
    }

    /// Whether every rule has struck as often as it may.
    pub fn are_spent(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// What happens to a request, and how long before; counts it.
    pub(super) fn strike(&self, user: &User, info: &RequestInfo) -> (Duration, Option<Effect>) {
        let mut rules = self.0.lock();
        let mut delay = Duration::ZERO;
        let mut struck = None;
        for rule in rules.iter_mut().filter(|rule| rule.when.fits(user, info)) {
            match rule.take() {
                None => {}
                Some(Effect::Delay(time)) => delay += time,
                Some(effect) => {
                    struck = Some(effect);
                    break;
                }
            }
        }
        rules.retain(|rule| rule.times != Some(0));
        (delay, struck)
    }
}

impl Rule {
    fn take(&mut self) -> Option<Effect> {
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        match &mut self.times {
            Some(0) => return None,
            Some(times) => *times -= 1,
            None => {}
        }
        Some(self.effect.clone())
    }
}
