package main

import (
	"context"
	"os"
	"path/filepath"

	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
	"tensorturn/test/offline"
)

// stopped is what the log of a hub that does not run says.
type stopped struct {
	events []event.Envelope
	bad    error
	blobs  map[domain.Digest]bool
}

// Offline reads a copy of the stopped hub's store.
func (w *world) Offline() stopped {
	dir := filepath.Join(w.TempDir(), "store")
	w.Must(offline.Copy(w.HubDir(), dir))
	s, err := offline.Open(context.Background(), dir)
	w.Must(err)
	defer s.Close()
	out := stopped{blobs: map[domain.Digest]bool{}}
	_, _, out.bad = s.Verify(context.Background(), nil, func(e event.Envelope) { out.events = append(out.events, e) })
	for info, err := range s.Blobs.All(context.Background()) {
		w.Must(err)
		out.blobs[info.Digest] = true
	}
	_ = os.RemoveAll(dir)
	return out
}

// Offlined is Offline for a hub that runs and is still: what its API says.
func (w *world) Offlined() stopped { return stopped{events: w.Events()} }

// objectOf is the first part of a blob.
func (w *world) objectOf(id domain.Digest) ([]byte, error) {
	text, err := w.Object(context.Background(), id)
	if err != nil {
		return nil, err
	}
	m, err := blob.Parse(text)
	if err != nil {
		return nil, err
	}
	return w.Object(context.Background(), m.Parts[0])
}

// merged is how many rounds of the run were merged.
func (s stopped) merged(id domain.RunID) int {
	n := 0
	for _, e := range s.events {
		if _, ok := e.Data.(*run.RoundMerged); ok && e.Agg == string(id) {
			n++
		}
	}
	return n
}

// closedNotMerged reports whether the newest round was closed and its merge is owed.
func (s stopped) closedNotMerged(id domain.RunID) bool {
	closed := 0
	for _, e := range s.events {
		if _, ok := e.Data.(*run.RoundClosed); ok && e.Agg == string(id) {
			closed++
		}
	}
	return closed > s.merged(id)
}

// delta is the blob of an accepted contribution of the newest closed round.
func (s stopped) delta(id domain.RunID) domain.Digest {
	for i := len(s.events) - 1; i >= 0; i-- {
		if d, ok := s.events[i].Data.(*run.ContributionAccepted); ok && s.events[i].Agg == string(id) {
			return d.Blob
		}
	}
	return ""
}

// parseManifest lists a blob's parts.
func parseManifest(text []byte) ([]domain.Digest, error) {
	m, err := blob.Parse(text)
	return m.Parts, err
}
