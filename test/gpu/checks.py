"""The checks of run.sh: checks.py PROGRAM WORK SCRIPTS PYTHON. Standard library alone; a hub and an agent are started on loopback in WORK
and ended by their process ids. Prints one JSON object."""
import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.request

PROGRAM, WORK, SCRIPTS, PYTHON = sys.argv[1:5]
BEGAN = time.monotonic()
STARTED = []
ENV = {**os.environ, "TENSORTURN_CONTEXT": os.path.join(WORK, "hub", "operator.json"), "HOME": WORK}


class Failed(Exception):
    """A check that did not hold."""


def spawn(name, *words):
    log = open(os.path.join(WORK, name + ".log"), "wb")
    p = subprocess.Popen([PROGRAM, *words], stdout=log, stderr=subprocess.STDOUT, env=ENV, cwd=WORK)
    STARTED.append(p)
    return p


def ask(*words, limit=100):
    """Runs a command; gives code, stdout, stderr."""
    r = subprocess.run([PROGRAM, *words], capture_output=True, text=True, env=ENV, cwd=WORK, timeout=limit)
    return r.returncode, r.stdout, r.stderr


def must(*words, limit=100):
    code, out, err = ask(*words, limit=limit)
    if code != 0:
        raise Failed("%s: exit code %d: %s" % (" ".join(words), code, err.strip()[-400:]))
    return out


def told(*words):
    return json.loads(must(*words, "--json"))


def until(what, yes, limit):
    end = time.monotonic() + limit
    while True:
        got = yes()
        if got:
            return got
        if time.monotonic() > end:
            raise Failed("not within %d s: %s" % (limit, what))
        time.sleep(0.2)


