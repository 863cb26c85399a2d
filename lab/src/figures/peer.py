"""Frequent Directions and its score in numpy, for `cargo lab figures`: processes rows on request, by one of five methods.

usage: peer.py COLUMNS SKETCH_ROWS RANK, then lines of "METHOD ROWS" on standard input; prints what numpy this is, then,
after each line, the nanoseconds of processor time that it took.
"""
import ctypes
import os
import sys
import time

import numpy as np

M, L, K = (int(word) for word in sys.argv[1:])
rng = np.random.default_rng(1)
columns = np.arange(M)
causes = rng.random((1000, 3)) - 0.5
rows = causes[:, columns % 3] * (1 + columns % 7) + rng.random((1000, M)) - 0.5
weight = 1 / np.maximum(rows.var(axis=0), 1e-3)


def by_svd(sketch):
    """The sketch reduced by the square of its l-th singular value, and its first directions."""
    _, values, directions = np.linalg.svd(sketch, full_matrices=False)
    kept = np.sqrt(np.maximum(values**2 - values[L - 1] ** 2, 0))[: L - 1]
    return kept[:, None] * directions[: L - 1], directions[:K]


def by_gram(sketch):
    """The same by the eigenvectors of the smaller Gram matrix."""
    values, vectors = np.linalg.eigh(sketch @ sketch.T)
    values = np.maximum(values[::-1][:L], 1e-300)
    directions = (vectors[:, ::-1][:, : L - 1].T @ sketch) / np.sqrt(values[: L - 1])[:, None]
    kept = np.sqrt(np.maximum(values[: L - 1] - values[L - 1], 0))
    return kept[:, None] * directions, directions[:K]


def score(basis, row):
    inside = basis @ row
    residual = row - inside @ basis
    return np.sqrt((residual * residual) @ weight + inside @ inside)


class Learner:
    """Decomposes after every `capacity` rows."""

    def __init__(self, capacity, decompose):
        self.decompose = decompose
        self.sketch = np.zeros((capacity, M))
        self.used = 0
        self.basis = np.zeros((K, M))

    def take(self, row):
        result = score(self.basis, row)
        self.sketch[self.used] = row
        self.used += 1
        if self.used == len(self.sketch):
            self.sketch[: L - 1], self.basis = self.decompose(self.sketch)
            self.used = L - 1
        return result


def blas():
    """The BLAS that is loaded, in its own words if it is OpenBLAS."""
    with open("/proc/self/maps") as maps:
        files = sorted({line.split()[-1] for line in maps if "blas" in line and ".so" in line})
    for file in files:
        library = ctypes.CDLL(file)
        for name in ("scipy_openblas_get_config64_", "scipy_openblas_get_config", "openblas_get_config"):
            if hasattr(library, name):
                config = getattr(library, name)
                config.restype = ctypes.c_char_p
                return " ".join(config().decode().split())
    return ", ".join(os.path.basename(file) for file in files) or "a BLAS within numpy"


learners = {
    "row-wise-svd": Learner(L, by_svd),
    "row-wise-gram": Learner(L, by_gram),
    "buffered-svd": Learner(2 * L, by_svd),
    "buffered-gram": Learner(2 * L, by_gram),
}
for learner in learners.values():
    for row in rows[: 2 * L]:
        learner.take(row)
for form in ("row-wise", "buffered"):
    svd, gram = (learners[f"{form}-{method}"].sketch for method in ("svd", "gram"))
    assert np.allclose(svd.T @ svd, gram.T @ gram), "both decompositions give the same sketch"
basis = learners["row-wise-svd"].basis
methods = {"score": lambda row: score(basis, row)} | {name: learner.take for name, learner in learners.items()}
print(f"numpy {np.__version__} with {blas()}", flush=True)
for line in sys.stdin:
    method, count = line.split()
    take, before = methods[method], time.process_time_ns()
    for at in range(int(count)):
        take(rows[at % 1000])
    print(time.process_time_ns() - before, flush=True)
