import json, sys, time
import torch

SECONDS = float(sys.argv[1])


def best(work, amount, seconds):
    """The most that was done a second, of a few windows; warm beforehand."""
    for _ in range(2):
        work()
    torch.cuda.synchronize()
    top, end = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        for _ in range(4):
            work()
        torch.cuda.synchronize()
        top = max(top, 4 * amount / (time.perf_counter() - began))
    return top


def measure(i):
    with torch.cuda.device(i):
        free = torch.cuda.mem_get_info()[0]
        side = 4096
        while side > 256 and 4 * 3 * side * side > free // 4:
            side //= 2
        x, y = torch.rand(side, side, device="cuda"), torch.rand(side, side, device="cuda")
        z = torch.empty(side, side, device="cuda")
        flops = best(lambda: torch.mm(x, y, out=z), 2.0 * side**3, SECONDS * 0.6)
        count = min(64 << 20, free // 64)
        a, b = torch.zeros(count, device="cuda"), torch.empty(count, device="cuda")
        memory = best(lambda: b.copy_(a), 8.0 * count, SECONDS * 0.3)
        return {"flops": flops, "memory": memory}


for i in range(torch.cuda.device_count()):
    try:
        print(json.dumps(measure(i)), flush=True)
    except Exception as e:
        print(json.dumps({"error": str(e).splitlines()[0][:200]}), flush=True)
if not torch.cuda.is_available():
    sys.exit("torch %s sees no CUDA" % torch.__version__)
