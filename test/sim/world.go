package sim

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"time"

	"tensorturn/agent"
	"tensorturn/broker/hub"
	"tensorturn/broker/memory"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/pool"
	"tensorturn/domain/run"
)

var stopRequested = agent.StopRequested{}

// world is one seed at work.
type world struct {
	opt   options
	k     kernel
	tr    *trace
	marks marks
	bias  bias
	plant *planted // a defect in the product's place, nil for none

	reg      *event.Registry
	log      *memory.Log
	blobs    *memory.Blobs
	store    *storeFaults
	hub      *hubBox
	machines []*machineBox
	byID     map[domain.MachineID]*machineBox
	nemesis  *nemesis
	healed   bool

	past     *past
	writes   int // steps that wrote something
	made     map[work][]product
	left     map[domain.SlotID]domain.Epoch // leases of which a killed process has left work, the newest
	models   map[domain.Digest]weights
	kept     map[domain.Digest]bool // blobs that merged rounds name
	injected [faultCount]int
	commands int
	acked    map[domain.CommandID]bool
	resumed  int
}

// epoch is when the simulated world begins on the hub's clock.
var epoch = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func newWorld(opt options, what wrong, out io.Writer) *world {
	w := &world{
		opt: opt, tr: newTrace(out), bias: bias{what: what}, reg: event.NewRegistry(), byID: map[domain.MachineID]*machineBox{},
		made: map[work][]product{}, left: map[domain.SlotID]domain.Epoch{}, models: map[domain.Digest]weights{}, kept: map[domain.Digest]bool{}, acked: map[domain.CommandID]bool{},
	}
	run.Register(w.reg)
	machine.Register(w.reg)
	pool.Register(w.reg)
	w.store = &storeFaults{w: w, luck: newLuck(opt.Seed, streamStore)}
	w.log = memory.NewLog(w.store.log)
	w.blobs = memory.NewBlobs(w.wall, w.store.blobs)
	w.past = newPast(w)
	w.hub = &hubBox{w: w, luck: newLuck(opt.Seed, streamHub), snaps: newLuck(opt.Seed, streamFrozen), clock: newLuck(opt.Seed, streamClock)}
	w.nemesis = &nemesis{w: w, luck: newLuck(opt.Seed, streamNemesis)}
	return w
}

func (w *world) wall() time.Time { return epoch.Add(w.k.now) }

func (w *world) say(who, format string, args ...any) { w.tr.say(w.k.now, who, format, args...) }

func (w *world) mark(m mark) {
	w.marks[m]++
	w.say("mark", "%v", m)
}

// faulty reports whether faults may happen now.
func (w *world) faulty() bool { return !w.healed && w.k.now < w.opt.Faulty }

// outcome is how a world ended.
type outcome struct {
	digest  string
	marks   marks
	virtual time.Duration
	healing time.Duration // from the end of the faults to the end of the last run
	expired int           // leases
	records uint64
	events  int
	err     error // a violation, or a broken promise of the product
}

// play runs a world to its end: faults for a while, then none, and every run must end.
func play(opt options, what wrong, out io.Writer) outcome { return playPlanted(opt, what, nil, out) }

// playPlanted plays a world with a defect in it.
func playPlanted(opt options, what wrong, plant *planted, out io.Writer) (o outcome) {
	w := newWorld(opt, what, out)
	w.plant = plant
	defer func() {
		o.digest, o.marks, o.virtual, o.records, o.events = w.tr.digest(), w.marks, w.k.now, w.past.known, w.k.done
		o.expired = len(w.past.over)
		if p := recover(); p != nil {
			o.err = w.report(p)
		}
	}()
	healed := w.live()
	o.healing = w.k.now - healed
	for rest := w.rest(); w.k.next(rest); {
	}
	w.finish()
	return o
}

// live lets faults happen for a while, then heals, and returns when that was once every run has ended.
func (w *world) live() (healed time.Duration) {
	w.begin()
	for !w.past.ended() && w.k.next(w.opt.Faulty) {
	}
	w.heal()
	healed = w.k.now
	for end := healed + w.bound(); !w.past.ended(); {
		if !w.k.next(end) {
			fail("no end within %v of virtual time without faults: %s", w.bound(), w.pending())
		}
	}
	return healed
}

