package sim

import (
	"fmt"
	"slices"
	"time"

	"tensorturn/agent"
	"tensorturn/broker/hub"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/run"
)

// machineBox is one machine: its disk and its links outlive the agent processes on it.
type machineBox struct {
	w        *world
	opt      machineOptions
	luck     luck
	net      luck // weather has a stream of its own
	enrolled bool
	revoked  bool
	proc     *process // nil when no agent runs
	starts   int

	cache map[domain.Digest][]byte // disk
	disks []*slotDisk              // of it, what the slots keep
	pins  []pin

	cutUp, cutDown time.Duration // until then nothing passes
	asleep         time.Duration // until then the machine sleeps
	slow           float64       // factor on everything it does
	slowUntil      time.Duration

	hang, err int      // the next so many trainings hang, effects fail
	poison    []poison // of the next deltas
	lies      int      // the next so many offers claim a chunk too many
}

// pin keeps a delta until its round is merged.
type pin struct {
	run   domain.RunID
	round int
	objs  []domain.Digest
}

// process is one agent process.
type process struct {
	m       *machineBox
	inc     domain.Incarnation
	core    *agent.Core
	began   time.Duration
	dead    bool
	turn    int // of the newest tick asked for
	counter uint64
	slots   []*slotBox
}

func newMachine(w *world, opt machineOptions, index int) *machineBox {
	s := streamMachine + 2*uint64(index)
	return &machineBox{w: w, opt: opt, luck: newLuck(w.opt.Seed, s), net: newLuck(w.opt.Seed, s+1), cache: map[domain.Digest][]byte{}, slow: 1}
}

func (m *machineBox) say(format string, args ...any) { m.w.say(string(m.opt.ID), format, args...) }

// start begins an agent process.
func (m *machineBox) start() {
	if m.proc != nil || m.revoked || !m.enrolled {
		return
	}
	m.starts++
	p := &process{m: m, inc: domain.Incarnation(fmt.Sprintf("%s-i%d", m.opt.ID, m.starts)), began: m.w.k.now}
	p.core = agent.NewCore(agent.CoreConfig{Incarnation: p.inc, Slots: m.opt.Slots, Seed: m.luck.Uint64(), IdleClose: 10 * m.w.opt.Timing.Lease})
	for i := range m.opt.Slots {
		if len(m.disks) == i {
			m.disks = append(m.disks, &slotDisk{})
		}
		p.slots = append(p.slots, &slotBox{p: p, index: i, disk: m.disks[i]})
		m.find(p.core, i)
	}
	m.proc = p
	m.say("agent starts for the %d. time", m.starts)
	p.give(agent.Tick{})
}

// kill ends the agent process without a word.
func (m *machineBox) kill(why string) {
	if m.proc == nil {
		return
	}
	m.say("agent dies: %s", why)
	m.proc.dead = true
	m.proc = nil
	if !m.upBlocked() { // the end of a process closes its link
		m.w.hub.put(letter{in: hub.Unlinked{Machine: m.opt.ID}})
	}
}

func (m *machineBox) wipe() {
	m.cache, m.pins = map[domain.Digest][]byte{}, nil
	for _, d := range m.disks {
		d.clear()
	}
}

// cutOff is the end of a revoked machine's connection.
func (m *machineBox) cutOff() {
	m.revoked = true
	m.kill("revoked")
}

// upBlocked and downBlocked say whether the links pass anything.
func (m *machineBox) upBlocked() bool   { return m.cutUp > m.w.k.now }
func (m *machineBox) downBlocked() bool { return m.cutDown > m.w.k.now }

// carry sends something over a link: never, once or twice, early or late.
func (m *machineBox) carry(blocked bool, what string, deliver func()) {
	n := m.w.opt.Net
	if blocked {
		return
	}
	copies := 1
	if m.w.faulty() {
		if m.net.chance(n.Loss) {
			m.say("%s is lost", what)
			return
		}
		if m.net.chance(n.Twice) {
			copies = 2
		}
	}
	for range copies {
		d := m.net.span(n.Lo, n.Hi)
		if m.w.faulty() && m.net.chance(n.Late) {
			d += m.net.span(0, m.w.opt.Timing.Lease*3/2)
		}
		m.w.k.after(d, deliver)
	}
}

// wake is the hub's hint.
func (m *machineBox) wake() {
	p := m.proc
	if p != nil {
		m.carry(m.downBlocked(), "a wake", func() { p.give(agent.Woken{}) })
	}
}

