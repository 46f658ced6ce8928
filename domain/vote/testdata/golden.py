#!/usr/bin/env python3
"""Second implementation of package vote, for golden vectors: python3 golden.py > golden.json

Python's floats are IEEE doubles and never fused, so the same order of the same operations gives the same bits. What can
be wrong in both ways alike, the formulas, is held against decimal arithmetic of 60 digits in `against_decimals`.
"""
import json, math, struct, sys
from decimal import Decimal, getcontext

getcontext().prec = 60
FLOOR = 2.0 ** -40
BINS, GRID, END = 15, 32, 96
LN2HI, LN2LO, LOG2E = 6.93147180369123816490e-01, 1.90821492927058770002e-10, 1.44269504088896338700


def exp(x):
    if x < -708:
        return 0.0
    k = math.floor(x * LOG2E + 0.5)
    r = (x - k * LN2HI) - k * LN2LO
    total = 1.0
    for n in range(13, 0, -1):
        total = 1 + (r * total) / n
    return total * 2.0 ** k


def log(x):
    m, e = math.frexp(x)
    m, e = m * 2, e - 1
    if m > math.sqrt(2):
        m, e = m / 2, e + 1
    s = (m - 1) / (m + 1)
    q, total = s * s, 0.0
    for n in range(23, 2, -2):
        total = q * (total + 1 / n)
    return e * LN2HI + (e * LN2LO + 2 * (s * (1 + total)))


def logp(p):
    return log(max(p, FLOOR))


def total(p):
    s = 0.0
    for v in p:
        s += v
    return s


def argmax(p):
    return max(range(len(p)), key=lambda i: (p[i], -i))


def softmax(z):
    top = max(z)
    e = [exp(v - top) for v in z]
    s = total(e)
    return [v / s for v in e]


def temper(p, beta):
    return softmax([beta * logp(v) for v in p])


