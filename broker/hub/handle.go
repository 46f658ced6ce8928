package hub

import (
	"bytes"

	"tensorturn/broker/wire"
	"tensorturn/domain"
)

// gate lets one sync of a machine be in work. A newer request replaces one that waits: it says everything the older one
// said, and the agent has given that one up.
type gate struct {
	busy bool
	next *incoming
}

// incoming is a request of a machine with the way back.
type incoming struct {
	machine domain.MachineID
	request wire.SyncRequest
	reply   func([]byte)
}

// reply is an answer on its way to an agent.
type reply struct {
	to     *incoming
	answer Answer
}

// Unlinked hears that the link of an account's machine is closed. It does not wait; a loss is allowed.
func (s *Service) Unlinked(account string) {
	s.mu.Lock()
	m, known := s.accounts[account]
	s.mu.Unlock()
	if known {
		_ = s.put(task{in: Unlinked{Machine: m}})
	}
}

// handle takes a request from the link; it never blocks.
func (s *Service) handle(account string, data []byte, send func([]byte)) {
	s.mu.Lock()
	m, known := s.accounts[account]
	s.mu.Unlock()
	if !known {
		s.sendReply(send, errorReply(s.cfg.Core.Timing, s.now(), domain.Denied("sync", "the account belongs to no machine of this pool", "join it with a token: tensorturn token create")))
		return
	}
	req, err := wire.DecodeRequest(data)
	if err != nil {
		s.cfg.Logger.Warn().Str("machine", string(m)).Err(err).Msg("unreadable request")
		s.sendReply(send, errorReply(s.cfg.Core.Timing, s.now(), err))
		return
	}
	s.enter(&incoming{machine: m, request: *req, reply: send})
}

// enter puts the request to work, or in the place of an older one that waits.
func (s *Service) enter(in *incoming) {
	s.mu.Lock()
	beat := in.request.Beat
	if beat.Vitals == nil { // nothing measured anew
		beat.Vitals = s.said[in.machine].Vitals
	}
	s.said[in.machine] = beat
	s.wishes.granted(in.machine, in.request.Logs)
	in.request.Logs = nil
	g := s.gates[in.machine]
	if g == nil {
		g = &gate{}
		s.gates[in.machine] = g
	}
	if g.busy {
		if g.next == nil || g.next.request.Incarnation != in.request.Incarnation || g.next.request.Counter < in.request.Counter {
			g.next = in
		}
		s.mu.Unlock()
		return
	}
	g.busy = true
	s.mu.Unlock()
	s.work(in)
}

// work gives the request to the loop, by way of the store when it claims what is not known to be stored. Which claims matter only
// the loop can say.
func (s *Service) work(in *incoming) {
	if s.claims.known(&in.request) {
		s.submit(in)
		return
	}
	err := s.put(task{read: func(c *Core) {
		c.fold.strip(in.machine, &in.request)
		s.askStore(in)
	}})
	if err != nil {
		s.refuse(in, err)
	}
}

// askStore has the store asked about the claims of a request that are not known yet.
func (s *Service) askStore(in *incoming) {
	if s.claims.known(&in.request) {
		s.submit(in)
		return
	}
	select {
	case s.claims.waiting <- in:
	default:
		s.refuse(in, domain.Unavailable("sync", "too many reports wait for the store", "try again", nil))
	}
}

// refuse answers a request that is not heard.
func (s *Service) refuse(in *incoming, err error) {
	s.sendReply(in.reply, errorReply(s.cfg.Core.Timing, s.now(), err))
	s.leave(in.machine)
}

func (s *Service) submit(in *incoming) {
	err := s.put(task{in: Sync{Machine: in.machine, Request: in.request}, answer: func(a Answer) { s.answered(in, a) }})
	if err != nil {
		s.refuse(in, err)
	}
}

// answered is called on the loop: the reply is encoded and sent elsewhere. When too many wait this one is dropped; the
// agent asks again.
func (s *Service) answered(in *incoming, a Answer) {
	select {
	case s.replies <- reply{to: in, answer: a}:
	default:
		s.cfg.Logger.Warn().Str("machine", string(in.machine)).Msg("reply dropped: too many wait to be sent")
	}
	s.leave(in.machine)
}

// leave opens the gate for the request that waits.
func (s *Service) leave(m domain.MachineID) {
	s.mu.Lock()
	g := s.gates[m]
	next := g.next
	g.next = nil
	if next == nil {
		g.busy = false
	}
	s.mu.Unlock()
	if next != nil {
		s.work(next)
	}
}

// sendReplies finishes replies with what only the edge has (credential, signed head) and sends them.
func (s *Service) sendReplies() {
	for r := range s.replies {
		out := r.answer.Reply
		if out.Error == nil {
			s.mu.Lock()
			newest := s.heads.newest
			s.mu.Unlock()
			if !bytes.Equal(newest, r.to.request.Head) {
				out.Head = newest
			}
			s.mu.Lock()
			out.Logs = s.wishes.of(r.to.machine)
			s.mu.Unlock()
			if s.cfg.Serving != nil {
				out.Holds = s.cfg.Serving.Exchange(r.to.machine, r.to.request.Holding, r.to.request.Stopping || out.Stop)
			}
			if r.to.request.Renew && s.cfg.Renew != nil {
				jwt, err := s.cfg.Renew(r.to.machine)
				if err != nil {
					s.cfg.Logger.Error().Str("machine", string(r.to.machine)).Err(err).Msg("credential not renewed")
				}
				out.Credential = jwt
			}
		}
		s.sendReply(r.to.reply, out)
	}
}

func (s *Service) sendReply(send func([]byte), out *wire.SyncReply) {
	b, err := wire.EncodeReply(out)
	if err != nil {
		b, err = wire.EncodeReply(errorReply(s.cfg.Core.Timing, s.now(), err))
	}
	if err != nil {
		s.cfg.Logger.Error().Err(err).Msg("reply not encoded")
		return
	}
	send(b)
}
