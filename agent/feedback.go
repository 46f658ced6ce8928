package agent

import (
	"errors"
	"fmt"
	"io"

	"tensorturn/agent/cache"
	"tensorturn/domain"
	"tensorturn/domain/merge"
)

// losses keeps what a slot's coded deltas have lost, for codecs that feed it back: of the newest delta that counts, and
// of the one on its way. The hub says which delta counts (MakeDelta.Fed); every other residual is rubbish, because what
// it belongs to is not in the model. It dies with the process, as a slot that comes back begins anew.
type losses struct {
	files   *cache.Snapshots
	kept    []loss
	next    int   // number of the next file
	pending *loss // written with the delta that is being made
}

type loss struct {
	file    int
	run     domain.RunID
	round   int
	samples int64
	blob    domain.Digest // the delta that lost it
}

// settle drops all but the residual of the delta that counts, and gives that one unless its round is too long ago.
func (l *losses) settle(e MakeDelta) *loss {
	if l.pending != nil { // its delta came to nothing
		l.files.Remove(l.pending.file)
		l.pending = nil
	}
	var found *loss
	var kept []loss
	for _, k := range l.kept {
		if k.run == e.Run && k.blob == e.Fed && e.Fed != "" && e.Round-k.round <= 1 {
			kept = append(kept, k)
			continue
		}
		l.files.Remove(k.file)
	}
	l.kept = kept
	if len(kept) > 0 {
		found = &l.kept[0]
	}
	return found
}

// forget drops everything: a residual could not be used.
func (l *losses) forget() {
	for _, k := range l.kept {
		l.files.Remove(k.file)
	}
	l.kept, l.pending = nil, nil
}

// written names the delta of the residual that was written last.
func (l *losses) written(blob domain.Digest) {
	if l.pending == nil {
		return
	}
	l.pending.blob = blob
	l.kept, l.pending = append(l.kept, *l.pending), nil
}

// encode writes the delta of a base of that size, and what a codec with feedback loses beside it.
func (w *worker) encode(e MakeDelta, size int64, base, local io.Reader, out io.Writer) error {
	codec := merge.Codec(e.Codec)
	if !e.Codec.Feedback() {
		_, err := merge.EncodeDelta(codec, base, local, e.Base, out)
		return err
	}
	f := merge.Feedback{}
	before := w.loss.settle(e)
	if before != nil {
		file, err := w.loss.files.Open(before.file)
		if err != nil {
			w.loss.forget()
			return ofDisk(err)
		}
		defer func() { _ = file.Close() }()
		f.Residual, f.Keep = file, min(float64(before.samples)/float64(max(e.Samples, 1)), merge.MaxKeep)
	}
	w.loss.next++
	l := loss{file: w.loss.next, run: e.Run, round: e.Round, samples: e.Samples}
	var done merge.Encoded
	var own error
	err := w.loss.files.Save(l.file, size, func(next io.Writer) error {
		f.Next = next
		if done, own = merge.EncodeWithFeedback(codec, base, local, e.Base, out, f); own == nil && f.Residual != nil {
			own = drain(f.Residual)
		}
		return own
	})
	var residual *merge.ResidualError
	switch {
	case errors.As(err, &residual), own != nil && domain.KindOf(own) == domain.KindIntegrity:
		w.loss.forget() // the next try begins without it
		return ofDisk(fmt.Errorf("what the delta before lost cannot be read: %w", err))
	case err != nil && own == nil:
		return ofDisk(err)
	case err != nil:
		return err
	}
	if done.RunsAway() {
		w.loss.files.Remove(l.file)
		w.log.Warn().Float64("lost", done.Residual).Float64("norm", done.Norm).Msg("what codes lose has grown too long, it is dropped")
		return nil
	}
	w.loss.pending = &l
	return nil
}
