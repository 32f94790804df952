//! What one seed does: which kinds of trouble it brings and how much of each.
//!
//! A seed in which everything goes wrong at once hides what a seed with one trouble shows; so
//! each is on in some seeds only, and how strong it is differs.

use std::time::Duration;

use super::{dice::Dice, naming::Names};

/// The troubles of one seed; numbers are per cent of the occasions unless said otherwise.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // each a trouble of its own
pub(crate) struct Plan {
    /// Two replicas with leader election; else one without.
    pub elected: bool,
    /// Whether candidates know their pod's UID.
    pub pod_uid: bool,
    /// `--claim-protection`.
    pub protection: &'static str,
    /// How many things the users do.
    pub acts: u64,
    /// The longest time between two of them, in milliseconds.
    pub pause: u64,
    /// API requests cut or refused before they are carried out.
    pub refused: u64,
    /// API writes carried out whose answer is lost.
    pub unanswered: u64,
    /// API requests that take long.
    pub slow: u64,
    /// CreateVolume and DeleteVolume calls that fail.
    pub failing: u64,
    /// Calls that take long, some of them beyond their deadline.
    pub dragging: u64,
    /// CreateVolume answers that cannot be used.
    pub unusable: u64,
    /// Whether a repeated CreateVolume may purge what it finds.
    pub purges: bool,
    /// Processes killed in mid-call, per call.
    pub killed: u64,
    /// Whether processes are stopped, killed and suspended at any time.
    pub restarts: bool,
    /// Whether watches are held up and cut, and rights taken.
    pub disruptions: bool,
    /// Whether the driver's process goes down.
    pub outages: bool,
    /// Whether users do what only administrators should.
    pub meddling: bool,
    /// `--timeout` of calls to the driver.
    pub timeout: Duration,
    /// `--shutdown-timeout`.
    pub shutdown: &'static str,
    /// The longest pause of the cluster's controllers, in milliseconds.
    pub lag: u64,
    /// API requests whose answer never comes: half-open connections.
    pub hung: u64,
    /// Calls whose answer never comes.
    pub lost: u64,
    /// How volumes are named.
    pub names: Names,
    /// Whether the driver attaches volumes, and somebody does.
    pub attaches: bool,
    /// Whether wall clocks jump.
    pub jumps: bool,
    /// Whether external-provisioner takes a turn now and then.
    pub external_provisioner: bool,
    /// Whether namespaces are deleted.
    pub evicts: bool,
    /// Whether volumes are bound to the zone of a node that a scheduler chooses.
    pub topology: bool,
    /// Whether classes are replaced all the time, which wakes every claim of theirs.
    pub restless: bool,
    /// Whether claims are cloned and snapshots restored, here and by another driver's provisioner.
    pub copies: bool,
    /// Whether a quota is used up now and then.
    pub quota: bool,
    /// Whether nodes come and go, where volumes are bound to them.
    pub nodes: bool,
    /// Whether that happens together which chance alone brings together too rarely.
    pub coincidences: bool,
    /// Whether a user writes whatever he likes on claims.
    pub adversary: bool,
    /// Whether claims may name sources in other namespaces, where those grant it.
    pub grants: bool,
    /// Whether he names sources that are longer than any name.
    pub huge: bool,
    /// `--claim-protection-timeout`, where it is not the default of an hour.
    pub patience: Option<&'static str>,
    /// Whether each node has storage of its own, and a process that provisions for it.
    pub local: bool,
    /// Whether a class allows one zone only, where volumes are bound to zones.
    pub confined: bool,
    /// Whether shadow mode runs beside.
    pub shadow: bool,
    /// Whether rights on the Lease and its watches are disrupted, where a leader is elected.
    pub lease: bool,
    /// Whether volumes wear the finalizer that keeps them while they are bound.
    pub protects: bool,
}

