package wire

import (
	"fmt"

	"tensorturn/domain"
	"tensorturn/domain/pack"
)

// Limits of one message beyond its size (domain.MaxMessageBytes) and shape (pack.MessageLimits).
const (
	// MaxSlotChunks bounds the chunks of one contribution under way: 8,192 trained chunks take about 300 KiB of a
	// message. The hub grants no claim beyond it.
	MaxSlotChunks = 8192
	MaxBoundaries = 8    // an agent keeps 4; twice that, so that a later release may keep more
	MaxWanted     = 256  // blobs asked for again in one reply; more come with the next
	MaxMergedRuns = 1024 // runs a machine works for
	MaxText       = 1024 // bytes of an error or a build name
	MaxHeadBytes  = 4096 // a signed head
	MaxCredential = 16 << 10
	MaxLogWishes  = 4        // in one reply; more wait for the next
	MaxLogPiece   = 32 << 10 // bytes: four of them are an eighth of a message
	MaxLogFiles   = 32       // logs of one run that an agent lists
	MaxInterval   = 3600.0   // seconds between syncs; a lease has at most domain.MaxLease
)

// EncodeRequest gives the bytes of r, at most domain.MaxMessageBytes.
func EncodeRequest(r *SyncRequest) ([]byte, error) { return encode("sync request", r) }

// EncodeReply gives the bytes of r, at most domain.MaxMessageBytes.
func EncodeReply(r *SyncReply) ([]byte, error) { return encode("sync reply", r) }

// DecodeRequest reads an agent's bytes. They are foreign: size, nesting and counts are checked before anything is
// built, ids, digests, numbers and lengths of lists after. A request of another protocol version is refused by name.
// Errors are domain.KindInvalid.
func DecodeRequest(b []byte) (*SyncRequest, error) {
	r := &SyncRequest{}
	if err := decode("sync request", b, r); err != nil {
		return nil, err
	}
	if r.Version != Version {
		return nil, domain.Invalid("decode sync request",
			fmt.Sprintf("the agent speaks protocol version %d, this hub speaks %d", r.Version, Version),
			"install the same release of tensorturn on hub and agent")
	}
	if err := checkRequest(r); err != nil {
		return nil, err
	}
	return r, nil
}

// DecodeReply reads the hub's bytes with the same care as DecodeRequest.
func DecodeReply(b []byte) (*SyncReply, error) {
	r := &SyncReply{}
	if err := decode("sync reply", b, r); err != nil {
		return nil, err
	}
	if err := checkReply(r); err != nil {
		return nil, err
	}
	return r, nil
}

// Err gives the refusal as an error that keeps its kind, nil for none.
func (e *Error) Err(op string) error {
	if e == nil {
		return nil
	}
	return &domain.Error{Kind: e.Kind, Op: op, Why: e.Why, Next: e.Next}
}

// ErrorOf makes the refusal that carries err over the wire, nil for nil.
func ErrorOf(err error) *Error {
	if err == nil {
		return nil
	}
	return &Error{Kind: domain.KindOf(err), Why: domain.Clip(err.Error(), MaxText), Next: domain.Clip(domain.NextOf(err), MaxText)}
}

func encode(what string, v any) ([]byte, error) {
	b, err := pack.Encode(v)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", what, err)
	}
	if len(b) > domain.MaxMessageBytes {
		return nil, domain.Invalid("encode "+what, fmt.Sprintf("it takes %d bytes, at most %d may cross", len(b), domain.MaxMessageBytes),
			"set max_chunks_per_contribution, or make chunks larger")
	}
	return b, nil
}

func decode(what string, b []byte, v any) error {
	if err := pack.Decode(b, pack.MessageLimits(), v); err != nil {
		return fmt.Errorf("decode %s: %w", what, err)
	}
	return nil
}
