package vote

import "testing"

func TestSmoke(t *testing.T) {
	in := Input{Classes: 2, Members: make([][]float32, 3)}
	for i := range 100 {
		in.Labels = append(in.Labels, int32(i%2))
		for m := range in.Members {
			p := float32((i*7+m*13)%10) / 10
			in.Members[m] = append(in.Members[m], p, 1-p)
		}
	}
	for _, rule := range Rules() {
		r, err := Compute(in, rule)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v", r)
	}
}
