"""tensorturn: let a plain PyTorch loop work for a pool of machines. One file, standard library and torch.

    import tensorturn
    job = tensorturn.join(model, optimizer, dataset)     # loads weights, describes tensors
    for batch in job.batches(batch_size=32):             # leased chunks, rounds and new weights happen inside
        loss = ...; loss.backward(); optimizer.step(); optimizer.zero_grad()
        job.log(loss=loss)

Without an agent the same script trains locally: TENSORTURN_EPOCHS passes (default 1) in the order a pool would use.
The agent puts this file on the script's path; the talk is written down in PROTOCOL.md. Weights are read and written as
safetensors alone. Importing it within a run seeds torch and random with the run's seed, so that the first weights are
the same wherever the script starts; seed them yourself afterwards if you wish.
"""
import atexit
import ctypes
import hashlib
import json
import math
import os
import random
import socket
import struct
import sys
import time

import torch

VERSION = 1
_FLUSH_SECONDS = 0.1  # losses stay on the device for so long: asking for each would make every step wait for it
_MASK = (1 << 64) - 1


def _env(name, default=0):
    return int(os.environ.get("TENSORTURN_" + name) or default)


def in_run():
    """Whether an agent started this script."""
    return bool(os.environ.get("TENSORTURN_SOCKET"))


if in_run():
    torch.manual_seed(_env("SEED", 1) & (_MASK >> 1))
    random.seed(_env("SEED", 1))


# --- safetensors ------------------------------------------------------------------------------------------------------

_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64, "I32": torch.int32,
           "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def save_file(tensors, path, metadata=None):
    """Writes {name: tensor} as a safetensors file, names in order, through a file beside it. Within a run a relative path is
    one of the output folder."""
    path = os.path.join(os.environ.get("TENSORTURN_OUTPUT_DIR", ""), path)
    header, offset, data = {"__metadata__": {"format": "pt", **(metadata or {})}}, 0, []
    for name in sorted(tensors, key=lambda n: n.encode()):
        t = tensors[name].detach().to("cpu").contiguous()
        size = t.numel() * t.element_size()
        header[name] = {"dtype": _NAMES[t.dtype], "shape": list(t.shape), "data_offsets": [offset, offset + size]}
        offset += size
        data.append((t, size))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".part", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for t, size in data:
            if size:
                f.write(memoryview((ctypes.c_char * size).from_address(t.data_ptr())))
    os.replace(path + ".part", path)


def load_file(path):
    """Reads a safetensors file as {name: tensor}."""
    with open(path, "rb") as f:
        (length,) = struct.unpack("<Q", f.read(8))
        if length > 8 << 20:
            raise ValueError("the header of %s is too long" % path)
        header = json.loads(f.read(length))
        out = {}
        for name, about in header.items():
            if name == "__metadata__":
                continue
            begin, end = about["data_offsets"]
            f.seek(8 + length + begin)
            raw, dtype, shape = bytearray(f.read(end - begin)), _DTYPES[about["dtype"]], about["shape"]
            t = torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)
            out[name] = t.reshape(shape)
        return out


# --- order of samples (PROTOCOL.md section 6) -------------------------------------------------------------------------

_GOLDEN = 0x9E3779B97F4A7C15


def _mix(z):
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & _MASK
    return z ^ z >> 31


def _shuffled(values, seed, *labels):
    s = _mix(seed)
    for label in labels:
        s = _mix((s + _GOLDEN + _mix(label)) & _MASK)
    for i in range(len(values) - 1, 0, -1):
        n = i + 1
        while True:
            s = (s + _GOLDEN) & _MASK
            product = _mix(s) * n
            if (product & _MASK) >= n or (product & _MASK) >= (1 << 64) % n:
                break
        j = product >> 64
        values[i], values[j] = values[j], values[i]
    return values


