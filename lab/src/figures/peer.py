"""Frequent Directions and its score in numpy, for `cargo lab figures`: processes rows on request, by one of three methods.

usage: peer.py COLUMNS SKETCH_ROWS RANK, then lines of "METHOD ROWS" on standard input; prints a line after each.
"""
import sys

import numpy as np

M, L, K = (int(word) for word in sys.argv[1:])
rng = np.random.default_rng(1)
columns = np.arange(M)
causes = rng.random((1000, 3)) - 0.5
rows = causes[:, columns % 3] * (1 + columns % 7) + rng.random((1000, M)) - 0.5
weight = 1 / np.maximum(rows.var(axis=0), 1e-3)


def decompose(sketch):
    """The sketch reduced by the square of its l-th singular value, and its first directions."""
    _, values, directions = np.linalg.svd(sketch, full_matrices=False)
    kept = np.sqrt(np.maximum(values**2 - values[L - 1] ** 2, 0))[: L - 1]
    return kept[:, None] * directions[: L - 1], directions[:K]


def score(basis, row):
    inside = basis @ row
    residual = row - inside @ basis
    return np.sqrt((residual * residual) @ weight + inside @ inside)


class Learner:
    """Decomposes after every `capacity` rows."""

    def __init__(self, capacity):
        self.sketch = np.zeros((capacity, M))
        self.used = 0
        self.basis = np.zeros((K, M))

    def take(self, row):
        result = score(self.basis, row)
        self.sketch[self.used] = row
        self.used += 1
        if self.used == len(self.sketch):
            self.sketch[: L - 1], self.basis = decompose(self.sketch)
            self.used = L - 1
        return result


row_wise, buffered = Learner(L), Learner(2 * L)
for row in rows[: 2 * L]:
    row_wise.take(row)
    buffered.take(row)
basis = row_wise.basis
methods = {"score": lambda row: score(basis, row), "row-wise": row_wise.take, "buffered": buffered.take}
print("ready", flush=True)
for line in sys.stdin:
    method, count = line.split()
    take = methods[method]
    for at in range(int(count)):
        take(rows[at % 1000])
    print("done", flush=True)