def smi(columns):
    out = subprocess.run(["nvidia-smi", "--query-gpu=" + columns, "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=30).stdout
    return [word.strip() for word in out.splitlines()[0].split(",")]


def submit(name, script, **lines):
    spec = {"name": name, "trainer": "process", "command": "[python, %s]" % script, "data": "{samples: 2048, heldout: 256}", "batch": 32, "epochs": 2,
            "chunk": 128, "round": "{chunks: 8}", "code": SCRIPTS, **lines}
    path = os.path.join(WORK, name + ".yaml")
    with open(path, "w") as f:
        f.writelines("%s: %s\n" % kv for kv in spec.items())
    return ask("run", "submit", path, "--json")


def ended(run, limit):
    def look():
        r = told("run", "show", run)
        return r if r["phase"] in ("completed", "failed", "cancelled") else None
    return until("the run %s ends" % run, look, limit)


def submitted(code, out, err):
    if code != 0:
        raise Failed("submit: exit code %d: %s" % (code, err.strip()[-400:]))
    return json.loads(out)["id"]


def join():
    """One line makes the machine a member; with --slots 2 both slots share its first GPU."""
    spawn("hub", "hub", "start", "--dir", os.path.join(WORK, "hub"), "--listen", "127.0.0.1:0", "--lease", "20s", "--log-level", "warn")
    until("the hub answers", lambda: os.path.exists(ENV["TENSORTURN_CONTEXT"]) and ask("machine", "list")[0] == 0, 30)
    url, token = json.load(open(ENV["TENSORTURN_CONTEXT"]))["url"], must("token", "create").strip()
    began = time.monotonic()
    env_uuid = smi("uuid")[0]
    ENV["CUDA_VISIBLE_DEVICES"] = env_uuid  # other GPUs of this machine are not ours
    spawn("agent", "agent", "start", "--hub", url, "--token", token, "--dir", os.path.join(WORK, "agent"), "--name", "gpu", "--slots", "2", "--python", PYTHON, "--threads", "2")
    until("the machine is online with two slots", lambda: [m for m in told("machine", "list") if m["standing"] == "online" and len(m["slots"]) == 2], 40)
    took = time.monotonic() - began
    m = until("both slots have the GPU", lambda: (told("machine", "show", "gpu").get("vitals") or {}).get("slotGpus"), 30)
    if m != [env_uuid, env_uuid]:
        raise Failed("the slots compute on %s, want %s twice" % (m, env_uuid))
    return "online after %.1f s" % took


def telemetry():
    """What the machine tells agrees with nvidia-smi, in machine show and at /metrics."""
    uuid, name, total = smi("uuid,name,memory.total")
    v = told("machine", "show", "gpu")["vitals"]
    g = [x for x in v["gpus"] if x["uuid"] == uuid]
    if not g or g[0].get("gone"):
        raise Failed("the GPU %s is not told: %s" % (uuid, v))
    g = g[0]
    if g["name"] != name or abs(g["memory"]["total"] - float(total) * 2**20) > 0.02 * g["memory"]["total"]:
        raise Failed("told %s with %d bytes, nvidia-smi says %s with %s MiB" % (g["name"], g["memory"]["total"], name, total))
    if not 5 < g.get("celsius", 0) < 120:
        raise Failed("a temperature of %s" % g.get("celsius"))
    operator = json.load(open(ENV["TENSORTURN_CONTEXT"]))
    request = urllib.request.Request(operator["url"] + "/metrics", headers={"Authorization": "Bearer " + operator["key"]})
    text = urllib.request.urlopen(request, context=ssl.create_default_context(cadata=operator["ca"]), timeout=20).read().decode()
    for want in ("DCGM_FI_DEV_GPU_UTIL{", "DCGM_FI_DEV_FB_USED{", "DCGM_FI_DEV_GPU_TEMP{"):
        if not [line for line in text.splitlines() if line.startswith(want) and uuid in line]:
            raise Failed("/metrics has no %s of the GPU" % want)
    return "%s, driver %s" % (name, v.get("driver"))


def benchmark():
    """The machine measures its GPU through torch, and its link; both slots are known to share it."""
    b = told("machine", "bench", "gpu", "--wait", "80s").get("bench")
    if not b:
        raise Failed("not measured within 80 s")
    g = [d for d in b["devices"] if d["device"].startswith("GPU-")]
    if len(g) != 1 or g[0]["flops"] < 1e11 or g[0]["memory"] < 1e10 or b["up"] <= 0:
        raise Failed("measured %s" % b)
    return "%.1f TFLOP/s, %.0f GB/s" % (g[0]["flops"] / 1e12, g[0]["memory"] / 1e9)


def fused():
    """A PyTorch run on CUDA over two slots of one GPU: complete, both contributed, each saw one GPU by its UUID."""
    run = submitted(*submit("fused", "train.py"))
    r = ended(run, 120)
    if r["phase"] != "completed":
        raise Failed("the run is %s: %s" % (r["phase"], r.get("reason")))
    slots = [s for s in r["slots"] if s.get("samples_counted")]
    if len(slots) != 2:
        raise Failed("%d slots contributed, want 2: %s" % (len(slots), r["slots"]))
    verified = must("run", "replay", run, "--verify", limit=60)
    return "%s; %s" % (r["name"], verified.strip().splitlines()[-1][:120] if verified.strip() else "verified")


def out_of_memory():
    """A script that wants more memory than the GPU has fails with that reason, and the machine works on."""
    run = submitted(*submit("oom", "greedy.py"))
    r = ended(run, 120)
    if r["phase"] != "failed" or "memory" not in (r.get("reason") or "").lower():
        raise Failed("the run is %s: %s" % (r["phase"], r.get("reason")))
    if told("machine", "show", "gpu")["standing"] != "online":
        raise Failed("the machine is not online any more")
    return r["reason"][:160]


def memory_refusal():
    """A run that asks for more GPU memory than any machine has is refused with the numbers."""
    code, out, err = submit("huge", "train.py", requirements="{gpu: {memory: 4096GiB}}")
    said = out + err
    if code == 0:
        run = json.loads(out)["id"]
        time.sleep(3)
        r = told("run", "show", run)
        ask("run", "cancel", run, "--yes")
        raise Failed("the run was taken and is %s" % r["phase"])
    if "TiB" not in said and "GiB" not in said:
        raise Failed("refused without the numbers: %s" % said.strip()[-300:])
    return " ".join(said.split())[:240]


def torch_sees_cuda():
    code = "import torch; assert torch.cuda.is_available(), 'torch sees no CUDA'; print(torch.__version__, torch.version.cuda)"
    r = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, timeout=120)
    if r.returncode != 0:
        raise Failed("%s: %s" % (PYTHON, r.stderr.strip().splitlines()[-1] if r.stderr.strip() else "fails"))
    return "torch " + r.stdout.strip()


def check(f, needs):
    """One row of the result; needs are earlier rows that must have passed."""
    began, row = time.monotonic(), {"name": f.__name__}
    missing = [n["name"] for n in needs if not n["ok"]]
    try:
        if missing:
            raise Failed("not tried: %s failed" % missing[0])
        row.update(ok=True, said=f())
    except Exception as e:  # a check that breaks has failed
        row.update(ok=False, said="%s%s" % ("" if isinstance(e, Failed) else type(e).__name__ + ": ", e))
    row["seconds"] = round(time.monotonic() - began, 1)
    print("%-16s %s %5.1f s  %s" % (row["name"], "ok  " if row["ok"] else "FAIL", row["seconds"], row["said"]), file=sys.stderr)
    return row


def end(*_):
    for p in reversed(STARTED):
        if p.poll() is None:
            p.terminate()
    for p in reversed(STARTED):
        try:
            p.wait(4)  # two of them within the 10 s that run.sh gives
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        torch = check(torch_sees_cuda, [])
        joined = check(join, [])
        rows = [torch, joined, check(telemetry, [joined]), check(benchmark, [joined, torch]), check(fused, [joined, torch]), check(out_of_memory, [joined, torch]), check(memory_refusal, [joined])]
    finally:
        end()
    ok = all(r["ok"] for r in rows)
    if not ok:
        for name in ("hub", "agent"):
            path = os.path.join(WORK, name + ".log")
            if os.path.exists(path):
                print("--- %s\n%s" % (name, open(path, errors="replace").read()[-3000:]), file=sys.stderr)
    print(json.dumps({"ok": ok, "gpu": smi("name")[0], "seconds": round(time.monotonic() - BEGAN, 1), "checks": rows}))
    sys.exit(0 if ok else 1)


main()
