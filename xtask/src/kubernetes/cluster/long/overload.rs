//! The load rises beyond what the shop can do, and a HorizontalPodAutoscaler adds frontends by the score over γ.
//!
//! # Source
//! uView, Sec. 4.8.3: a stationary load to learn from, then one that grows; an autoscaler adds replicas. Here they are
//! pods of a real Deployment, and the autoscaler reads what the LMAP says, not the utilisation.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use support::clock::Stopwatch;

use super::super::kit::Status;
use super::super::steps::Steps;
use super::super::traces::has_iptables;
use super::super::{custom_resources, scaling};
use super::failed::Failed;
use super::shop::{FIRST, FRONTEND, NAMESPACE, Shop, USUAL, Version, of};
use super::timeline::{Row, Timeline};

/// One worker is busy with a request for 20 ms: a frontend serves 46 a second.
const SMALL: Version = Version { name: "small", wait_us: 20_000 };
/// A pod joins its workload 10 s after it was ready, and its spans are counted after 6 s.
const JOINED: Duration = Duration::from_secs(20);
/// Replicas of a service with one pod: its container, and what is counted of its spans.
const OF_ONE_POD: u64 = 2;
/// Most frontends that the autoscaler may ask for.
const MOST: u32 = 4;
/// So many have to be there where the peak is served: one cannot serve it.
const LEAST: usize = 2;
/// Time between two rows of the table.
const ROW: Duration = Duration::from_secs(5);
/// Rows of the usual load before it grows; an LMAP is fitted at 120 and at 600 samples, of a tenth of a second.
const USUAL_ROWS: u32 = 18;
/// Visitors a second that are added with each row, up to [`PEAK`].
const GROWTH: f64 = 5.0;
/// Visitors a second in the end: one frontend cannot serve them, two do it slowly, three as usual.
const PEAK: f64 = 75.0;
/// The autoscaler looks every 15 s, and adds one each time.
const WITHIN: Duration = Duration::from_mins(6);

/// The autoscaler as docs/kubernetes.md has it, which adds one frontend at a time.
fn manifest(version: &str) -> String {
    format!(
        "apiVersion: autoscaling/{version}
kind: HorizontalPodAutoscaler
metadata: {{name: {FRONTEND}, namespace: {NAMESPACE}}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {FRONTEND}}}
  minReplicas: 1
  maxReplicas: {MOST}
  metrics:
  - type: Object
    object:
      describedObject: {{apiVersion: apps/v1, kind: Deployment, name: {FRONTEND}}}
      metric: {{name: uview_score_ratio}}
      target: {{type: Value, value: '1'}}
  behavior:
    scaleUp: {{stabilizationWindowSeconds: 0, policies: [{{type: Pods, value: 1, periodSeconds: 15}}]}}
    scaleDown: {{stabilizationWindowSeconds: 300}}
"
    )
}

/// The load grows beyond what one frontend can serve; in the end all are served as usual. Whether there is an overload
/// in between is said: the score may ask for more frontends before there is one.
///
/// # Errors
///
/// Nothing is scaled, the peak is not served as usual by more frontends, or the shop cannot be made what it was.
pub fn check(shop: &Shop<'_>, values: &str, steps: &mut Steps) -> Result<()> {
    if !has_iptables() {
        // Said by what cannot be run here.
        return Ok(());
    }
    let seen = rise(shop, values, steps);
    shop.visitors.come(USUAL);
    // Before anything is judged: whatever came out, the next experiment needs the shop as it was.
    let undone = steps.run("the autoscaler is removed, one frontend as before", || undo(shop, values));
    let mut failed = Failed::default();
    failed.note("the load rises", seen.and_then(|timeline| judge(&timeline)));
    failed.note("afterwards", undone);
    failed.into_result()
}

/// Lets the load grow on an autoscaler, and returns what was seen.
fn rise(shop: &Shop<'_>, values: &str, steps: &mut Steps) -> Result<Timeline> {
    let cluster = shop.cluster;
    steps.run("custom.metrics.k8s.io, turned on", || {
        custom_resources::define(cluster)?;
        scaling::turn_on(cluster, values)?;
        cluster.rolled_out("host-agent")?;
        cluster.rolled_out("nic-agent")
    })?;
    steps.run("frontends that serve 46 requests a second each: what they do is normal", || {
        shop.roll_out(FRONTEND, SMALL)?;
        is_normal(shop)
    })?;
    let timeline = steps.run("the load rises beyond one frontend; the autoscaler adds more by the score", || {
        observe(shop, || cluster.apply("autoscaler.yaml", &manifest(scaling::version(cluster)?)).map(drop))
    });
    match cluster.sh(&format!("kubectl -n {NAMESPACE} describe hpa {FRONTEND}")) {
        Ok(autoscaler) => println!("{autoscaler}"),
        Err(error) => println!("the autoscaler is not known: {error:#}"),
    }
    timeline
}

