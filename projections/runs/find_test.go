package runs_test

import (
	"slices"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
	"tensorturn/projections/runs"
)

// An id wins over a name, a name over the beginning of an id; what is not single is all told.
func TestFind(t *testing.T) {
	v := runs.New()
	for i, r := range [][2]string{{"iris-aaaa11", "iris"}, {"iris-aabb22", "flowers"}, {"digits-1", "digits"}, {"digits-2", "digits"}, {"flowers", "other"}} {
		v.Apply(event.Envelope{Kind: event.KindRun, Agg: r[0], Seq: uint64(i + 1),
			Data: &run.Submitted{Spec: run.Spec{Name: r[1], Epochs: 1, Chunk: 1, Round: run.Round{Chunks: 1}}, Data: run.Dataset{Samples: 4, Block: 1}}})
	}
	for _, c := range []struct {
		key  string
		want []domain.RunID
	}{
		{"iris-aaaa11", []domain.RunID{"iris-aaaa11"}},
		{"iris", []domain.RunID{"iris-aaaa11"}}, // a name, although two ids begin with it
		{"iris-aa", []domain.RunID{"iris-aaaa11", "iris-aabb22"}},
		{"iris-aab", []domain.RunID{"iris-aabb22"}},
		{"digits", []domain.RunID{"digits-1", "digits-2"}},
		{"flowers", []domain.RunID{"flowers"}}, // an id, although another run has the name
		{"nothing", nil}, {"", nil},
	} {
		if got := v.Find(c.key); !slices.Equal(got, c.want) {
			t.Errorf("%q finds %v, want %v", c.key, got, c.want)
		}
	}
}
