//! The largest eigenvalues of a tridiagonal matrix, one per lane.
#![expect(clippy::needless_range_loop, reason = "several arrays of registers in step, by one index")]
#![expect(
    clippy::inline_always,
    reason = "inlined into the function that has the machine's features, or a call per vector"
)]

use super::vectors_mut;
use pulp::{Simd, WithSimd};

/// An eigenvalue is known to this share of the bound on all of them.
const TOLERANCE: f64 = 4.0 * f64::EPSILON;
/// Passes before giving up; thirty are usual, sixty would halve the bound down to its last digit.
const MAX_PASSES: usize = 200;
/// Vectors of lanes that are searched at the same time, so that the chain of one hides behind the others.
const GROUP: usize = 4;
/// Steps between two corrections of the exponent: eight factors of 1e-36 each are still in range.
const STEPS: usize = 8;

const EXPONENT: u64 = 0x7ff << 52;
const ONE_EXPONENT: u64 = 1 << 52;
/// The exponent field of 2^1023, from which a field is taken to get the inverse power of two.
const INVERSE_OF: u64 = 0x7fe << 52;

/// Eigenvalues in descending order, one per value of `out`; 0 for those below `floor`.
///
/// The number of eigenvalues below x is the number of sign changes in the sequence of the leading minors of T − x,
/// which needs no division (Givens); it brackets each eigenvalue, and the last minor, a polynomial with a root there,
/// is interpolated (the Illinois form of false position) unless that is slower than halving.
pub(crate) struct Eigenvalues<'a> {
    /// n values of size up to about 1.
    pub(crate) diagonal: &'a [f64],
    /// The squares of what stands beside the diagonal, at least 1e-36; value i stands between i − 1 and i, the first is
    /// 0.
    pub(crate) squares: &'a [f64],
    /// An upper bound of all eigenvalues.
    pub(crate) bound: f64,
    /// Eigenvalues below this are reported as 0; above 0.
    pub(crate) floor: f64,
    /// Whole groups of eight.
    pub(crate) out: &'a mut [f64],
    /// Four times the length of `out`.
    pub(crate) scratch: &'a mut [f64],
}

impl WithSimd for Eigenvalues<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { diagonal, squares, bound, floor, out, scratch } = self;
        let minors = Minors { diagonal, squares };
        let grid = Grid::new(simd, &minors, bound, floor, scratch);
        let tolerance = TOLERANCE * bound;
        let count = out.len() / S::F64_LANES;
        let mut at = 0;
        while at < count {
            let first = at * S::F64_LANES;
            at += match count - at {
                1 => search::<S, 1>(simd, &minors, &grid, tolerance, first, out),
                2 => search::<S, 2>(simd, &minors, &grid, tolerance, first, out),
                3 => search::<S, 3>(simd, &minors, &grid, tolerance, first, out),
                _ => search::<S, GROUP>(simd, &minors, &grid, tolerance, first, out),
            };
        }
    }
}

/// The Sturm sequence at C vectors of places.
#[derive(Clone, Copy)]
struct SturmCounts<S: Simd, const C: usize> {
    /// Number of eigenvalues below the place.
    below: [S::f64s; C],
    /// The last minor, between 1 and 2 in size, and its exponent up to a constant.
    minor: [S::f64s; C],
    exponent: [S::u64s; C],
}

struct Minors<'a> {
    diagonal: &'a [f64],
    squares: &'a [f64],
}

