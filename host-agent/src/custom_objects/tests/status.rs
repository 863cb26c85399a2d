//! What came of custom resources, written to an API server that refuses it at first.

use super::*;

impl Running {
    /// With an `Lmap`, and an API server that refuses the first statuses.
    async fn refused(refusals: impl IntoIterator<Item = (StatusCode, Option<u64>)>) -> Self {
        let spec = json!({"workload": {"kind": "Pod", "name": "cart"}, "interval": "200ms"});
        let lists = [Ok(vec![lmap("fast", "2026-01-01T00:00:00Z", &spec)])].into();
        let lmaps = ToldObjects { lists, ..ToldObjects::default() };
        let refusals = refusals.into_iter().collect();
        Self::start_told(Answers { lmaps, refusals, ..Answers::default() }, None).await
    }

    async fn until_written(&self) {
        self.until("it is written", |of| is(of.condition("fast", "Applied"), "True", "Applied", "")).await;
    }
}

#[tokio::test]
async fn a_server_that_has_enough_to_do_is_told_later_and_not_before_it_wants() {
    let too_many = |retry_after| (StatusCode::TOO_MANY_REQUESTS, retry_after);
    let running = Running::refused([too_many(Some(1)), too_many(None)]).await;

    running.until("the object is in effect", |of| of.interval_ms("shop/cart") == Some(200)).await;
    running.until_written().await;

    let attempts = running.server.0.lock().unwrap().attempts.clone();
    assert!(attempts.len() >= 3, "two were refused: {attempts:?}");
    let pause = attempts[1].saturating_sub(attempts[0]);
    assert!(pause >= Duration::from_millis(990), "{pause:?}");
    assert_eq!(running.objects.problems(), Vec::<String>::new());
}

#[tokio::test]
async fn a_status_that_is_refused_is_a_problem_until_it_is_written() {
    let running = Running::refused((0..10_000).map(|_| (StatusCode::FORBIDDEN, None))).await;

    running.until("the object is in effect", |of| of.interval_ms("shop/cart") == Some(200)).await;
    let is_said = |of: &Running| of.objects.problems().iter().any(|line| line.contains("resources cannot be written"));
    running.until("the refusal is said", is_said).await;
    assert!(running.server.written().is_empty());

    running.server.0.lock().unwrap().refusals.clear();
    running.until_written().await;
    running.until("nothing is amiss any more", |of| of.objects.problems().is_empty()).await;
}
