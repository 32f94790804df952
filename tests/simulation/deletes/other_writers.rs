//! The finalizer comes off whatever else is written to the PersistentVolume meanwhile.

use super::*;

const OTHERS: &str = "external-attacher/disk-example-com";

fn left_finalizers(simulation: &Simulation) -> Value {
    simulation.volumes().remove(0)["metadata"]["finalizers"].clone()
}

/// A PersistentVolume that is kept, and whose next patch, which lets it go, arrives late.
async fn kept_whose_patch_is_late() -> Simulation {
    let simulation = Simulation::new(1);
    simulation.api.create(&volume("pv", "h")).unwrap();
    simulation.phase("pv", "Released");
    let late = Effect::Delay(Duration::from_secs(5));
    simulation.retain("pv");
    simulation.faults().add(Rule::on("patch", "persistentvolumes", late).times(1));
    simulation.start();
    sleep(Duration::from_secs(1)).await; // the patch is on its way
    simulation
}

/// Retain when our patch was decided on, Delete and deleted by hand when it arrives: without
/// our finalizer the volume would be left at the driver.
#[tokio::test(start_paused = true)]
async fn a_view_that_is_out_of_date_takes_no_finalizer_off() {
    let simulation = kept_whose_patch_is_late().await;
    let delete = json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}});
    simulation.api.merge("PersistentVolume", "", "pv", &delete).unwrap();
    simulation.api.delete("PersistentVolume", "", "pv").unwrap();
    simulation.until("it is gone", |s| s.volumes().is_empty()).await;
    assert_eq!(simulation.calls("DeleteVolume"), 1);
}

/// Others write to a volume that is to be kept: it is looked at again, and let go at once.
#[tokio::test(start_paused = true)]
async fn a_view_that_is_out_of_date_in_other_things_costs_a_look() {
    let simulation = kept_whose_patch_is_late().await;
    let labels = json!({"metadata": {"labels": {"touched": "yes"}}});
    simulation.api.merge("PersistentVolume", "", "pv", &labels).unwrap();
    sleep(Duration::from_millis(5100)).await;
    assert_eq!(left_finalizers(&simulation), Value::Null);
    assert_eq!(simulation.calls("DeleteVolume"), 0);
    assert!(events(&simulation, "pv").is_empty());
}

/// The same for one that goes, and for another of its name.
#[tokio::test(start_paused = true)]
async fn one_that_is_gone_or_another_by_then_is_left_alone() {
    for successor in [false, true] {
        let simulation = kept_whose_patch_is_late().await;
        simulation.force_delete("pv");
        if successor {
            simulation.api.create(&volume("pv", "other")).unwrap();
        }
        sleep(Duration::from_secs(60)).await;
        assert_eq!(simulation.volumes().len(), usize::from(successor));
        if successor {
            assert_eq!(left_finalizers(&simulation), json!([FINALIZER]));
        }
        assert!(events(&simulation, "pv").is_empty());
    }
}

/// Before the patch, and between its failures.
#[tokio::test(start_paused = true)]
async fn whatever_the_patch_is_answered() {
    for (effect, times) in [
        (Effect::CutAfter, 1),
        (Effect::CutBefore, 3),
        (Effect::Answer(Status::new(409, "Conflict", "modified")), 3),
        (Effect::Answer(Status::new(422, "Invalid", "no")), 3),
        (Effect::AnswerAfter(Status::new(500, "InternalError", "no")), 1),
        (Effect::Hang, 1),
        (Effect::Delay(Duration::from_secs(20)), 1),
    ] {
        let simulation = Simulation::new(1);
        let mut pv = volume("pv", "h");
        pv["metadata"]["finalizers"] = json!([OTHERS, FINALIZER]);
        simulation.api.create(&pv).unwrap();
        let what = format!("{effect:?}");
        simulation.faults().add(Rule::on("patch", "persistentvolumes", effect).times(times));
        simulation.start();
        simulation.phase("pv", "Released");
        simulation
            .until("the DELETE is done", |s| {
                s.volumes().iter().any(|v| !v["metadata"]["deletionTimestamp"].is_null())
            })
            .await;
        let others = json!({"metadata": {"labels": {"touched": "yes"}}});
        simulation.api.merge("PersistentVolume", "", "pv", &others).unwrap();
        sleep(Duration::from_secs(120)).await;
        let left = simulation.volumes().remove(0)["metadata"]["finalizers"].clone();
        assert_eq!(left, json!([OTHERS]), "{what}");
        assert_eq!(simulation.calls("DeleteVolume"), 1, "{what}");
    }
}
