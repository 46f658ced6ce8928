package pack_test

import (
	"bytes"
	"testing"

	"tensorturn/domain/pack"
)

// FuzzDecode demands of any bytes: no panic, no more than the limits, and what was accepted can be encoded and comes
// back the same.
func FuzzDecode(f *testing.F) {
	for _, tc := range hostile() {
		f.Add([]byte(tc.in))
	}
	good, err := pack.Encode(full())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Fuzz(func(t *testing.T, b []byte) {
		var v sample
		typed := pack.Decode(b, limits(), &v)
		loose := pack.Check(b, limits())
		if typed == nil && loose != nil {
			t.Fatalf("decoded what Check refuses: %v", loose)
		}
		if typed != nil {
			return
		}
		first, err := pack.Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		var again sample
		if err := pack.Decode(first, pack.EventLimits(), &again); err != nil {
			t.Fatalf("own encoding refused: %v", err)
		}
		second, err := pack.Encode(again)
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("not canonical: %x then %x, %v", first, second, err)
		}
	})
}