impl Minors<'_> {
    /// The sequence of leading minors p of T − x: pⱼ = (dⱼ − x) pⱼ₋₁ − eⱼ² pⱼ₋₂. O(n).
    #[inline(always)]
    fn at<S: Simd, const C: usize>(&self, simd: S, x: &[S::f64s; C]) -> SturmCounts<S, C> {
        let (zero, one) = (simd.splat_f64s(0.0), simd.splat_f64s(1.0));
        let (mut last, mut before) = ([one; C], [zero; C]);
        let mut found = SturmCounts { below: [zero; C], minor: [one; C], exponent: [simd.splat_u64s(0); C] };
        for (diagonal, squares) in self.diagonal.chunks(STEPS).zip(self.squares.chunks(STEPS)) {
            for (d, e) in diagonal.iter().zip(squares) {
                let (d, minus_e) = (simd.splat_f64s(*d), simd.splat_f64s(-e));
                for c in 0..C {
                    let next = simd.mul_add_e_f64s(simd.sub_f64s(d, x[c]), last[c], simd.mul_f64s(minus_e, before[c]));
                    let more = simd.add_f64s(found.below[c], one);
                    found.below[c] = simd.select_f64s(signs_differ(simd, next, last[c]), more, found.below[c]);
                    (before[c], last[c]) = (last[c], next);
                }
            }
            for c in 0..C {
                let size = simd.max_f64s(simd.abs_f64s(last[c]), simd.abs_f64s(before[c]));
                let (scale, exponent) = inverse_power(simd, size);
                last[c] = simd.mul_f64s(last[c], scale);
                before[c] = simd.mul_f64s(before[c], scale);
                found.exponent[c] = simd.add_u64s(found.exponent[c], exponent);
            }
        }
        for c in 0..C {
            let (scale, exponent) = inverse_power(simd, simd.abs_f64s(last[c]));
            found.minor[c] = simd.mul_f64s(last[c], scale);
            found.exponent[c] = simd.add_u64s(found.exponent[c], exponent);
        }
        found
    }
}

/// 2⁻ᵉ for a size of 2ᵉ to 2ᵉ⁺¹, and e in the place of a number's exponent, up to a constant.
#[inline(always)]
fn inverse_power<S: Simd>(simd: S, size: S::f64s) -> (S::f64s, S::u64s) {
    let exponent = simd.and_u64s(simd.transmute_u64s_f64s(size), simd.splat_u64s(EXPONENT));
    (simd.transmute_f64s_u64s(simd.sub_u64s(simd.splat_u64s(INVERSE_OF), exponent)), exponent)
}

#[inline(always)]
fn signs_differ<S: Simd>(simd: S, a: S::f64s, b: S::f64s) -> S::m64s {
    let signs = simd.xor_u64s(simd.transmute_u64s_f64s(a), simd.transmute_u64s_f64s(b));
    simd.less_than_i64s(simd.transmute_i64s_u64s(signs), simd.splat_i64s(0))
}

/// Sturm counts at places in equal ratios from the bound down to the floor.
struct Grid<'a> {
    bound: f64,
    place: &'a [f64],
    below: &'a [f64],
    minor: &'a [f64],
    /// Bits of an integer, only ever copied.
    exponent: &'a [f64],
}

impl<'a> Grid<'a> {
    #[inline(always)]
    fn new<S: Simd>(simd: S, minors: &Minors<'_>, bound: f64, floor: f64, scratch: &'a mut [f64]) -> Self {
        let count = scratch.len() / 4;
        let (place, scratch) = scratch.split_at_mut(count);
        let (below, scratch) = scratch.split_at_mut(count);
        let (minor, exponent) = scratch.split_at_mut(count);
        let ratio = (floor / bound).powf(1.0 / count as f64);
        let mut x = bound;
        for place in place.iter_mut() {
            x *= ratio;
            *place = x;
        }
        let places = vectors_mut::<S>(place);
        let mut at = 0;
        while at < places.len() {
            let size = (places.len() - at).min(GROUP);
            let mut x = [places[at]; GROUP];
            x[..size].copy_from_slice(&places[at..at + size]);
            let found = minors.at::<S, GROUP>(simd, &x);
            vectors_mut::<S>(below)[at..at + size].copy_from_slice(&found.below[..size]);
            vectors_mut::<S>(minor)[at..at + size].copy_from_slice(&found.minor[..size]);
            for (out, exponent) in vectors_mut::<S>(exponent)[at..at + size].iter_mut().zip(found.exponent) {
                *out = simd.transmute_f64s_u64s(exponent);
            }
            at += size;
        }
        Self { bound, place, below, minor, exponent }
    }

