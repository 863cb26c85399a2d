use super::*;
use crate::top::sample::{lmap, reply};

fn press(model: &mut Model, keys: &str) -> Flow {
    let mut flow = Flow::Continue;
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            '\u{8}' => KeyCode::Backspace,
            other => KeyCode::Char(other),
        };
        flow = model.key(KeyEvent::new(code, KeyModifiers::NONE));
    }
    flow
}

fn names(model: &Model) -> Vec<&str> {
    model.rows().iter().map(|service| service.status.service.as_str()).collect()
}

fn answered() -> Model {
    let mut model = Model::default();
    model.on_reply(Duration::from_secs(1), &reply());
    model
}

#[test]
fn what_is_urgent_comes_first_and_s_and_r_change_the_order() {
    let mut model = answered();

    assert_eq!(names(&model), ["payment", "cart", "store"]); // in alarm, then by share of γ; store learns
    let _ = press(&mut model, "s");
    assert_eq!(names(&model), ["cart", "payment", "store"]);
    let _ = press(&mut model, "r");
    assert_eq!(names(&model), ["store", "payment", "cart"]);
}

#[test]
fn the_suspected_cause_comes_first_and_the_newest_incident_before_older_ones() {
    let mut model = Model::default();
    let suspected = |id, service: &str, incident_unix_ns, rank| {
        let scores = vec![10.0 * rank as f32];
        LmapStatus { alarm: true, rank, incident_unix_ns, scores, ..lmap(id, service) }
    };
    let silent = LmapStatus { state: "silent".to_owned(), ..lmap(7, "silent") };
    let lmaps = vec![
        lmap(1, "healthy"),
        suspected(2, "victim", 5, 2),
        suspected(3, "cause", 5, 1),
        suspected(4, "older", 3, 1),
        LmapStatus { alarm: false, ..suspected(5, "over", 5, 3) },
        silent,
    ];
    model.on_reply(Duration::ZERO, &StatusReply { lmaps, ..StatusReply::default() });

    assert_eq!(names(&model), ["cause", "victim", "over", "older", "silent", "healthy"]);
    assert_eq!(model.rows().iter().map(|service| service.is_suspected()).collect::<Vec<_>>()[..2], [true, false]);
}

#[test]
fn a_filter_matches_services_states_and_metrics_whatever_their_case() {
    let mut model = answered();

    let _ = press(&mut model, "/CArt\n");
    assert_eq!(names(&model), ["cart"]);
    let _ = press(&mut model, "\u{1b}");
    assert_eq!(names(&model).len(), 3);
    let _ = press(&mut model, "/learn\n");
    assert_eq!(names(&model), ["store"]);
    let _ = press(&mut model, "/\u{8}\u{8}\u{8}\u{8}\u{8}errors");
    assert_eq!(names(&model), ["payment"]);

    let mut reply = reply();
    reply.lmaps[0].reasons[0].about = "10.0.0.66 (498 destinations)".to_owned();
    model.on_reply(Duration::from_secs(2), &reply);
    let _ = press(&mut model, "\u{1b}/0.0.66");
    assert_eq!(names(&model), ["cart"]);
}

#[test]
fn q_quits_but_is_a_letter_in_a_filter() {
    let mut model = answered();

    assert_eq!(press(&mut model, "/q"), Flow::Continue);
    assert_eq!(press(&mut model, "\nq"), Flow::Quit);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    model.view.typing = true;
    assert_eq!(model.key(interrupt), Flow::Quit);
}

#[test]
fn the_cursor_stays_on_its_service_when_the_order_changes() {
    let mut model = answered();

    let _ = press(&mut model, "jj");
    assert_eq!(model.view.selected, Some(3));
    let _ = press(&mut model, "jsr");
    assert_eq!(model.cursor(&model.rows()), 0);
    let _ = press(&mut model, "\n");
    assert_eq!(model.opened().map(|service| service.status.service.as_str()), Some("store"));
    let _ = press(&mut model, "\u{1b}");
    assert!(model.opened().is_none());
}

#[test]
fn an_opened_service_that_goes_away_closes() {
    let mut model = answered();
    let _ = press(&mut model, "\n");
    assert!(model.opened().is_some());

    model.on_reply(Duration::from_secs(2), &StatusReply::default());

    assert!(model.opened().is_none());
    assert_eq!(press(&mut model, "j\nk"), Flow::Continue);
}

#[test]
fn a_summary_seen_twice_counts_once_and_history_is_bounded() {
    let mut model = Model::default();
    for second in 0..200 {
        let mut status = lmap(1, "cart");
        (status.at_unix_ns, status.scores) = (second + 1, vec![second as f32; 16]);
        let reply = StatusReply { lmaps: vec![status], ..StatusReply::default() };
        model.on_reply(Duration::from_secs(second), &reply);
        model.on_reply(Duration::from_secs(second), &reply);
        if second == 1 {
            assert_eq!(model.rows()[0].scores.len(), 32);
        }
    }

    assert_eq!(model.rows()[0].scores.len(), HISTORY);
    assert_eq!(model.rows()[0].score(), 199.0);
}

#[test]
fn a_gap_in_answers_keeps_its_beginning() {
    let mut model = answered();

    model.on_disconnect(Duration::from_secs(5), "refused".to_owned());
    model.on_disconnect(Duration::from_secs(9), "refused".to_owned());

    assert_eq!(model.agent, AgentState::Gone { since: Duration::from_secs(5), why: "refused".to_owned() });
    assert_eq!(names(&model).len(), 3);
    model.on_reply(Duration::from_secs(10), &reply());
    assert_eq!(model.agent, AgentState::Live);
}

#[test]
fn a_workers_share_of_a_core_comes_from_two_readings() {
    let mut model = Model::default();
    let mut status = reply();
    status.workers[0].cpu_ns = 1_000_000_000;

    model.on_reply(Duration::from_secs(1), &status);
    assert_eq!(model.workers[&0].cpu, None);
    model.on_reply(Duration::from_millis(1500), &status); // the same summary again
    status.workers[0].cpu_ns += 20_000_000;
    model.on_reply(Duration::from_secs(2), &status);

    assert_eq!(model.workers[&0].cpu, Some(0.02));
}
