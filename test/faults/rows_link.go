package main

import (
	"strings"
	"sync/atomic"
	"time"

	"tensorturn/domain/machine"
	"tensorturn/projections/runs"
)

func linkRows() []row {
	return []row{
		{part: "link", fault: "1 Mbit/s with 2 % loss", expect: "control goes on beside the transfers: no lease lost",
			mutation: "1 kbit/s", run: thinLink},
		{part: "link", fault: "black hole for 60 s of a lease of 120 s, nothing closed", expect: "computes on, and turns in what it has afterwards under the same lease",
			mutation: "the hole lasts longer than its lease", run: blackHole},
		{part: "link", fault: "one-way: hears, cannot send, past its lease", expect: "the hub takes it for away; its work goes to others; it comes back by itself",
			mutation: "the hub's answers never come through again", run: oneWay},
		{part: "link", fault: "reset every few seconds, all the time", expect: "the run ends, exact; no storm of dials",
			mutation: "reset within 2 ms", run: resets},
		{part: "link", fault: "600 ms latency", expect: "no lease lost", mutation: "latency beyond a lease", run: farAway},
		{part: "link", fault: "a box forgets connections idle for 60 s (of a lease of 120 s)", expect: "what works is never idle: no lease lost",
			mutation: "it forgets after 50 ms", run: idleCut},
		{part: "link", fault: "uploads cut at byte k, 6 times", expect: "each goes on at its part: no lease lost, few bytes twice",
			mutation: "every upload is cut", run: cutUp},
		{part: "link", fault: "downloads cut at byte k, 6 times", expect: "each goes on at its part: no lease lost",
			mutation: "every download is cut", run: cutDown},
	}
}

// apart starts a hub, a machine beside it, and one behind a proxy.
func (w *world) apart() *proxy {
	w.up("near")
	p := w.between()
	w.joined(p, "far", "--reconnect", "400ms")
	return p
}

func (w *world) far(r runs.Run) runs.Slot { return w.of(r, "far") }

func thinLink(w *world) {
	p := w.apart()
	x := weather{rate: 125_000, loss: 0.02, delay: 20 * time.Millisecond}
	if w.mutant {
		x.rate = 125
	}
	p.set(x)
	id := w.submit(16, "model: {kind: mlp, hidden: [256]}", "codec: fp32")
	r := w.ended(id)
	w.unharmed(r)
	if f := w.far(r); f.Samples == 0 {
		w.Errorf("the machine behind the thin link counts nothing")
	}
	w.see("%d of %d samples came over it, %d KiB up", w.far(r).Samples, r.Ledger.Counted, p.up.Load()>>10)
}

func blackHole(w *world) {
	p := w.apart()
	id := w.submit(30)
	w.holding(id, "far")
	p.set(weather{hole: true})
	before := newest(w, "far")
	d := half
	if w.mutant {
		d = 2 * lease
	}
	w.after(d)
	worked := newest(w, "far").Sub(before)
	p.set(weather{})
	r := w.ended(id)
	w.unharmed(r)
	if worked <= 0 {
		w.Errorf("it did not compute in the hole")
	}
	far := w.machine("far").ID
	for _, e := range w.Events() { // its lease need not run out: others may be done with its work before
		if d, ok := e.Data.(*machine.BecameLost); ok && e.Agg == string(far) {
			w.Errorf("it was taken for lost: %s", d.Line())
		}
	}
	w.see("computed on for %.1f s in a hole of %s; %d samples counted", worked.Seconds(), d, w.far(r).Samples)
}

func oneWay(w *world) {
	p := w.apart()
	id := w.submit(80)
	w.holding(id, "far")
	p.set(weather{mute: true})
	w.AwaitMachine("far", machine.Lost)
	// It runs out, or what it held is done as copies before that and the round closes.
	w.AwaitRun(id, "its lease to end", func(r runs.Run) bool { return w.far(r).Expired > 0 || w.far(r).Lease == "" })
	before := w.far(w.show(id))
	if !w.mutant {
		p.set(weather{})
	}
	w.AwaitMachine("far", machine.Online)
	r := w.ended(id)
	after := w.far(r)
	if after.Samples <= before.Samples {
		w.Errorf("it counts nothing after its return")
	}
	w.see("lost, %d chunks requeued, %d copied, back: %d samples more", after.Requeued, after.Copied, after.Samples-before.Samples)
}

func resets(w *world) {
	p := w.apart()
	x := weather{reset: 3 * time.Second}
	if w.mutant {
		x.reset = 2 * time.Millisecond // no handshake is done by then
	}
	p.set(x)
	id := w.submit(40)
	before := p.dials.Load()
	began := time.Now()
	r := w.ended(id)
	rate := float64(p.dials.Load()-before) / time.Since(began).Seconds()
	w.unharmed(r)
	if f := w.far(r); f.Samples == 0 {
		w.Errorf("nothing came through: %d resets", p.resets.Load())
	}
	if rate > 10 {
		w.Errorf("%.0f dials a second", rate)
	}
	w.see("%d resets, %.1f dials a second, %d samples counted over it", p.resets.Load(), rate, w.far(r).Samples)
}

func farAway(w *world) {
	x := weather{delay: 2 * lease}
	if !w.mutant {
		x.delay = 300 * time.Millisecond
		w.Pool.Lease = 5 * lease // of one of some seconds, 600 ms would nearly make a suspect
	}
	p := w.apart()
	p.set(x)
	id := w.submit(30, "round: {chunks: 230}") // of some seconds: in one that is over within a few round trips a far machine has no part
	r := w.ended(id)
	w.unharmed(r)
	if f := w.far(r); f.Samples == 0 {
		w.Errorf("the far machine counts nothing")
	}
	w.see("%d of %d samples counted over 600 ms", w.far(r).Samples, r.Ledger.Counted)
}

func idleCut(w *world) {
	p := w.apart()
	x := weather{idle: half}
	if w.mutant {
		x.idle = 50 * time.Millisecond
	}
	p.set(x)
	w.after(lease) // idle, as a pool without a run is
	id := w.submit(30)
	r := w.ended(id)
	w.unharmed(r)
	if f := w.far(r); f.Samples == 0 {
		w.Errorf("the machine behind the box counts nothing")
	}
	w.see("%d connections forgotten by the box, %d samples counted", p.resets.Load(), w.far(r).Samples)
}

func cutUp(w *world) { w.cuts(true) }

func cutDown(w *world) { w.cuts(false) }

// cuts cuts connections at a random byte of their transfers. The weights are large enough to be the most of what passes.
func (w *world) cuts(up bool) {
	p := w.apart()
	left := &atomic.Int64{}
	left.Store(6)
	if w.mutant {
		left.Store(1 << 40)
	}
	k := 20_000 + w.rng.Int64N(200_000)
	x := weather{cutsLeft: left}
	if up {
		x.cutUp = k
	} else {
		x.cutDown = k
	}
	p.set(x)
	id := w.submit(16, "model: {kind: mlp, hidden: [1024]}", "codec: fp32")
	r := w.ended(id)
	w.unharmed(r)
	f := w.far(r)
	if f.Samples == 0 {
		w.Errorf("nothing came through")
	}
	if n := p.resets.Load(); n != 6 && !w.mutant {
		w.Errorf("%d connections were cut, 6 should be", n)
	}
	w.see("cut %d times at byte %d; %d contributions, %s passed", p.resets.Load(), k, f.Contributions, strings.TrimSpace(mib(p.up.Load())+" up, "+mib(p.down.Load())+" down"))
}
