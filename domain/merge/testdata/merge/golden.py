#!/usr/bin/env python3
"""Makes the golden vectors of domain/merge by a second implementation of DESIGN.md, in plain Python.

Python's floats are IEEE doubles, one rounding an operation, never fused. Levels of E3M0 are decided in whole numbers
without any rounding. The files are written once and never edited; run it again to see that nothing changes:

    python3 golden.py && git diff --exit-code .
"""

import json
import math
import struct
from fractions import Fraction

BLOCK = 256


def f32(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def bits32(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def bits64(x):
    return struct.unpack("<Q", struct.pack("<d", x))[0]


def level(x, a):
    """Nearest level on a logarithmic scale: the largest L with |x| >= a * 2**(L - 7.5), squared to stay exact."""
    x, a = Fraction(x), Fraction(a)
    for l in range(7, 0, -1):
        if 2 * x * x >= a * a * Fraction(4) ** (l - 7):
            return l
    return 0


def e3m0_encode(d):
    out = bytearray()
    for at in range(0, len(d), BLOCK):
        block = d[at : at + BLOCK]
        a = max(abs(x) for x in block)
        out += struct.pack("<f", a)
        codes = []
        for x in block:
            l = level(x, a) if x != 0 else 0
            codes.append(l + (8 if x < 0 and l else 0))
        if len(codes) % 2:
            codes.append(0)
        out += bytes(codes[i] | codes[i + 1] << 4 for i in range(0, len(codes), 2))
    return bytes(out)


def e3m0_decode(b, n):
    d, at = [], 0
    while len(d) < n:
        k = min(BLOCK, n - len(d))
        a = struct.unpack_from("<f", b, at)[0]
        for i in range(k):
            c = b[at + 4 + i // 2] >> (4 * (i % 2)) & 15
            v = math.ldexp(a, (c & 7) - 7) if c & 7 else 0.0
            d.append(-v if c & 8 else v)
        at += 4 + (k + 1) // 2
    return d


def int8_encode(d):
    """Whole numbers decide: q is the nearest to 127 * x / a, ties to even, which is what round does on a Fraction."""
    out = bytearray()
    for at in range(0, len(d), BLOCK):
        block = d[at : at + BLOCK]
        a = max(abs(x) for x in block)
        out += struct.pack("<f", a)
        out += bytes((round(127 * Fraction(x) / Fraction(a)) if a else 0) & 255 for x in block)
    return bytes(out)


def int8_decode(b, n):
    d, at = [], 0
    while len(d) < n:
        k = min(BLOCK, n - len(d))
        a = struct.unpack_from("<f", b, at)[0]
        d += [(q * a) / 127.0 for q in struct.unpack_from(f"<{k}b", b, at + 4)]
        at += 4 + k
    return d


def two_encode(d):
    out = bytearray()
    for at in range(0, len(d), BLOCK):
        block = d[at : at + BLOCK]
        s = 0.0
        for x in block:
            s = s + abs(x)
        m = f32(bits32(s / len(block)))
        out += struct.pack("<f", m)
        codes = [0 if m == 0 else (1 if abs(x) >= m else 0) | (2 if x < 0 else 0) for x in block]
        codes += [0] * (-len(codes) % 4)
        out += bytes(sum(codes[i + j] << 2 * j for j in range(4)) for i in range(0, len(codes), 4))
    return bytes(out)


def two_decode(b, n):
    d, at = [], 0
    while len(d) < n:
        k = min(BLOCK, n - len(d))
        m = struct.unpack_from("<f", b, at)[0]
        for i in range(k):
            c = b[at + 4 + i // 4] >> 2 * (i % 4) & 3
            v = 1.5 * m if c & 1 else 0.5 * m
            d.append(-v if c & 2 else v)
        at += 4 + (k + 3) // 4
    return d


CODECS = {"e3m0": (e3m0_encode, e3m0_decode), "int8": (int8_encode, int8_decode), "2bit": (two_encode, two_decode)}


def outer(theta, m, inputs, eta, mu):
    """One merge. inputs: (samples, local values or None, D values or None)."""
    total = float(sum(n for n, _, _ in inputs))
    base, mom, norm = [], [], 0.0
    for j, th in enumerate(theta):
        s = 0.0
        for n, local, d in inputs:
            li = local[j] if local is not None else th - d[j]
            s = s + float(n) * li
        l = s / total
        d = th - l
        mj = mu * m[j] + d
        t = (1.0 - eta) * th + eta * l - eta * (mu * mj)
        r = f32(bits32(t))
        base.append(r)
        mom.append(mj)
        norm = norm + (r - th) * (r - th)
    return base, mom, math.sqrt(norm)


class Random:
    def __init__(self, seed):
        self.x = seed

    def next(self):
        self.x = (self.x * 6364136223846793005 + 1442695040888963407) % 2**64
        return self.x >> 33

    def value(self, spread=12):
        """A float32 with a random significand, sign and exponent around 2**-4."""
        e = self.next() % spread + 127 - 4 - spread // 2
        return f32((self.next() % 2) << 31 | e << 23 | self.next() % 2**23)


def words(xs, width):
    return [format(x, f"0{width}x") for x in xs]


def codec_cases(encode, decode, seed):
    r = Random(seed)
    one, tiny, big = 1.0, f32(1), f32(0x7F7FFFFF)
    near = []
    for k in range(8):
        for a in (1.0, f32(0x3F800001), f32(0x3FFFFFFF)):
            b = bits32(a * math.sqrt(0.5) * 2.0**-k)
            near += [f32(b - 1), f32(b), f32(b + 1), -f32(b), -f32(b + 1)]
    cases = {
        "levels": [one * 2.0**-k for k in range(9)] + [-(2.0**-k) for k in range(9)],
        "boundaries, scale 1": [1.0] + [x for x in near if abs(x) <= 1.0],
        "boundaries, scale 1.0000001": [f32(0x3F800001)] + [x for x in near if abs(x) <= f32(0x3F800001)],
        "boundaries, scale 1.9999999": [f32(0x3FFFFFFF)] + [x for x in near if abs(x) <= f32(0x3FFFFFFF)],
        "zeros": [0.0, -0.0, 0.0],
        "zeros among values": [0.0, 3.0, -0.0, -1.5, 0.0],
        "one value": [-0.7],
        "smallest denormal": [tiny, -tiny, 0.0],
        "denormals": [f32(b) for b in (100, 71, 70, 50, 36, 35, 18, 17, 9, 3, 2, 1)] + [-f32(77)],
        "denormals beside a normal": [f32(0x00800000), f32(0x007FFFFF), f32(0x00400000), f32(0x00012345), f32(1)],
        "large": [big, -big, big / 2, f32(0x7F000000), f32(0x7E000000), -f32(0x7C000000), 1.0],
        "a block and a short one": [r.value() for _ in range(BLOCK + 3)],
        "two blocks": [r.value(20) for _ in range(2 * BLOCK)],
    }
    if encode is not e3m0_encode:
        cases["ties of 127"] = [127.0] + [k + 0.5 for k in range(-12, 12)] + [f32(bits32(k + 0.5) + j) for k in range(12) for j in (-1, 1)]
        cases["a mean that rounds to nothing"] = [tiny] + [0.0] * 200
        cases["three values"] = [1.0, -0.25, 2.0]
    for name, d in cases.items():
        code = encode(d)
        yield {
            "name": name,
            "d": words(map(bits32, d), 8),
            "code": code.hex(),
            "decoded": words(map(bits64, decode(code, len(d))), 16),
        }


def merge_case(name, eta, mu, theta, rounds):
    """rounds: per round a list of (codec, samples, local values)."""
    theta = [f32(bits32(x)) for x in theta]
    case = {"name": name, "eta": eta, "mu": mu, "base": words(map(bits32, theta), 8), "rounds": []}
    m = [0.0] * len(theta)
    for contributions in rounds:
        inputs, written = [], []
        for codec, samples, change in contributions:
            local = [f32(bits32(x)) for x in change(theta)]
            if codec == "fp32":
                payload = struct.pack(f"<{len(local)}f", *local)
                inputs.append((samples, local, None))
            else:
                d = [f32(bits32(a - b)) for a, b in zip(theta, local)]
                payload = e3m0_encode(d)
                inputs.append((samples, None, e3m0_decode(payload, len(d))))
            written.append({"codec": codec, "samples": samples, "payload": payload.hex()})
        theta, m, norm = outer(theta, m, inputs, eta, mu)
        case["rounds"].append(
            {
                "inputs": written,
                "next_base": words(map(bits32, theta), 8),
                "next_momentum": words(map(bits64, m), 16),
                "step_norm": format(bits64(norm), "016x"),
            }
        )
    return case


def merge_cases():
    r = Random(11)
    noise = lambda s: lambda th: [x + r.value() * s for x in th]
    special = [0.0, -0.0, f32(1), -f32(1), f32(0x00800000), f32(0x007FFFFF), 1.0, -1.0, 1e-20, -1e20, 3e38, -3e38, 0.1]
    swap = lambda th: th[1:] + th[:1]
    yield merge_case("nesterov, three steps by hand", 0.5, 0.5, [8.0], [[("fp32", 1, lambda th: [th[0] - 1.0])]] * 3)
    yield merge_case("plain mean of four", 1.0, 0.0, [r.value() for _ in range(9)], [[("fp32", 32, noise(0.1)) for _ in range(4)]])
    yield merge_case("special values, fp32", 1.0, 0.0, special, [[("fp32", 1437, swap)]])
    yield merge_case("special values, halved", 0.5, 0.5, special, [[("fp32", 3, swap), ("fp32", 5, lambda th: th)]])
    yield merge_case("denormal deltas", 0.7, 0.9, [f32(b) for b in (5, 9, 1, 0, 0x80000003)],
                     [[("e3m0", 7, lambda th: [x + f32(2) for x in th]), ("fp32", 4, lambda th: [x - f32(1) for x in th])]] * 2)
    yield merge_case("unequal weights, mixed codecs", 0.7, 0.9, [r.value() for _ in range(300)],
                     [[("e3m0", 1437, noise(0.01)), ("fp32", 31, noise(0.02)), ("e3m0", 64000, noise(0.005)),
                       ("fp32", 1, noise(1.0)), ("e3m0", 977, noise(0.01))]] * 3)
    yield merge_case("huge sample counts", 0.7, 0.7, [r.value() for _ in range(40)],
                     [[("fp32", 2**40 + 1, noise(0.01)), ("fp32", 2**52 - 12345, noise(0.01)), ("e3m0", 3, noise(0.01))]] * 2)


def late_case(name, eta, mu, theta, rounds):
    """rounds: per round a list of (codec, samples, local values, late). A late one was trained from the base before."""
    theta = [f32(bits32(x)) for x in theta]
    before = theta
    case = {"name": name, "eta": eta, "mu": mu, "base": words(map(bits32, theta), 8), "rounds": []}
    m = [0.0] * len(theta)
    for contributions in rounds:
        some = any(late for _, _, _, late in contributions)
        inputs, written = [], []
        for codec, samples, change, late in contributions:
            made = before if late else theta
            local = [f32(bits32(x)) for x in change(made)]
            weight = samples * (4 if late else 5) if some else samples
            if codec == "fp32":
                payload = struct.pack(f"<{len(local)}f", *local)
                d = [b - l for b, l in zip(made, local)]
                inputs.append((weight, None, d) if late else (weight, local, None))
            else:
                d = [f32(bits32(a - b)) for a, b in zip(made, local)]
                payload = e3m0_encode(d)
                inputs.append((weight, None, e3m0_decode(payload, len(d))))
            written.append({"codec": codec, "samples": samples, "late": late, "payload": payload.hex()})
        before, (theta, m, norm) = theta, outer(theta, m, inputs, eta, mu)
        case["rounds"].append(
            {
                "inputs": written,
                "next_base": words(map(bits32, theta), 8),
                "next_momentum": words(map(bits64, m), 16),
                "step_norm": format(bits64(norm), "016x"),
            }
        )
    return case


def late_cases():
    r = Random(13)
    noise = lambda s: lambda th: [x + r.value() * s for x in th]
    down = lambda th: [x - 1.0 for x in th]
    yield late_case("by hand: 8 goes to 7, then one delta of 1 on each base, 4 to 5", 1.0, 0.0, [8.0],
                    [[("fp32", 1, down, False)], [("fp32", 1, down, False), ("fp32", 1, down, True)]])
    yield late_case("only a late one", 0.7, 0.7, [r.value() for _ in range(7)],
                    [[("e3m0", 5, noise(0.1), False)], [("fp32", 3, noise(0.1), True)], [("e3m0", 2, noise(0.1), True)]])
    yield late_case("mixed codecs and weights", 0.7, 0.9, [r.value() for _ in range(300)],
                    [[("fp32", 64, noise(0.02), False)],
                     [("e3m0", 1437, noise(0.01), False), ("fp32", 31, noise(0.02), True), ("e3m0", 977, noise(0.01), True), ("fp32", 5, noise(0.1), False)],
                     [("fp32", 31, noise(0.02), True), ("fp32", 7, noise(0.02), False)]])


def feedback_cases():
    """A chain of deltas of one slot: c = (base - local) + keep * e, each file and residual as it must be."""
    r = Random(17)
    for codec in ("2bit", "e3m0", "int8"):
        encode, decode = CODECS[codec]
        base = [r.value() for _ in range(BLOCK + 37)]
        e, steps = [0.0] * len(base), []
        for keep in (1.0, 1.0, 0.3, 4.0):
            local = [f32(bits32(x + r.value() * 0.1)) for x in base]
            d = [f32(bits32(a - b)) for a, b in zip(base, local)]
            c = [f32(bits32(x + keep * y)) for x, y in zip(d, e)]
            code = encode(c)
            e = [f32(bits32(x - y)) for x, y in zip(c, decode(code, len(c)))]
            steps.append({"keep": keep, "local": words(map(bits32, local), 8), "code": code.hex(), "residual": words(map(bits32, e), 8)})
        yield {"name": codec, "base": words(map(bits32, base), 8), "steps": steps}


def down_cases():
    """Merges whose next base goes out as an increment: S, r, code and both residuals by DESIGN.md."""
    r = Random(19)
    for codec, eta, mu in (("e3m0", 1.0, 0.0), ("e3m0", 0.7, 0.9), ("int8", 0.7, 0.7)):
        encode, decode = CODECS[codec]
        theta = [r.value() for _ in range(BLOCK + 41)]
        case = {"name": f"{codec}, eta {eta}, mu {mu}", "codec": codec, "eta": eta, "mu": mu, "base": words(map(bits32, theta), 8), "rounds": []}
        m, rest = [0.0] * len(theta), [0.0] * len(theta)
        for _ in range(3):
            inputs, written = [], []
            for samples, spread in ((64, 0.1), (1437, 0.02)):
                local = [f32(bits32(x + r.value() * spread)) for x in theta]
                inputs.append((samples, local))
                written.append({"codec": "fp32", "samples": samples, "payload": struct.pack(f"<{len(local)}f", *local).hex()})
            total = float(sum(n for n, _ in inputs))
            masters, d = [], []
            for j, th in enumerate(theta):
                s = 0.0
                for n, local in inputs:
                    s = s + float(n) * local[j]
                l = s / total
                m[j] = mu * m[j] + (th - l)
                masters.append((1.0 - eta) * th + eta * l - eta * (mu * m[j]) + rest[j])
                d.append(f32(bits32(th - masters[j])))
            code = encode(d)
            theta = [f32(bits32(th - q)) for th, q in zip(theta, decode(code, len(d)))]
            rest = [a - b for a, b in zip(masters, theta)]
            case["rounds"].append({"inputs": written, "increment": code.hex(), "next_base": words(map(bits32, theta), 8),
                                   "next_momentum": words(map(bits64, m), 16), "next_residual": words(map(bits64, rest), 16)})
        yield case


def dump(name, cases):
    with open(name, "w", encoding="ascii") as f:
        f.write("[\n" + ",\n".join(map(json.dumps, cases)) + "\n]\n")


dump("e3m0.json", codec_cases(e3m0_encode, e3m0_decode, 7))
dump("int8.json", codec_cases(int8_encode, int8_decode, 23))
dump("twobit.json", codec_cases(two_encode, two_decode, 29))
dump("merge.json", merge_cases())
dump("late.json", late_cases())
dump("feedback.json", feedback_cases())
dump("down.json", down_cases())
