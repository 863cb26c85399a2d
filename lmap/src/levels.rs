//! Detects levels in training: gauges that drift or latch, and are then judged by their increments.

use crate::settings::LevelRule;
use crate::standard::moments;

/// Whether the column with these `values` in training, and these `moves` from one row to the next, is a level.
pub(crate) fn is_level(values: &[f64], moves: &[f64], rule: LevelRule) -> bool {
    if values.len() < rule.rows.max(2) || moves.is_empty() {
        return false;
    }
    let count = moves.len() as f64;
    let (_, deviation) = moments(values.iter().copied());
    let smooth = moves.iter().map(|d| d * d).sum::<f64>() / count < rule.roughness * deviation * deviation;
    smooth && (one_way(moves, rule.one_way) || halves_differ(values) || at_rest(moves) / count > rule.latched)
}

/// Whether these moves are those of an accumulating value, not of a state: it moves at most rows, and mostly in one
/// direction. The size of such a column depends on its age.
pub(crate) fn adds_up(moves: &[f64]) -> bool {
    one_way(moves, 0.8) && at_rest(moves) < 0.5 * moves.len() as f64
}

fn at_rest(moves: &[f64]) -> f64 {
    moves.iter().filter(|&&d| d == 0.0).count() as f64
}

fn one_way(moves: &[f64], share: f64) -> bool {
    let up = moves.iter().filter(|&&d| d > 0.0).count() as f64;
    let down = moves.iter().filter(|&&d| d < 0.0).count() as f64;
    up + down > 0.0 && up.max(down) / (up + down) > share
}

fn halves_differ(values: &[f64]) -> bool {
    let (first, second) = values.split_at(values.len() / 2);
    let ((mean, deviation), (later_mean, later)) = (moments(first.iter().copied()), moments(second.iter().copied()));
    (mean - later_mean).abs() > f64::midpoint(deviation * deviation, later * later).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn judge(values: &[f64]) -> bool {
        let moves: Vec<f64> = values.windows(2).map(|pair| pair[1] - pair[0]).collect();
        is_level(values, &moves, LevelRule::default())
    }

    #[test]
    fn what_only_grows_is_a_level() {
        let mut random = Random::new(1);
        let mut value = 0.0;
        let values: Vec<f64> = (0..200)
            .map(|_| {
                value += random.unit();
                value
            })
            .collect();

        assert!(judge(&values));
        assert!(!judge(&values[..119])); // too few rows to say
    }

    #[test]
    fn what_grows_with_every_row_adds_up_and_what_grows_now_and_then_does_not() {
        let moves = |row: fn(i32) -> i32| -> Vec<f64> { (0..100).map(|t| f64::from(row(t + 1) - row(t))).collect() };

        assert!(adds_up(&moves(|row| 3 * row)));
        assert!(!adds_up(&moves(|row| row / 10)));
        assert!(!adds_up(&moves(|row| row % 3)));
    }

    #[test]
    fn what_latches_is_a_level() {
        let values: Vec<f64> = (0..200).map(|t| f64::from((t / 50) % 2)).collect();

        assert!(judge(&values));
    }

    #[test]
    fn noise_and_a_wave_are_not() {
        let mut random = Random::new(2);
        let noise: Vec<f64> = (0..200).map(|_| random.unit()).collect();
        let wave: Vec<f64> = (0..200).map(|t| (f64::from(t) * 0.3).sin()).collect();

        assert!(!judge(&noise));
        assert!(!judge(&wave));
    }
}
