//! What is told of LMAPs to who scales services by them.

use super::super::testing::counter;
use super::*;
use crate::control_plane::LmapScore;

/// A node whose worker runs one LMAP.
fn running() -> (Node, LmapId) {
    let mut node = Node::new(settings());
    node.worker(50, 0, 1);
    node.replica(1, "cart", &[counter("a")]);
    node.settle();
    let id = node.only_lmap();
    (node, id)
}

fn says(node: &mut Node, id: LmapId, state: proto::State, scores: &[f32]) -> Vec<LmapScore> {
    let summary = proto::LmapSummary {
        lmap: id.0,
        epoch: 1,
        state: state.into(),
        gamma: 2.0,
        scores: scores.to_vec(),
        ..proto::LmapSummary::default()
    };
    node.receive(50, FromWorker::Summary(proto::Summary { lmaps: vec![summary], ..Default::default() }));
    node.plane.scores().collect()
}

fn score(ratio: Option<f64>, alarm: bool) -> Vec<LmapScore> {
    vec![LmapScore { lmap: "cart".to_owned(), ratio, alarm }]
}

#[test]
fn what_is_remembered_of_scores_is_of_the_status_with_reasons_from_gamma_on() {
    let (mut node, id) = running();
    let reason = proto::Reason { metric: 1, share: 1.0, seen: 9.0, expected: 1.0, ..proto::Reason::default() };
    let mut remembered = |scores: &[f32]| {
        let summary = proto::LmapSummary {
            lmap: id.0,
            epoch: 1,
            state: proto::State::Armed.into(),
            gamma: 2.0,
            scores: scores.to_vec(),
            reasons: vec![proto::Reason { statistic: proto::Statistic::Increment.into(), ..reason }],
            ..proto::LmapSummary::default()
        };
        let message = proto::Summary { at_unix_ns: 7, lmaps: vec![summary], ..Default::default() };
        node.receive(50, FromWorker::Summary(message));
        let (status, scored) = (node.plane.status().lmaps.remove(0), node.plane.scored(|_, _| true).remove(0));
        assert_eq!((scored.lmap, &scored.service, scored.at_unix_ns), (status.lmap, &status.service, 7));
        assert_eq!((scored.gamma, &scored.scores), (status.gamma, &status.scores));
        assert_eq!(status.reasons.len(), 1);
        let known = node.plane.scored(|lmap, at| (lmap, at) != (id.0, 7)).remove(0);
        assert_eq!((known.lmap, known.at_unix_ns, &*known.service, known.scores.len()), (id.0, 7, "", 0));
        scored.reasons == status.reasons
    };

    assert!(!remembered(&[1.0, 1.9]) && !remembered(&[]));
    assert!(remembered(&[2.0, 1.0]) && remembered(&[1.0, 5.0]));
}

#[test]
fn the_last_score_stays_between_rows_and_is_none_while_a_replica_is_silent() {
    let (mut node, id) = running();

    assert_eq!(node.plane.scores().count(), 0, "nothing was said yet");
    assert_eq!(says(&mut node, id, proto::State::Learning, &[]), []);
    assert_eq!(says(&mut node, id, proto::State::Armed, &[]), score(None, false));
    assert_eq!(says(&mut node, id, proto::State::Armed, &[9.0, 0.5]), score(Some(0.25), false));
    assert_eq!((node.plane.last_ratio(id), node.plane.last_ratio(LmapId(id.0 + 1))), (Some(0.25), None));
    assert_eq!(says(&mut node, id, proto::State::Armed, &[]), score(Some(0.25), false), "no row in this second");
    node.verdict(50, id, 1);
    assert_eq!(says(&mut node, id, proto::State::Drifted, &[5.0]), score(Some(2.5), true));
    assert_eq!(says(&mut node, id, proto::State::Silent, &[]), score(None, true));
    assert_eq!(says(&mut node, id, proto::State::Learning, &[]), []);
    assert_eq!(says(&mut node, id, proto::State::Armed, &[]), score(None, true), "what was before is forgotten");

    node.plane.worker_gone(node.now, ConnectionId(50));
    assert_eq!(node.plane.scores().count(), 0, "nothing is known while its worker is away");
}
