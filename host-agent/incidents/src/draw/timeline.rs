//! The time line: a strip for each service, the score as a multiple of γ on a logarithmic scale, alarms shaded, changes
//! as numbered marks across all strips.

use core::fmt::Write as _;

use wire::printable::markup;
use wire::proto::operators::{Incident, IncidentService};
use wire::time::UnixNanos;

use super::extent::last;
use crate::words;

const WIDTH: f64 = 1_100.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 12.0;
const STRIP: f64 = 84.0;
/// Room above the strips, for the numbers of marks.
const TOP: f64 = 26.0;
const AXIS: f64 = 26.0;
/// Lower end of the scale: smaller multiples of γ are drawn here.
const LOW: f64 = 0.1;
/// Radius of the number of a mark.
const RADIUS: f64 = 10.0;
/// Strips that are drawn: those that are suspected most.
const STRIPS: usize = 10;
/// Characters of a name beside its strip.
const NAME: usize = 24;
/// Seconds between two times below the strips.
const STEPS: [u64; 9] = [10, 30, 60, 120, 300, 600, 1_800, 3_600, 10_800];

/// Where a moment and a score are drawn.
struct Scale {
    from: f64,
    span: f64,
    high: f64,
}

impl Scale {
    /// In seconds since 1970.
    fn x(&self, second: f64) -> f64 {
        let share = ((second - self.from) / self.span).clamp(0.0, 1.0);
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }

    /// Below the top of its strip.
    fn y(&self, ratio: f64) -> f64 {
        let level = (ratio.max(LOW) / LOW).ln() / (self.high / LOW).ln();
        6.0 + (1.0 - level.clamp(0.0, 1.0)) * (STRIP - 14.0)
    }
}

fn seconds(unix_ns: u64) -> f64 {
    unix_ns as f64 / 1e9
}

/// The drawing, as SVG.
pub(super) fn draw(incident: &Incident) -> String {
    let services = &incident.services[..incident.services.len().min(STRIPS)];
    let Some(first) = services.iter().map(first_score).min() else { return String::new() };
    let until = seconds(last(incident).0);
    let began = seconds(incident.began_unix_ns);
    let from = (first as f64).max(began - 3_600.0).min(began);
    let ratios = services.iter().flat_map(|service| &service.ratios).copied().filter(|ratio| ratio.is_finite());
    let highest = ratios.map(f64::from).chain(services.iter().map(|service| service.peak)).fold(10.0, f64::max);
    let high = if highest.is_finite() { highest * 1.3 } else { 1e6 };
    let scale = Scale { from, span: (until - from).max(1.0), high };
    let height = TOP + STRIP * services.len() as f64 + AXIS;
    let mut svg = format!(
        "<figure class=\"chart\"><svg class=\"timeline\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"scores of each service over time\">\n"
    );
    for (place, service) in services.iter().enumerate() {
        strip(&mut svg, service, place, &scale, until);
    }
    marks(&mut svg, incident, &scale, height);
    axis(&mut svg, &scale, height);
    let more = incident.services.len() - services.len();
    let more = if more > 0 { format!(" {more} further services are not drawn.") } else { String::new() };
    svg + "</svg>\n<figcaption class=\"readout\">Highest score of each moment, as a multiple of its threshold γ, on a logarithmic \
           scale. Alarms are shaded; numbers are what was changed."
        + &more
        + "</figcaption></figure>\n"
}

/// The second of a service's first score; of one without, that of its alarm.
fn first_score(service: &IncidentService) -> u64 {
    let known = service.ratios.iter().position(|ratio| ratio.is_finite());
    let after = known.map(|step| step as u64 * u64::from(service.ratio_step_s.max(1)));
    after.map_or(service.began_unix_ns / 1_000_000_000, |after| service.ratios_from_s.saturating_add(after))
}