/// Names that change are dangerous; so are names that collide, but they stand in their own way.
const NAMES: [Names; 5] =
    [Names::Usual, Names::Usual, Names::Changing, Names::Changing, Names::Cut];

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        let dice = Dice::new(seed, "plan");
        let some = |of: &[u64]| if dice.percent(50) { *dice.pick(of) } else { 0 };
        let local = Dice::new(seed, "whether local").percent(12);
        let names = *dice.pick(&NAMES);
        // Nodes learn of each other's volumes only by the names of PersistentVolumes.
        let names = if local { Names::Usual } else { names };
        let mut plan = Self {
            elected: dice.percent(40),
            pod_uid: dice.percent(50),
            protection: *dice.pick(&["auto", "always", "off"]),
            acts: dice.within(10..70),
            pause: *dice.pick(&[500, 3_000, 20_000]),
            refused: some(&[2, 10, 30]),
            unanswered: some(&[2, 10, 30]),
            slow: some(&[2, 10]),
            failing: some(&[5, 20, 60]),
            dragging: some(&[5, 20, 50]),
            unusable: some(&[5, 20]),
            // With names that collide one claim's volume would be purged for another's.
            purges: dice.percent(50) && !matches!(names, Names::Cut),
            killed: some(&[2, 10]),
            restarts: dice.percent(50),
            disruptions: dice.percent(50),
            outages: dice.percent(25),
            meddling: dice.percent(50),
            timeout: Duration::from_secs(*dice.pick(&[10, 10, 60])),
            shutdown: *dice.pick(&["3s", "20s"]),
            lag: *dice.pick(&[1_500, 5_000, 60_000]),
            hung: some(&[1, 5]),
            lost: some(&[2, 10]),
            names,
            attaches: dice.percent(30),
            jumps: dice.percent(30),
            // Of other names than its own external-provisioner knows nothing.
            external_provisioner: dice.percent(30) && !matches!(names, Names::Changing),
            evicts: dice.percent(20),
            topology: dice.percent(35),
            restless: dice.percent(25),
            // What came later has dice of its own: seeds without it stay as they were.
            quota: Dice::new(seed, "whether quota").percent(25),
            coincidences: Dice::new(seed, "whether coincidences").percent(20),
            protects: Dice::new(seed, "whether protects").percent(50),
            // Claims that share a name can't be distinguished by what is written on them.
            adversary: Dice::new(seed, "whether adversary").percent(25)
                && !matches!(names, Names::Cut),
            local,
            confined: Dice::new(seed, "whether confined").percent(40),
            grants: false,
            huge: Dice::new(seed, "whether huge").percent(5),
            patience: *Dice::new(seed, "patience").pick(&[None, None, Some("4m"), Some("10m")]),
            nodes: Dice::new(seed, "whether nodes").percent(40),
            // Names that collide make two claims one volume, which no source is for.
            copies: Dice::new(seed, "whether copies").percent(30) && !matches!(names, Names::Cut),
            shadow: false,
            lease: false,
        };
        // It is there to look at external-provisioner; with storage on each node it is refused.
        let share = if plan.external_provisioner { 50 } else { 12 };
        plan.shadow = !local && Dice::new(seed, "whether shadow").percent(share);
        if local {
            plan.for_local_storage(seed);
        }
        plan.lease = plan.elected && Dice::new(seed, "whether lease").percent(40);
        plan.nodes &= plan.topology;
        plan.confined &= plan.topology;
        let he_copies = Dice::new(seed, "whether he copies").percent(70);
        plan.copies |= plan.adversary && he_copies && !local;
        let granted = Dice::new(seed, "whether granted").percent(60);
        plan.grants = plan.copies && plan.adversary && granted;
        plan
    }

    /// Each node is for itself: nobody is elected, and nothing is copied from one to another. Marks of
    /// nodes that are gone must be given up within the seed.
    fn for_local_storage(&mut self, seed: u64) {
        (self.elected, self.external_provisioner, self.nodes, self.copies) =
            (false, false, false, false);
        self.topology = true;
        self.patience = Some(*Dice::new(seed, "local patience").pick(&["4m", "10m"]));
    }
}
