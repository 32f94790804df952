//! The steps that must be observed, what causes what, and whether all is well so far.
//!
//! Owns the list of steps and the verdict, a pure function of what was observed when. Leaves observing to
//! `observer` and `observations`, and clocks to `play`: times are counted from the demo's start.

use std::{collections::BTreeMap, fmt, time::Duration};

/// How far a watch may lag behind the driver's log and the disk, which are read directly.
const LAG: Duration = Duration::from_secs(1);

/// What the demo does; each act sets off steps of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Act {
    /// The program is started.
    Start,
    /// Class, secret and claim are created.
    Create,
    /// The claim is deleted.
    Delete,
}

/// What must be observed, in the order of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The program reached the driver.
    DriverNamed,
    /// The claim is stored.
    ClaimPending,
    /// The claim was given to the driver's provisioner.
    ClaimHandedOver,
    /// The program emits the event that it begins.
    BeginningTold,
    /// The driver was asked for a volume.
    CreateCalled,
    /// That call carried the secret's content.
    SecretPassed,
    /// The driver made the volume.
    DirectoryMade,
    /// The PersistentVolume is stored.
    VolumeSaved,
    /// The program emits the event that it succeeded.
    SuccessTold,
    /// The PersistentVolume has its claim.
    VolumeBound,
    /// The claim has its volume.
    ClaimBound,
    /// The claim is gone.
    ClaimGone,
    /// The PersistentVolume lost its claim.
    VolumeReleased,
    /// The driver was asked to delete the volume.
    DeleteCalled,
    /// The driver deleted the volume.
    DirectoryGone,
    /// The PersistentVolume was deleted, and waits for its finalizer.
    VolumeDeleting,
    /// The PersistentVolume is gone.
    VolumeGone,
}

impl Step {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::DriverNamed,
        Self::ClaimPending,
        Self::ClaimHandedOver,
        Self::BeginningTold,
        Self::CreateCalled,
        Self::SecretPassed,
        Self::DirectoryMade,
        Self::VolumeSaved,
        Self::SuccessTold,
        Self::VolumeBound,
        Self::ClaimBound,
        Self::ClaimGone,
        Self::VolumeReleased,
        Self::DeleteCalled,
        Self::DirectoryGone,
        Self::VolumeDeleting,
        Self::VolumeGone,
    ];

    /// The act that sets it off.
    pub fn act(self) -> Act {
        match self {
            Self::DriverNamed => Act::Start,
            step if step < Self::ClaimGone => Act::Create,
            _ => Act::Delete,
        }
    }

    /// The steps without which it cannot happen.
    fn causes(self) -> &'static [Self] {
        match self {
            Self::DriverNamed | Self::ClaimPending | Self::ClaimGone => &[],
            Self::ClaimHandedOver => &[Self::ClaimPending],
            Self::BeginningTold => &[Self::ClaimHandedOver],
            Self::CreateCalled => &[Self::DriverNamed, Self::ClaimHandedOver],
            Self::SecretPassed | Self::DirectoryMade => &[Self::CreateCalled],
            Self::VolumeSaved => &[Self::DirectoryMade],
            Self::SuccessTold | Self::VolumeBound | Self::ClaimBound => &[Self::VolumeSaved],
            Self::VolumeReleased => &[Self::ClaimGone],
            Self::DeleteCalled => &[Self::VolumeReleased],
            Self::DirectoryGone => &[Self::DeleteCalled],
            Self::VolumeDeleting => &[Self::DirectoryGone],
            Self::VolumeGone => &[Self::VolumeDeleting],
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DriverNamed => "the program asks the driver for its name (GetPluginInfo)",
            Self::ClaimPending => "the claim is stored as Pending",
            Self::ClaimHandedOver => "the claim names its provisioner",
            Self::BeginningTold => "an event of the claim says Provisioning",
            Self::CreateCalled => "the driver is asked for the volume (CreateVolume)",
            Self::SecretPassed => "CreateVolume carries the content of the claim's secret",
            Self::DirectoryMade => "the volume's directory appears on the disk",
            Self::VolumeSaved => "the PersistentVolume is stored",
            Self::SuccessTold => "an event of the claim says ProvisioningSucceeded",
            Self::VolumeBound => "the PersistentVolume is Bound",
            Self::ClaimBound => "the claim is Bound",
            Self::ClaimGone => "the claim is gone",
            Self::VolumeReleased => "the PersistentVolume is Released",
            Self::DeleteCalled => "the driver is asked to delete the volume (DeleteVolume)",
            Self::DirectoryGone => "the volume's directory disappears from the disk",
            Self::VolumeDeleting => "the PersistentVolume is deleted but held by its finalizer",
            Self::VolumeGone => "the PersistentVolume is gone",
        })
    }
}

