package hub

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// plainHeads signs nothing and believes everything: signatures are broker/identity's.
type plainHeads struct{}

type plainHead struct {
	Seq    uint64
	Digest domain.Digest
}

func (plainHeads) Sign(seq uint64, d domain.Digest) []byte {
	b, err := json.Marshal(plainHead{seq, d})
	domain.Assert(err == nil, "a head can be encoded")
	return b
}

func (plainHeads) Open(head []byte) (uint64, domain.Digest, error) {
	var h plainHead
	if json.Unmarshal(head, &h) != nil {
		return 0, "", errors.New("not ours")
	}
	return h.Seq, h.Digest, nil
}

func TestHeads(t *testing.T) {
	k := newHeadKeeper(plainHeads{})
	for seq := uint64(1); seq <= 2*headEvery+1; seq++ {
		k.note([]event.Envelope{{Seq: seq, Prev: digest("record", seq-1)}})
	}
	if seq, d, err := k.heads.Open(k.newest); err != nil || seq != 2*headEvery || d != digest("record", uint64(2*headEvery)) {
		t.Errorf("newest head: %d %s %v", seq, d, err)
	}
	cases := map[string]struct {
		head []byte
		why  string
	}{
		"none":         {nil, ""},
		"newest":       {k.newest, ""},
		"older":        {plainHeads{}.Sign(headEvery, digest("record", uint64(headEvery))), ""},
		"foreign":      {[]byte("?"), ""},
		"ahead":        {plainHeads{}.Sign(3*headEvery, digest("record", uint64(3*headEvery))), "first bad sequence 513"},
		"other record": {plainHeads{}.Sign(headEvery, digest("another")), "first bad sequence is 256 or before"},
	}
	for name, c := range cases {
		err := k.check(c.head)
		if (err == nil) != (c.why == "") || err != nil && (domain.KindOf(err) != domain.KindIntegrity || !strings.Contains(err.Error(), c.why)) {
			t.Errorf("%s: %v, want %q", name, err, c.why)
		}
	}
}

// An agent that has seen more of the log than there is makes the hub read-only.
func TestRolledBackLogIsNoticed(t *testing.T) {
	r := newRig(t, func(c *ServiceConfig) { c.Heads = plainHeads{} })
	r.start()
	defer r.s.Stop()
	r.found("a")
	a := newFakeAgent("a", 1, 1)
	req := a.request()
	req.Head = plainHeads{}.Sign(headEvery, digest("seen"))
	if reply := r.request("Aa", req); reply.Error == nil || reply.Error.Kind != domain.KindIntegrity {
		t.Errorf("reply %+v", reply.Error)
	}
	if err := r.s.ReadOnly(); domain.KindOf(err) != domain.KindIntegrity {
		t.Errorf("read-only: %v", err)
	}
}
