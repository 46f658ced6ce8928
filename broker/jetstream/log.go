package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"tensorturn/broker"
	"tensorturn/domain"
)

// Log is a broker.Log on the stream EVENTS.
type Log struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	api    string // prefix of API subjects
	stream jetstream.Stream
	cut    Cut // what is there of a batch that the log ended within when it was opened
	broken func() string
}

// sound is an error while the server has given up writing, see Store.Watch.
func sound(op string, broken func() string) error {
	if broken == nil {
		return nil
	}
	why := broken()
	switch {
	case why == "":
		return nil
	case strings.Contains(why, "no space left on device"):
		return domain.Unavailable(op, storeFull, makeRoom, errors.New(why))
	}
	return domain.Unavailable(op, "the store takes no more writes until it is started anew", "the hub does so by itself; look at its disk if it lasts", errors.New(why))
}

// What a store without room is called, everywhere.
const (
	storeFull = "the store is full"
	makeRoom  = "make room on the disk or raise the hub's store limit"
)

// Error codes of JetStream that say: not behind the sequence you expect, or an id that is stored already.
const (
	codeWrongLast         = 10071
	codeWrongLastConstant = 10164
	codeDuplicateInFlight = 10158
	codeDuplicateInBatch  = 10201
)

// Append implements broker.Log. More than one record travel as an atomic batch: staged, checked, stored and synced once.
func (l *Log) Append(ctx context.Context, expect uint64, recs []broker.Record) (uint64, error) {
	if err := broker.CheckBatch(recs); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil { // nothing is sent, but to the caller it is the same as a lost answer
		return 0, unavailable("append", err)
	}
	if err := sound("append", l.broken); err != nil {
		return 0, err
	}
	ctx, cancel := limit(ctx, appendLimit)
	defer cancel()
	msgs := make([]*nats.Msg, len(recs))
	for i, r := range recs {
		msgs[i] = &nats.Msg{Subject: r.Subject, Data: r.Data, Header: nats.Header{jetstream.MsgIDHeader: {r.ID}}}
	}
	msgs[0].Header.Set(jetstream.ExpectedLastSeqHeader, strconv.FormatUint(expect, 10))
	msgs[0].Header.Set(jetstream.ExpectedStreamHeader, EventStream)
	last, err := l.send(ctx, msgs)
	var api *jetstream.APIError
	if errors.As(err, &api) {
		switch api.ErrorCode {
		case codeWrongLast, codeWrongLastConstant, codeDuplicateInFlight, codeDuplicateInBatch:
			return 0, &broker.ConflictError{Expected: expect, Actual: lastOf(api)}
		}
	}
	if err != nil {
		return 0, unavailable("append", err)
	}
	if last != expect+uint64(len(recs)) { // a single id that was stored before is acknowledged with its old sequence
		return 0, &broker.ConflictError{Expected: expect}
	}
	return last, nil
}

// send stores the messages and gives the sequence of the last one.
func (l *Log) send(ctx context.Context, msgs []*nats.Msg) (uint64, error) {
	if len(msgs) == 1 { // a batch of one would be staged on disk for nothing
		ack, err := l.js.PublishMsg(ctx, msgs[0], jetstream.WithRetryAttempts(0))
		if err != nil {
			return 0, err
		}
		return ack.Sequence, nil
	}
	ack, err := jetstreamext.PublishMsgBatch(ctx, l.js, msgs, jetstreamext.BatchFlowControl{})
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// lastOf is the sequence that the server names in a refusal, 0 when it names none.
func lastOf(e *jetstream.APIError) uint64 {
	var seq uint64
	if n, err := fmt.Sscanf(e.Description, "wrong last sequence: %d", &seq); n != 1 || err != nil {
		return 0
	}
	return seq
}

// unavailable is the error of an operation whose outcome is not known.
func unavailable(op string, err error) error {
	var api *jetstream.APIError
	why, next := "no answer from JetStream", "look at the hub's disk and log"
	if errors.As(err, &api) {
		why = "JetStream refuses"
		if api.ErrorCode == 10023 || api.ErrorCode == 10047 || api.ErrorCode == 10077 || api.ErrorCode == 10002 {
			why, next = storeFull, makeRoom
		}
	}
	return domain.Unavailable(op, why, next, err)
}

// barrierSubject is the subject of a message that is never stored; neverLast is the sequence it expects to be the last.
const (
	barrierSubject = "tt.ev.hub.none.barrier"
	neverLast      = 1 << 62
)

// Last implements broker.Log. The stream takes messages in the order in which they were sent, so a message that must be
// refused comes back behind everything this connection has sent, and names the last sequence at that moment: never one
// within a batch. This is what makes the outcome of a lost append certain.
func (l *Log) Last(ctx context.Context) (uint64, error) {
	if err := sound("find the log's end", l.broken); err != nil { // what is shown then may not be on the disk
		return 0, err
	}
	ctx, cancel := limit(ctx, readLimit)
	defer cancel()
	reply, err := l.nc.RequestMsgWithContext(ctx, &nats.Msg{Subject: barrierSubject, Header: nats.Header{
		jetstream.ExpectedLastSeqHeader: {strconv.Itoa(neverLast)}, jetstream.ExpectedStreamHeader: {EventStream}}})
	if err != nil {
		return 0, unavailable("find the log's end", err)
	}
	var answer struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return 0, unavailable("find the log's end", err)
	}
	domain.Assert(answer.Error != nil, "a message that expects an impossible sequence is refused")
	if answer.Error.ErrorCode != codeWrongLast {
		return 0, unavailable("find the log's end", answer.Error)
	}
	return lastOf(answer.Error), nil
}
