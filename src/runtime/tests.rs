use super::*;

#[tokio::test]
async fn the_end_of_a_critical_task_is_reported_with_its_panic() {
    let (tasks, mut ended) = Tasks::new(Arc::new(TokioSpawner));
    tasks.spawn_critical("returns", async {});
    assert_eq!(ended.recv().await, Some(TaskEnded { name: "returns", panic: None }));
    tasks.spawn_critical("panics", async { panic!("boom {}", 1) });
    let end = ended.recv().await.unwrap();
    assert_eq!(
        end.to_string(),
        "background task \"panics\" ended unexpectedly: it panicked: boom 1"
    );
}

#[tokio::test]
async fn blocking_work_returns_its_result_or_its_panic() {
    assert_eq!(spawn_blocking(|| 7).await, Ok(7));
    assert!(spawn_blocking(|| -> () { panic!("boom") }).await.unwrap_err().contains("boom"));
}

#[test]
fn the_same_seed_gives_the_same_numbers() {
    let draw = |seed| {
        let random = Generator::from_seed(seed);
        (random.uuid(), random.below(10_000), random.below(0))
    };
    assert_eq!(draw(7), draw(7));
    assert_ne!(draw(7).0, draw(8).0);
    let (uuid, small, zero) = draw(1);
    assert_eq!((uuid.len(), uuid.as_bytes()[14], zero), (36, b'4', 0));
    assert!(small < 10_000);
}
