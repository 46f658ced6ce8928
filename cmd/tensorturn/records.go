package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"tensorturn/broker/gateway"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/projections/replay"
)

// maxRecordLine bounds one line of the log stream: a record in base64 with its names.
const maxRecordLine = 2 * domain.MaxEventBytes

// readRecords streams the whole log from the hub into l.
func readRecords(ctx context.Context, cl *client, l *replay.Log) error {
	return eachRecord(ctx, cl, l.Add)
}

// eachRecord streams the whole log from the hub. An error of each ends it.
func eachRecord(ctx context.Context, cl *client, each func(seq uint64, data []byte) error) error {
	resp, err := cl.do(ctx, http.MethodGet, "/api/v1/log", nil, 0)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	in := bufio.NewReaderSize(resp.Body, 256<<10)
	for {
		line, err := readLine(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		var r gateway.LogRecord
		if err == nil {
			err = json.Unmarshal(line, &r)
		}
		if err != nil {
			return domain.Unavailable("read log", "the stream from the hub was cut", "try again", err)
		}
		if r.Error != "" && r.Kind != domain.KindIntegrity {
			return domain.Unavailable("read log", fmt.Sprintf("the hub stopped at %d: %s", r.Seq, domain.Clip(r.Error, 300)), "try again", nil)
		}
		if r.Error != "" {
			return event.Break(r.Seq, r.Error, nil)
		}
		if err := each(r.Seq, r.Data); err != nil {
			return err
		}
	}
}

func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case errors.Is(err, bufio.ErrBufferFull) && len(line) < maxRecordLine:
		case errors.Is(err, io.EOF) && len(line) > 0:
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}

// verifyRecords checks the chain of the whole log on this side.
func verifyRecords(ctx context.Context, cl *client, l *replay.Log) (gateway.Verified, error) {
	if l == nil {
		l = replay.New(registry(), "")
	}
	err := readRecords(ctx, cl, l)
	v := gateway.Verified{OK: err == nil}
	v.Records, v.Head = l.Head()
	if err != nil {
		v.Reason = err.Error()
		v.FirstBad, _ = event.FirstBad(err)
	}
	return v, err
}