def grid(i):
    octave, rest = divmod(i + END, GRID)
    return exp((rest * (LN2HI + LN2LO)) / GRID) * 2.0 ** octave / 2.0 ** (END // GRID)


def mean(weights, rows):
    out, w_all = [0.0] * len(rows[0]), 0.0
    for w, p in zip(weights, rows):
        if w > 0:
            w_all += w
            f = w / total(p)
            out = [o + f * v for o, v in zip(out, p)]
    return [o / w_all for o in out]


def pool(weights, rows):
    out = [0.0] * len(rows[0])
    everything = total(weights)
    for w, p in zip(weights, rows):
        w = (w * everything) / everything
        if w > 0:
            s = total(p)
            out = [o + w * logp(v / s) for o, v in zip(out, p)]
    return softmax(out)


def majority(rows):
    mass = mean([1.0] * len(rows), rows)
    picks = [argmax(p) for p in rows]
    best = max(sorted(set(picks)), key=lambda k: (picks.count(k), mass[k], -k))
    voters = float(len(rows) + 1)
    out = [1 / (len(mass) * voters) for _ in mass]
    for k in picks:
        out[k] += 1 / voters
    return out, best


MASK, GOLDEN = 2 ** 64 - 1, 0x9e3779b97f4a7c15


def mix(z):
    z = ((z ^ z >> 30) * 0xbf58476d1ce4e5b9) & MASK
    z = ((z ^ z >> 27) * 0x94d049bb133111eb) & MASK
    return z ^ z >> 31


def shuffled(n):
    """Fisher-Yates from the end, SplitMix64, Lemire's bounded draws."""
    state, order = mix((mix(n) + GOLDEN + mix(0x766f74652e646561)) & MASK), list(range(n))

    def draw():
        nonlocal state
        state = (state + GOLDEN) & MASK
        return mix(state)

    for i in range(n - 1, 0, -1):
        m = draw() * (i + 1)
        while (m & MASK) < (2 ** 64 - (i + 1)) % (i + 1):
            m = draw() * (i + 1)
        j = m >> 64
        order[i], order[j] = order[j], order[i]
    return order


def deal(labels, classes):
    seen, weigh, check, fit, test = [0] * classes, [], [], [], []
    for row in shuffled(len(labels)):
        c = labels[row]
        place = (seen[c] + c) % 4
        seen[c] += 1
        if place == 1:
            weigh.append(row)
        elif place == 3:
            check.append(row)
        else:
            test.append(row)
        if place in (1, 3):
            fit.append(row)
    return sorted(weigh), sorted(check), sorted(fit), sorted(test)


def loss_at(f, rows, labels, beta):
    t = 0.0
    for i in rows:
        z = [logp(p) for p in f[i]]
        top = max(z)
        s = 0.0
        for v in z:
            s += exp(beta * (v - top))
        t += log(s) - beta * (z[labels[i]] - top)
    return t / len(rows)


def temperature(f, rows, labels):
    """All 193 points, one after the other: the package's search must find the same."""
    best, least = 0, loss_at(f, rows, labels, 1.0)
    for i in sorted(range(-END, END + 1), key=lambda i: (abs(i), -i)):
        l = loss_at(f, rows, labels, 1 / grid(i))
        if l < least:
            best, least = i, l
    return grid(best)


def measure(f, classes_of, rows, labels):
    nll = brier = 0.0
    sure, right = [0.0] * BINS, [0.0] * BINS
    for i in rows:
        p, y, k = f[i], labels[i], classes_of[i]
        nll -= logp(p[y])
        for c, v in enumerate(p):
            d = v - 1 if c == y else v
            brier += d * d
        b = min(int(p[k] * BINS), BINS - 1)
        sure[b] += p[k]
        if k == y:
            right[b] += 1
    ece = 0.0
    for b in range(BINS):
        ece += abs(right[b] - sure[b])
    n = float(len(rows))
    return max(nll / n, 0.0), brier / n, ece / n


def score(f, classes_of, test, labels, t):
    right = sum(classes_of[i] == labels[i] for i in test)
    nll, brier, ece = measure(f, classes_of, test, labels)
    scaled = [temper(p, 1 / t) for p in f] if t != 1 else f
    snll, sbrier, sece = measure(scaled, classes_of, test, labels)
    return {"accuracy": right / len(test), "nll": nll, "brier": brier, "ece": ece,
            "temperature": t, "scaled_nll": snll, "scaled_brier": sbrier, "scaled_ece": sece}


def log_odds(picks, classes, rows, labels):
    w = []
    for p in picks:
        wrong = sum(p[i] != labels[i] for i in rows)
        w.append(log(((len(rows) - wrong) + 0.5) / (wrong + 0.5)) + log(float(max(classes - 1, 1))))
    m = total(w) / len(w)
    if not m > 0:
        return [1 / len(w)] * len(w)
    w = [min(max(v / m, 0.25), 4) for v in w]
    s = total(w)
    return [v / s for v in w]


def true_p(member, labels, i):
    return member[i][labels[i]] / total(member[i])


def greedy(members, rows, labels):
    sums, picked, keep, least = {i: 0.0 for i in rows}, [], 0, math.inf
    while len(picked) < 64:
        best, loss = -1, math.inf
        for m, member in enumerate(members):
            t = 0.0
            for i in rows:
                t -= logp((sums[i] + true_p(member, labels, i)) / float(len(picked) + 1))
            if t < loss:
                best, loss = m, t
        for i in rows:
            sums[i] += true_p(members[best], labels, i)
        picked.append(best)
        if loss < least:
            keep, least = len(picked), loss
    return [picked[:keep].count(m) / float(keep) for m in range(len(members))]


def stack_loss(w, logs, rows, labels, classes):
    grad, t, n, prior = [0.0] * len(w), 0.0, float(len(rows)), 1 / len(w)
    for r, i in enumerate(rows):
        z = [0.0] * classes
        for m, wm in enumerate(w):
            if wm != 0:
                z = [a + wm * l for a, l in zip(z, logs[m][r])]
        p = softmax(z)
        y = labels[i]
        t -= logp(p[y])
        for m in range(len(w)):
            g = -logs[m][r][y]
            for pk, l in zip(p, logs[m][r]):
                g += pk * l
            grad[m] += g / n
    t /= n
    for m, wm in enumerate(w):
        d = wm - prior
        t += 0.05 * (d * d)
        grad[m] += (2 * 0.05) * d
    return t, grad


def stack(members, rows, labels, classes):
    logs = [[[logp(v / total(mem[i])) for v in mem[i]] for i in rows] for mem in members]
    w = [1 / len(members)] * len(members)
    loss, grad = stack_loss(w, logs, rows, labels, classes)
    step = 1.0
    for _ in range(300):
        lower = loss
        for _ in range(40):
            nxt = [max(0.0, a - step * g) for a, g in zip(w, grad)]
            lower = stack_loss(nxt, logs, rows, labels, classes)[0]
            if lower < loss:
                break
            step /= 2
        if not lower < loss:
            break
        w, done = nxt, loss - lower <= 1e-9 * loss
        loss, grad = stack_loss(w, logs, rows, labels, classes)
        step *= 2
        if done:
            break
    return w


def combine(rule, weights, members):
    rows = list(zip(*members))
    if rule == "majority":
        both = [majority(r) for r in rows]
        return [b[0] for b in both], [b[1] for b in both]
    f = [(pool if rule == "stacking" else mean)(weights, r) for r in rows]
    return f, [argmax(p) for p in f]


def gain(members, rule, weights, weigh, check, labels):
    def losses(rule, weights):
        f, _ = combine(rule, weights, members)
        beta = 1 / temperature(f, weigh, labels)
        return [loss_at(f, [i], labels, beta) for i in check]
    k = len(members)
    with_, without = losses(rule, weights), losses("mean", [1 / k] * k)
    n, m, sq = float(len(check)), 0.0, 0.0
    for a, b in zip(without, with_):
        m += (a - b) / n
    for a, b in zip(without, with_):
        d = a - b - m
        sq += d * d
    return m, math.sqrt(sq / (n * (n - 1)))


def compute(classes, labels, members, asked):
    weigh, check, fit, test = deal(labels, classes)
    k = len(members)
    rule, weights = asked, [1 / k] * k
    picks = [[argmax(p) for p in mem] for mem in members]
    if rule == "auto":
        rule = "greedy" if k > 8 else "stacking"
    if rule == "log_odds":
        weights = log_odds(picks, classes, fit, labels)
    if rule in ("greedy", "stacking"):
        weights = greedy(members, weigh, labels) if rule == "greedy" else stack(members, weigh, labels, classes)
        m, se = gain(members, rule, weights, weigh, check, labels)
        if not (m > 0 and m >= se):
            rule, weights = "mean", [1 / k] * k
    scores = []
    for mem, p in zip(members, picks):
        f = [mean([1.0], [row]) for row in mem]
        scores.append(score(f, p, test, labels, temperature(f, fit, labels)))
    f, classes_of = combine(rule, weights, members)
    t = temperature(f, fit, labels)
    pairs = [sum(a[i] != b[i] for i in test) for n, a in enumerate(picks) for b in picks[n + 1:]]
    best = max(range(k), key=lambda m: (sum(picks[m][i] == labels[i] for i in fit), -nll_of(members[m], fit, labels), -m))
    return {"asked": asked, "rule": rule, "weights": weights, "temperature": t, "rows": len(labels), "fit_rows": len(fit), "test_rows": len(test),
            "members": scores, "vote": score(f, classes_of, test, labels, t), "best": best, "pairs": pairs,
            "disagreement": sum(pairs) / (len(pairs) * len(test))}


def nll_of(member, rows, labels):
    t = 0.0
    for i in rows:
        t -= logp(true_p(member, labels, i))
    return t


class Source:
    """A linear congruential generator: Knuth's MMIX constants, high 24 bits."""

    def __init__(self, seed):
        self.s = seed

    def next(self):
        self.s = (self.s * 6364136223846793005 + 1442695040888963407) % 2 ** 64
        return (self.s >> 40) / 2.0 ** 24


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def world(seed, members, rows, classes, skill, sure):
    """Members that are right with their own skill, sure to different degrees; some rows have exact zeros."""
    src = Source(seed)
    labels = [int(src.next() * classes) for _ in range(rows)]
    out = []
    for m in range(members):
        table = []
        for i in range(rows):
            z = [src.next() for _ in range(classes)]
            z[labels[i]] += skill[m % len(skill)] * src.next()
            z = [v ** (sure + m % 3) for v in [max(v, 0.0) for v in z]]
            if i % 17 == m:
                z[(labels[i] + 1) % classes] = 0.0
            s = sum(z)
            table.append([f32(v / s) for v in z])
        out.append(table)
    return labels, out


def against_decimals(f, rows, labels, got_nll, got_brier):
    """Log loss and Brier score by decimals of 60 digits."""
    nll = brier = Decimal(0)
    for i in rows:
        p = [max(Decimal(v), Decimal(FLOOR)) for v in f[i]]
        nll -= p[labels[i]].ln()
        brier += sum((Decimal(v) - (c == labels[i])) ** 2 for c, v in enumerate(f[i]))
    n = len(rows)
    assert abs(nll / n - Decimal(got_nll)) < Decimal("1e-13"), (nll / n, got_nll)
    assert abs(brier / n - Decimal(got_brier)) < Decimal("1e-13"), (brier / n, got_brier)


def hexed(v):
    if isinstance(v, float):
        return v.hex()
    if isinstance(v, dict):
        return {k: hexed(x) for k, x in v.items()}
    if isinstance(v, list):
        return [hexed(x) for x in v]
    return v


def main():
    for n in range(-7000, 7000):  # own exponential and logarithm against decimals
        x = n / 10.0 + n / 7777.0
        if -708 < x < 700:
            want = Decimal(x).exp()
            assert abs(Decimal(exp(x)) / want - 1) < Decimal("3e-16"), x
        if n > 0:
            assert abs(Decimal(log(x)) - Decimal(x).ln()) < Decimal("4e-16") * max(1, abs(Decimal(x).ln())), x
    cases = []
    for name, rule, seed, members, rows, classes, skill, sure in [
        ("mean of five", "mean", 1, 5, 240, 4, [1.0, 0.4], 9),
        ("majority of four, with ties", "majority", 2, 4, 200, 3, [0.7], 2),
        ("log odds of unequal members", "log_odds", 3, 5, 240, 5, [1.5, 0.3, 0.1], 12),
        ("stacking finds the good one", "stacking", 4, 4, 320, 3, [2.5, 0.1, 0.1, 0.1], 2),
        ("stacking of equals falls back", "stacking", 5, 5, 120, 3, [1.0], 2),
        ("greedy of ten", "auto", 6, 10, 320, 3, [1.5, -0.5, -0.4, 1.2, -0.5], 3),
        ("two classes, two members", "auto", 7, 2, 160, 2, [1.5, 0.2], 2),
    ]:
        labels, world_members = world(seed, members, rows, classes, skill, sure)
        r = compute(classes, labels, world_members, rule)
        f, _ = combine(r["rule"], r["weights"], world_members)
        _, _, _, test = deal(labels, classes)
        against_decimals(f, test, labels, r["vote"]["nll"], r["vote"]["brier"])
        cases.append({"name": name, "rule": rule, "members": members, "rows": rows, "classes": classes, "labels": labels,
                      "probabilities": [[struct.unpack("<I", struct.pack("<f", v))[0] for row in m for v in row] for m in world_members],
                      "result": hexed(r)})
        print(name, r["rule"], ["%.3f" % w for w in r["weights"]], "T %.3f" % r["temperature"], "accuracy %.3f" % r["vote"]["accuracy"], file=sys.stderr)
    json.dump(cases, sys.stdout, separators=(",", ":"))
    print()


main()
