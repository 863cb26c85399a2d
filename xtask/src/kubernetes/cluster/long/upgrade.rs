//! Both agents are replaced by a rolling update while visitors come: what of each LMAP is missing, and what is kept.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};
use support::clock::Stopwatch;

use super::super::super::chart::CHART;
use super::super::kit::{Cluster, IMAGE, Status};
use super::super::steps::Steps;
use super::gaps::Gaps;
use super::ledger::Ledger;
use super::shop::Shop;

/// Tag of the image that replaces [`IMAGE`]: the same program, which to the kubelet is another image.
const NEXT: &str = "0.1.1";
/// How long rows are looked at before, so that gaps can be compared with those between two reports.
const BEFORE: Duration = Duration::from_secs(20);
/// How long they are looked at once all LMAPs judge again.
const AFTER: Duration = Duration::from_secs(20);
/// All of it is over by then.
const WITHIN: Duration = Duration::from_mins(5);
/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The longest gap: the agents have 30 s to end, new ones a start, and LMAPs settle.
const MOST: Duration = Duration::from_mins(1);

/// What looks at the status find.
#[derive(Debug, Default)]
struct Looks {
    gaps: Gaps,
    /// Services that learn without what they had learnt.
    anew: BTreeSet<String>,
}

impl Looks {
    /// Takes a look. True if all LMAPs of the shop judge.
    fn take(&mut self, status: &Status) -> bool {
        let mut all_judge = true;
        for service in Shop::services() {
            let count = |key: &str| status.lmap(&service)[key].as_u64().unwrap_or_default();
            if status.is_judged(&service) {
                self.gaps.look(&service, count("at_unix_ns"), count("samples"));
            } else {
                all_judge = false;
            }
            if status.learns_anew(&service) {
                self.anew.insert(service);
            }
        }
        all_judge
    }
}

/// Replaces both, and looks on.
///
/// # Errors
///
/// They are not replaced, something is learnt anew, the receipt lacks what it had, or visitors notice.
pub fn check(shop: &Shop<'_>, values: &str, steps: &mut Steps) -> Result<()> {
    let cluster = shop.cluster;
    let (repository, _) = IMAGE.rsplit_once(':').unwrap_or((IMAGE, ""));
    cluster.sh(&format!("$CTR images tag --force {IMAGE} {repository}:{NEXT}"))?;
    shop.settle()?;
    let mut looks = Looks::default();
    let clock = Stopwatch::start();
    while clock.elapsed() < BEFORE {
        looks.take(&Cluster::until_some("the status is said", || cluster.status())?);
        std::thread::sleep(LOOK_EVERY);
    }
    let (quiet, before) = (longest(&looks), Ledger::of(&cluster.json("receipt")?)?);
    looks.gaps.cut();
    shop.visitors.window();
    steps.run("rolling update of both agents under load: nothing is learnt anew, the receipt goes on", || {
        let took = replace(cluster, values, &mut looks)?;
        println!(
            "all LMAPs judged {:.1} s after the command; longest time between rows, to a second, and before:",
            took.as_secs_f64()
        );
        for ((service, gap), (_, usual)) in longest(&looks).into_iter().zip(&quiet) {
            println!("  {service:<16} {:6.2} s {:6.2} s", gap.as_secs_f64(), usual.as_secs_f64());
            ensure!(gap <= MOST, "{service} was without a row for {gap:?}");
        }
        ensure!(looks.anew.is_empty(), "they learn anew: {:?}", looks.anew);
        Ok(())
    })?;
    let window = shop.visitors.window();
    println!("{} visits meanwhile, {} of them failed", window.ended, window.failed);
    ensure!(window.failed * 100 <= window.ended, "visitors notice: {window:?}");
    kept(&before, &Ledger::of(&cluster.json("receipt")?)?)
}

/// The longest gap of each service, in order.
fn longest(looks: &Looks) -> Vec<(String, Duration)> {
    looks.gaps.longest().into_iter().map(|(service, gap)| (service.to_owned(), gap)).collect()
}

/// Replaces both agents by one command, and looks on until all LMAPs judge and for some time after it. Returns how
/// long it took until they did.
fn replace(cluster: &Cluster, values: &str, looks: &mut Looks) -> Result<Duration> {
    let clock = Stopwatch::start();
    std::thread::scope(|scope| {
        let upgrade = scope.spawn(|| {
            cluster.helm(&format!("upgrade uview {CHART} -n uview -f {values} --set image.tag={NEXT}"))?;
            cluster.rolled_out("host-agent")?;
            cluster.rolled_out("nic-agent")
        });
        let mut judged: Option<Duration> = None;
        while judged.is_none_or(|judged| clock.elapsed() < judged + AFTER) {
            ensure!(clock.elapsed() < WITHIN, "not all LMAPs judge {WITHIN:?} after the command");
            // Read before the look, which then is of the new agents.
            let is_replaced = upgrade.is_finished();
            // While no host agent is there, nobody answers.
            let all_judge = cluster.status().is_ok_and(|status| looks.take(&status));
            if judged.is_none() && is_replaced && all_judge {
                judged = Some(clock.elapsed());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let ended = upgrade.join().unwrap_or_else(|_| Err(anyhow!("the thread that upgrades has crashed")));
        ended.map(|()| judged.unwrap_or_default())
    })
}

/// The receipt has what it had, another run, and says what the look-back of the first one was.
fn kept(before: &Ledger, after: &Ledger) -> Result<()> {
    println!(
        "spans seen {} → {}, kept {} → {}; {} were buffered when the agent ended, and are lost",
        before.seen,
        after.seen,
        before.kept,
        after.kept,
        after.lost_for("ended").saturating_sub(before.lost_for("ended"))
    );
    ensure!(after.seen >= before.seen && after.kept >= before.kept, "{before:?}, then {after:?}");
    ensure!(after.lost_for("killed") == before.lost_for("killed"), "the agent was killed: {after:?}");
    let [.., ended, _] = after.runs[..] else { bail!("{after:?} has one run") };
    ensure!(
        after.runs.len() == before.runs.len() + 1 && ended,
        "runs were {:?}, and are {:?}",
        before.runs,
        after.runs
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn ledger(kept: u64, killed: u64, runs: &[bool]) -> Ledger {
        let lost = BTreeMap::from([("killed".to_owned(), killed), ("ended".to_owned(), 7)]);
        Ledger { seen: 100 + kept, kept, dropped: 9, lost, waiting: 2, runs: runs.to_vec() }
    }

    #[test]
    fn a_receipt_goes_on_after_a_run_that_ended_in_order() {
        let before = ledger(3, 0, &[false]);

        assert!(kept(&before, &ledger(4, 0, &[true, false])).is_ok());
        for (after, why) in [
            (ledger(2, 0, &[true, false]), "it has less"),
            (ledger(4, 1, &[true, false]), "spans were lost by a kill"),
            (ledger(4, 0, &[false, false]), "the first run did not end in order"),
            (ledger(4, 0, &[false]), "no run has ended"),
        ] {
            assert!(kept(&before, &after).is_err(), "{why}");
        }
    }
}