// clock is the time since the process started, on the machine's own clock.
func (p *process) clock() time.Duration {
	return time.Duration(float64(p.m.w.k.now-p.began) * p.m.opt.Clock)
}

// awake does something on the machine when it is awake, if the process still lives then.
func (p *process) awake(do func()) {
	switch {
	case p.dead:
	case p.m.asleep > p.m.w.k.now:
		p.m.w.k.at(p.m.asleep, func() { p.awake(do) })
	default:
		do()
	}
}

// give hands an input to Core and performs what it wants.
func (p *process) give(in agent.Input) {
	p.awake(func() {
		for _, e := range p.core.Step(p.clock(), in) {
			p.perform(e)
			if p.dead {
				return
			}
		}
		p.tick()
	})
}

// tick asks for the next Tick at the time Core wants one.
func (p *process) tick() {
	p.turn++
	turn, next := p.turn, p.core.Next()
	if next > 100*time.Hour {
		return
	}
	wait := time.Duration(float64(max(0, next-p.clock()))/p.m.opt.Clock) + time.Nanosecond
	p.m.w.k.after(wait, func() {
		if p.turn == turn {
			p.give(agent.Tick{})
		}
	})
}

// sync sends a request through the codec and over the link.
func (p *process) sync(e agent.SendSync) {
	m := p.m
	p.counter = e.Request.Counter
	p.m.w.bias.sent(m.opt.ID, &e.Request)
	p.lie(&e.Request)
	p.candid(&e.Request)
	b, err := wire.EncodeRequest(&e.Request)
	if err != nil {
		fail("the request of %s cannot be sent: %v", m.opt.ID, err)
	}
	if fenced := p.core.Fenced(p.clock()); fenced && slices.ContainsFunc(e.Request.Slots, func(s wire.SlotReport) bool { return s.Offer != nil }) {
		fail("%s offers a delta behind its fence", m.opt.ID)
	}
	m.say("sync %d %s", e.Request.Counter, brief(&e.Request))
	if m.upBlocked() && m.luck.chance(0.5) { // the link notices
		m.w.k.after(m.luck.span(0, m.w.opt.Timing.Suspect), func() { p.give(agent.SyncFailed{Counter: e.Request.Counter}) })
		return
	}
	m.carry(m.upBlocked(), "a sync", func() {
		m.w.hub.receive(m.opt.ID, b, func(reply []byte) {
			m.carry(m.downBlocked(), "a reply", func() { p.hear(e.Request.Counter, reply) })
		})
	})
}

func (p *process) hear(counter uint64, reply []byte) {
	r, err := wire.DecodeReply(reply)
	if err != nil {
		fail("%s cannot read the hub's reply: %v", p.m.opt.ID, err)
	}
	if counter < p.counter && !p.dead {
		p.m.w.mark(markLateReply)
	}
	p.give(agent.Replied{Counter: counter, Reply: r})
}

// lie lets an offer claim a chunk that its weights do not hold.
func (p *process) lie(r *wire.SyncRequest) {
	for i := range r.Slots {
		s := &r.Slots[i]
		if p.m.lies == 0 || s.Offer == nil {
			continue
		}
		b := p.m.w.past.books[s.Run]
		if b == nil {
			continue
		}
		for c := range domain.ChunkID(run.TotalChunks(b.spec, b.data)) {
			if !slices.Contains(s.Offer.Chunks, c) {
				p.m.lies--
				o := *s.Offer
				o.Chunks = append(slices.Clone(o.Chunks), c)
				s.Offer = &o
				p.m.say("lies: chunk %d too", c)
				break
			}
		}
	}
}

// brief is a request for the trace.
func brief(r *wire.SyncRequest) string {
	out := ""
	for _, s := range r.Slots {
		out += fmt.Sprintf("[%d: %s epoch %d %s number %d trained %d", s.Index, s.Run, s.Epoch, s.Phase, s.Number, len(s.Trained))
		if s.Offer != nil {
			out += fmt.Sprintf(" offers %v", s.Offer.Chunks)
		}
		if s.Error != "" {
			out += " error " + s.Error
		}
		out += "]"
	}
	if r.Stopping {
		out += " stopping"
	}
	return out
}

// atRest: when every run has ended the agent holds nothing and does nothing.
func (m *machineBox) atRest() {
	if m.proc == nil || m.revoked {
		return
	}
	for i, epoch := range m.proc.core.Held() {
		if epoch != 0 {
			fail("every run has ended and %s/%d still holds lease %d", m.opt.ID, i, epoch)
		}
	}
}