/// Whether all is well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The act's steps were all observed.
    Complete,
    /// Some are still to come, this one first.
    Waiting(Step),
    /// This one should have been observed by now: what causes it was observed long enough ago.
    Missing(Step),
    /// The first was observed without the second, from which it comes.
    Causeless(Step, Step),
    /// This one was observed before the demo did what sets it off.
    Unasked(Step),
}

/// What was observed when, in which act.
#[derive(Debug, Clone)]
pub struct Progress {
    act: Act,
    began: Duration,
    observed: BTreeMap<Step, Duration>,
}

impl Progress {
    /// Nothing observed yet, and the first act about to begin.
    pub fn new() -> Self {
        Self { act: Act::Start, began: Duration::ZERO, observed: BTreeMap::new() }
    }

    /// An act begins.
    pub fn begin(&mut self, act: Act, now: Duration) {
        (self.act, self.began) = (act, now);
    }

    /// A step is observed; only the first time counts.
    pub fn saw(&mut self, step: Step, now: Duration) {
        self.observed.entry(step).or_insert(now);
    }

    /// How it stands, when each step may take `limit` from its last cause on.
    pub fn verdict(&self, now: Duration, limit: Duration) -> Verdict {
        if let Some(step) = self.observed.keys().find(|step| step.act() > self.act) {
            return Verdict::Unasked(*step);
        }
        if let Some((step, cause)) = self.causeless(now) {
            return Verdict::Causeless(step, cause);
        }
        let mut open = self.open();
        let Some(first) = open.clone().next() else { return Verdict::Complete };
        let overdue = |step: &Step| self.ready(*step).is_some_and(|since| now > since + limit);
        open.find(overdue).map_or(Verdict::Waiting(first), Verdict::Missing)
    }

