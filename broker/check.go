package broker

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"tensorturn/domain"
)

// CheckBatch refuses, as domain.KindInvalid, records that no log takes: none, more than domain.MaxBatchEvents, one
// without id, with a subject outside the log's, or longer than an event may be, or an id that comes twice.
func CheckBatch(recs []Record) error {
	if len(recs) == 0 || len(recs) > domain.MaxBatchEvents {
		return domain.Invalid("append", fmt.Sprintf("%d records, want 1 to %d", len(recs), domain.MaxBatchEvents), "")
	}
	ids := make(map[string]bool, len(recs))
	for _, r := range recs {
		switch {
		case r.ID == "" || ids[r.ID]:
			return domain.Invalid("append", fmt.Sprintf("id %q is empty or comes twice", domain.Clip(r.ID, 80)), "")
		case !strings.HasPrefix(r.Subject, "tt.ev.") || strings.ContainsAny(r.Subject, "*> \t\r\n"):
			return domain.Invalid("append", fmt.Sprintf("subject %q is not one of the log", domain.Clip(r.Subject, 160)), "")
		case len(r.Data) == 0 || len(r.Data) > MaxRecordBytes:
			return domain.Invalid("append", fmt.Sprintf("record %s has %d bytes, want 1 to %d", domain.Clip(r.ID, 80), len(r.Data), MaxRecordBytes), "")
		}
		ids[r.ID] = true
	}
	return nil
}

// MaxRecordBytes bounds one record: an event's data and its envelope.
const MaxRecordBytes = domain.MaxEventBytes + 4<<10

// CheckBlob refuses, as domain.KindInvalid, data that is longer than a part or whose SHA-256 is not d.
func CheckBlob(d domain.Digest, data []byte) error {
	if _, err := domain.ParseDigest(string(d)); err != nil {
		return err
	}
	if len(data) > domain.MaxPartBytes {
		return domain.Invalid("blob "+d.Short(), fmt.Sprintf("%d bytes, more than %d", len(data), domain.MaxPartBytes), "split it into parts")
	}
	if h := sha256.Sum256(data); hex.EncodeToString(h[:]) != string(d) {
		return domain.Invalid("blob "+d.Short(), "the bytes have another SHA-256: "+hex.EncodeToString(h[:6]), "send them again")
	}
	return nil
}

// BlobMissing is the error for an object that is not stored.
func BlobMissing(d domain.Digest) error {
	return domain.NotFound("get blob "+d.Short(), "it is not stored", "")
}

// BlobDamaged is the error for an object whose bytes are not what was stored.
func BlobDamaged(d domain.Digest) error {
	return domain.Integrity("get blob "+string(d), "its bytes are damaged", "delete it and have it sent again")
}
