use std::future::pending;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn nested_scopes_only_shorten() {
    assert_eq!(remaining(), None);
    let started = Instant::now();
    let outer = scope(2 * SECOND, async {
        assert_eq!(remaining(), Some(2 * SECOND));
        let inner = scope(SECOND / 2, pending::<()>()).await;
        assert_eq!(inner, Err(DeadlineExceeded));
        assert_eq!(remaining(), Some(3 * SECOND / 2));
        scope(Duration::MAX, pending::<()>()).await
    })
    .await;
    // Inner and outer scope end at one instant: either may report it.
    assert!(matches!(outer, Err(DeadlineExceeded) | Ok(Err(DeadlineExceeded))));
    assert_eq!(started.elapsed().as_secs(), 2);
    assert_eq!(remaining(), None);
}

#[tokio::test(start_paused = true)]
async fn what_is_done_in_time_passes_through() {
    assert_eq!(scope(Duration::from_millis(1), async { 7 }).await, Ok(7));
}

#[tokio::test(start_paused = true)]
async fn a_spawned_task_inherits_the_deadline_and_ends_with_it() {
    let started = Instant::now();
    let task = scope(SECOND, async { spawn(pending::<()>()) }).await.unwrap();
    assert_eq!(task.await.unwrap(), Err(Cancelled::DeadlineExceeded));
    assert_eq!(started.elapsed().as_secs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_spawned_task_ends_when_its_scope_is_dropped_unfinished() {
    let started = Instant::now();
    let (tell, told) = tokio::sync::oneshot::channel();
    let request = tokio::spawn(scope(60 * SECOND, async {
        // In a scope of its own within the task: whoever drops the outer one ends this too.
        let inner = spawn(async {
            scope(30 * SECOND, async { spawn(pending::<()>()) })
                .await
                .unwrap()
                .await
        });
        tell.send(inner).unwrap();
        pending::<()>().await;
    }));
    let inner = told.await.unwrap();
    request.abort();
    let ended = inner.await.unwrap();
    let grandchild = matches!(ended, Ok(Ok(Err(Cancelled::Abandoned))));
    assert!(grandchild || matches!(ended, Err(Cancelled::Abandoned)), "{ended:?}");
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_scope_that_is_done_leaves_its_tasks_their_time() {
    let task = scope(SECOND, async {
        spawn(async {
            tokio::time::sleep(SECOND / 2).await;
            is_cancelled()
        })
    });
    assert_eq!(task.await.unwrap().await.unwrap(), Ok(false));
}

#[tokio::test(start_paused = true)]
async fn cancelled_says_when_the_time_is_up() {
    assert!(!is_cancelled());
    let watched = scope(SECOND, async {
        let watch = tokio::spawn(cancelled());
        pending::<()>().await;
        drop(watch);
    });
    assert_eq!(watched.await, Err(DeadlineExceeded));

    // A scope that blocks its thread past its time can ask.
    let late = scope(SECOND, async {
        tokio::time::advance(2 * SECOND).await;
        is_cancelled()
    });
    assert!(!matches!(late.await, Ok(false)));
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_after_the_end_waits_no_more() {
    let (tell, told) = tokio::sync::oneshot::channel();
    let request = tokio::spawn(scope(SECOND, async {
        tell.send(cancelled()).ok();
        pending::<()>().await;
    }));
    let over = told.await.unwrap();
    request.abort();
    request.await.unwrap_err();
    let started = Instant::now();
    over.await;
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn outside_of_any_scope_tasks_are_ordinary() {
    assert_eq!(spawn(async { remaining() }).await.unwrap(), Ok(None));
    let never = tokio::time::timeout(SECOND, cancelled()).await;
    assert!(never.is_err());
}