    /// Writes the bracket of the eigenvalue with so many below it into one lane. Below the grid it is 0.
    #[inline(always)]
    fn bracket(&self, below: f64, lane: &mut [&mut [f64]; 6], at: usize) {
        let [low, high, minor_low, minor_high, exponent_low, exponent_high] = lane;
        let place = self.below.iter().position(|found| *found <= below);
        let Some(place) = place else {
            (low[at], high[at]) = (0.0, 0.0);
            return;
        };
        (low[at], minor_low[at], exponent_low[at]) = (self.place[place], self.minor[place], self.exponent[place]);
        high[at] = self.bound;
        minor_high[at] = self.minor[place]; // at the bound nothing is known: signs do not differ, so it is halved
        exponent_high[at] = self.exponent[place];
        if let Some(above) = place.checked_sub(1) {
            (high[at], minor_high[at], exponent_high[at]) =
                (self.place[above], self.minor[above], self.exponent[above]);
        }
    }
}

/// The state of C vectors of searches.
struct Search<S: Simd, const C: usize> {
    low: [S::f64s; C],
    high: [S::f64s; C],
    minor_low: [S::f64s; C],
    minor_high: [S::f64s; C],
    exponent_low: [S::u64s; C],
    exponent_high: [S::u64s; C],
    /// The width of the bracket one and two passes ago.
    width: [S::f64s; C],
    older_width: [S::f64s; C],
    /// Below 0 where the low end moved last, above 0 where the high end did.
    moved: [S::f64s; C],
    /// Eigenvalues below the one that is looked for.
    target: [S::f64s; C],
}

/// Searches the eigenvalues from `first` on, and returns for how many vectors.
#[inline(always)]
fn search<S: Simd, const C: usize>(
    simd: S,
    minors: &Minors<'_>,
    grid: &Grid<'_>,
    tolerance: f64,
    first: usize,
    out: &mut [f64],
) -> usize {
    let mut state = Search::<S, C>::new(simd, minors, grid, first);
    for _ in 0..MAX_PASSES {
        let x = state.choose(simd, tolerance);
        let found = minors.at::<S, C>(simd, &x);
        if state.narrow(simd, tolerance, &x, &found) {
            break;
        }
    }
    let half = simd.splat_f64s(0.5);
    for (c, out) in vectors_mut::<S>(out)[first / S::F64_LANES..].iter_mut().enumerate().take(C) {
        *out = simd.mul_f64s(half, simd.add_f64s(state.low[c], state.high[c]));
    }
    C
}

/// Lanes of the widest group: four vectors of eight.
const WIDEST: usize = 8 * GROUP;

impl<S: Simd, const C: usize> Search<S, C> {
    #[inline(always)]
    fn new(simd: S, minors: &Minors<'_>, grid: &Grid<'_>, first: usize) -> Self {
        let (zero, one, nothing) = (simd.splat_f64s(0.0), simd.splat_f64s(1.0), simd.splat_u64s(0));
        let mut ends = [[0.0; WIDEST]; 6];
        let mut target = [0.0; WIDEST];
        let lanes = C * S::F64_LANES;
        {
            let [a, b, c, d, e, f] = &mut ends;
            let mut lane: [&mut [f64]; 6] = [a, b, c, d, e, f];
            for (at, target) in target[..lanes].iter_mut().enumerate() {
                *target = minors.diagonal.len() as f64 - 1.0 - (first + at) as f64;
                grid.bracket(*target, &mut lane, at);
            }
        }
        let far = simd.splat_f64s(f64::MAX);
        let mut state = Self {
            low: [zero; C],
            high: [zero; C],
            minor_low: [one; C],
            minor_high: [one; C],
            exponent_low: [nothing; C],
            exponent_high: [nothing; C],
            width: [far; C],
            older_width: [far; C],
            moved: [zero; C],
            target: [zero; C],
        };
        for c in 0..C {
            let lanes = c * S::F64_LANES..(c + 1) * S::F64_LANES;
            state.low[c] = simd.partial_load_f64s(&ends[0][lanes.clone()]);
            state.high[c] = simd.partial_load_f64s(&ends[1][lanes.clone()]);
            state.minor_low[c] = simd.partial_load_f64s(&ends[2][lanes.clone()]);
            state.minor_high[c] = simd.partial_load_f64s(&ends[3][lanes.clone()]);
            state.exponent_low[c] = simd.transmute_u64s_f64s(simd.partial_load_f64s(&ends[4][lanes.clone()]));
            state.exponent_high[c] = simd.transmute_u64s_f64s(simd.partial_load_f64s(&ends[5][lanes.clone()]));
            state.target[c] = simd.partial_load_f64s(&target[lanes]);
        }
        state
    }

