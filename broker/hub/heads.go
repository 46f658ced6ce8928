package hub

import (
	"bytes"
	"fmt"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// headEvery is the distance of signed positions of the log. Agents keep the newest: a log that was rolled back behind
// it, or rewritten below it, is noticed at their next sync.
const headEvery = 256

// Heads signs and checks positions of the log with the hub's key.
type Heads interface {
	Sign(seq uint64, digest domain.Digest) []byte
	// Open checks the signature and gives what it covers.
	Open(head []byte) (seq uint64, digest domain.Digest, err error)
}

// headKeeper knows the digest of every headEvery-th record and the newest signed one. Its owner guards it.
type headKeeper struct {
	heads   Heads
	digests []domain.Digest // of records headEvery, 2·headEvery, ...
	newest  []byte
}

func newHeadKeeper(h Heads) *headKeeper { return &headKeeper{heads: h} }

// note takes the digest of a position from the record behind it, which carries it in prev.
func (k *headKeeper) note(es []event.Envelope) {
	if k.heads == nil {
		return
	}
	signed := len(k.digests)
	for _, e := range es {
		if seq := e.Seq - 1; seq > 0 && seq%headEvery == 0 && seq/headEvery == uint64(len(k.digests))+1 {
			k.digests = append(k.digests, e.Prev)
		}
	}
	if len(k.digests) > signed {
		k.sign()
	}
}

// sign makes the newest head.
func (k *headKeeper) sign() {
	if n := len(k.digests); n > 0 && k.heads != nil {
		k.newest = k.heads.Sign(uint64(n)*headEvery, k.digests[n-1])
	}
}

// check compares a head that an agent has kept with the log. A signature that is not ours says nothing.
func (k *headKeeper) check(head []byte) error {
	if k.heads == nil || len(head) == 0 || bytes.Equal(head, k.newest) {
		return nil
	}
	seq, digest, err := k.heads.Open(head)
	if err != nil || seq == 0 || seq%headEvery != 0 {
		return nil
	}
	i := seq/headEvery - 1
	switch {
	case i >= uint64(len(k.digests)):
		return domain.Integrity("compare the log with an agent's signed head",
			fmt.Sprintf("first bad sequence %d: an agent holds a signed head at %d and the log ends before it", uint64(len(k.digests))*headEvery+1, seq), "")
	case k.digests[i] != digest:
		return domain.Integrity("compare the log with an agent's signed head",
			fmt.Sprintf("first bad sequence is %d or before it: the record is not the one that was signed", seq), "")
	}
	return nil
}

// witness hears a head from an agent; on the loop.
func (s *Service) witness(head []byte) {
	s.mu.Lock()
	err := s.heads.check(head)
	s.mu.Unlock()
	if err != nil {
		s.core.Distrust(err)
	}
}
