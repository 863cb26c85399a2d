//! Draws a [`Model`]. Pure: the same model gives the same picture. Every state has a word and a sign, so that colour is
//! never needed; the colours are blue and orange, which colour-blind people can tell apart.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, Widget as _, Wrap};
use wire::quantity::quantity;

use super::detail;
use super::model::{AgentState, Model, Service};
use crate::figures::{bar, duration_ms, height, largest_of_parts, score, threshold};
use crate::status;

/// Terminals with at least this many columns show everything.
const WIDE: u16 = 110;

/// Styles, with or without colours.
#[derive(Clone, Copy, Debug)]
pub struct Palette {
    /// Needs attention: alarms, silence, errors.
    pub urgent: Style,
    /// Normal states and scores below γ.
    pub good: Style,
    /// Less important text, such as keys.
    pub quiet: Style,
    /// Headings and highlighted text.
    pub strong: Style,
    /// The row under the cursor.
    pub cursor: Style,
}

impl Palette {
    /// Blue and orange of the 256 colours, or no colours at all.
    #[must_use]
    pub fn new(no_color: bool) -> Self {
        let plain = Style::new();
        let bold = plain.add_modifier(Modifier::BOLD);
        let cursor = plain.add_modifier(Modifier::REVERSED);
        if no_color {
            return Self { urgent: bold, good: plain, quiet: plain, strong: bold, cursor };
        }
        let color = |index| plain.fg(Color::Indexed(index));
        Self {
            urgent: color(208).add_modifier(Modifier::BOLD),
            good: color(39),
            quiet: color(245),
            strong: bold,
            cursor,
        }
    }
}

