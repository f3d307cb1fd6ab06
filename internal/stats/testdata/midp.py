#!/usr/bin/env python3
"""Writes midp.tsv and proportion.tsv: bounds solved with SciPy's incomplete beta function.

python3 -m venv v && v/bin/pip install scipy==1.17.1
v/bin/python midp.py > midp.tsv && v/bin/python midp.py proportion > proportion.tsv
"""
import sys

import scipy
from scipy.optimize import brentq
from scipy.special import betainc, betaincc

ALPHA = 0.025


def own(k, n):
    """How much of P(X = k) counts as tail: a half, or what ownWeight in proportion.go has."""
    return 0.5 + 0.22 * max(0, 1 - min(k, n - k) / 30) if "proportion" in sys.argv else 0.5


def below(k, n, p):
    """P(X < k) + own P(X = k), continued to real k and n."""
    strictly = betaincc(k, n - k + 1, p) if k > 0 else 0.0
    up_to = betaincc(k + 1, n - k, p) if k < n else 1.0
    return strictly + own(k, n) * (up_to - strictly)


def above(k, n, p):
    """P(X > k) + own P(X = k)."""
    strictly = betainc(k + 1, n - k, p) if k < n else 0.0
    from_k = betainc(k, n - k + 1, p) if k > 0 else 1.0
    return strictly + own(k, n) * (from_k - strictly)


def bounds(k, n):
    low = brentq(lambda p: above(k, n, p) - ALPHA, 1e-300, max(k / n, 1e-300), xtol=1e-300, rtol=1e-14) if k > 0 else 0.0
    high = brentq(lambda p: below(k, n, p) - ALPHA, max(k / n, 1e-300), 1 - 1e-16, xtol=1e-300, rtol=1e-14) if k < n else 1.0
    return low, high


print("# k n low high; SciPy", scipy.__version__)
for n in (1, 2, 2.5, 5, 7.3, 10, 30, 100, 462.5, 1000, 5000, 50000, 1e7):
    ks = {0, 0.25, 0.5, 1, 1.5, 2, 3, 5, 8.25, 13, 20, 39.9, 40, 40.1, 60, 100, 250, 1000}
    ks |= {n * f for f in (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)} | {n - 0.5, n - 1, n}
    # Less than 0.2 of a hit or miss puts the bound closer to 0 or 1 than doubles tell from 1.
    for k in sorted(k for k in ks if k in (0, n) or 0.2 <= k <= n - 0.2):
        low, high = bounds(k, n)
        print(repr(float(k)), repr(float(n)), repr(float(low)), repr(float(high)), sep="\t")
