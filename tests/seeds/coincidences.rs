//! Combinations of events that are too rare by chance: each is played step by step, during whatever
//! else the seed does.

use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;

use super::{
    admins,
    core::{Core, NAMESPACE},
    dice::Dice,
    ledger::{STALE, text},
    storage::image_of,
    users,
};

const CLAIMS: &str = "persistentvolumeclaims";

/// The claim that they are played with; users know nothing of it.
const CLAIM: &str = "lone";

/// Plays some of them, where this seed has them.
pub(crate) async fn run(core: &Core) {
    let dice = Dice::new(core.seed, "coincidences");
    let stories = if core.plan.coincidences { dice.within(1..5) } else { 0 };
    for _ in 0..stories {
        sleep(dice.stretch(1_000..20_000)).await;
        let played = match dice.within(0..3) {
            0 => had_and_lost_unseen(core, &dice).await,
            1 => deleted_while_asked_for(core, &dice).await,
            _ => restored_while_deleted(core, &dice).await,
        };
        core.ledger.log(&format!("coincidence: came about: {}", played.is_some()));
        core.observe();
    }
}

/// While the watch of claims stands still, a claim is bound, its PersistentVolume taken away by
/// force, and its class replaced, which wakes it.
async fn had_and_lost_unseen(core: &Core, dice: &Dice) -> Option<()> {
    let claim = claim(core)?;
    asked_for(core, &claim).await?;
    core.hold_up(CLAIMS, Duration::from_secs(120));
    let volume = until_bound(core, &claim).await?;
    sleep(STALE + dice.stretch(500..5_000)).await;
    core.ledger.log("coincidence: a claim had its volume, unseen");
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
    let claim = claim(core)?;
    let name = asked_for(core, &claim).await?;
    core.ledger.log("coincidence: a backup is restored while the volume is made");
    admins::restore_unsaved(core, &name, &claim)?;
    core.observe();
    sleep(dice.stretch(50..3_000)).await;
    let _ = core.api.delete("PersistentVolumeClaim", NAMESPACE, CLAIM);
    sleep(Duration::from_secs(30)).await;
    Some(())
}

/// While a volume is deleted, and the driver takes its time, an administrator takes its PersistentVolume
/// away by force and brings it back from a backup: another object of the same name.
async fn restored_while_deleted(core: &Core, dice: &Dice) -> Option<()> {
    let claim = claim(core)?;
    let volume = until_bound(core, &claim).await?;
    core.drag(dice.stretch(5_000..40_000));
    let _ = core.api.delete("PersistentVolumeClaim", NAMESPACE, CLAIM);
    core.observe();
    let image = image_of(text(&volume, "/spec/csi/volumeHandle"));
    until(|| core.calls.is_deleting(image).then_some(())).await?;
    core.ledger.log("coincidence: a backup is restored while the volume is deleted");
    admins::bring_back(core, &volume);
    sleep(Duration::from_secs(30)).await;
    Some(())
}

/// Waits for that, for 25 seconds at most.
async fn until<T>(find: impl Fn() -> Option<T>) -> Option<T> {
    for _ in 0..500 {
        sleep(Duration::from_millis(50)).await;
        let found = find();
        if found.is_some() {
            return found;
        }
    }
    None
}

/// A new claim to play with.
fn claim(core: &Core) -> Option<Value> {
    let _ = core.api.delete("PersistentVolumeClaim", NAMESPACE, CLAIM);
    core.observe();
    let claim = users::claim(CLAIM, "plain");
    core.api.create(&claim).ok()
}

/// The name of the volume that is asked for for the claim, as soon as it is.
async fn asked_for(core: &Core, claim: &Value) -> Option<String> {
    until(|| core.calls.asked_for(text(claim, "/metadata/uid"))).await
}

/// The claim's PersistentVolume, once they are bound.
async fn until_bound(core: &Core, claim: &Value) -> Option<Value> {
    for _ in 0..120 {
        sleep(Duration::from_millis(500)).await;
        let now = core.api.get("PersistentVolumeClaim", NAMESPACE, CLAIM)?;
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
