package agent

import (
	"encoding/binary"
	"testing"

	"tensorturn/domain"
)

// TestNewestHeadIsKept: an agent is the witness of a log that was rolled back, so it keeps the newest head that the hub's key
// signed, and neither an older one nor one of somebody else takes its place.
func TestNewestHeadIsKept(t *testing.T) {
	signed := func(seq uint64) []byte { return binary.BigEndian.AppendUint64([]byte("ours"), seq) }
	c := NewCore(CoreConfig{Incarnation: domain.Incarnation("i-1"), Slots: 1, Head: signed(512), HeadSeq: func(h []byte) (uint64, bool) {
		if len(h) != 12 || string(h[:4]) != "ours" {
			return 0, false
		}
		return binary.BigEndian.Uint64(h[4:]), true
	}})
	for _, tc := range []struct {
		name string
		head []byte
		kept uint64
	}{
		{"none", nil, 512}, {"the same", signed(512), 512}, {"an older one", signed(256), 512}, {"a stranger's", []byte("them12345678"), 512},
		{"a newer one", signed(768), 768}, {"the older one again", signed(512), 768},
	} {
		saved := false
		if c.newerHead(tc.head) {
			c.head, saved = tc.head, true
		}
		if got, _ := c.cfg.HeadSeq(c.head); got != tc.kept || saved != (tc.name == "a newer one") {
			t.Errorf("%s: %d is kept", tc.name, got)
		}
	}
}

// TestFirstHeadIsKept of a hub whose key signed it; what lay on the disk and is not of this hub says nothing.
func TestFirstHeadIsKept(t *testing.T) {
	c := NewCore(CoreConfig{Incarnation: domain.Incarnation("i-1"), Slots: 1, Head: []byte("of the pool before"), HeadSeq: func(h []byte) (uint64, bool) {
		return 256, string(h) == "ours"
	}})
	if !c.newerHead([]byte("ours")) || c.newerHead([]byte("theirs")) {
		t.Error("kept the wrong one")
	}
}
