// Package eventtest keeps the promise that every record ever written can be read: one golden sample for each event name
// and version, written once and never again. Tests of the aggregates call it; nothing that ships does.
package eventtest

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// update lets a missing sample be written. It is a flag of the test binary: go test ./domain/run -update.
var update = flag.Bool("update", false, "write golden samples that are missing; existing ones are never touched")

// Golden demands a file <name>.v<version>.msgpack in dir for every name and version in r, a whole record. Each must
// decode, and one of the newest version must encode to the same bytes again. A file that no registered event explains
// is an error: released events are never forgotten. With -update, missing files are written, from the sample given for
// the name or else from one with every field filled.
func Golden(t *testing.T, r *event.Registry, dir string, samples ...event.Data) {
	t.Helper()
	known := map[string]bool{}
	for _, name := range r.Names() {
		for v := 1; v <= r.Latest(name); v++ {
			file := fmt.Sprintf("%s.v%d.msgpack", name, v)
			known[file] = true
			t.Run(file, func(t *testing.T) { golden(t, r, filepath.Join(dir, file), name, v, samples) })
		}
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.msgpack"))
	for _, f := range files {
		if !known[filepath.Base(f)] {
			t.Errorf("%s is the sample of no registered event: records of it can no longer be read", f)
		}
	}
}

func golden(t *testing.T, r *event.Registry, file, name string, v int, samples []event.Data) {
	b, err := os.ReadFile(file)
	if os.IsNotExist(err) && *update {
		b, err = write(r, file, name, v, samples)
	}
	if err != nil {
		t.Fatalf("no golden sample: %v; run this test with -update once, and never edit the file", err)
	}
	if err := readable(r, b, name, v); err != nil {
		t.Fatal(err)
	}
}

// readable says what is wrong with a sample: a record that was once written must be read, and written the same way.
func readable(r *event.Registry, want []byte, name string, v int) error {
	e, err := event.Decode(r, 1, want)
	if err != nil {
		return fmt.Errorf("a record that was once written can no longer be read: %w", err)
	}
	if e.Data.EventName() != name || e.Version != r.Latest(name) {
		return fmt.Errorf("decoded as %s version %d", e.Data.EventName(), e.Version)
	}
	if line := e.Data.Line(); line == "" || strings.ContainsAny(line, "\n\r") || strings.HasSuffix(line, ".") {
		return fmt.Errorf("line %q: want one line without a full stop", line)
	}
	if v != r.Latest(name) {
		return nil
	}
	got, err := event.Encode(e)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("the sample encodes to other bytes now\n was %x\n  is %x\na new field needs omitempty; any other change needs a new version or name", want, got)
	}
	return nil
}

// write makes the sample of one name and version, the newest one only.
func write(r *event.Registry, file, name string, v int, samples []event.Data) ([]byte, error) {
	if v != r.Latest(name) {
		return nil, fmt.Errorf("version %d of %s is old: its sample must come from when it was new", v, name)
	}
	var d event.Data
	if i := slices.IndexFunc(samples, func(d event.Data) bool { return d.EventName() == name }); i >= 0 {
		d = samples[i]
	} else {
		var err error
		if d, err = r.New(name, v); err != nil {
			return nil, err
		}
		n := 0
		Fill(reflect.ValueOf(d).Elem(), &n)
	}
	b, err := event.Encode(Sample(d, v))
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, err
	}
	return b, os.WriteFile(file, b, 0o644)
}

// Sample wraps data in an envelope that is always the same.
func Sample(d event.Data, version int) event.Envelope {
	kind := event.KindRun
	if k, _, _ := strings.Cut(d.EventName(), "."); event.Kind(k).Valid() {
		kind = event.Kind(k)
	}
	return event.Envelope{Seq: 1, ID: "c-golden.0", Kind: kind, Agg: "golden", Time: time.Date(2026, 11, 30, 12, 0, 0, 123456000, time.UTC),
		Actor: "operator", Cause: "c-golden", Corr: "story", Prev: event.Digest([]byte("before")), Data: d, Version: version}
}

// Fill sets every exported field below v to a value of its own, the same at every call: numbers and texts count up with
// n, lists have two elements, pointers are set.
func Fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*n))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(*n) + 0.5)
	case reflect.String:
		v.SetString(fmt.Sprintf("text-%d", *n))
		if v.Type() == reflect.TypeFor[domain.Digest]() {
			v.SetString(string(event.Digest([]byte{byte(*n)})))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fillEach(v, n)
	case reflect.Array:
		fillEach(v, n)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		Fill(v.Elem(), n)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(int64(*n), 0).UTC()))
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				Fill(v.Field(i), n)
			}
		}
	}
}

func fillEach(v reflect.Value, n *int) {
	for i := range v.Len() {
		Fill(v.Index(i), n)
	}
}