class Order:
    """The order of one epoch over n samples, shuffled in blocks; remembers the block it worked out last."""

    def __init__(self, seed, epoch, n, block):
        self.seed, self.epoch, self.n = seed, epoch, n
        self.block = n if block < 1 or block > n else block
        self.blocks = _shuffled(list(range(-(-n // self.block) if n else 0)), seed, epoch, 1)
        self.held, self.inside = None, []

    def rows(self, first, count):
        """The samples at positions first to first+count-1."""
        out, start = [], 0
        for b in self.blocks:
            size = min(self.block, self.n - b * self.block)
            if start + size > first and count > 0:
                if self.held != b:
                    self.held, self.inside = b, _shuffled(list(range(b * self.block, b * self.block + size)), self.seed, self.epoch, 2, b)
                part = self.inside[first - start:first - start + count]
                out, first, count = out + part, first + len(part), count - len(part)
            start += size
        return out


# --- what travels -----------------------------------------------------------------------------------------------------

def _plain(name):
    """The name without what DistributedDataParallel and torch.compile put before it."""
    name = name.replace("_orig_mod.", "")
    while name.startswith("module."):
        name = name[len("module."):]
    return name


def _sort(model):
    """What travels, by its plain name, and what must be the same everywhere. Tied weights have one name.

    Parameters that are trained travel, and the statistics of BatchNorm, which are averaged as values. Their counters of
    batches stay on the machine. Frozen parameters and all other buffers must be equal.
    """
    travels, fixed = {}, {}
    for name, p in model.named_parameters():
        (travels if p.requires_grad and p.is_floating_point() else fixed)[_plain(name)] = p
    if not travels:
        raise RuntimeError("the model has no parameter to train: requires_grad is False everywhere")
    for name, b in model.named_buffers():
        last = name.rsplit(".", 1)[-1]
        if last != "num_batches_tracked":
            (travels if last in ("running_mean", "running_var") else fixed)[_plain(name)] = b
    return travels, fixed


def _digest(fixed):
    h = hashlib.sha256()
    for name in sorted(fixed):
        t = fixed[name].detach().to("cpu").contiguous()
        size = t.numel() * t.element_size()
        h.update(("%s %s %s\n" % (name, t.dtype, list(t.shape))).encode())
        if size:
            h.update(memoryview((ctypes.c_char * size).from_address(t.data_ptr())))
    return h.hexdigest()


# --- learning rate ----------------------------------------------------------------------------------------------------

def _kind_of(e):
    """What an exception is to the agent (PROTOCOL.md section 5)."""
    text = "%s: %s" % (type(e).__name__, e)
    if isinstance(e, MemoryError) or type(e).__name__ == "OutOfMemoryError" or "out of memory" in text or "can't allocate memory" in text:
        return "memory"
    if "CUDA error" in text or "CUDA driver" in text:
        return "device"
    return "missing" if isinstance(e, ImportError) else "script"


class _Rate:
    """Sets the rate for a step of the run's sample clock, also backwards, and ramps it up after a reset."""

    def __init__(self, optimizer, scheduler):
        self.optimizer, self.scheduler, self.left, self.ramp = optimizer, scheduler, 0, 0
        self.base = [g["lr"] for g in optimizer.param_groups]
        if scheduler is not None and hasattr(scheduler, "last_epoch"):
            if not (hasattr(scheduler, "_get_closed_form_lr") or isinstance(scheduler, torch.optim.lr_scheduler.LambdaLR)):
                raise RuntimeError("%s has no closed form: chunks come in any order, so its rate cannot be set; give a function from 0..1 "
                                   "(how far the run is) to a factor of the rate, or another scheduler" % type(scheduler).__name__)
            self.base = list(scheduler.base_lrs)

    def wanted(self, step, fraction):
        s = self.scheduler
        if s is None:
            return self.base
        if not hasattr(s, "last_epoch"):
            return [lr * float(s(fraction)) for lr in self.base]
        s.last_epoch = step
        s._step_count = step + 1
        return s._get_closed_form_lr() if hasattr(s, "_get_closed_form_lr") else [lr * f(step) for lr, f in zip(s.base_lrs, s.lr_lambdas)]

    def set(self, step, fraction):
        if self.scheduler is None and not self.ramp:
            return
        scale = (self.ramp - self.left + 1) / self.ramp if self.left > 0 else 1.0
        for g, lr in zip(self.optimizer.param_groups, self.wanted(step, fraction)):
            g["lr"] = lr * scale
        if self.left > 0:
            self.left -= 1
        elif self.scheduler is None:
            self.ramp = 0  # the rate is the script's own again

    def reset(self, ramp):
        self.optimizer.state.clear()
        self.left = self.ramp = ramp


# --- the job ----------------------------------------------------------------------------------------------------------

def join(model, optimizer, dataset, evaluate=None, predict=None, scheduler=None, collate=None, workers=0, halve=False, heldout=None):
    """Joins the run that started this script, or prepares to train locally.

    dataset: anything with a length and an index; each machine must have the same. evaluate(model): returns accuracy and mean
    loss on held-out data, (accuracy, loss) or a dict that may add samples. predict(model, x): class probabilities for
    a float tensor [rows, features]. scheduler: a torch scheduler with a closed form over steps, or a function from 0..1 to
    a factor; do not step it yourself. halve: after running out of memory, half of the batch may be tried once. heldout: a
    dataset of (x, class) that no member of an ensemble trains on; with predict it lets the member vote. Started to serve,
    join answers predictions and does not return.
    """
    return Job(model, optimizer, dataset, evaluate, predict, scheduler, collate, workers, halve, heldout)


class Job:
    """A run as a script sees it."""

    def __init__(self, model, optimizer, dataset, evaluate, predict, scheduler, collate, workers, halve, heldout):
        self.model, self.optimizer, self.dataset, self.samples = model, optimizer, dataset, len(dataset)
        self._evaluate, self._predict, self._collate, self._workers, self._halve, self._heldout = evaluate, predict, collate, workers, halve, heldout
        self._instead = load_file(os.environ["TENSORTURN_ROWS"])["rows"] if os.environ.get("TENSORTURN_ROWS") else None
        self._rate, self._order, self._loss, self._pending, self._flushed = _Rate(optimizer, scheduler), None, None, [], 0.0
        self._out = self._in = None
        self._id, self._told, self._inside, self._fixed = 0, False, False, {}
        if in_run():
            self._greet(halve)
        if os.environ.get("TENSORTURN_MODE") == "serve" and self._out is not None:
            for _ in self.batches():  # answers until it is closed; nothing is trained
                self._fail("script", "a script that was started to serve is asked to train")
            sys.exit(0)

    # -- for the script

    def batches(self, batch_size=None):
        """The batches to train on, until the run needs this machine no longer."""
        if self._out is None:
            yield from self._local(batch_size or _env("BATCH", 32))
            return
        size = _env("BATCH")
        if batch_size not in (None, size) and not (self._halve and (batch_size + 1) // 2 == size):
            raise RuntimeError("the script asks for batches of %d, the spec says batch: %d; make them equal" % (batch_size, size))
        for line in self._in:
            request = json.loads(line)
            self._id = request.get("id", 0)
            if request["type"] == "train":
                yield from self._train(request, size)
            elif request["type"] == "close":
                self._told = True
                return
            else:
                self._serve(request)

    def log(self, loss=None, **values):
        """Notes the loss of this step (a number or a tensor of one) and anything else worth a line in the log."""
        if loss is not None:
            self._loss = loss.detach() if isinstance(loss, torch.Tensor) else float(loss)
        if values:
            print(" ".join("%s=%.6g" % (k, float(v)) for k, v in values.items()), file=sys.stderr)

    def progress(self, samples):
        """A sign of life from within evaluate, for those that take longer than a lease."""
        if self._out is not None:
            self._say(type="step", id=self._id, samples=int(samples))

    # -- training

    def _rows(self, seed, epoch, first, count):
        if self._order is None or self._order.epoch != epoch:
            self._order = Order(seed, epoch, self.samples, _env("BLOCK", 1 << 16))
        rows = self._order.rows(first, count)
        return rows if self._instead is None else self._instead[torch.tensor(rows, dtype=torch.long)].tolist()

    def _fetch(self, lists):
        if self._workers:
            yield from torch.utils.data.DataLoader(self.dataset, batch_sampler=lists, num_workers=self._workers, collate_fn=self._collate)
            return
        collate = self._collate or torch.utils.data.default_collate
        tensors = self.dataset.tensors if type(self.dataset) is torch.utils.data.TensorDataset and not self._collate else None
        for rows in lists:
            if tensors is not None:
                rows = torch.tensor(rows)
                yield [t[rows] for t in tensors]
            else:
                yield collate([self.dataset[i] for i in rows])

    def _local(self, size):
        seed, epochs = _env("SEED", 1), _env("EPOCHS", 1)
        for epoch in range(epochs):
            rows, total, known = self._rows(seed, epoch, 0, self.samples), 0.0, 0
            lists = [rows[i:i + size] for i in range(0, len(rows), size)]
            for k, batch in enumerate(self._fetch(lists)):
                clock = epoch * self.samples + k * size
                self._rate.set(clock // size, clock / (epochs * self.samples))
                self._loss = None
                yield batch
                if self._loss is not None:
                    total, known = total + float(self._loss) * len(lists[k]), known + len(lists[k])
            if known:
                print("epoch %d: loss %.4f" % (epoch + 1, total / known), file=sys.stderr)

    def _train(self, request, size):
        rows = self._rows(_env("SEED", 1), request["epoch"], request["first"], request["count"])
        lists = [rows[i:i + size] for i in range(0, len(rows), size)]
        self._sum, self._known, self._inside, self._flushed = 0.0, 0, True, time.monotonic()
        for k, batch in enumerate(self._fetch(lists)):
            clock = request["position"] + k * size
            self._rate.set(clock // size, clock / request["total"])
            self._loss = None
            yield batch
            self._pending.append((len(lists[k]), self._loss))
            if time.monotonic() - self._flushed > _FLUSH_SECONDS:
                self._flush(request["id"])
        self._flush(request["id"])
        self._inside = False
        done = {"type": "trained", "id": request["id"], "steps": len(lists)}
        if self._known:
            done["loss"] = self._sum / self._known
        self._say(**done)

    def _flush(self, id):
        for samples, loss in self._pending:
            step = {"type": "step", "id": id, "samples": samples}
            if loss is not None:
                step["loss"] = float(loss)
                if not math.isfinite(step["loss"]):
                    self._fail("diverged", "the loss is %s" % step["loss"])
                self._sum, self._known = self._sum + step["loss"] * samples, self._known + samples
            if torch.cuda.is_available() and torch.cuda.is_initialized():
                step["device"] = torch.cuda.max_memory_reserved()
            self._say(**step)
        self._pending, self._flushed = [], time.monotonic()

    # -- requests

    def _serve(self, request):
        kind, folder = request["type"], os.environ["TENSORTURN_WORK_DIR"]
        if kind == "load":
            self._load(load_file(os.path.join(folder, request["file"])))
        elif kind == "save":
            save_file(self._tensors(), os.path.join(folder, request["file"]))
        elif kind == "rejoin":
            self._rate.reset(request["ramp"])
        elif kind == "evaluate":
            return self._measure(request["id"])
        elif kind == "predict":
            x = load_file(os.path.join(folder, request["input"]))["input"]
            try:
                y = self._undisturbed(lambda: self._predict(self.model, x)).to(torch.float32)
            except Exception as e:  # of these rows; others may be fine
                if _kind_of(e) != "script":
                    raise
                return self._say(type="refused", id=request["id"], text=("%s: %s" % (type(e).__name__, e))[:1500])
            save_file({"output": y}, os.path.join(folder, request["output"]))
        elif kind == "keep":
            save_file(self._state(), os.path.join(folder, request["file"]))
        elif kind == "resume":
            self._resume(load_file(os.path.join(folder, request["file"])))
        elif kind == "outputs":
            save_file(self._undisturbed(self._answers), os.path.join(folder, request["output"]))
        else:
            self._fail("script", "this helper does not know the request %r" % kind)
        self._say(type="ok", id=request["id"])

    def _tensors(self):
        travels, _ = _sort(self.model)
        return {**{name: t.detach().to("cpu", torch.float32) for name, t in travels.items()}, **self._fixed}

    def _load(self, tensors):
        travels, _ = _sort(self.model)
        with torch.no_grad():
            for name, t in travels.items():
                t.copy_(tensors[name])  # rounds to the tensor's own type

    def _state(self):
        """Everything the rest of the training depends on, as tensors: model, optimizer, random state."""
        out = {"model." + _plain(name): t for name, t in self.model.state_dict().items() if isinstance(t, torch.Tensor)}
        for i, p in enumerate(self._params()):
            for key, v in self.optimizer.state.get(p, {}).items():
                if v is None:
                    continue
                if not isinstance(v, (torch.Tensor, int, float)):
                    self._fail("script", "the optimizer keeps a %s, which a checkpoint cannot hold" % type(v).__name__)
                out["optimizer.%d.%s" % (i, key)] = v if isinstance(v, torch.Tensor) else torch.tensor(float(v), dtype=torch.float64)
        out["random.torch"] = torch.get_rng_state()
        if torch.cuda.is_available():
            out.update(("random.cuda.%03d" % i, state) for i, state in enumerate(torch.cuda.get_rng_state_all()))
        return out

    def _params(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def _resume(self, tensors):
        own = {_plain(name): t for name, t in self.model.state_dict().items() if isinstance(t, torch.Tensor)}
        params = self._params()
        self.optimizer.state.clear()
        with torch.no_grad():
            for name, t in tensors.items():
                kind, _, rest = name.partition(".")
                if kind == "model":
                    own[rest].copy_(t)
                elif kind == "optimizer":
                    i, _, key = rest.partition(".")
                    p = params[int(i)]
                    self.optimizer.state[p][key] = t.to(p.device) if t.shape == p.shape else t.clone()  # counters stay on the host
        torch.set_rng_state(tensors["random.torch"])
        states = [tensors[n] for n in sorted(tensors) if n.startswith("random.cuda.")]
        if torch.cuda.is_available() and len(states) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all(states)

    def _measure(self, id):
        got = self._undisturbed(lambda: self._evaluate(self.model))
        if not isinstance(got, dict):
            got = dict(zip(("accuracy", "loss"), got))
        loss, samples = float(got["loss"]), int(got.get("samples", _env("HELDOUT")))
        if not math.isfinite(loss):
            self._fail("diverged", "the loss on held-out data is %s" % loss)
        self._say(type="evaluated", id=id, samples=samples, accuracy=float(got["accuracy"]), loss=loss)

    def _answers(self):
        """Probabilities of all held-out rows, in their order, and what they are."""
        out, labels = [], []
        for first in range(0, len(self._heldout), 256):
            rows = [self._heldout[i] for i in range(first, min(first + 256, len(self._heldout)))]
            x = torch.stack([torch.as_tensor(r[0], dtype=torch.float32).flatten() for r in rows])
            out.append(self._predict(self.model, x).detach().to("cpu", torch.float32))
            labels += [int(r[1]) for r in rows]
            self.progress(len(rows))
        return {"probabilities": torch.cat(out), "labels": torch.tensor(labels, dtype=torch.int32)}

    def _undisturbed(self, call):
        """Runs call and leaves random state, gradients and training mode as they were."""
        modes = [(m, m.training) for m in self.model.modules()]
        state, cuda, python = torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None, random.getstate()
        try:
            with torch.no_grad():
                return call()
        finally:
            for m, training in modes:
                m.training = training
            torch.set_rng_state(state)
            random.setstate(python)
            if cuda is not None:
                torch.cuda.set_rng_state_all(cuda)

    # -- the channel

    def _greet(self, halve):
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        channel.connect(os.environ["TENSORTURN_SOCKET"])
        self._out, self._in = channel, channel.makefile("r", encoding="utf-8", newline="\n")
        before = sys.excepthook
        sys.excepthook = lambda kind, value, trace: (before(kind, value, trace), self._crash(kind, value))
        atexit.register(self._leave)
        _, fixed = _sort(self.model)
        self._fixed = {"tensorturn.frozen." + _digest(fixed): torch.empty(0)} if fixed else {}
        save_file(self._tensors(), os.path.join(os.environ["TENSORTURN_WORK_DIR"], "initial.safetensors"))
        self._say(type="hello", version=VERSION, name="tensorturn.py, torch " + torch.__version__, weights="initial.safetensors", samples=self.samples,
                  evaluates=self._evaluate is not None, predicts=self._predict is not None, halves=bool(halve), outputs=self._predict is not None and self._heldout is not None,
                  checkpoints=True)

    def _say(self, **message):
        self._out.sendall((json.dumps(message, allow_nan=False) + "\n").encode())

    def _fail(self, kind, text):
        """Tells the agent and ends the script."""
        if not self._told:
            self._told = True
            self._say(type="error", id=self._id, kind=kind, text=text[:1500])
        sys.exit(1)

    def _crash(self, kind, value):
        if self._told:
            return
        self._told, text = True, "%s: %s" % (kind.__name__, value)
        try:
            self._say(type="error", id=self._id, kind=_kind_of(value), text=text[:1500])
        except OSError:
            pass  # the agent is gone; it needs no reason

    def _leave(self):
        if self._inside and not self._told:
            self._told = True
            try:
                self._say(type="error", id=self._id, kind="script", text="the loop over job.batches() was left in the middle of a chunk")
            except OSError:
                pass
