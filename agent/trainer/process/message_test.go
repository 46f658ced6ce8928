package process

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestParseMessage(t *testing.T) {
	for _, line := range []string{
		`{"type":"step","id":3,"samples":32,"loss":0.5}`, `{"loss":null,"type":"step"}`, ` { "type" : "ok" , "id":1 } `, `{}`,
	} {
		if _, err := parseMessage([]byte(line)); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	for _, line := range []string{
		``, `x`, `[]`, `null`, `3`, `"s"`, `{`, `{"type"`, `{"type":}`, `{"type":"ok"}{}`, `{"type":"ok"} x`, `{"Type":"ok"}`, `{"type":"ok","type":"ok"}`,
		`{"type":["ok"]}`, `{"type":{"a":1}}`, `{"id":1.5}`, `{"id":"1"}`, `{"id":1e3}`, `{"id":-1}`, `{"samples":9223372036854775808}`, `{"samples":9007199254740993}`,
		`{"loss":NaN}`, `{"loss":1e999}`, `{"steps":-1}`, `{"evaluates":1}`, "{\"name\":\"\xff\"}", `{"id samples":1}`, `{"":1}`, strings.Repeat(`{"a":`, 30000),
	} {
		if m, err := parseMessage([]byte(line)); err == nil {
			t.Errorf("%.80s was read as %+v", line, m)
		} else if len(err.Error()) > 300 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	}
}

func TestTextsAreCleaned(t *testing.T) {
	m, err := parseMessage([]byte(`{"type":"error","text":"a\nb\u0000c\u001b[31m\u0085` + strings.Repeat("é", 2000) + `"}`))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(m.Text, "a bc[31mé") || len(m.Text) > MaxText {
		t.Errorf("%d bytes: %.20q", len(m.Text), m.Text)
	}
}

func TestValidFile(t *testing.T) {
	for name, want := range map[string]bool{"a.safetensors": true, "a": true, "": false, "..": false, "a/b": false, "../a": false, "/a": false, "A": false,
		"a\x00": false, ".a": false, "a..b": true, strings.Repeat("a", 64): true, strings.Repeat("a", 65): false} {
		if validFile(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

// FuzzMessage looks for lines that crash the reader, and for accepted ones that a strict reading would not accept.
func FuzzMessage(f *testing.F) {
	f.Add([]byte(`{"type":"step","id":3,"samples":32,"loss":0.5}`))
	f.Add([]byte(`{"type":"hello","version":1,"name":"x","weights":"a","samples":1,"evaluates":true,"predicts":false,"halves":true}`))
	f.Add([]byte(`{"type":"error","kind":"memory","text":"\u0000"}`))
	f.Add([]byte(`{"a":{"b":[1,2,{"c":3}]}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := parseMessage(line)
		if err != nil {
			return
		}
		var flat map[string]any
		if json.Unmarshal(line, &flat) != nil {
			t.Fatalf("%q was accepted and is no object", line)
		}
		for k, v := range flat {
			switch v.(type) {
			case map[string]any, []any:
				t.Fatalf("%q was accepted and is nested at %q", line, k)
			}
		}
		if m.ID < 0 || m.Samples < 0 || m.Steps < 0 || len(m.Text) > MaxText {
			t.Fatalf("%+v is out of range", m)
		}
	})
}
