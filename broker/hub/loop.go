package hub

import (
	"context"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
)

const revokedStanding = machine.Revoked

// tickEvery is how often the loop lets time pass.
func tickEvery(t domain.Timing) time.Duration { return max(shortestTick, min(t.Sync, longestTick)) }

// run is the loop: the only goroutine that touches Core after Start.
func (s *Service) run() {
	ticker := time.NewTicker(tickEvery(s.cfg.Core.Timing))
	defer ticker.Stop()
	defer close(s.replies)
	for {
		select {
		case t := <-s.queue:
			s.step(s.gather(t))
		case <-ticker.C:
			s.step(append(s.waiting(), task{in: Tick{Full: s.cfg.Full != nil && s.cfg.Full()}})) // what has been said counts before time is judged
		case <-s.closing:
			for s.drain() {
			}
			return
		}
	}
}

// drain decides what still waits; put refuses new tasks already.
func (s *Service) drain() bool {
	select {
	case t := <-s.queue:
		s.step(s.gather(t))
		return true
	default:
		return false
	}
}

// waiting takes what is in the queue, leaving room in the step for a tick.
func (s *Service) waiting() []task {
	var ts []task
	for len(ts) < MaxInputs-1 {
		select {
		case t := <-s.queue:
			ts = append(ts, t)
		default:
			return ts
		}
	}
	return ts
}

// gather collects the inputs of one step. A lone input goes at once; where there is a crowd, a little patience saves a
// synced append for each.
func (s *Service) gather(first task) []task {
	ts := []task{first}
	var window <-chan time.Time
	for len(ts) < MaxInputs-1 { // one is left for what workers could not take
		select {
		case t := <-s.queue:
			ts = append(ts, t)
			continue
		default:
		}
		if len(ts) == 1 {
			return ts
		}
		if window == nil {
			timer := time.NewTimer(gatherWindow)
			defer timer.Stop()
			window = timer.C
		}
		select {
		case t := <-s.queue:
			ts = append(ts, t)
		case <-window:
			return ts
		case <-s.closing:
			return ts
		}
	}
	return ts
}

// step asks the questions, decides the inputs and delivers the outputs.
func (s *Service) step(ts []task) {
	var in []Input
	var answers []func(Answer)
	for _, t := range ts {
		if t.read != nil {
			t.read(s.core)
			continue
		}
		if y, ok := t.in.(Sync); ok {
			s.witness(y.Request.Head)
		}
		in, answers = append(in, t.in), append(answers, t.answer)
	}
	for len(s.returned) > 0 && len(in) < MaxInputs {
		in, answers = append(in, s.returned[0]), append(answers, nil)
		s.returned = s.returned[1:]
	}
	if len(in) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
	defer cancel()
	began := time.Now()
	outs := s.core.Step(ctx, s.now(), in)
	s.noteReadOnly() // before anybody hears of it: who is refused because of it finds it so
	for _, o := range outs {
		s.deliver(o, answers)
	}
	s.noteHead()
	s.noteSnapshot(began)
	for _, t := range ts {
		if t.after != nil {
			t.after()
		}
	}
	if took := time.Since(began); took > slowStep {
		s.cfg.Logger.Warn().Int64("took_ms", took.Milliseconds()).Int("inputs", len(in)).Msg("slow step")
	}
}

// slowStep is worth a line: agents wait for it.
const slowStep = time.Second

func (s *Service) deliver(o Output, answers []func(Answer)) {
	switch o := o.(type) {
	case Committed:
		s.tell(o.Events)
	case Answer:
		if f := answers[o.Index]; f != nil {
			f(o)
		}
	case Admit:
		if s.cfg.Admit != nil {
			s.cfg.Admit(o.Machine)
		}
	case CutOff:
		if s.cfg.CutOff != nil {
			s.cfg.CutOff(o.Machine)
		}
	case Wake:
		s.wake(o.Machine)
	case Beat:
		if s.cfg.Beats != nil {
			s.cfg.Beats.Heartbeat(string(o.Machine), o.Data)
		}
	case InspectJob:
		select {
		case s.inspects <- o:
		default:
			s.returned = append(s.returned, Inspected{Job: o, Err: errBusy()})
		}
	case MergeJob:
		select {
		case s.merges <- o:
		default:
			s.returned = append(s.returned, Merged{Job: o, Err: errBusy()})
		}
	case VoteJob:
		select {
		case s.votes <- o:
		default:
			s.returned = append(s.returned, Counted{Job: o, Err: errBusy()})
		}
	}
}

func errBusy() error { return domain.Unavailable("hub", "all workers are busy", "", nil) }

// tell gives events to every listener, in order of registration.
func (s *Service) tell(es []event.Envelope) {
	for _, f := range s.listeners {
		f(es)
	}
}

// learn is the Service's own listener: who is who on the link, and positions to sign.
func (s *Service) learn(es []event.Envelope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range es {
		if d, ok := e.Data.(*machine.BecameEnrolled); ok {
			s.accounts[d.Account] = domain.MachineID(e.Agg)
			s.owners[domain.MachineID(e.Agg)] = d.Account
		}
	}
	s.heads.note(es)
}

func (s *Service) wake(m domain.MachineID) {
	if s.cfg.Link == nil {
		return
	}
	s.mu.Lock()
	account := s.owners[m]
	s.mu.Unlock()
	if account != "" {
		s.cfg.Link.Wake(account)
	}
}

// noteReadOnly makes Core's verdict readable for others, and says it once.
func (s *Service) noteReadOnly() {
	err := s.core.ReadOnly()
	s.mu.Lock()
	fresh := err != nil && s.readOnly == nil
	s.readOnly = err
	s.mu.Unlock()
	if fresh {
		s.cfg.Logger.Error().Err(err).Msg("the hub is read-only")
	}
}

// WakeMachine hints to a machine that it should sync now. A loss is allowed.
func (s *Service) WakeMachine(m domain.MachineID) { s.wake(m) }
