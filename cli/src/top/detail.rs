//! One service on the whole screen: scores against γ, and all top metrics with the values seen and expected.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, Widget as _};
use wire::proto::operators::{LmapStatus, Reason};
use wire::quantity::quantity;

use super::model::Service;
use super::render::{Palette, state};
use crate::figures::{bar, largest_of_parts, score, threshold};
use crate::status::replica_of;

/// Height of the plot, in lines.
const PLOT: u16 = 9;

/// Width of the scale left of the plot, in characters.
const SCALE: u16 = 9;

pub(super) fn draw(service: &Service, palette: &Palette, area: Rect, buffer: &mut Buffer) {
    let [head, plot, _, reasons] =
        Layout::vertical([Constraint::Length(5), Constraint::Length(PLOT), Constraint::Length(1), Constraint::Fill(1)])
            .areas(area);
    head_lines(service, palette).render(head, buffer);
    draw_plot(service, palette, plot, buffer);
    draw_reasons(service, palette, reasons, buffer);
}

fn head_lines<'a>(service: &Service, palette: &Palette) -> Paragraph<'a> {
    let status = &service.status;
    let (word, style) = state(service, palette);
    let (last, gamma, budget) = (score(service.score()), threshold(status.gamma), crate::status::budget(status));
    let figures = format!("   score {last}, γ {gamma}{budget}, {} alarms", status.alarms);
    let first = Line::from(vec![
        Span::styled(status.service.clone(), palette.strong),
        Span::raw("   "),
        Span::styled(word, style),
        Span::raw(figures),
    ]);
    let second = format!(
        "{} replicas, {} columns ({} not watched yet), {} samples, {} discarded",
        status.replicas, status.columns, status.unwatched, status.samples, status.discarded
    );
    let second =
        crate::lmaps::interval::remark(status).map_or_else(|| second.clone(), |remark| format!("{second}, {remark}"));
    let mut lines = vec![first, Line::from(second)];
    if let Some(suspicion) = suspicion(service) {
        lines.push(Line::from(Span::styled(suspicion, palette.strong)));
    }
    if !status.groups.is_empty() {
        lines.push(Line::from(group_shares(status)));
    }
    if !status.silent_replicas.is_empty() {
        lines.push(Line::from(Span::styled(
            format!("silent replicas: {}", status.silent_replicas.join(", ")),
            palette.urgent,
        )));
    }
    Paragraph::new(lines)
}

/// The rank of a service in alarm, and the service that its metrics point at, as text.
fn suspicion(service: &Service) -> Option<String> {
    let LmapStatus { rank, points_at, .. } = &service.status;
    let place = match rank {
        0 => return None,
        1 => "suspected cause: rank 1 of the services in alarm".to_owned(),
        rank => format!("rank {rank} of the services in alarm"),
    };
    let about = if points_at.is_empty() { String::new() } else { format!("; its metrics point at {points_at}") };
    Some(place + &about)
}

/// The share of each metric group in the score, as text.
fn group_shares(status: &LmapStatus) -> String {
    let shares = status.groups.iter().map(|group| format!("{} {:.0} %", group.group, 100.0 * group.share));
    format!("score by metric group: {}", shares.collect::<Vec<_>>().join(", "))
}

/// How long a metric has deviated; empty if unknown.
fn since(reason: &Reason) -> String {
    if reason.since_us == 0 { String::new() } else { quantity(reason.since_us as f64, "us") }
}

/// Bars on a linear scale up to 1.25 γ or the largest score; γ is a dashed line.
fn draw_plot(service: &Service, palette: &Palette, area: Rect, buffer: &mut Buffer) {
    if area.width <= SCALE || area.height == 0 {
        return;
    }
    let scores: Vec<f64> = service.scores.iter().copied().collect();
    let columns = largest_of_parts(&scores, usize::from(area.width - SCALE));
    let gamma = Some(service.status.gamma).filter(|gamma| gamma.is_finite() && *gamma > 0.0);
    let largest = columns.iter().copied().fold(0.0, f64::max).max(1.25 * gamma.unwrap_or_default());
    if largest <= 0.0 {
        return Paragraph::new(Span::styled("no score yet", palette.quiet)).render(area, buffer);
    }
    let lines = f64::from(area.height);
    let gamma_line = gamma.map(|gamma| (gamma / largest * lines) as u16);
    buffer.set_string(area.x, area.y, format!("{:>8}", score(largest)), palette.quiet);
    for above in 0..area.height {
        let y = area.bottom() - 1 - above;
        if gamma_line == Some(above) {
            buffer.set_string(area.x, y, format!("γ{:>7}", score(gamma.unwrap_or_default())), palette.strong);
            buffer.set_string(area.x + SCALE, y, "╌".repeat(usize::from(area.width - SCALE)), palette.quiet);
        }
        for (x, &value) in (area.x + SCALE..area.right()).zip(&columns) {
            let eighths = ((value / largest * lines - f64::from(above)) * 8.0).ceil();
            if eighths >= 1.0 {
                let over = gamma.is_some_and(|gamma| value >= gamma);
                let style: Style = if over { palette.urgent } else { palette.good };
                buffer[(x, y)].set_char(bar((eighths as usize).min(8) - 1)).set_style(style);
            }
        }
    }
}

fn draw_reasons(service: &Service, palette: &Palette, area: Rect, buffer: &mut Buffer) {
    if service.status.reasons.is_empty() {
        let text = "No metric deviates: no score of the last second was at or over γ.";
        return Paragraph::new(Span::styled(text, palette.quiet)).render(area, buffer);
    }
    let header = ["share", "metric", "group", "seen", "expected", "since"];
    let header = Row::new(header.map(|name| Cell::new(Span::styled(name, palette.strong))));
    let rows = service.status.reasons.iter().map(|reason| {
        let with_unit = |value: f64| quantity(value, &reason.unit);
        let share =
            format!("{:>3.0} % {}", 100.0 * reason.share, "■".repeat((reason.share.clamp(0.0, 1.0) * 10.0) as usize));
        // Whom it is about has a line of its own, since the name of the metric leaves no room.
        let about = if reason.about.is_empty() { String::new() } else { format!("\n  {}", reason.about) };
        let row = Row::new(vec![
            Cell::new(share),
            Cell::new(format!("{}{}{about}", reason.column, replica_of(reason))),
            Cell::new(reason.group.clone()),
            Cell::new(with_unit(reason.seen)),
            Cell::new(with_unit(reason.expected)),
            Cell::new(since(reason)),
        ]);
        row.height(if about.is_empty() { 1 } else { 2 })
    });
    let widths = [
        Constraint::Length(16),
        Constraint::Fill(1),
        Constraint::Length(9),
        Constraint::Length(18),
        Constraint::Length(18),
        Constraint::Length(9),
    ];
    Table::new(rows, widths).header(header).render(area, buffer);
}
