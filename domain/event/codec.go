package event

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"reflect"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"tensorturn/domain"
	"tensorturn/domain/pack"
)

// record is an envelope as it is stored: a msgpack map with keys of one letter, since every event carries them. A
// reader in another language needs nothing but this list.
type record struct {
	ID      string             `msgpack:"i"`           // "<command id>.<index>"
	Kind    string             `msgpack:"k"`           // run, machine or pool
	Agg     string             `msgpack:"a"`           // aggregate id
	Micros  int64              `msgpack:"t"`           // microseconds since 1970, UTC
	Actor   string             `msgpack:"w"`           // who caused it
	Cause   string             `msgpack:"c"`           // command id
	Corr    string             `msgpack:"r,omitempty"` // correlation
	Prev    []byte             `msgpack:"p"`           // SHA-256 of the record before, 32 bytes, nil for the first
	Name    string             `msgpack:"n"`
	Version int                `msgpack:"v"`
	Data    msgpack.RawMessage `msgpack:"d"`
	Sum     []byte             `msgpack:"z"` // CRC-32C of all bytes before this entry's value; always last
}

// sumBytes is the length of the checksum, sealBytes that of the value that holds it.
const (
	sumBytes  = 4
	sealBytes = 2 + sumBytes
)

// Encode gives the record of an envelope, checked to be one that Decode will read. Seq is not part of it. Errors:
// domain.KindInvalid when the data is larger than domain.MaxEventBytes or a field is not what it must be.
func Encode(e Envelope) ([]byte, error) {
	if err := validate(e); err != nil {
		return nil, err
	}
	var prev []byte
	if e.Prev != "" {
		if _, err := domain.ParseDigest(string(e.Prev)); err != nil {
			return nil, err
		}
		prev, _ = hex.DecodeString(string(e.Prev)) // a digest is hex
	}
	data, err := pack.Encode(e.Data)
	if err != nil {
		return nil, fmt.Errorf("encode event %s: %w", e.Data.EventName(), err)
	}
	if len(data) > domain.MaxEventBytes {
		return nil, domain.Invalid("encode event "+e.Data.EventName(), fmt.Sprintf("%d bytes, more than %d", len(data), domain.MaxEventBytes), "")
	}
	b, err := pack.Encode(record{ID: e.ID, Kind: string(e.Kind), Agg: e.Agg, Micros: e.Time.UnixMicro(), Actor: string(e.Actor),
		Cause: string(e.Cause), Corr: e.Corr, Prev: prev, Name: e.Data.EventName(), Version: e.Version, Data: data, Sum: make([]byte, sumBytes)})
	if err != nil {
		return nil, fmt.Errorf("encode event %s: %w", e.Data.EventName(), err)
	}
	if err := pack.Check(b, pack.EventLimits()); err != nil {
		return nil, fmt.Errorf("encode event %s: %w", e.Data.EventName(), err)
	}
	binary.BigEndian.PutUint32(b[len(b)-sumBytes:], sum(b))
	return b, nil
}

// sum is the checksum that belongs at the end of b. The chain is what makes a log trustworthy; the sum only tells which
// of two neighbours was damaged, and vouches for the last record, to which nothing links yet.
func sum(b []byte) uint32 {
	return crc32.Checksum(b[:len(b)-sealBytes], crc32.MakeTable(crc32.Castagnoli))
}

// Decode reads the record at seq, lifts its data to the newest version and gives its envelope. Errors are
// domain.KindInvalid: the bytes are damaged, were not written by Encode, or name an event this program does not know.
func Decode(r *Registry, seq uint64, b []byte) (Envelope, error) {
	if len(b) < sealBytes || !bytes.Equal(b[len(b)-sealBytes:len(b)-sumBytes], []byte{0xc4, sumBytes}) ||
		binary.BigEndian.Uint32(b[len(b)-sumBytes:]) != sum(b) {
		return Envelope{}, domain.Invalid("read event", "the record's checksum is wrong: its bytes are damaged", "")
	}
	lim := pack.EventLimits()
	rec, ok := quick(b)
	if !ok {
		if err := pack.Decode(b, lim, &rec); err != nil {
			return Envelope{}, fmt.Errorf("read event: %w", err)
		}
	}
	lim.Depth--                         // the record is the first level,
	lim.Elements -= 1 + 2*recordEntries // and has as many values besides its data
	d, err := r.New(rec.Name, rec.Version)
	if err != nil {
		return Envelope{}, err
	}
	if err := pack.Decode(rec.Data, lim, d); err != nil {
		return Envelope{}, fmt.Errorf("read event %s: %w", rec.Name, err)
	}
	if n := len(rec.Prev); n != 0 && n != 32 {
		return Envelope{}, domain.Invalid("read event", fmt.Sprintf("a link of %d bytes", n), "")
	}
	e := Envelope{Seq: seq, ID: rec.ID, Kind: Kind(rec.Kind), Agg: rec.Agg, Time: time.UnixMicro(rec.Micros).UTC(), Actor: Actor(rec.Actor),
		Cause: domain.CommandID(rec.Cause), Corr: rec.Corr, Prev: domain.Digest(hex.EncodeToString(rec.Prev))}
	e.Data, e.Version = r.lift(rec.Name, rec.Version, d)
	return e, validate(e)
}

// validate refuses an envelope that nobody may write and nobody will read.
func validate(e Envelope) error {
	why := ""
	command, _, ok := SplitID(e.ID)
	switch {
	case e.Data == nil:
		why = "it has no data"
	case reflect.TypeOf(e.Data).Kind() != reflect.Pointer: // a fold would meet one form live and the other in a replay
		why = fmt.Sprintf("its data is a %T, not a pointer", e.Data)
	case !ok || command != e.Cause:
		why = fmt.Sprintf("id %q is not one of command %q", domain.Clip(e.ID, 80), domain.Clip(string(e.Cause), 80))
	case !e.Kind.Valid():
		why = fmt.Sprintf("%q is no kind", domain.Clip(string(e.Kind), 80))
	case !domain.ValidID(e.Agg):
		why = fmt.Sprintf("%q is no aggregate id", domain.Clip(e.Agg, 80))
	case e.Actor == "" || len(e.Actor) > domain.MaxNameLength:
		why = fmt.Sprintf("%q is no actor", domain.Clip(string(e.Actor), 80))
	case len(e.Corr) > domain.MaxNameLength:
		why = fmt.Sprintf("correlation %q is longer than %d", domain.Clip(e.Corr, 80), domain.MaxNameLength)
	case e.Version < 1:
		why = "it has no version"
	}
	if why != "" {
		return domain.Invalid("event "+domain.Clip(e.ID, 80), why, "")
	}
	return nil
}
