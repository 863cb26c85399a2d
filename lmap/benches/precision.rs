//! Would `f32` be faster? The arithmetic of a score in both, of one LMAP that is hot and of a node's that share the
//! caches. `cargo bench -p lmap --bench precision`. What it does to scores:
//! `cargo run --release -p evaluation --example precision DATA`.
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use pulp::{Arch, Simd, WithSimd};

fn main() {
    divan::main();
}

/// LMAPs, columns (whole vectors of sixteen), directions.
const NODES: [(usize, usize, usize); 4] = [(1, 144, 12), (256, 64, 12), (256, 144, 12), (100, 1_008, 10)];

/// The same arithmetic for one type of numbers: p = U z, r = z − Uᵀp, Σ r² w.
macro_rules! score {
    ($name:ident, $number:ty, $vectors:ident, $splat:ident, $multiply_add:ident, $multiply:ident, $sum:ident) => {
        struct $name {
            directions: Vec<$number>,
            z: Vec<$number>,
            weight: Vec<$number>,
        }

        impl $name {
            fn new((_, columns, rank): (usize, usize, usize)) -> Self {
                let values = |count: usize| (0..count).map(|at| (at % 7) as $number / 16.0).collect();
                Self { directions: values(rank * columns), z: values(columns), weight: values(columns) }
            }
        }

        impl WithSimd for &$name {
            type Output = $number;

            #[inline(always)]
            fn with_simd<S: Simd>(self, simd: S) -> $number {
                let z = S::$vectors(&self.z).0;
                let (pairs, rest) = z.as_chunks::<2>();
                let rows = || S::$vectors(&self.directions).0.chunks_exact(z.len());
                let mut inside = [simd.$splat(0.0); 16];
                for (inside, row) in inside.iter_mut().zip(rows()) {
                    let mut sums = [simd.$splat(0.0); 2];
                    let (row, row_rest) = row.as_chunks::<2>();
                    for ([even, odd], [z_even, z_odd]) in row.iter().zip(pairs) {
                        sums[0] = simd.$multiply_add(*even, *z_even, sums[0]);
                        sums[1] = simd.$multiply_add(*odd, *z_odd, sums[1]);
                    }
                    if let ([u], [z]) = (row_rest, rest) {
                        sums[0] = simd.$multiply_add(*u, *z, sums[0]);
                    }
                    *inside = simd.$splat(-(simd.$sum(sums[0]) + simd.$sum(sums[1])));
                }
                let mut sum = simd.$splat(0.0);
                for (at, (z, weight)) in z.iter().zip(S::$vectors(&self.weight).0).enumerate() {
                    let mut residual = *z;
                    for (row, inside) in rows().zip(&inside) {
                        residual = simd.$multiply_add(row[at], *inside, residual);
                    }
                    sum = simd.$multiply_add(simd.$multiply(residual, *weight), residual, sum);
                }
                simd.$sum(sum)
            }
        }
    };
}

score!(Double, f64, as_simd_f64s, splat_f64s, mul_add_e_f64s, mul_f64s, reduce_sum_f64s);
score!(Single, f32, as_simd_f32s, splat_f32s, mul_add_e_f32s, mul_f32s, reduce_sum_f32s);

#[divan::bench(args = NODES, sample_size = 100)]
fn double(bencher: Bencher<'_, '_>, node: (usize, usize, usize)) {
    let all: Vec<Double> = (0..node.0).map(|_| Double::new(node)).collect();
    let arch = Arch::new();
    let bencher = bencher.counter(ItemsCount::new(node.0));
    bencher.bench_local(|| all.iter().map(|one| arch.dispatch(black_box(one))).sum::<f64>());
}

#[divan::bench(args = NODES, sample_size = 100)]
fn single(bencher: Bencher<'_, '_>, node: (usize, usize, usize)) {
    let all: Vec<Single> = (0..node.0).map(|_| Single::new(node)).collect();
    let arch = Arch::new();
    let bencher = bencher.counter(ItemsCount::new(node.0));
    bencher.bench_local(|| all.iter().map(|one| arch.dispatch(black_box(one))).sum::<f32>());
}
