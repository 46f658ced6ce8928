package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tensorturn/broker/gateway"
)

// TestDamagedLinesOfRecords: a line of saved records that the disk has changed takes no other with it.
func TestDamagedLinesOfRecords(t *testing.T) {
	var lines []string
	for seq := uint64(1); seq <= 30; seq++ {
		b, err := json.Marshal(gateway.LogRecord{Seq: seq, ID: "i", Data: []byte{byte(seq)}})
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(b))
	}
	for name, c := range map[string]struct {
		was, is string
		lost    uint64
	}{
		"no JSON":          {`{"seq":7,`, `{"seq:7,`, 7},
		"a lower number":   {`{"seq":29,`, `{"seq":19,`, 29},
		"a higher number":  {`{"seq":8,`, `{"seq":28,`, 8},
		"without an end":   {`{"seq":5,`, strings.Repeat("\x00", 3*maxRecordLine) + `{"seq:5,`, 5},
		"nothing (damage)": {`{"seq":5,`, `{"seq":5,`, 0},
	} {
		path := filepath.Join(t.TempDir(), "log.jsonl")
		text := strings.Replace(strings.Join(lines, "\n")+"\n", c.was, c.is, 1)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := exportedRecords(path)
		if err != nil {
			t.Fatal(err)
		}
		for seq := uint64(1); seq <= 30; seq++ {
			rec, err := s.Record(context.Background(), seq)
			if right := err == nil && len(rec.Data) == 1 && rec.Data[0] == byte(seq); right == (seq == c.lost) {
				t.Errorf("%s: record %d is %v, %v", name, seq, rec.Data, err)
			}
		}
	}
}
