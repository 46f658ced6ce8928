package agent

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tensorturn/broker/wire"
	"tensorturn/domain"
)

// shelf is two attempts of run r.
type shelf struct{}

func (shelf) List(run domain.RunID) []wire.LogFile {
	if run != "r" {
		return nil
	}
	return []wire.LogFile{{Attempt: 0, Member: 3, Bytes: 5}, {Attempt: 1, Member: wire.AnyMember, Bytes: 100_000, Open: true}}
}

func (shelf) Read(_ domain.RunID, attempt int, from int64, n int) ([]byte, int64, error) {
	if attempt == 0 {
		return []byte("first"), 0, nil
	}
	return []byte(strings.Repeat("x", n)), from, nil
}

func TestWishesAreAnswered(t *testing.T) {
	a := &Agent{cfg: Config{Logs: shelf{}}}
	both := shelf{}.List("r")
	for name, c := range map[string]struct {
		wish wire.LogWish
		want wire.LogPiece
	}{
		"the newest":      {wire.LogWish{ID: 1, Run: "r", Attempt: -1, Member: -1, From: 7, Bytes: 3}, wire.LogPiece{ID: 1, Found: true, Log: both[1], From: 7, Data: []byte("xxx"), Others: both}},
		"an attempt":      {wire.LogWish{ID: 2, Run: "r", Attempt: 0, Member: -1, Bytes: 9}, wire.LogPiece{ID: 2, Found: true, Log: both[0], Data: []byte("first"), Others: both}},
		"a member":        {wire.LogWish{ID: 3, Run: "r", Attempt: -1, Member: 3, Bytes: 9}, wire.LogPiece{ID: 3, Found: true, Log: both[0], Data: []byte("first"), Others: both}},
		"no such attempt": {wire.LogWish{ID: 4, Run: "r", Attempt: 9, Member: -1, Bytes: 9}, wire.LogPiece{ID: 4, Others: both}},
		"another run":     {wire.LogWish{ID: 5, Run: "s", Attempt: -1, Member: -1, Bytes: 9}, wire.LogPiece{ID: 5}},
	} {
		if d := cmp.Diff([]wire.LogPiece{c.want}, a.read([]wire.LogWish{c.wish})); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	greedy := a.read(make([]wire.LogWish, 100))
	if len(greedy) != wire.MaxLogWishes {
		t.Errorf("%d pieces", len(greedy))
	}
	if p := a.read([]wire.LogWish{{Run: "r", Attempt: 1, Member: -1, Bytes: 1 << 30}})[0]; len(p.Data) != wire.MaxLogPiece {
		t.Errorf("%d bytes in a piece", len(p.Data))
	}
	if p := (&Agent{}).read([]wire.LogWish{{ID: 1, Run: "r"}}); len(p) != 1 || p[0].Found {
		t.Errorf("an agent without logs says %+v", p)
	}
}
