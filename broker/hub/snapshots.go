package hub

import (
	"context"
	"iter"
	"time"

	"tensorturn/broker"
	"tensorturn/broker/snapshot"
	"tensorturn/domain"
	"tensorturn/domain/freeze"
)

// snapshotEvery is the number of events between two snapshots: what a start reads besides, a fraction of a second.
const snapshotEvery = 25_000

// snapshotShare bounds what freezing may take of the loop's time: after one that took t the next waits 100·t.
const snapshotShare = 100

// Snapshots keeps frozen state. Write and Read may be called at the same time.
type Snapshots interface {
	Write(snapshot.Snapshot) error
	// Read yields the usable snapshots of a schema, newest first, and an error for each that is not.
	Read(ctx context.Context, schema domain.Digest) iter.Seq2[snapshot.Snapshot, error]
}

// snapshots is what the Service knows of its own; the loop's, but for the channel.
type snapshots struct {
	schema domain.Digest
	last   uint64    // sequence of the newest
	next   time.Time // none before
	write  chan snapshot.Snapshot
}

// parts lists everything that a snapshot holds, Core's fold first.
func (s *Service) parts() []freeze.Part {
	parts := []freeze.Part{newFold().part()}
	for _, f := range s.followers {
		parts = append(parts, f.Parts()...)
	}
	return parts
}

// schemaOf is the fingerprint of snapshots that this program writes and reads: shapes of state and of events, and the
// version of the program, since a rule may change without a shape.
func (s *Service) schemaOf() domain.Digest {
	more := []string{s.cfg.Version}
	for _, t := range s.cfg.Registry.Types() {
		more = append(more, freeze.Shape(t))
	}
	return freeze.Fingerprint(s.parts(), more...)
}

// restore sets the followers from the newest snapshot that the log vouches for, and gives Core's part of it; nil when
// there is none and everything is replayed.
func (s *Service) restore(ctx context.Context) (*Base, error) {
	if s.cfg.Snapshots == nil {
		return nil, nil
	}
	s.snaps.schema = s.schemaOf()
	if s.whole {
		s.cfg.Logger.Warn().Msg("a listener needs the whole log: no snapshot is used")
		return nil, nil
	}
	for snap, err := range s.cfg.Snapshots.Read(ctx, s.snaps.schema) {
		if err != nil {
			s.cfg.Logger.Warn().Err(err).Msg("snapshot ignored")
			continue
		}
		holds, err := broker.Holds(ctx, s.cfg.Log, snap.Seq, snap.Digest)
		if err != nil {
			return nil, err
		}
		if !holds {
			s.cfg.Logger.Warn().Uint64("seq", snap.Seq).Msg("snapshot ignored: the log does not hold the record it was made at")
			continue
		}
		base, set, err := s.thaw(snap)
		if err != nil {
			s.cfg.Logger.Warn().Uint64("seq", snap.Seq).Err(err).Msg("snapshot ignored")
			continue
		}
		set()
		for _, f := range s.followers {
			f.Resume(snap.Seq)
		}
		s.snaps.last = snap.Seq
		s.cfg.Logger.Debug().Uint64("seq", snap.Seq).Msg("started from a snapshot")
		return base, nil
	}
	return nil, nil
}

// thaw reads every part of a snapshot; nothing is set before the returned function is called.
func (s *Service) thaw(snap snapshot.Snapshot) (*Base, func(), error) {
	at := Position{Seq: snap.Seq, Digest: snap.Digest}
	parts := s.parts()
	if len(snap.Parts) != len(parts) {
		return nil, nil, domain.Integrity("thaw snapshot", "it has other parts", "")
	}
	base, err := Thaw(at, snap.Parts[0].Data)
	if err != nil {
		return nil, nil, err
	}
	var sets []func()
	for i, p := range parts[1:] {
		if snap.Parts[i+1].Name != p.Name {
			return nil, nil, domain.Integrity("thaw snapshot", "it has other parts", "")
		}
		set, err := freeze.Thaw(p, snap.Parts[i+1].Data, maxThawed)
		if err != nil {
			return nil, nil, err
		}
		sets = append(sets, set)
	}
	return base, func() {
		for _, set := range sets {
			set()
		}
	}, nil
}

// base gives Core a fold to rebuild from after a failed append; on the loop.
func (s *Service) base(ctx context.Context) *Base {
	for snap, err := range s.cfg.Snapshots.Read(ctx, s.snaps.schema) {
		if err != nil || len(snap.Parts) == 0 {
			continue
		}
		if b, err := Thaw(Position{Seq: snap.Seq, Digest: snap.Digest}, snap.Parts[0].Data); err == nil {
			return b
		}
	}
	return nil
}

// noteSnapshot freezes the state when it is time and gives it to the worker that writes; on the loop, between steps,
// where Core and all followers stand at the same record.
func (s *Service) noteSnapshot(now time.Time) {
	if s.cfg.Snapshots == nil || s.core.head() < s.snaps.last+snapshotEvery || now.Before(s.snaps.next) || len(s.snaps.write) > 0 {
		return
	}
	began := time.Now()
	snap, ok := s.freeze()
	s.snaps.next = now.Add(snapshotShare * time.Since(began))
	if ok {
		s.snaps.last = snap.Seq
		s.snaps.write <- snap // there is room: nobody else sends
	}
}

func (s *Service) freeze() (snapshot.Snapshot, bool) {
	at, frozen, ok, err := s.core.Freeze()
	snap := snapshot.Snapshot{Seq: at.Seq, Digest: at.Digest, Schema: s.snaps.schema, Parts: []snapshot.Part{{Name: foldPart, Data: frozen}}}
	for _, p := range s.parts()[1:] {
		if err != nil || !ok {
			break
		}
		var b []byte
		b, err = freeze.Freeze(p)
		snap.Parts = append(snap.Parts, snapshot.Part{Name: p.Name, Data: b})
	}
	if err != nil {
		s.cfg.Logger.Error().Err(err).Msg("state not frozen")
	}
	return snap, ok && err == nil
}

// writeSnapshots stores what the loop has frozen.
func (s *Service) writeSnapshots(ctx context.Context) {
	for {
		select {
		case snap := <-s.snaps.write:
			s.writeSnapshot(snap)
		case <-ctx.Done():
			return
		}
	}
}

func (s *Service) writeSnapshot(snap snapshot.Snapshot) {
	began := time.Now()
	if err := s.cfg.Snapshots.Write(snap); err != nil {
		s.cfg.Logger.Warn().Err(err).Msg("snapshot not written; the next start reads more of the log")
		return
	}
	s.cfg.Logger.Debug().Uint64("seq", snap.Seq).Int64("took_ms", time.Since(began).Milliseconds()).Msg("snapshot written")
}

// lastSnapshot is written when everything has stopped, so that the next start has nothing to read.
func (s *Service) lastSnapshot() {
	if s.cfg.Snapshots == nil {
		return
	}
	select {
	case <-s.snaps.write: // an older one that was not written yet
		s.snaps.last = 0
	default:
	}
	if s.core.head() > s.snaps.last {
		if snap, ok := s.freeze(); ok {
			s.writeSnapshot(snap)
		}
	}
}
