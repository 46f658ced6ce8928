package replay

import (
	"tensorturn/domain"
	"tensorturn/domain/event"
)

// Behind begins a replay behind the record at seq, whose digest somebody vouches for: a log that is shown in part.
func Behind(r *event.Registry, id domain.RunID, seq uint64, digest domain.Digest) *Log {
	return &Log{registry: r, verifier: event.ResumeVerifier(r, seq, digest), checks: allChecks, id: id}
}

// Hide takes the digest of the record at seq instead of the record, which is not the run's and not shown. That it is the
// right one shows when the record behind it is one of the run and follows it; of two that are hidden in a row only who
// vouches for the digests knows.
func (l *Log) Hide(seq uint64, digest domain.Digest) error {
	if l.broken == nil {
		if l.broken = l.verifier.Skip(seq, digest); l.broken == nil {
			l.pass(seq)
		}
	}
	return l.broken
}
