package builtin

import (
	"bytes"
	"context"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/blob"
)

// A trainer over a blob that is fetched part by part makes the same steps as one over the bytes, and a blob that is too
// long is refused at Open.
func TestTrainsFromABlob(t *testing.T) {
	facts, raw := digits(t)
	store := map[domain.Digest][]byte{}
	put := func(_ context.Context, d domain.Digest, data []byte) error {
		store[d] = bytes.Clone(data)
		return nil
	}
	get := func(_ context.Context, d domain.Digest) ([]byte, error) { return store[d], nil }
	trained := func(raw []byte) ([]byte, error) {
		w := blob.NewWriter(t.Context(), put)
		if _, err := w.Write(raw); err != nil {
			t.Fatal(err)
		}
		id, err := w.Close()
		if err != nil {
			t.Fatal(err)
		}
		job := jobOf(t, facts, raw, nil)
		if job.Data, err = blob.Open(t.Context(), id, get); err != nil {
			t.Fatal(err)
		}
		tr, err := Open(t.Context(), job)
		if err != nil {
			return nil, err
		}
		return chunkWeights(t, tr.(*Trainer)), nil
	}
	got, err := trained(raw)
	if err != nil {
		t.Fatal(err)
	}
	tr := started(t, jobOf(t, facts, raw, nil))
	if !bytes.Equal(got, chunkWeights(t, tr)) {
		t.Error("training from a blob gives other weights")
	}
	if _, err := trained(append(bytes.Clone(raw), 0)); domain.KindOf(err) != domain.KindIntegrity {
		t.Errorf("a longer blob gave %v", err)
	}
}

// chunkWeights is the saved weights after chunk 0 from the seed's weights.
func chunkWeights(t *testing.T, tr *Trainer) []byte {
	t.Helper()
	if err := tr.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Train(t.Context(), 0, nil); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := tr.Save(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
