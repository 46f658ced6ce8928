package sim

import (
	"bytes"
	"context"
	"time"

	"tensorturn/agent"
	"tensorturn/domain"
	"tensorturn/domain/blob"
)

// reach says why the hub's front cannot be reached, nil when it can.
func (m *machineBox) reach() error {
	if m.upBlocked() || m.downBlocked() || !m.w.hub.up() || m.w.hub.frozen > m.w.k.now {
		return domain.Unavailable("reach the hub", "no answer", "", nil)
	}
	return nil
}

// fetch gives an object from the disk or from the hub.
func (m *machineBox) fetch(_ context.Context, d domain.Digest) ([]byte, error) {
	if b, ok := m.cache[d]; ok {
		return b, nil
	}
	if err := m.reach(); err != nil {
		return nil, err
	}
	b, err := m.w.blobs.Get(context.Background(), d)
	if err == nil {
		m.cache[d] = b
	}
	return b, err
}

// base reads weights through the cache.
func (m *machineBox) base(d domain.Digest) (weights, error) {
	r, err := blob.Open(context.Background(), d, m.fetch)
	if err != nil {
		return weights{}, err
	}
	return decodeWeights(r)
}

// store puts a blob into the cache and pins it.
func (m *machineBox) store(id domain.RunID, round int, data []byte) domain.Digest {
	d, objs := packBlob(data)
	p := pin{run: id, round: round}
	for _, o := range objs {
		m.cache[o.id] = bytes.Clone(o.data)
		p.objs = append(p.objs, o.id)
	}
	m.pins = append(m.pins, p)
	return d
}

// drop forgets the deltas of rounds that are merged, unless a newer pin holds the same objects.
func (m *machineBox) drop(id domain.RunID, round int) {
	var stay []pin
	keep := map[domain.Digest]bool{}
	for _, p := range m.pins {
		if p.run != id || p.round > round {
			stay = append(stay, p)
			for _, d := range p.objs {
				keep[d] = true
			}
		}
	}
	for _, p := range m.pins {
		for _, d := range p.objs {
			if !keep[d] {
				delete(m.cache, d)
			}
		}
	}
	m.pins = stay
}

// upload asks what is missing and sends it, the manifest last, each object at a moment of its own.
func (s *slotBox) upload(id domain.Digest, done func()) {
	manifest, ok := s.p.m.cache[id]
	m, err := blob.Parse(manifest)
	if !ok || err != nil {
		s.later(s.quick(), func() { s.transferError(domain.NotFound("upload", "the blob is gone", ""), true) })
		return
	}
	todo := append(append([]domain.Digest(nil), m.Parts...), id)
	var send func()
	send = func() {
		if len(todo) == 0 {
			done()
			return
		}
		s.later(s.quick(), func() {
			if err := s.p.m.put(todo[0]); err != nil {
				s.transferError(err, domain.KindOf(err) == domain.KindNotFound)
				return
			}
			s.p.give(agent.Moved{Slot: s.index, Epoch: s.epoch, Bytes: 100})
			todo = todo[1:]
			send()
		})
	}
	send()
}

// put sends one object of the cache if the store lacks it.
func (m *machineBox) put(d domain.Digest) error {
	b, ok := m.cache[d]
	if !ok {
		return domain.NotFound("put", "the cache has it no more", "")
	}
	if err := m.reach(); err != nil {
		return err
	}
	has, err := m.w.blobs.Has(context.Background(), []domain.Digest{d})
	if err != nil || has[0] {
		return err
	}
	return m.w.blobs.Put(context.Background(), d, b)
}

// uploadAgain serves the hub's wish for a blob it cannot read.
func (p *process) uploadAgain(e agent.UploadAgain) {
	m := p.m
	m.w.k.after(m.luck.span(time.Millisecond, 2*m.w.opt.Timing.Sync), func() {
		p.awake(func() {
			switch err := m.putAll(e.Blob); domain.KindOf(err) {
			case "":
				m.w.mark(markSentAgain)
				p.give(agent.Resent{Blob: e.Blob})
			case domain.KindNotFound:
				m.w.mark(markGone)
				p.give(agent.Resent{Blob: e.Blob, Missing: true})
			default:
				p.give(agent.ResendFailed{Blob: e.Blob})
			}
		})
	})
}

// putAll sends a blob of the cache, parts first.
func (m *machineBox) putAll(id domain.Digest) error {
	list, err := blob.Parse(m.cache[id])
	if err != nil {
		return domain.NotFound("put", "the cache has it no more", "")
	}
	for _, d := range append(append([]domain.Digest(nil), list.Parts...), id) {
		if err := m.put(d); err != nil {
			return err
		}
	}
	return nil
}
