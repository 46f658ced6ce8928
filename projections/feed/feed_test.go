package feed_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"tensorturn/domain/event"
	"tensorturn/domain/event/eventtest"
	"tensorturn/domain/machine"
	"tensorturn/domain/pool"
	"tensorturn/domain/run"
	"tensorturn/projections/feed"
)

var update = flag.Bool("update-feed", false, "write what is published anew; breaking changes are refused all the same")

func registry() *event.Registry {
	r := event.NewRegistry()
	run.Register(r)
	machine.Register(r)
	pool.Register(r)
	return r
}

// samples has one event of each type with every field filled.
func samples(t *testing.T, r *event.Registry) []event.Envelope {
	t.Helper()
	var out []event.Envelope
	for _, name := range r.Names() {
		d, err := r.New(name, r.Latest(name))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		eventtest.Fill(reflect.ValueOf(d).Elem(), &n)
		out = append(out, eventtest.Sample(d, r.Latest(name)))
	}
	return out
}

// TestGolden compares each type's rendering with the committed one: readers rely on every byte of the meaning.
func TestGolden(t *testing.T) {
	r := registry()
	f := feed.NewFormat(r, "golden")
	for _, e := range samples(t, r) {
		m, ok := f.Message(e)
		if !ok {
			continue
		}
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, m.Data, "", "  "); err != nil {
			t.Fatalf("%s is no JSON: %v\n%s", m.Type, err, m.Data)
		}
		file(t, filepath.Join("testdata", "events", m.Type+".json"), append(pretty.Bytes(), '\n'))
	}
}

// file compares or, asked to, writes.
func file(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; write it with: go test ./projections/feed -update-feed", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s has changed; is\n%s\nwas\n%s", path, got, want)
	}
}

// TestEveryEventFitsItsSchema validates every type, filled and empty, against its schema and that of the envelope.
func TestEveryEventFitsItsSchema(t *testing.T) {
	r := registry()
	f := feed.NewFormat(r, "golden")
	check := newValidator(t, r)
	told := 0
	for _, e := range samples(t, r) {
		empty, _ := r.New(e.Data.EventName(), e.Version)
		for _, d := range []event.Data{e.Data, empty} {
			e.Data = d
			if m, ok := f.Message(e); ok {
				told++
				check(m)
			}
		}
	}
	if told < 60 {
		t.Errorf("only %d events were told", told)
	}
}

func newValidator(t *testing.T, r *event.Registry) func(feed.Message) {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	add := func(id string, s feed.Schema) *jsonschema.Schema {
		var plain any
		b, err := json.Marshal(s)
		if err == nil {
			plain, err = jsonschema.UnmarshalJSON(bytes.NewReader(b))
		}
		if err == nil {
			err = c.AddResource(id, plain)
		}
		if err != nil {
			t.Fatal(err)
		}
		return c.MustCompile(id)
	}
	envelope := add("urn:envelope", feed.EnvelopeSchema())
	data := map[string]*jsonschema.Schema{}
	for name, s := range feed.Schemas(r) {
		data[name] = add("urn:"+name, s)
	}
	return func(m feed.Message) {
		t.Helper()
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(m.Data))
		if err != nil {
			t.Fatalf("%s: %v", m.Type, err)
		}
		if err := envelope.Validate(v); err != nil {
			t.Errorf("%s: %v", m.Type, err)
		}
		if err := data[m.Type].Validate(v.(map[string]any)["data"]); err != nil {
			t.Errorf("%s: %v\n%s", m.Type, err, m.Data)
		}
	}
}

func TestNoSecretIsTold(t *testing.T) {
	r := registry()
	f := feed.NewFormat(r, "golden")
	// Every fact of machines and of the pool is listed, so that whoever adds one decides.
	told := map[string]bool{
		"machine.enrolled": true, "machine.online": true, "machine.suspect": true, "machine.lost": true, "machine.draining": true, "machine.drained": true,
		"machine.resumed": true, "machine.revoked": true, "machine.quarantined": true, "slots.paused": true, "slots.resumed": true, "machine.labelled": true, "bench.asked": true, "rest.set": true, "machine.benchmarked": true, "machine.slow": true, "machine.recovered": true, "pool.founded": true,
		"token.created": false, "token.used": false, "token.revoked": false, "observer.created": false, "observer.revoked": false,
		"key.created": false, "key.revoked": false, "model.deployed": true, "model.reverted": true, "model.retired": true, "inference.counted": true,
	}
	own := event.NewRegistry()
	machine.Register(own)
	pool.Register(own)
	for _, name := range own.Names() {
		want, known := told[name]
		if !known {
			t.Errorf("%s: decide whether others may be told, and list it here", name)
		} else if feed.Withheld(name) == want {
			t.Errorf("%s: withheld %v", name, !want)
		}
	}
	m, _ := f.Message(eventtest.Sample(&machine.BecameEnrolled{Name: "box", NKey: "UNKEY", Account: "AACCOUNT", Slots: 1}, 1))
	if s := string(m.Data); strings.Contains(s, "UNKEY") || strings.Contains(s, "AACCOUNT") || !strings.Contains(s, `"name":"box"`) {
		t.Errorf("enrolled is told as %s", s)
	}
}

// TestForeignTextAndNumbers: what an agent said may hold anything, and must come out as JSON that everybody reads.
func TestForeignTextAndNumbers(t *testing.T) {
	r := registry()
	f, check := feed.NewFormat(r, "golden"), newValidator(t, r)
	for _, d := range []event.Data{
		&run.ChunkTrained{Slot: "m/0", Loss: math.NaN(), Seconds: math.Inf(1)},
		&run.TaskFailed{Slot: "m/0", Error: "a\x00\"\xff\u2028</script>\n"},
		&run.Submitted{Spec: run.Spec{Seed: math.MaxUint64}},
	} {
		m, _ := f.Message(eventtest.Sample(d, 1))
		check(m)
	}
	m, _ := f.Message(eventtest.Sample(&run.Submitted{Spec: run.Spec{Seed: math.MaxUint64}}, 1))
	if !bytes.Contains(m.Data, []byte("18446744073709551615")) {
		t.Errorf("the seed lost digits: %s", m.Data)
	}
}

func TestMessageNames(t *testing.T) {
	f := feed.NewFormat(registry(), "h1")
	e := event.Envelope{Seq: 42, ID: "c-1.0", Kind: event.KindRun, Agg: "r-1", Time: time.Unix(0, 0).UTC(), Actor: "hub", Data: &run.LeaseGranted{}, Version: 1}
	m, ok := f.Message(e)
	if !ok || m.Subject != "tt.v1.events.run.r-1.lease_granted" || m.Type != "tensorturn.lease.granted.v1" || m.Seq != 42 || m.ID != "c-1.0" {
		t.Errorf("%+v", m)
	}
	if feed.Filter("r-1") != "tt.v1.events.run.r-1.>" || feed.Filter("") != feed.SubjectAll {
		t.Error("filters are wrong")
	}
	if feed.Sequence(9) >= feed.Sequence(10) {
		t.Error("sequences as text are not in their order")
	}
	var ce struct{ Source, Subject, Sequence, Time string }
	if err := json.Unmarshal(m.Data, &ce); err != nil || ce.Source != "/hubs/h1" || ce.Subject != "runs/r-1" || ce.Sequence != "00000000000000000042" || ce.Time != "1970-01-01T00:00:00.000000Z" {
		t.Errorf("%+v %v", ce, err)
	}
}