/// Takes all of it back, each part whatever becomes of the one before.
fn undo(shop: &Shop<'_>, values: &str) -> Result<()> {
    let cluster = shop.cluster;
    let delete = format!("kubectl -n {NAMESPACE} delete hpa {FRONTEND} --ignore-not-found");
    let scale = format!("kubectl -n {NAMESPACE} scale deploy {FRONTEND} --replicas=1");
    let mut failed = Failed::default();
    failed.note("no autoscaler", cluster.sh(&delete).map(drop));
    failed.note("one frontend", cluster.sh(&scale).map(drop));
    failed.note("its first version", shop.roll_out(FRONTEND, FIRST));
    failed.note("the controller without metrics", scaling::turn_off(cluster, values));
    failed.note("what it does is normal", is_normal(shop));
    failed.into_result()
}

/// There were more frontends, and they served the peak as usual.
fn judge(timeline: &Timeline) -> Result<()> {
    let scaled = timeline.scaled_at().context("there were no more frontends")?;
    let served = timeline.served_at(PEAK, LEAST);
    let served = served
        .with_context(|| format!("{PEAK} visitors a second were not served as usual by {LEAST} frontends or more"))?;
    ensure!(scaled <= served, "{PEAK} visitors a second were served as usual before there were more frontends");
    match timeline.overloaded_at() {
        Some(at) => println!("latency was far above the usual one at {} s", at.as_secs()),
        None => println!("there was no overload: more frontends were ready in time"),
    }
    println!(
        "more frontends were ready at {} s, {PEAK} visitors a second were served as usual from {} s on",
        scaled.as_secs(),
        served.as_secs()
    );
    Ok(())
}

/// What the frontend does now is normal, once it has joined.
fn is_normal(shop: &Shop<'_>) -> Result<()> {
    let service = of(FRONTEND);
    std::thread::sleep(JOINED);
    shop.cluster.until("the new frontend is watched", |status| status.lmap(&service)["replicas"] == OF_ONE_POD)?;
    shop.take_as_normal(&[service])?;
    shop.settle()
}

/// Sends the usual load, then more and more up to the peak, until that is served as usual; `autoscale` is called before
/// it grows. Prints the table.
fn observe(shop: &Shop<'_>, autoscale: impl FnOnce() -> Result<()>) -> Result<Timeline> {
    let mut timeline = Timeline::default();
    let clock = Stopwatch::start();
    shop.visitors.window();
    for _ in 0..USUAL_ROWS {
        timeline.usual(row(shop, &clock, USUAL)?);
    }
    autoscale()?;
    let began = clock.elapsed();
    let mut per_second = USUAL;
    while timeline.served_at(PEAK, LEAST).is_none() && clock.elapsed() < began + WITHIN {
        per_second = (per_second + GROWTH).min(PEAK);
        shop.visitors.come(per_second);
        timeline.push(row(shop, &clock, per_second)?);
    }
    println!("{timeline}");
    ensure!(timeline.usual_p95() > Duration::ZERO, "nobody came");
    Ok(timeline)
}

/// Waits for the end of a row, and returns it.
fn row(shop: &Shop<'_>, clock: &Stopwatch, per_second: f64) -> Result<Row> {
    let until = clock.elapsed() + ROW;
    while clock.elapsed() < until {
        std::thread::sleep(Duration::from_secs(1));
        shop.follow()?;
    }
    let frontends = shop.follow()?;
    let status = shop.cluster.status()?;
    let service = of(FRONTEND);
    Ok(Row {
        at: clock.elapsed(),
        per_second,
        window: shop.visitors.window(),
        frontends,
        ratio: ratio(&status, &service),
        is_in_alarm: status.is_in_alarm(&service),
    })
}

/// The last score of a service over γ, while it judges.
fn ratio(status: &Status, service: &str) -> Option<f64> {
    let lmap = status.lmap(service);
    let (score, gamma) = (lmap["scores"].as_array()?.last()?.as_f64()?, lmap["gamma"].as_f64()?);
    (gamma > 0.0).then(|| score / gamma)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_autoscaler_is_of_the_frontend_and_adds_one_at_a_time() {
        let manifest: Value = serde_saphyr::from_str(&manifest("v2")).unwrap();

        let spec = &manifest["spec"];
        let described = &spec["metrics"][0]["object"]["describedObject"];
        assert_eq!(spec["scaleTargetRef"]["name"], FRONTEND);
        assert_eq!(described["name"], FRONTEND);
        assert_eq!(spec["maxReplicas"], MOST);
        assert_eq!(spec["behavior"]["scaleUp"]["policies"][0]["value"], 1);
    }
}
