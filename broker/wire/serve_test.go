package wire

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tensorturn/domain"
	"tensorturn/domain/pack"
	"tensorturn/domain/run"
)

var someDigest = domain.Digest(strings.Repeat("a", 64))

func sampleAsk() *Ask {
	return &Ask{ID: 7, Run: "r-1", Member: 2, Weights: someDigest, Rows: 2, Values: PackValues([]float32{1, 2, 3, 4}), Left: 1.5}
}

func TestQuestions(t *testing.T) {
	b, err := EncodeAsk(sampleAsk())
	if err != nil {
		t.Fatal(err)
	}
	a, err := DecodeAsk(b)
	if err != nil || !cmp.Equal(a, sampleAsk()) {
		t.Fatalf("%v %s", err, cmp.Diff(sampleAsk(), a))
	}
	if got := UnpackValues(a.Values); !cmp.Equal(got, []float32{1, 2, 3, 4}) {
		t.Errorf("values %v", got)
	}
	for name, edit := range map[string]func(*Ask){
		"run with a wildcard": func(a *Ask) { a.Run = ">" },
		"no run":              func(a *Ask) { a.Run = "" },
		"weights":             func(a *Ask) { a.Weights = "../x" },
		"member":              func(a *Ask) { a.Member = run.MaxMembers + 2 },
		"no rows":             func(a *Ask) { a.Rows = 0 },
		"half rows":           func(a *Ask) { a.Rows = 3 },
		"no values":           func(a *Ask) { a.Values = nil },
		"too many values":     func(a *Ask) { a.Values, a.Rows = make([]byte, MaxAskBytes+4), 1 },
		"no time":             func(a *Ask) { a.Left = 0 },
		"time without end":    func(a *Ask) { a.Left = MaxAskLeft + 1 },
	} {
		a := sampleAsk()
		edit(a)
		b, err := pack.Encode(a)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeAsk(b); domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	full := sampleAsk()
	full.Values, full.Rows = make([]byte, MaxAskBytes), 1
	if b, err := EncodeAsk(full); err != nil {
		t.Error(err)
	} else if _, err := DecodeAsk(b); err != nil {
		t.Errorf("at the limit: %v", err)
	}
}

func TestListsOfModels(t *testing.T) {
	good := func() *Holds {
		return &Holds{Mark: "m", Runs: []Hold{{Run: "r-1", Data: run.Dataset{Blob: someDigest}, Models: []HeldModel{{Weights: someDigest, Layout: someDigest}}}}}
	}
	for name, c := range map[string]struct {
		edit func(*Holds)
		ok   bool
	}{
		"good":                  {func(*Holds) {}, true},
		"empty":                 {func(h *Holds) { h.Runs = nil }, true},
		"no mark":               {func(h *Holds) { h.Mark = "" }, false},
		"long mark":             {func(h *Holds) { h.Mark = strings.Repeat("m", maxMarkBytes+1) }, false},
		"run":                   {func(h *Holds) { h.Runs[0].Run = "a.b" }, false},
		"data":                  {func(h *Holds) { h.Runs[0].Data.Blob = "" }, false},
		"member of no ensemble": {func(h *Holds) { h.Runs[0].Models[0].Member = 1 }, false},
		"layout":                {func(h *Holds) { h.Runs[0].Models[0].Layout = "x" }, false},
		"at the limit":          {func(h *Holds) { h.Runs[0].Models = many(h, MaxHeld) }, true},
		"beyond the limit":      {func(h *Holds) { h.Runs[0].Models = many(h, MaxHeld+1) }, false},
	} {
		h := good()
		c.edit(h)
		b, err := EncodeReply(&SyncReply{Interval: 1, Lease: 3, Holds: h})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeReply(b); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func many(h *Holds, n int) (out []HeldModel) {
	for range n {
		out = append(out, h.Runs[0].Models[0])
	}
	return out
}

func FuzzDecodeAsk(f *testing.F) {
	b, _ := EncodeAsk(sampleAsk())
	seeds(f, b)
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := DecodeAsk(b); err == nil && len(a.Values) != 4*a.Rows*(len(a.Values)/4/a.Rows) {
			t.Fatalf("%d bytes for %d rows", len(a.Values), a.Rows)
		}
	})
}

func FuzzDecodeSaid(f *testing.F) {
	b, _ := EncodeSaid(&Said{ID: 7, Values: PackValues([]float32{1, 2}), Error: &Error{Kind: domain.KindInvalid, Why: "no"}})
	seeds(f, b)
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := DecodeSaid(b); err == nil && (len(s.Values) > MaxAskBytes || len(s.Values)%4 != 0) {
			t.Fatalf("%d bytes", len(s.Values))
		}
	})
}