// rest is until when everybody has heard that it is over.
func (w *world) rest() time.Duration {
	end := w.k.now
	for _, m := range w.machines {
		end = max(end, m.asleep)
	}
	return end + w.opt.Timing.Lease + 2*w.opt.Net.Hi
}

// begin founds the pool, and asks for machines and runs at their times.
func (w *world) begin() {
	for _, o := range func() []object { _, objs := dataBlob(); return objs }() {
		must(w.blobs.Put(context.Background(), o.id, o.data))
	}
	w.hub.start()
	w.operate(event.KindPool, pool.ID, pool.Found{At: w.wall()}, nil)
	for _, m := range w.opt.Machines {
		w.k.at(m.Join, func() { w.join(m) })
	}
	for _, r := range w.opt.Runs {
		w.k.at(r.At, func() { w.operate(event.KindRun, string(r.ID), run.Submit{Spec: r.Spec, Data: r.Data}, nil) })
	}
	if w.bias.what == wrongRewrite {
		w.k.at(w.opt.Timing.Lease, func() { w.log.Corrupt(1, func(b []byte) []byte { b[len(b)-1] ^= 1; return b }) })
	}
	w.nemesis.start()
	(&janitor{w: w, luck: newLuck(w.opt.Seed, streamJanitor)}).start()
}

// join enrols a machine and starts its agent.
func (w *world) join(o machineOptions) {
	m := newMachine(w, o, len(w.machines))
	w.machines = append(w.machines, m)
	w.byID[o.ID] = m
	w.operate(event.KindMachine, string(o.ID), machine.Enrol{ID: o.ID, Name: string(o.ID), NKey: "U" + string(o.ID), Account: "A" + string(o.ID),
		Slots: o.Slots, At: w.wall()}, func(err error) {
		must(err)
		m.enrolled = true
		m.start()
	})
}

// operate sends a command as a client does: again under the same id until it is answered.
func (w *world) operate(kind event.Kind, id string, cmd any, then func(error)) {
	w.commands++
	d := hub.Do{Command: domain.CommandID(fmt.Sprintf("c-%d", w.commands)), Actor: "operator", Targets: []hub.Target{{Kind: kind, ID: id, Command: cmd}}}
	answered := false
	var send func()
	send = func() {
		if answered {
			return
		}
		w.hub.put(letter{in: d, done: func(err error) {
			if answered || domain.KindOf(err) == domain.KindUnavailable {
				return
			}
			answered = true
			w.say("owner", "%s %s %T: %v", d.Command, id, cmd, err)
			switch cmd.(type) {
			case run.Submit, machine.Enrol, machine.Revoke:
				w.acked[d.Command] = err == nil && !w.moot(cmd, id, d.Command)
			}
			if then != nil {
				then(err)
			}
		}})
		w.k.after(w.opt.Timing.Lease/4, send)
	}
	send()
}

// moot: a revocation that was answered may have changed nothing, when the machine was revoked already.
func (w *world) moot(cmd any, id string, c domain.CommandID) bool {
	_, revoke := cmd.(machine.Revoke)
	return revoke && !w.past.causes[c] && w.past.machines[domain.MachineID(id)].Standing == machine.Revoked
}

// hears notes what the hub is told before it decides.
func (w *world) hears(m domain.MachineID, r *wire.SyncRequest) {
	for _, s := range r.Slots {
		if w.past.over[s.Epoch] {
			w.mark(markCameBack)
		}
	}
	w.bias.request(w, m, r)
}

// heal ends all faults: links pass, everything runs that may run, and at least one machine is able to work.
func (w *world) heal() {
	w.say("world", "heals")
	if w.bias.what == wrongStuck {
		for _, m := range w.machines {
			m.cutUp, m.cutDown = time.Hour*1000, time.Hour*1000
		}
		return
	}
	w.healed = true
	w.hub.frozen = min(w.hub.frozen, w.k.now)
	w.hub.start()
	for _, m := range w.machines {
		m.cutUp, m.cutDown, m.slowUntil, m.hang, m.err, m.poison, m.lies = 0, 0, 0, 0, 0, nil, 0
		m.start()
	}
	w.care()
}