    /// The steps of the act that were not observed yet.
    fn open(&self) -> impl Iterator<Item = Step> + Clone + '_ {
        Step::ALL.into_iter().filter(|s| s.act() == self.act && !self.observed.contains_key(s))
    }

    /// Since when nothing that was not observed keeps the step from happening.
    fn ready(&self, step: Step) -> Option<Duration> {
        let causes = step.causes().iter().map(|cause| self.observed.get(cause).copied());
        causes
            .chain([Some(self.began)])
            .try_fold(Duration::ZERO, |latest, at| Some(latest.max(at?)))
    }

    /// A step that was observed, and its cause that was not, or not until too late.
    fn causeless(&self, now: Duration) -> Option<(Step, Step)> {
        self.observed.iter().find_map(|(step, at)| {
            let observed = |cause: &Step| self.observed.get(cause).copied().unwrap_or(now);
            let late = step.causes().iter().find(|cause| observed(cause) > *at + LAG)?;
            Some((*step, self.origin(*late)))
        })
    }

    /// What is missing for a step that is missing too: the first of its causes' causes; otherwise
    /// the step itself.
    fn origin(&self, step: Step) -> Step {
        if self.observed.contains_key(&step) {
            return step;
        }
        let missing = step.causes().iter().find(|cause| !self.observed.contains_key(cause));
        missing.map_or(step, |cause| self.origin(*cause))
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Everything up to `last` observed, each act's steps at its beginning: 0, 100, 200 s.
    fn up_to(last: Step) -> Progress {
        let mut progress = Progress::new();
        for step in Step::ALL.into_iter().filter(|step| *step <= last) {
            let now = secs(100 * step.act() as u64);
            progress.begin(step.act(), now);
            progress.saw(step, now);
        }
        progress
    }

    /// Everything before and within the act of `step` observed, but neither it nor what it causes.
    fn without(step: Step) -> Progress {
        let mut progress = up_to(Step::VolumeGone);
        let mut gone = vec![step];
        for other in Step::ALL {
            if other.act() > step.act() || other.causes().iter().any(|cause| gone.contains(cause)) {
                gone.push(other);
            }
        }
        progress.observed.retain(|observed, _| !gone.contains(observed));
        progress.begin(step.act(), secs(100 * step.act() as u64));
        progress
    }

    #[test]
    fn the_list_holds_every_step_once_and_causes_come_before() {
        for pair in Step::ALL.windows(2) {
            assert!(pair[0] < pair[1] && pair[0].act() <= pair[1].act(), "{pair:?}");
        }
        for step in Step::ALL {
            assert!(step.causes().iter().all(|cause| *cause < step), "{step:?}");
        }
        assert_eq!(Step::VolumeGone as usize + 1, Step::ALL.len());
    }

    #[test]
    fn an_act_is_complete_when_all_its_steps_were_seen() {
        for last in [Step::DriverNamed, Step::ClaimBound, Step::VolumeGone] {
            assert_eq!(up_to(last).verdict(secs(300), LIMIT), Verdict::Complete);
        }
    }

    #[test]
    fn a_step_is_waited_for_until_its_limit_and_then_missed_by_name() {
        for step in Step::ALL {
            let (progress, began) = (without(step), secs(100 * step.act() as u64));
            assert_eq!(progress.verdict(began + LIMIT, LIMIT), Verdict::Waiting(step), "{step:?}");
            let late = began + LIMIT + Duration::from_millis(1);
            assert_eq!(progress.verdict(late, LIMIT), Verdict::Missing(step), "{step:?}");
        }
    }

    #[test]
    fn the_limit_counts_from_the_last_cause() {
        let mut progress = up_to(Step::CreateCalled);
        progress.saw(Step::SecretPassed, secs(100));
        progress.saw(Step::DirectoryMade, secs(108));
        assert_eq!(progress.verdict(secs(118), LIMIT), Verdict::Waiting(Step::VolumeSaved));
        assert_eq!(progress.verdict(secs(119), LIMIT), Verdict::Missing(Step::VolumeSaved));
    }

    #[test]
    fn a_step_without_its_cause_is_wrong_once_a_watch_had_time_to_show_it() {
        let mut progress = up_to(Step::ClaimPending);
        progress.saw(Step::CreateCalled, secs(101));
        let verdict = |progress: &Progress, now| progress.verdict(secs(now), LIMIT);
        let wrong = Verdict::Causeless(Step::CreateCalled, Step::ClaimHandedOver);
        assert_eq!(verdict(&progress, 102), Verdict::Waiting(Step::ClaimHandedOver));
        assert_eq!(verdict(&progress, 103), wrong);
        progress.saw(Step::ClaimHandedOver, secs(103));
        assert_eq!(verdict(&progress, 104), wrong, "a late cause does not mend it");
    }

    #[test]
    fn of_all_that_a_step_came_without_the_first_is_named() {
        let mut progress = up_to(Step::ClaimBound);
        progress.begin(Act::Delete, secs(200));
        for step in [Step::ClaimGone, Step::VolumeReleased, Step::VolumeGone] {
            progress.saw(step, secs(200));
        }
        let named = Verdict::Causeless(Step::VolumeGone, Step::DeleteCalled);
        assert_eq!(progress.verdict(secs(202), LIMIT), named);
    }

    #[test]
    fn a_step_that_nothing_has_set_off_yet_is_wrong_at_once() {
        let mut progress = up_to(Step::VolumeSaved);
        progress.saw(Step::DeleteCalled, secs(100));
        assert_eq!(progress.verdict(secs(100), LIMIT), Verdict::Unasked(Step::DeleteCalled));
    }

    #[test]
    fn only_the_first_sighting_counts() {
        let mut progress = up_to(Step::DriverNamed);
        progress.saw(Step::DriverNamed, secs(50));
        assert_eq!(progress.observed[&Step::DriverNamed], secs(0));
    }
}