/// One service: its alarm, γ and the score, red where it is above γ.
fn strip(svg: &mut String, service: &IncidentService, place: usize, scale: &Scale, until: f64) {
    let top = TOP + STRIP * place as f64;
    let (begin, end) = (seconds(service.began_unix_ns), seconds(service.ended_unix_ns));
    let end = if service.ended_unix_ns == 0 { until } else { end };
    let (left, width) = (scale.x(begin), (scale.x(end) - scale.x(begin)).max(2.0));
    let gamma = scale.y(1.0);
    let name: String = service.service.chars().take(NAME).collect();
    let dots = if service.service.chars().count() > NAME { "…" } else { "" };
    let rank = if service.rank == 1 { "suspected cause".to_owned() } else { format!("rank {}", service.rank) };
    let (high, low) = (scale.y(scale.high), scale.y(LOW));
    let path = path(service, scale);
    // Writing into a string cannot fail.
    _ = writeln!(
        svg,
        "<g transform=\"translate(0 {top:.0})\">\
         <line class=\"grid\" x1=\"0\" x2=\"{WIDTH}\" y1=\"0\" y2=\"0\"/>\
         <text class=\"strip-name\" x=\"0\" y=\"26\"><title>{}</title>{}{dots}</text>\
         <text class=\"axis\" x=\"0\" y=\"44\">{rank}, {:.1} γ</text>\
         <rect class=\"episode\" x=\"{left:.1}\" y=\"{high:.1}\" width=\"{width:.1}\" height=\"{:.1}\"/>\
         <clipPath id=\"above-{place}\"><rect x=\"0\" y=\"0\" width=\"{WIDTH}\" height=\"{gamma:.1}\"/></clipPath>\
         <line class=\"gamma\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{gamma:.1}\" y2=\"{gamma:.1}\"/>\
         <text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">γ</text>\
         <path class=\"line\" d=\"{path}\"/><path class=\"over\" clip-path=\"url(#above-{place})\" d=\"{path}\"/></g>",
        markup(&service.service),
        markup(&name),
        service.peak,
        low - high,
        WIDTH - RIGHT,
        LEFT - 8.0,
        gamma + 4.0,
    );
}

/// The line of the scores. A gap in time is a gap in the line.
fn path(service: &IncidentService, scale: &Scale) -> String {
    let (mut path, mut pen) = (String::new(), 'M');
    for (step, ratio) in service.ratios.iter().enumerate() {
        let second = service.ratios_from_s as f64 + (step as f64 + 0.5) * f64::from(service.ratio_step_s.max(1));
        if !ratio.is_finite() || second < scale.from {
            // Of a service with slow rows not every second has a score.
            let next = service.ratios.iter().skip(step).take(3).any(|ratio| ratio.is_finite());
            pen = if next && second >= scale.from && !path.is_empty() { pen } else { 'M' };
            continue;
        }
        _ = write!(path, "{pen}{:.1} {:.1}", scale.x(second), scale.y(f64::from(*ratio)));
        pen = 'L';
    }
    path
}

/// What was changed, across all strips. Numbers of marks that are close stand side by side.
fn marks(svg: &mut String, incident: &Incident, scale: &Scale, height: f64) {
    let mut free = 0.0_f64;
    for (number, change) in incident.changes.iter().enumerate() {
        let second = seconds(change.at_unix_ns);
        if second < scale.from {
            continue;
        }
        let x = scale.x(second);
        let number_x = x.max(free).min(WIDTH - RIGHT);
        free = number_x + 2.0 * RADIUS + 2.0;
        let class = if change.precedes_alarm { "change first" } else { "change" };
        _ = writeln!(
            svg,
            "<g class=\"{class}\"><title>{}</title><line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{:.0}\"/>\
             <circle cx=\"{number_x:.1}\" cy=\"12\" r=\"{RADIUS}\"/><text x=\"{number_x:.1}\" y=\"16\" text-anchor=\"middle\">{}</text></g>",
            markup(&words::change(change, incident)),
            height - AXIS,
            number + 1,
        );
    }
}

/// Times below the strips.
fn axis(svg: &mut String, scale: &Scale, height: f64) {
    let step = STEPS.into_iter().find(|step| scale.span / (*step as f64) <= 10.0).unwrap_or(86_400);
    let mut at = (scale.from as u64).div_ceil(step) * step;
    while (at as f64) <= scale.from + scale.span {
        _ = writeln!(
            svg,
            "<text class=\"axis\" x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
            scale.x(at as f64).clamp(LEFT + 20.0, WIDTH - 30.0),
            height - 8.0,
            words::clock(UnixNanos::from_secs(at)),
        );
        at += step;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::incident;
    use super::*;

    #[test]
    fn each_service_has_a_strip_each_change_a_mark_and_an_alarm_is_shaded() {
        let drawn = draw(&incident("payment"));

        assert_eq!((drawn.matches("class=\"line\"").count(), drawn.matches("class=\"episode\"").count()), (2, 2));
        assert!(drawn.contains("<g class=\"change first\">") && drawn.contains("class=\"over\""));
        assert!(drawn.contains(">00:16:00</text>") && !drawn.contains("NaN"), "{drawn}");
    }

    #[test]
    fn scores_without_sense_are_drawn_within_the_frame() {
        let mut odd = incident("payment");
        odd.services[0].ratios = vec![f32::INFINITY, f32::NAN, -3.0, 1e30];
        odd.services[0].peak = f64::INFINITY;
        odd.services[1].ratio_step_s = 0;
        odd.services[1].ratios_from_s = u64::MAX;
        odd.began_unix_ns = u64::MAX;
        odd.changes[0].at_unix_ns = u64::MAX;

        let drawn = draw(&odd);

        assert!(!drawn.contains("NaN"), "{drawn}");
        assert!(drawn.len() < 100_000, "{}", drawn.len());
    }
}