// care is the owner who looks after the pool once the faults are over: agents that have ended start again, what is
// paused or quarantined is resumed, and a machine joins when none is left.
func (w *world) care() {
	able := false
	for _, m := range w.machines {
		m.start()
		s := w.past.machines[m.opt.ID]
		if s == nil {
			able = able || !m.revoked
			continue
		}
		if s.Standing != machine.Revoked {
			able = true
			if s.Draining || s.Quarantined != "" {
				w.operate(event.KindMachine, string(m.opt.ID), machine.Resume{}, nil)
			}
		}
	}
	if !able {
		w.join(machineOptions{ID: domain.MachineID(fmt.Sprintf("x%d", len(w.machines))), Slots: 1, Speed: w.opt.Machines[0].Speed, Clock: 1})
	}
	for _, r := range w.opt.Runs {
		if s := w.past.runs[r.ID]; s != nil && s.Paused != "" && !s.Phase.Ended() {
			w.resumed++
			w.operate(event.KindRun, string(r.ID), run.Resume{}, nil)
		}
	}
	w.k.after(w.opt.Timing.Lease, w.care)
}

// bound is the virtual time within which every run must end once nothing goes wrong any more: leases that must run
// out, rounds that must reach a deadline, and the work itself on the slowest machine alone.
func (w *world) bound() time.Duration {
	slowest := w.opt.Machines[0].Speed / 2
	for _, m := range w.opt.Machines {
		slowest = min(slowest, m.Speed)
	}
	samples := 0.0
	for _, r := range w.opt.Runs {
		samples += workOf(r)
	}
	return 40*w.opt.Timing.Lease + time.Duration(4*samples/slowest*float64(time.Second))
}

// pending says why the runs have not ended.
func (w *world) pending() string {
	var b strings.Builder
	for _, r := range w.opt.Runs {
		s := w.past.runs[r.ID]
		if s == nil {
			fmt.Fprintf(&b, "%s is not in the log; ", r.ID)
			continue
		}
		if s.Phase.Ended() {
			continue
		}
		fmt.Fprintf(&b, "%s is %s, paused %q, %d of %d samples counted, ", r.ID, s.Phase, s.Paused, s.Ledger().Counted, s.Ledger().Expected)
		if o := s.Open; o != nil {
			fmt.Fprintf(&b, "%v closed %v, pool %d, deadline %.1f, ", o, o.Closed, len(o.Pool), o.Deadline)
		}
		for _, slot := range s.Slots() {
			l := s.Leases[slot]
			fmt.Fprintf(&b, "[%s %s epoch %d claimed %v trained %v shard %d contribute %q] ", slot, l.Unit, l.Epoch, l.Claimed, l.Trained,
				len(s.ShardOf(slot)), l.Contribute)
		}
		fmt.Fprintf(&b, "evaluation %v; ", s.Evaluation != nil)
	}
	for _, m := range w.machines {
		if s := w.past.machines[m.opt.ID]; s != nil {
			fmt.Fprintf(&b, "%s is %s draining %v quarantined %q; ", m.opt.ID, s.Standing, s.Draining, s.Quarantined)
		}
	}
	return b.String()
}

// keep notes that a merged round names the blob: it must stay.
func (w *world) keep(d domain.Digest) { w.kept[d] = true }

// model reads weights from the store; checkers ask for the same ones again and again.
func (w *world) model(d domain.Digest) (weights, error) {
	if m, ok := w.models[d]; ok {
		return m, nil
	}
	r, err := blob.Open(context.Background(), d, w.blobs.Get)
	if err != nil {
		return weights{}, err
	}
	m, err := decodeWeights(r)
	if err == nil {
		w.models[d] = m
	}
	return m, err
}

// report turns what ended the world into an error that tells the whole story.
func (w *world) report(p any) error {
	var b strings.Builder
	if v, ok := p.(violation); ok {
		fmt.Fprintf(&b, "%s\n", v.sentence)
	} else {
		fmt.Fprintf(&b, "panic: %v\n%s\n", p, debug.Stack())
	}
	fmt.Fprintf(&b, "\nseed %d, at %v, trace %s\n%v\n", w.opt.Seed, w.k.now, w.tr.digest(), w.opt)
	for _, line := range w.tr.tail() {
		fmt.Fprintln(&b, line)
	}
	fmt.Fprintf(&b, "\nagain: make sim SEED=%d\n", w.opt.Seed)
	return fmt.Errorf("%s", b.String())
}

func compareContributions(a, b contribution) int {
	return cmp.Or(cmp.Compare(a.round, b.round), cmp.Compare(a.slot, b.slot), cmp.Compare(a.number, b.number))
}
