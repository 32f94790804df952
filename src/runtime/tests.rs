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