    /// Where to look next: interpolated, or halfway where that has been slower than halving, and never so near an end
    /// that the bracket could not close.
    #[inline(always)]
    fn choose(&mut self, simd: S, tolerance: f64) -> [S::f64s; C] {
        let (half, margin) = (simd.splat_f64s(0.5), simd.splat_f64s(0.5 * tolerance));
        let most = simd.splat_i64s(600 << 52);
        let least = simd.splat_i64s(-(600 << 52));
        let mut x = self.low;
        for c in 0..C {
            let width = simd.sub_f64s(self.high[c], self.low[c]);
            let difference = simd.transmute_i64s_u64s(simd.sub_u64s(self.exponent_high[c], self.exponent_low[c]));
            let difference = simd.transmute_u64s_i64s(simd.max_i64s(least, simd.min_i64s(most, difference)));
            let at_low = simd.abs_f64s(self.minor_low[c]);
            let at_high = simd.transmute_u64s_f64s(simd.abs_f64s(self.minor_high[c]));
            let at_high = simd.transmute_f64s_u64s(simd.add_u64s(at_high, difference));
            let share = simd.div_f64s(at_low, simd.add_f64s(at_low, at_high));
            let opposite = signs_differ(simd, self.minor_low[c], self.minor_high[c]);
            let quick = simd.less_than_or_equal_f64s(width, simd.mul_f64s(half, self.older_width[c]));
            let share = simd.select_f64s(simd.and_m64s(opposite, quick), share, half);
            let place = simd.mul_add_e_f64s(width, share, self.low[c]);
            let place = simd.min_f64s(place, simd.sub_f64s(self.high[c], margin));
            x[c] = simd.max_f64s(place, simd.add_f64s(self.low[c], margin));
            (self.older_width[c], self.width[c]) = (self.width[c], width);
        }
        x
    }

    /// Takes in what was found at x; whether all brackets have closed.
    #[inline(always)]
    fn narrow(&mut self, simd: S, tolerance: f64, x: &[S::f64s; C], found: &SturmCounts<S, C>) -> bool {
        let (one, zero) = (simd.splat_f64s(1.0), simd.splat_f64s(0.0));
        let (half_exponent, nothing) = (simd.splat_u64s(ONE_EXPONENT), simd.splat_u64s(0));
        let mut open = simd.splat_f64s(0.0);
        for c in 0..C {
            let below_it = simd.less_than_or_equal_f64s(found.below[c], self.target[c]);
            self.low[c] = simd.select_f64s(below_it, x[c], self.low[c]);
            self.high[c] = simd.select_f64s(below_it, self.high[c], x[c]);
            // An end that stays twice counts for half, or false position creeps up from one side.
            let low_again = simd.and_m64s(below_it, simd.less_than_f64s(self.moved[c], zero));
            let high_again = simd.and_m64s(simd.not_m64s(below_it), simd.greater_than_f64s(self.moved[c], zero));
            let less_high = simd.select_u64s(low_again, half_exponent, nothing);
            let less_low = simd.select_u64s(high_again, half_exponent, nothing);
            let (low, high) = (self.exponent_low[c], self.exponent_high[c]);
            self.exponent_low[c] = simd.select_u64s(below_it, found.exponent[c], simd.sub_u64s(low, less_low));
            self.exponent_high[c] = simd.select_u64s(below_it, simd.sub_u64s(high, less_high), found.exponent[c]);
            self.minor_low[c] = simd.select_f64s(below_it, found.minor[c], self.minor_low[c]);
            self.minor_high[c] = simd.select_f64s(below_it, self.minor_high[c], found.minor[c]);
            self.moved[c] = simd.select_f64s(below_it, simd.neg_f64s(one), one);
            open = simd.max_f64s(open, simd.sub_f64s(self.high[c], self.low[c]));
        }
        simd.reduce_max_f64s(open) <= tolerance
    }
}
