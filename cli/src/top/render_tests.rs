use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::top::sample::reply;

fn picture(model: &Model, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let palette = Palette::new(false);
    terminal.draw(|frame| draw(model, &palette, frame.area(), frame.buffer_mut())).unwrap();
    terminal.backend().to_string()
}

fn live() -> Model {
    let mut model = Model::default();
    model.on_reply(Duration::from_secs(1), &reply());
    model
}

#[track_caller]
fn assert_shows(picture: &str, texts: &[&str]) {
    for text in texts {
        assert!(picture.contains(text), "`{text}` is not in\n{picture}");
    }
}

#[test]
fn every_service_shows_state_score_gamma_and_top_metric_with_seen_and_expected() {
    let picture = picture(&live(), 140, 12);

    assert_shows(&picture, &["● live", "host agent 0.1.0, up 1 min 5 s", "3 services, 1 in alarm or silent"]);
    assert_shows(&picture, &["worker 0, shm: 1000 ticks, 3 late"]);
    assert_shows(&picture, &["▲ ALARM", "payment", "85.0", "10.0", "▂▄█", "http.server.errors: 37, 0.125"]);
    assert_shows(&picture, &["● armed", "… learning 40/120", "s sort (urgency)"]);
}

#[test]
fn a_lost_agent_is_shown_in_words_and_the_last_reply_stays() {
    let mut model = live();
    model.on_disconnect(Duration::from_secs(3), "connection refused".to_owned());
    model.tick(Duration::from_secs(10));

    let picture = picture(&model, 140, 12);

    assert_shows(
        &picture,
        &["NO AGENT", "No connection to the agent for 7.0 s", "the last reply", "connection refused", "payment"],
    );
}

#[test]
fn an_opened_service_shows_all_its_metrics_and_gamma_in_the_plot() {
    let mut model = live();
    (model.view.selected, model.view.opened) = (Some(2), true);

    let picture = picture(&model, 120, 30);

    assert_shows(&picture, &["payment   ▲ ALARM   score 85.0, γ 10.0, 2 alarms", "γ   10.0", "█"]);
    assert_shows(
        &picture,
        &[
            "81 % ■■■■■■■■",
            "http.server.request.duration.p99",
            "250 ms",
            "20 ms",
            "since",
            "4.2 s",
            "Esc all services",
            "score by metric group: service 92 %, cpu 8 %",
        ],
    );
}

#[test]
fn the_suspected_cause_is_named_and_a_victim_shows_the_service_it_points_at() {
    let mut reply = reply();
    (reply.lmaps[0].alarm, reply.lmaps[0].rank, reply.lmaps[0].points_at) = (true, 2, "payment".to_owned());
    (reply.lmaps[1].rank, reply.lmaps[1].incident_unix_ns) = (1, 5);
    let mut model = Model::default();
    model.on_reply(Duration::ZERO, &reply);

    for width in [80, 140] {
        assert_shows(&picture(&model, width, 12), &["▲ suspected cause", "▲ ALARM", "→ payment"]);
    }
    (model.view.selected, model.view.opened) = (Some(2), true);
    assert_shows(&picture(&model, 120, 30), &["suspected cause: rank 1 of"]);
    model.view.selected = Some(1);
    assert_shows(&picture(&model, 120, 30), &["rank 2 of the services in alarm", "point at payment"]);
}

#[test]
fn a_value_that_is_about_somebody_says_whom_in_the_list_and_in_the_opened_service() {
    let mut reply = reply();
    let reasons = &mut reply.lmaps[1].reasons;
    reasons[0].column = "network.source.destinations".to_owned();
    reasons[0].about = "10.0.0.66 (498 destinations)".to_owned();
    let mut model = Model::default();
    model.on_reply(Duration::ZERO, &reply);

    assert_shows(&picture(&model, 160, 12), &["network.source.destinations: 37, 0.125: 10.0.0.66 (498 destinations)"]);

    (model.view.selected, model.view.opened) = (Some(2), true);
    for width in [120, 140] {
        let picture = picture(&model, width, 30);
        assert_shows(&picture, &["  10.0.0.66 (498 destinations)", "http.server.request"]);
        let lines = |text: &str| picture.lines().filter(|line| line.contains(text)).count();
        assert_eq!((lines("network.source.destinations"), lines("10.0.0.66")), (1, 1), "{picture}");
    }
}

#[test]
fn a_metric_without_a_known_begin_shows_no_duration() {
    let mut reply = reply();
    reply.lmaps[1].reasons[0].since_us = 0;
    reply.lmaps[1].reasons.truncate(1);
    let mut model = Model::default();
    model.on_reply(Duration::ZERO, &reply);
    (model.view.selected, model.view.opened) = (Some(2), true);

    let picture = picture(&model, 120, 30);

    assert!(picture.contains("since") && !picture.contains(" 0 s"), "{picture}");
}

#[test]
fn a_filter_without_a_match_says_how_to_get_rid_of_it() {
    let mut model = live();
    model.view.filter = "nothing like that".to_owned();

    assert_shows(
        &picture(&model, 120, 10),
        &["No service matches the filter; Esc clears it.", "filter: nothing like that"],
    );
}

#[test]
fn a_node_without_services_and_a_view_that_waits_say_so() {
    let mut model = Model::default();
    assert_shows(&picture(&model, 100, 6), &["waiting for the host agent"]);

    model.on_reply(Duration::ZERO, &wire::proto::operators::StatusReply::default());
    assert_shows(&picture(&model, 100, 6), &["No service is registered."]);
}

#[test]
fn eighty_columns_have_room_for_state_scores_and_the_top_metric() {
    let picture = picture(&live(), 80, 12);

    assert_shows(
        &picture,
        &["▲ ALARM", "payment", "85.0", "10.0", "▂▄█", "http.server.errors: 37", "… learning 40/120"],
    );
}

#[test]
fn no_size_of_the_terminal_breaks_it() {
    let mut model = live();
    for opened in [false, true] {
        (model.view.selected, model.view.opened) = (Some(2), opened);
        for (width, height) in [(1, 1), (5, 2), (9, 30), (10, 14), (300, 3), (80, 24)] {
            let _ = picture(&model, width, height);
        }
    }
}

#[test]
fn the_cursor_is_always_on_the_screen() {
    let mut model = Model::default();
    let lmaps = (0..50).map(|i| crate::top::sample::lmap(i, &format!("service-{i:02}"))).collect();
    model.on_reply(Duration::ZERO, &wire::proto::operators::StatusReply { lmaps, ..Default::default() });
    model.view.sort = super::super::model::Sort::Name;
    model.view.selected = Some(40);

    assert_shows(&picture(&model, 100, 10), &["service-40"]);
}

#[test]
fn without_colours_nothing_is_lost() {
    let palette = Palette::new(true);

    for style in [palette.urgent, palette.good, palette.quiet, palette.strong, palette.cursor] {
        assert_eq!((style.fg, style.bg), (None, None));
    }
    assert_shows(&picture(&live(), 140, 12), &["▲ ALARM"]);
}
