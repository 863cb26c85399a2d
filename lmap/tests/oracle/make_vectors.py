"""Makes tests/data/: rows of a synthetic service, and what a reference in numpy says about them.

usage: make_vectors.py REFERENCE.py OUTPUT_DIR

REFERENCE.py is a module with the classes Default, Lmap, Standard and the functions levels, steps, constants, rank_for,
episodes: the numpy study that the default pipeline was chosen with. The rows come from a fixed seed, and are rounded to
six digits before anything is computed, so that the files hold them exactly. Nothing here is tuned to the Rust code.

Row by row. The reference handles up to 60 rows at once: means, variances and basis change only between blocks. `Rows` is
its run() with the block length as a parameter. It is checked against the original at 60, bit by bit, and the vectors are
taken at 1. The original's scores are stored too (`blocks.csv`), so that the difference is bounded by a test.
Random learning above gamma cannot be replayed in another language, hence eta is 0, or 1 in the case `everything`.
Smoothing is s̄ₜ = (sₜ + s̄ₜ₋₁) / 2 from the first row on; the reference corrects the weight of the first rows.
"""
import importlib.util, os, sys
import numpy as np, pandas as pd

TRAIN, TEST = 300, 400
KINDS = ['increment'] * 3 + ['gauge'] * 9


def rows(rng):
    """Three increments, four gauges of the load, a drifting and a latching level, two constants, one gauge with gaps."""
    n = TRAIN + TEST
    t = np.arange(n)
    load = 50 + 15 * np.sin(t / 17) + rng.normal(0, 3, n)
    x = np.empty((n, 12))
    x[:, 0] = rng.poisson(np.maximum(load, 1) * 4)
    x[:, 1] = x[:, 0] * 812 + rng.normal(0, 900, n)
    x[:, 2] = rng.poisson(0.3, n)
    x[:, 3] = load * 0.8 + rng.normal(0, 2, n)
    x[:, 4] = 30 + 0.2 * load + rng.normal(0, 1, n)
    x[:, 5] = rng.lognormal(0, 0.4, n) * (1 + load / 80)
    x[:, 6] = rng.normal(7, 0.5, n)
    x[:, 7] = 1e8 + np.cumsum(rng.exponential(4000, n))
    x[:, 8] = 512 * (1 + (t // 90))
    x[:, 9] = 4096
    x[:, 10] = 0
    x[:, 11] = np.cos(t / 5) * 3 + rng.normal(0, 1, n)
    f = TRAIN
    x[f + 60:f + 80, 3] += 60                      # a gauge far off
    x[f + 130:f + 140, [0, 1]] *= 0.05             # the load is gone
    x[f + 190:f + 193, 5] += 25                    # short
    x[f + 230, 9] = 8192; x[f + 231:, 9] = 8192    # a constant moves once
    x[f + 260:f + 262, 10] = [1, 3]                # another moves, and back
    x[f + 300:, 7] += 5e7                          # a level jumps
    x[f + 340:, 6] += 4                            # a gauge stays elsewhere
    x = np.array([[float('%.6g' % v) for v in row] for row in x])
    missing = rng.random((2, n)) < 0.04
    missing[:, TRAIN] = False                      # the test begins with none, the training with one
    missing[0, 0] = True
    x[missing[0], 11] = np.nan
    x[missing[1], 7] = np.nan
    return x


def load_reference(path):
    spec = importlib.util.spec_from_file_location('reference', path)
    module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)
    return module


def row_by_row(reference):
    class Rows(reference.Default):
        """run() of the reference with its block length as a parameter."""
        def run(self, b, block=1):
            raw, out, i = self.rows(b), np.empty(len(b)), 0
            moved = (np.abs(np.diff(np.r_[b[:1], b], axis=0)[:, self.constant]) > 1e-9).sum(1)
            while i < len(b):
                n = min(block, self.stride * (len(self.sketch.s) - self.sketch.used))
                z = self.soft(raw[i:i + n] - self.mean); p, r = self.split(z); s = self.score(p, r)
                out[i:i + n] = np.sqrt(s ** 2 + 25 * np.minimum(moved[i:i + n], 3))
                learn = (np.arange(i, i + len(z)) % self.stride == 0) & ((s < self.gamma) | (self.rng.random(len(z)) < self.ETA))
                c = learn.sum()
                if c and self.n < self.GROW:
                    f = c / (self.n + c); self.n += c
                    self.mean = self.mean + f * z[learn].mean(0)
                    self.vr = (1 - f) * self.vr + f * (r[learn] ** 2).mean(0)
                    self.vp = (1 - f) * self.vp + f * (p[learn] ** 2).mean(0)
                if any([self.sketch.append(row) for row in z[learn]]):
                    self.u = self.sketch.basis(self.k)
                i += n
            return out
    return Rows


def smooth(s, span):
    return pd.Series(s).ewm(span=span, adjust=False).mean().to_numpy() if span > 1 else s


def store(path, reference, raw, gamma, k, train, levels, span):
    s = smooth(raw, span)
    with open(path, 'w') as f:
        f.write(f'rank,{k}\ngamma,{gamma!r}\nmedian,{np.percentile(train, 50)!r}\n99th,{np.percentile(train, 99)!r}\n')
        f.write('levels' + ''.join(f',{j}' for j in levels) + '\n')
        f.write('episodes' + ''.join(f',{a},{b}' for a, b in reference.episodes(s, gamma)) + '\n')
        f.writelines(f'{float(a)!r},{float(b)!r}\n' for a, b in zip(raw, s))


def main(path, out):
    np.set_printoptions(legacy='1.25')
    reference = load_reference(path); os.makedirs(out, exist_ok=True)
    Rows = row_by_row(reference)
    x = rows(np.random.default_rng(20261121))
    with open(f'{out}/rows.csv', 'w') as f:
        f.write(f'{TRAIN}\n' + ','.join(KINDS) + '\n')
        f.writelines(','.join('' if np.isnan(v) else '%.6g' % v for v in row) + '\n' for row in x)
    a, b = (pd.DataFrame(p).ffill().bfill().to_numpy() for p in (x[:TRAIN], x[TRAIN:]))
    levels = reference.levels(a, np.array(KINDS) == 'gauge')
    fa, fb = reference.steps(a, levels), reference.steps(b, levels)

    for name, eta, grow, stride in (('default', 0, 2000, 5), ('still', 0, 0, 5), ('everything', 1, 2000, 1)):
        Rows.ETA = reference.Default.ETA = eta; Rows.GROW = reference.Default.GROW = grow
        model, again, original = Rows(stride).fit(fa), Rows(stride).fit(fa), reference.Default(stride).fit(fa)
        raw, blocks = model.run(fb), original.run(fb)
        assert np.array_equal(again.run(fb, 60), blocks), 'Rows.run is not the reference'
        store(f'{out}/{name}.csv', reference, raw, model.gamma, model.k, model.train, levels, 3)
        if name == 'default':
            with open(f'{out}/blocks.csv', 'w') as f:
                f.writelines(f'{float(v)!r}\n' for v in blocks)
        d = np.abs(raw - blocks) / blocks
        print(name, 'k', model.k, 'levels', levels, 'gamma', model.gamma, 'rows against blocks: median', np.median(d), 'max', d.max())

    standard = reference.Standard(a); za, zb = standard(a), standard(b)
    k = min(max(1, reference.rank_for(za)), za.shape[1] - 1); l = max(25, 2 * k)
    for name, relative, rowwise in (('absolute', False, False), ('relative', True, False), ('rowwise', False, True)):
        model = reference.Lmap(k, l, relative=relative, rowwise=rowwise).fit(za)
        train = model.score(za); model.gamma = np.percentile(train, 99)
        store(f'{out}/{name}.csv', reference, model.run(zb), model.gamma, k, train, [], 1)
        print(name, 'k', k, 'gamma', model.gamma)


if __name__ == '__main__':
    main(sys.argv[1], sys.argv[2])
