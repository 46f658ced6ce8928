package hub

import (
	"fmt"

	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
)

// fakeAgent is an agent in the fewest lines that obey the protocol: it holds what the hub says, trains at a given speed
// and offers when it is asked to.
type fakeAgent struct {
	id      domain.MachineID
	starts  int
	counter uint64
	speed   float64 // samples per second and slot
	slots   []fakeSlot
	silent  bool // it works and does not speak
	dead    bool // it does neither
	hung    bool // it speaks and does not work
	stop    bool // it was asked to end
	stopped bool // and may
	missing []domain.Digest
	away    map[int]*wire.Away // slots that cannot work
	vitals  *machine.Vitals    // told with every sync
	bench   *wire.Bench
	last    *wire.SyncReply
}

type fakeSlot struct {
	want     wire.SlotDesire
	job      *wire.Job
	trained  []wire.TrainedChunk
	done     float64 // samples of the chunk under way
	progress uint64
	offer    *wire.Offer
	init     *wire.Init
	eval     *wire.Eval
	err      string
	late     *wire.Late // what it trained under a lease that has ended
	kept     []wire.TrainedChunk
}

func newFakeAgent(id domain.MachineID, slots int, speed float64) *fakeAgent {
	a := &fakeAgent{id: id, speed: speed, slots: make([]fakeSlot, slots)}
	a.restart()
	return a
}

// restart is a new process: it holds nothing.
func (a *fakeAgent) restart() {
	a.starts++
	a.counter, a.dead, a.silent, a.stopped, a.stop = 0, false, false, false, false
	a.slots = make([]fakeSlot, len(a.slots))
}

// killed is a new process that finds what the one before had trained on its disk.
func (a *fakeAgent) killed() {
	before := a.slots
	a.restart()
	for i := range before {
		before[i].turn(wire.SlotDesire{})
		a.slots[i].late, a.slots[i].kept = before[i].late, before[i].kept
	}
}

func (a *fakeAgent) incarnation() domain.Incarnation {
	return domain.Incarnation(fmt.Sprintf("%s-i%d", a.id, a.starts))
}

// request is the next sync.
func (a *fakeAgent) request() wire.SyncRequest {
	a.counter++
	r := wire.SyncRequest{Version: wire.Version, Incarnation: a.incarnation(), Counter: a.counter, Stopping: a.stop, Missing: a.missing, Bench: a.bench}
	r.Beat.Vitals = a.vitals
	for i := range a.slots {
		r.Slots = append(r.Slots, a.slots[i].report(i, a.speed))
		r.Slots[i].Away = a.away[i]
	}
	return r
}

func (s *fakeSlot) report(i int, speed float64) wire.SlotReport {
	r := wire.SlotReport{
		Index: i, Run: s.want.Run, Epoch: s.want.Epoch, Number: s.want.Number, Trained: append([]wire.TrainedChunk(nil), s.trained...),
		Progress: s.progress, Offer: s.offer, Init: s.init, Eval: s.eval, Error: s.err, Phase: wire.PhaseIdle,
	}
	switch {
	case s.want.Run == "":
	case s.offer != nil:
		r.Phase = wire.PhaseOffered
	case s.want.Unit == run.UnitTrain && len(s.trained) < len(s.want.Claims) && !s.want.Contribute:
		r.Phase = wire.PhaseTraining
	default:
		r.Phase = wire.PhaseReady
	}
	if len(s.trained) > 0 {
		r.Speed = speed
		r.Boundaries = boundaries(len(s.trained))
	}
	if s.want.Run == "" {
		r.Late = s.late
	}
	return r
}

// hear obeys a reply.
func (a *fakeAgent) hear(r *wire.SyncReply) {
	a.last = r
	if r.Error != nil {
		return
	}
	a.stopped = r.Stop
	for i, d := range r.Slots {
		a.slots[i].hear(d)
	}
}

func (s *fakeSlot) hear(d wire.SlotDesire) {
	if d.Run != s.want.Run || d.Epoch != s.want.Epoch {
		s.turn(d)
	}
	if d.Number > s.want.Number {
		s.trained, s.offer, s.done = nil, nil, 0
	}
	if d.Cut != nil && len(s.trained) > *d.Cut {
		s.trained, s.offer = s.trained[:*d.Cut], nil
	}
	s.want = d
}

// turn ends the lease held and begins the next one. What was trained is kept until something else is to be done.
func (s *fakeSlot) turn(d wire.SlotDesire) {
	late, kept := s.late, s.kept
	if s.want.Unit == run.UnitTrain && len(s.trained) > 0 {
		kept = s.trained
		late = &wire.Late{Run: s.want.Run, Epoch: s.want.Epoch, Number: s.want.Number, Boundaries: boundaries(len(kept))}
		for _, t := range kept {
			late.Chunks = append(late.Chunks, t.Chunk)
		}
	}
	*s = fakeSlot{job: d.Job}
	s.want.Number = d.Number
	switch {
	case d.Run == "":
		s.late, s.kept = late, kept
	case d.Adopt != nil && late != nil && late.Epoch == d.Adopt.Late:
		s.trained = append(s.trained, kept[:d.Adopt.Keep]...)
	}
}

// boundaries are the newest four prefixes of n chunks.
func boundaries(n int) []int {
	var bs []int
	for k := max(n-3, 1); k <= n; k++ {
		bs = append(bs, k)
	}
	return bs
}

// work lets a second pass on every slot.
func (a *fakeAgent) work(seconds float64) {
	if a.hung {
		return
	}
	for i := range a.slots {
		a.slots[i].work(fmt.Sprintf("%s/%d", a.id, i), seconds*a.speed)
	}
}

func (s *fakeSlot) work(name string, samples float64) {
	switch {
	case s.want.Run == "" || s.offer != nil || s.err != "":
		return
	case s.want.Unit == run.UnitInit:
		s.init = &wire.Init{Base: digest("base", s.want.Run, 0), Layout: digest("layout"), Params: 100}
	case s.want.Unit == run.UnitEvaluate:
		s.eval = &wire.Eval{Samples: 20, Accuracy: 0.9, Loss: 0.3}
	case s.want.Unit == run.UnitTrain:
		s.train(name, samples)
	}
	s.progress++
}

func (s *fakeSlot) train(name string, samples float64) {
	s.done += samples
	for !s.want.Contribute && len(s.trained) < len(s.want.Claims) {
		c := s.want.Claims[len(s.trained)]
		n := float64(run.ChunkSamples(s.job.Spec, s.job.Data, c))
		if s.done < n {
			return
		}
		s.done -= n
		s.trained = append(s.trained, wire.TrainedChunk{Chunk: c, Steps: run.ChunkSteps(s.job.Spec, s.job.Data, c), Seconds: 1, Loss: 0.5})
	}
	s.done = 0
	if s.want.Contribute && len(s.trained) > 0 {
		s.makeOffer(name)
	}
}

func (s *fakeSlot) makeOffer(name string) {
	o := &wire.Offer{Blob: digest("delta", name, s.want.Epoch, s.want.Number, len(s.trained)), Codec: s.job.Spec.Codec}
	for _, t := range s.trained {
		o.Chunks, o.Steps = append(o.Chunks, t.Chunk), o.Steps+t.Steps
	}
	o.Boundaries = boundaries(len(s.trained))
	s.offer = o
}