/// Draws `model` into `area` of `buffer`.
pub fn draw(model: &Model, palette: &Palette, area: Rect, buffer: &mut Buffer) {
    let opened = model.opened();
    let heads = 1 + model.workers.len().min(4) as u16;
    let notes = u16::from(matches!(model.agent, AgentState::Gone { .. })) * 2;
    let [head, note, body, foot] = Layout::vertical([
        Constraint::Length(heads),
        Constraint::Length(notes),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(area);
    head_lines(model, palette).render(head, buffer);
    agent_note(model, palette).render(note, buffer);
    match opened {
        Some(service) => detail::draw(service, palette, body, buffer),
        None => services(model, palette, body, buffer),
    }
    keys(model, palette).render(foot, buffer);
}

/// Lines needed to draw everything, for `--once`.
#[must_use]
pub fn lines_needed(model: &Model) -> u16 {
    let lines = 6 + model.workers.len().min(4) + model.all().count().max(2);
    u16::try_from(lines).unwrap_or(u16::MAX).min(1000)
}

fn head_lines<'a>(model: &Model, palette: &Palette) -> Paragraph<'a> {
    let mut first = vec![Span::styled("uview top", palette.strong)];
    first.push(match &model.agent {
        AgentState::Waiting => Span::styled("  … waiting for the host agent", palette.quiet),
        AgentState::Live => Span::styled("  ● live", palette.good),
        AgentState::Gone { .. } => Span::styled("  ○ NO AGENT", palette.urgent),
    });
    if model.last_reply.is_some() {
        let services = model.all().count();
        let urgent = model.all().filter(|service| service.urgent()).count();
        let up = duration_ms(model.uptime_ms);
        first.push(Span::raw(format!("   host agent {}, up {up}   {services} services, ", model.version)));
        let style = if urgent > 0 { palette.urgent } else { palette.good };
        first.push(Span::styled(format!("{urgent} in alarm or silent"), style));
    }
    let mut lines = vec![Line::from(first)];
    for worker in model.workers.values().take(4) {
        let status = &worker.status;
        let cpu = worker.cpu.map_or_else(String::new, |share| format!(", {:.1} % of a core", 100.0 * share));
        let text = format!("worker {}, {}: {} ticks, ", status.worker, status.transport, status.ticks);
        let late = Span::styled(format!("{} late", status.late_ticks), late_style(status.late_ticks, palette));
        let rest = format!(", {} failed regions{cpu}", status.failed_regions);
        let gone = if status.connected { "" } else { "   NOT CONNECTED" };
        let drained = if status.drained_by.is_some() { "   drained" } else { "" };
        let signs = [Span::styled(drained, palette.strong), Span::styled(gone, palette.urgent)];
        lines.push([Span::raw(text), late, Span::raw(rest)].into_iter().chain(signs).collect());
    }
    Paragraph::new(lines)
}

fn late_style(late: u64, palette: &Palette) -> Style {
    if late > 0 { palette.strong } else { Style::new() }
}

fn agent_note<'a>(model: &Model, palette: &Palette) -> Paragraph<'a> {
    let AgentState::Gone { since, why } = &model.agent else { return Paragraph::default() };
    let age = duration_ms(model.now.saturating_sub(*since).as_millis() as u64);
    let old = if model.last_reply.is_some() { "; the view shows the last reply" } else { "" };
    let text = format!("No connection to the agent for {age}{old}. Trying again every second. {why}");
    Paragraph::new(Span::styled(text, palette.urgent)).wrap(Wrap { trim: true })
}

/// Sign, word and style of a service's state.
pub(super) fn state(service: &Service, palette: &Palette) -> (String, Style) {
    let word = if service.is_suspected() { "suspected cause".to_owned() } else { status::state(&service.status) };
    let (sign, style) = match service.status.state.as_str() {
        _ if service.status.alarm && service.status.state != "silent" => ("▲", palette.urgent),
        "silent" => ("○", palette.urgent),
        "drifted" => ("~", palette.urgent),
        "learning" | "waiting" | "starting" | "" => ("…", palette.quiet),
        _ => ("●", palette.good),
    };
    (format!("{sign} {word}"), style)
}

fn services(model: &Model, palette: &Palette, area: Rect, buffer: &mut Buffer) {
    let rows = model.rows();
    if rows.is_empty() {
        let text = match (model.last_reply, model.all().count()) {
            (None, _) => "",
            (Some(_), 0) => "No service is registered.",
            (Some(_), _) => "No service matches the filter; Esc clears it.",
        };
        return Paragraph::new(Span::styled(text, palette.quiet)).render(area, buffer);
    }
    let widths = ColumnWidths::of(area.width, &rows);
    let cursor = model.cursor(&rows);
    let visible = usize::from(area.height.saturating_sub(1)).max(1);
    let first = (cursor + 1).saturating_sub(visible);
    let shown = rows.iter().enumerate().skip(first).take(visible);
    let lines = shown.map(|(i, service)| {
        let row = service_row(service, &widths, palette);
        if i == cursor { row.style(palette.cursor) } else { row }
    });
    let header = widths.columns().map(|(name, _)| Cell::new(Span::styled(name, palette.strong)));
    let widths = widths.columns().map(|(_, width)| width);
    Table::new(lines, widths).header(Row::new(header)).render(area, buffer);
}

/// Widths of the columns of the table. The top metric gets the rest.
struct ColumnWidths {
    wide: bool,
    service: u16,
    scores: u16,
}

impl ColumnWidths {
    fn of(width: u16, rows: &[&Service]) -> Self {
        let longest = rows.iter().map(|service| service.status.service.chars().count()).max().unwrap_or_default();
        let wide = width >= WIDE;
        let (most, scores) = if wide { (28, 28) } else { (14, 10) };
        Self { wide, service: longest.clamp(7, most) as u16, scores }
    }

    fn columns(&self) -> impl Iterator<Item = (&'static str, Constraint)> {
        let scores = if self.wide { "scores (upper half: over γ)" } else { "scores" };
        let metric = if self.wide { "top metric: seen, expected" } else { "top: seen, expected" };
        let columns = [
            ("state", Constraint::Length(17)),
            ("service", Constraint::Length(self.service)),
            (" score", Constraint::Length(if self.wide { 8 } else { 6 })),
            ("    γ", Constraint::Length(6)),
            (scores, Constraint::Length(self.scores)),
            (metric, Constraint::Fill(1)),
        ];
        let alarms = self.wide.then_some(("alarms", Constraint::Length(6)));
        let (before, last) = columns.split_at(5);
        before.iter().copied().chain(alarms).chain(last.iter().copied()).collect::<Vec<_>>().into_iter()
    }
}

fn service_row<'a>(service: &Service, widths: &ColumnWidths, palette: &Palette) -> Row<'a> {
    let status = &service.status;
    let (word, style) = state(service, palette);
    let score_style = if service.share() >= 1.0 { palette.urgent } else { Style::new() };
    let top = status.reasons.first().map(|reason| {
        let (seen, expected) = (quantity(reason.seen, &reason.unit), quantity(reason.expected, &reason.unit));
        let (replica, about) = (status::replica_of(reason), status::about_of(reason));
        format!("{}: {seen}, {expected}{replica}{about}", reason.column)
    });
    let note = |what: &str, about: &str| if about.is_empty() { String::new() } else { format!("{what} {about}  ") };
    let notes = note("silent:", &status.silent_replicas.join(", ")) + &note("→", &status.points_at);
    let mut cells = vec![
        Cell::new(Span::styled(word, style)),
        Cell::new(status.service.clone()),
        Cell::new(Line::from(Span::styled(score(service.score()), score_style)).right_aligned()),
        Cell::new(Line::from(threshold(status.gamma)).right_aligned()),
        Cell::new(sparkline(service, usize::from(widths.scores), palette)),
    ];
    if widths.wide {
        cells.push(Cell::new(Line::from(status.alarms.to_string()).right_aligned()));
    }
    cells.push(Cell::new(format!("{notes}{}", top.unwrap_or_default())));
    Row::new(cells)
}

/// The newest scores. A bar is the largest of eight scores, half a second at 16 scores a second.
fn sparkline<'a>(service: &Service, bars: usize, palette: &Palette) -> Line<'a> {
    let scores: Vec<f64> = service.scores.iter().copied().collect();
    let newest = &scores[scores.len().saturating_sub(bars * 8)..];
    let spans = largest_of_parts(newest, bars).into_iter().map(|largest| {
        let height = height(largest, service.status.gamma);
        Span::styled(bar(height).to_string(), if height >= 4 { palette.urgent } else { palette.good })
    });
    spans.collect()
}

fn keys<'a>(model: &Model, palette: &Palette) -> Paragraph<'a> {
    let view = &model.view;
    let mut spans = Vec::new();
    if view.typing {
        spans.push(Span::styled(format!("filter: {}▏", view.filter), palette.strong));
        spans.push(Span::styled("  Enter keeps it, Esc clears it", palette.quiet));
        return Paragraph::new(Line::from(spans));
    }
    let order = if view.reverse { " reversed" } else { "" };
    let keys = match model.opened() {
        Some(_) => "Esc all services   ↑↓ other service   q quit".to_owned(),
        None => format!("↑↓ Enter open   s sort ({}{order})   r reverse   / filter   q quit", view.sort.name()),
    };
    spans.push(Span::styled(keys, palette.quiet));
    if !view.filter.is_empty() {
        spans.push(Span::styled(format!("   filter: {}", view.filter), palette.strong));
    }
    if let Some(problem) = model.problems.last() {
        spans.push(Span::styled(format!("   ! {problem}"), palette.urgent));
    }
    Paragraph::new(Line::from(spans))
}

#[cfg(test)]
#[path = "render_tests.rs"]
mod tests;
