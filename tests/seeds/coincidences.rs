//! What must come together, and would too rarely by chance: each is played through step by step,
//! in the middle of whatever else the seed brings.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use tokio::time::sleep;

use super::{
    admins,
    core::{Core, NAMESPACE},
    dice::Dice,
    ledger::{STALE, text},
    naming::may_be_of,
    users,
};

const CLAIMS: &str = "persistentvolumeclaims";

/// Plays them until all is healed.
pub(crate) async fn run(core: Arc<Core>) {
    let dice = Dice::new(core.seed, "coincidences");
    while !core.is_healed() {
        sleep(dice.stretch(1_000..20_000)).await;
        let played = if dice.percent(50) {
            had_and_lost_unseen(&core, &dice).await
        } else {
            deleted_while_asked_for(&core, &dice).await
        };
        if played.is_some() {
            core.ledger.tell("coincidence: over");
        }
        core.observe();
    }
}

/// While the watch of claims stands still, a claim is bound, its PersistentVolume taken away by
/// force, and its class replaced, which wakes it.
async fn had_and_lost_unseen(core: &Core, dice: &Dice) -> Option<()> {
    let claim = some_unbound(core, dice)?;
    // It has been seen by then.
    sleep(Duration::from_secs(3)).await;
    if core.is_healed() {
        return None;
    }
    core.hold_up(CLAIMS, Duration::from_secs(120));
    let volume = until_bound(core, &claim).await?;
    sleep(STALE + dice.stretch(500..5_000)).await;
    if core.is_healed() {
        return None;
    }
    core.ledger.tell("coincidence: a claim had its volume, unseen");
    admins::take_away(core, &volume);
    core.observe();
    sleep(dice.stretch(100..3_000)).await;
    users::replace(core, dice, text(&claim, "/spec/storageClassName"));
    sleep(Duration::from_secs(10)).await;
    Some(())
}

/// While a volume is asked for, and the driver takes its time, its PersistentVolume comes from a
/// backup, and the claim goes: so that volume is to be deleted.
async fn deleted_while_asked_for(core: &Core, dice: &Dice) -> Option<()> {
    core.drag(dice.stretch(10_000..60_000));
    let mut looks = 0;
    let claim = loop {
        if let Some(claim) = asked_for(core) {
            break claim;
        }
        looks += 1;
        if looks > 100 || core.is_healed() {
            return None;
        }
        sleep(Duration::from_millis(200)).await;
    };
    core.ledger.tell("coincidence: a backup is restored while the volume is made");
    admins::restore_unsaved(core, &claim.0, &claim.1)?;
    core.observe();
    sleep(dice.stretch(50..3_000)).await;
    let name = text(&claim.1, "/metadata/name");
    let _ = core.api.delete("PersistentVolumeClaim", NAMESPACE, name);
    sleep(Duration::from_secs(30)).await;
    Some(())
}

fn some_unbound(core: &Core, dice: &Dice) -> Option<Value> {
    let mut claims = core.api.list("PersistentVolumeClaim", NAMESPACE);
    claims.retain(|claim| text(claim, "/spec/volumeName").is_empty());
    (!claims.is_empty()).then(|| dice.pick(&claims).clone())
}

/// The claim's PersistentVolume, once they are bound.
async fn until_bound(core: &Core, claim: &Value) -> Option<Value> {
    for _ in 0..120 {
        sleep(Duration::from_millis(500)).await;
        let name = text(claim, "/metadata/name");
        let now = core.api.get("PersistentVolumeClaim", NAMESPACE, name)?;
        let volume = core.api.get("PersistentVolume", "", text(&now, "/spec/volumeName"));
        let is_bound = |volume: &Value| text(volume, "/status/phase") == "Bound";
        if now["metadata"]["uid"] == claim["metadata"]["uid"]
            && let Some(volume) = volume.filter(is_bound)
        {
            return Some(volume);
        }
    }
    None
}

/// A volume that is asked for for some time still, and its claim.
fn asked_for(core: &Core) -> Option<(String, Value)> {
    let names = core.calls.asked_for(Duration::from_secs(5));
    let claims = core.api.list("PersistentVolumeClaim", NAMESPACE);
    names.into_iter().find_map(|name| {
        let claim = claims.iter().find(|claim| may_be_of(&name, text(claim, "/metadata/uid")))?;
        Some((name, claim.clone()))
    })
}
