package usage

import (
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
)

// work is what must be remembered of a run that has not ended to count what its facts mean.
type work struct {
	process bool  // the data blob is packed code, fetched whole
	data    int64 // bytes of the data blob, 0 when the record does not say
	samples int64 // of the training part
	chunk   int64 // samples
	base    int64 // bytes of a base, 0 until a merge has told: all have the same layout
	step    int64 // bytes of the increment that leads to the newest base, 0 when machines fetch it whole
	newest  int   // that base, by the round that begins with it
	maker   domain.MachineID
	has     map[domain.MachineID]*machine
	members map[int]*member                 // of an ensemble, by number
	steps   map[domain.SlotID]map[int]int64 // of the open round's contributions, by slot and number
}

// machine is what one machine fetched for the run.
type machine struct {
	base    int   // newest base, by the round that begins with it; 0 is none
	owed    int64 // bases whose size is not known yet
	trained int64 // samples, counted or not
	data    int64 // bytes of the data that were counted
}

func newWork(d *run.Submitted) *work {
	return &work{process: d.Spec.Trainer == run.Process, data: d.Data.Bytes, samples: int64(d.Data.Samples), chunk: int64(d.Spec.Chunk),
		has: map[domain.MachineID]*machine{}, steps: map[domain.SlotID]map[int]int64{}, members: map[int]*member{}}
}

func (w *work) machine(m domain.MachineID) *machine {
	if w.has[m] == nil {
		w.has[m] = &machine{}
	}
	return w.has[m]
}

// apply tells count what a fact adds to a machine.
func (w *work) apply(e event.Envelope, count func(domain.MachineID, Counts)) {
	switch d := e.Data.(type) {
	case *run.LeaseGranted:
		count(d.Slot.Machine(), Counts{BytesDown: w.began(d)})
	case *run.Initialised:
		w.maker = d.Slot.Machine()
		w.machine(w.maker).base = 1 // it made it
	case *run.ChunkTrained:
		count(d.Slot.Machine(), Counts{BytesDown: w.read(d.Slot.Machine())})
	case *run.ContributionAccepted:
		if w.steps[d.Slot] == nil {
			w.steps[d.Slot] = map[int]int64{}
		}
		w.steps[d.Slot][d.Number] = int64(d.Steps)
		count(d.Slot.Machine(), Counts{Samples: d.Samples, Steps: int64(d.Steps), BytesUp: d.Bytes})
	case *run.ContributionRefused:
		count(d.Slot.Machine(), Counts{BytesUp: d.Bytes})
	case *run.ContributionRevoked:
		count(d.Slot.Machine(), Counts{Samples: -d.Samples, Steps: -w.steps[d.Slot][d.Number]})
	case *run.RoundMerged:
		clear(w.steps)
		w.merged(d, count)
	default:
		w.applyMember(e, count)
	}
}

// began gives the bytes that a machine fetches for a lease: the base that it does not have yet, and a program's code.
func (w *work) began(d *run.LeaseGranted) int64 {
	m := w.machine(d.Slot.Machine())
	bytes := int64(0)
	if (w.process || d.Unit == run.UnitMember) && m.data < w.data {
		bytes, m.data = w.data-m.data, w.data
	}
	base := d.Round
	switch d.Unit {
	case run.UnitTrain:
	case run.UnitEvaluate:
		base++ // the model after the round is the base of the next
	default:
		return bytes
	}
	if base <= m.base {
		return bytes
	}
	before := m.base
	m.base = base
	if before > 0 && before == base-1 && base == w.newest && w.step > 0 {
		return bytes + w.step // it adds the increment to what it has
	}
	if w.base == 0 {
		m.owed++
	}
	return bytes + w.base
}

// read gives the bytes of data that a machine fetches for one more chunk: its share of the whole, until it has all.
func (w *work) read(id domain.MachineID) int64 {
	if w.process || w.samples < 1 || w.data <= w.machine(id).data {
		return 0
	}
	m := w.machine(id)
	m.trained = min(m.trained+w.chunk, w.samples)
	had := m.data
	m.data = int64(float64(w.data) * (float64(m.trained) / float64(w.samples)))
	return m.data - had
}

// merged learns how large a base is, and counts those that were fetched before anybody knew.
func (w *work) merged(d *run.RoundMerged, count func(domain.MachineID, Counts)) {
	w.newest, w.step = d.Round+1, d.IncrementBytes
	if d.BaseBytes == 0 || w.base > 0 {
		return
	}
	w.base = d.BaseBytes
	if w.maker != "" {
		count(w.maker, Counts{BytesUp: w.base})
	}
	for id, m := range w.has { // each is counted for itself: order does not matter
		count(id, Counts{BytesDown: m.owed * w.base})
		m.owed = 0
	}
}
