package gateway_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"tensorturn/broker/gateway"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
	"tensorturn/projections/fleet"
	"tensorturn/projections/runs"
)

// The answer to a submission is the run with every default in force; a second one under its id changes nothing.
func TestSubmit(t *testing.T) {
	r := newRig(t, nil)
	var first, again, shown runs.Run
	r.api("POST", "/api/v1/runs", r.submission("r-1"), &first)
	r.api("POST", "/api/v1/runs", r.submission("r-1"), &again)
	r.api("GET", "/api/v1/runs/r-1", nil, &shown)
	if first.Spec.Optimizer.LR == 0 || first.Spec.Outer.LR == nil || first.Spec.Mode != run.ModeFused || first.Phase != run.PhaseSubmitted {
		t.Errorf("defaults are not written out: %+v", first.Spec)
	}
	if again.LastSeq != first.LastSeq || shown.FirstSeq != first.FirstSeq {
		t.Errorf("the second submission wrote something: %d, %d", first.LastSeq, again.LastSeq)
	}
	other := r.submission("r-1")
	other["spec"].(map[string]any)["epochs"] = 2
	r.call("POST", "/api/v1/runs", r.key, other).refused(t, 409, domain.KindConflict, "another spec")
	var named runs.Run
	r.api("POST", "/api/v1/runs", r.submission(""), &named)
	if !strings.HasPrefix(string(named.ID), "digits-") {
		t.Errorf("id %s", named.ID)
	}
	var all []runs.Run
	r.api("GET", "/api/v1/runs", nil, &all)
	if len(all) != 2 || all[0].ID != "r-1" {
		t.Errorf("%d runs", len(all))
	}
}

func TestSubmissionsThatAreRefused(t *testing.T) {
	r := newRig(t, nil)
	change := func(f func(m, spec map[string]any, data *run.Dataset)) map[string]any {
		m := r.submission("r-1")
		d := m["data"].(run.Dataset)
		f(m, m["spec"].(map[string]any), &d)
		m["data"] = d
		return m
	}
	type spec = map[string]any
	for name, c := range map[string]struct {
		body   any
		status int
		text   string
	}{
		"not JSON":         {"{", 400, ""},
		"nothing":          {"", 400, ""},
		"a list":           {"[]", 422, "object"},
		"unknown field":    {change(func(m, s spec, _ *run.Dataset) { s["epoch"] = 3 }), 422, "body.spec.epoch: unexpected property"},
		"unknown deeper":   {change(func(m, s spec, _ *run.Dataset) { s["optimizer"] = spec{"rate": 3} }), 422, "body.spec.optimizer.rate"},
		"unknown on top":   {change(func(m, s spec, _ *run.Dataset) { m["priority"] = 3 }), 422, "body.priority"},
		"text for number":  {change(func(m, s spec, _ *run.Dataset) { s["epochs"] = "three" }), 422, "body.spec.epochs"},
		"impossible spec":  {change(func(m, s spec, _ *run.Dataset) { s["batch"] = -1 }), 400, "batch"},
		"no data":          {change(func(_, _ spec, d *run.Dataset) { d.Blob = "" }), 400, "SHA-256"},
		"data not stored":  {change(func(_, _ spec, d *run.Dataset) { d.Blob = domain.Digest(strings.Repeat("0", 64)) }), 400, "not stored"},
		"empty data":       {change(func(_, _ spec, d *run.Dataset) { d.Samples = 0 }), 400, ""},
		"bad id":           {change(func(m, _ spec, _ *run.Dataset) { m["id"] = "../etc" }), 400, "not an id"},
		"long id":          {change(func(m, _ spec, _ *run.Dataset) { m["id"] = strings.Repeat("x", 49) }), 422, "body.id"},
		"above the limit":  {`{"id":"` + strings.Repeat("x", 1<<20) + `"}`, 413, ""},
		"many faults told": {`{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1}`, 422, "and more"},
	} {
		t.Run(name, func(t *testing.T) {
			r.call("POST", "/api/v1/runs", r.key, c.body).refused(t, c.status, domain.KindInvalid, c.text)
		})
	}
	r.call("GET", "/api/v1/runs/r-1/events?wait=26", r.key, nil).refused(t, 422, domain.KindInvalid, "query.wait")
	r.call("GET", "/api/v1/runs/r-1/events?whait=1", r.key, nil).refused(t, 422, domain.KindInvalid, "whait")
	r.call("GET", "/api/v1/runs/r-1", r.key, nil).refused(t, 404, domain.KindNotFound, "no such run")
	r.call("POST", "/api/v1/runs/r-1/cancel", r.key, nil).refused(t, 404, domain.KindNotFound, "no such run")
}

func TestRunCommands(t *testing.T) {
	r := newRig(t, nil)
	r.api("POST", "/api/v1/runs", r.submission("r-1"), nil)
	for _, c := range []struct {
		verb, reason string
		phase        run.Phase
		paused       string
	}{
		{"pause", "lunch", run.PhaseSubmitted, "lunch"}, {"pause", "again", run.PhaseSubmitted, "lunch"}, {"resume", "", run.PhaseSubmitted, ""},
		{"cancel", "enough", run.PhaseCancelled, ""}, {"cancel", "", run.PhaseCancelled, ""},
	} {
		var got runs.Run
		r.api("POST", "/api/v1/runs/r-1/"+c.verb, gateway.Reasoned{Reason: c.reason}, &got)
		if got.Phase != c.phase || got.Paused != c.paused {
			t.Errorf("%s: %s, paused %q", c.verb, got.Phase, got.Paused)
		}
	}
	r.call("POST", "/api/v1/runs/r-1/pause", r.key, nil).refused(t, 409, domain.KindConflict, "")
}

func TestMachineCommands(t *testing.T) {
	r := newRig(t, nil)
	_, id := r.enrol("box")
	var m fleet.Machine
	r.api("POST", "/api/v1/machines/box/drain", gateway.Reasoned{Reason: "dust"}, &m)
	if !m.Draining || m.ID != id {
		t.Errorf("drain: %+v", m)
	}
	r.api("POST", "/api/v1/machines/box/resume", nil, &m)
	if m.Draining {
		t.Errorf("resume: %+v", m)
	}
	r.enrol("box") // two of one name
	r.call("POST", "/api/v1/machines/box/drain", r.key, nil).refused(t, 409, domain.KindConflict, "drain machine box: 2 machines may be meant: "+string(id))
	r.api("POST", "/api/v1/machines/"+string(id)+"/revoke", nil, &m)
	r.api("POST", "/api/v1/machines/box/drain", nil, &m) // the one that is left
	if m.ID == id {
		t.Error("a revoked machine answers to its name")
	}
}

func TestTokens(t *testing.T) {
	r := newRig(t, nil)
	token := r.token(gateway.CreateToken{Uses: 1024, Seconds: 30 * 86400})
	if token.Uses != 1024 || time.Until(token.Expires) < 29*24*time.Hour || token.Join != "tensorturn agent join https://"+r.addr+" --token "+token.Token {
		t.Errorf("%+v", token)
	}
	if d := r.token(gateway.CreateToken{}); d.Uses != 1 || time.Until(d.Expires) > 24*time.Hour {
		t.Errorf("defaults: %+v", d)
	}
	if a := r.call("POST", "/api/v1/tokens", r.key, nil); a.status != http.StatusOK {
		t.Errorf("without a body: %d %s", a.status, a.body)
	}
	list := r.call("GET", "/api/v1/tokens", r.key, nil)
	if strings.Contains(string(list.body), token.Token[4:34]) || !strings.Contains(string(list.body), string(token.ID)) {
		t.Errorf("the list shows a secret, or not the id: %s", list.body)
	}
	for body, text := range map[string]string{`{"uses":1025}`: "body.uses", `{"uses":-1}`: "body.uses", `{"seconds":2592001}`: "body.seconds", `{"seconds":-1}`: "body.seconds",
		`{"seconds":9223372036854775807}`: "body.seconds", `{"days":1}`: "body.days"} {
		r.call("POST", "/api/v1/tokens", r.key, body).refused(t, 422, domain.KindInvalid, text)
	}
	r.call("DELETE", "/api/v1/tokens/t-none", r.key, nil).refused(t, 404, domain.KindNotFound, "no such token")
}

func (r *rig) events(id string, after uint64, wait int) (gateway.RunEvents, error) {
	a, err := r.send("GET", fmt.Sprintf("/api/v1/runs/%s/events?after=%d&wait=%d", id, after, wait), r.key, nil)
	if err != nil {
		return gateway.RunEvents{}, err
	}
	var e gateway.RunEvents
	return e, json.Unmarshal(a.body, &e)
}

// A long poll answers at once when there is something, wakes on news of its run, ends at its time, and ends at Stop.
func TestEvents(t *testing.T) {
	r := newRig(t, nil)
	r.api("POST", "/api/v1/runs", r.submission("r-1"), nil)
	first, err := r.events("r-1", 0, 25)
	if err != nil || len(first.Lines) != 1 || first.Lines[0].Name != run.NameSubmitted || first.Last != first.Lines[0].Seq {
		t.Fatalf("%+v %v", first, err)
	}
	if e, err := r.events("r-1", first.Last, 0); err != nil || len(e.Lines) != 0 || e.Last != first.Last {
		t.Errorf("without waiting: %+v %v", e, err)
	}
	began := time.Now()
	if e, err := r.events("r-1", first.Last, 1); err != nil || len(e.Lines) != 0 || time.Since(began) < time.Second {
		t.Errorf("waited %s: %+v %v", time.Since(began), e, err)
	}
	got := make(chan gateway.RunEvents, 1)
	go func() {
		e, err := r.events("r-1", first.Last, 25)
		if err != nil {
			t.Error(err)
		}
		got <- e
	}()
	r.token(gateway.CreateToken{}) // news of something else does not end it
	r.api("POST", "/api/v1/runs/r-1/pause", nil, nil)
	if e := <-got; len(e.Lines) != 1 || e.Lines[0].Name != run.NamePaused {
		t.Errorf("woken with %+v", e)
	}
	began = time.Now()
	go func() {
		e, _ := r.events("r-1", first.Last+99, 25)
		got <- e
	}()
	r.must(r.front.Stop())
	<-got
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("Stop waited %s for a long poll", took)
	}
}

func (r *rig) stream(query string) []gateway.LogRecord {
	r.t.Helper()
	a := r.call("GET", "/api/v1/log"+query, r.key, nil)
	if a.status != 200 || a.header.Get("Content-Type") != "application/x-ndjson" {
		r.t.Fatalf("%d %s", a.status, a.body)
	}
	var out []gateway.LogRecord
	for in := bufio.NewScanner(bytes.NewReader(a.body)); in.Scan(); {
		var l gateway.LogRecord
		r.must(json.Unmarshal(in.Bytes(), &l))
		out = append(out, l)
	}
	return out
}

// The stream is the log as it is stored; it ends with a line that says what cannot be read, and whether that may heal.
func TestLogStream(t *testing.T) {
	r := newRig(t, nil)
	for range 4 {
		r.token(gateway.CreateToken{})
	}
	v := event.NewVerifier(registry())
	for _, l := range r.stream("") {
		_, err := v.Next(l.Seq, l.Data)
		r.must(err)
	}
	if n, _ := v.Head(); n != 5 {
		t.Errorf("%d records", n)
	}
	if from := r.stream("?from=4"); len(from) != 2 || from[0].Seq != 4 || r.stream("?from=99") != nil {
		t.Errorf("from 4: %+v", from)
	}
	r.call("GET", "/api/v1/log?from=0", r.key, nil).refused(t, 400, domain.KindInvalid, "not a sequence")
	r.call("GET", "/api/v1/log?from=x", r.key, nil).refused(t, 400, domain.KindInvalid, "not a sequence")
	r.log.Lose(3)
	lost := r.stream("")
	if last := lost[len(lost)-1]; len(lost) != 3 || last.Seq != 3 || last.Kind != domain.KindIntegrity || last.Error == "" || last.Data != nil {
		t.Errorf("a lost record: %+v", lost)
	}
	var verified gateway.Verified
	r.api("POST", "/api/v1/log/verify", nil, &verified)
	if verified.OK || verified.FirstBad != 3 || verified.Records != 2 {
		t.Errorf("%+v", verified)
	}
}

// broken fails in a way that nobody foresaw.
type broken struct{ gateway.Decider }

func (broken) ReadOnly() error { panic("boom") }

// A handler that panics is a 500 without its secrets; the log has them.
func TestPanicIsContained(t *testing.T) {
	r := newRig(t, func(c *gateway.Config) {
		c.Hub = broken{c.Hub}
		c.Enrol = failing{}
	})
	r.call("POST", "/api/v1/log/verify", r.key, nil).refused(t, 500, domain.KindInternal, "failed inside")
	if !strings.Contains(r.logged.String(), "boom") {
		t.Error("the log does not say why")
	}
	q := gateway.EnrolRequest{Token: r.token(gateway.CreateToken{}).Token, Name: "box", Slots: 1, Proof: r.proof(r.nkey(), "enrol", time.Now())}
	a := r.call("POST", "/api/v1/enrol", "", q)
	if p := a.refused(t, 500, domain.KindInternal, "failed inside"); strings.Contains(p.Detail, "disk") {
		t.Errorf("inner text went out: %+v", p)
	}
	if !strings.Contains(r.logged.String(), "/secret/disk") {
		t.Error("the log does not say why")
	}
	if a := r.call("GET", "/api/v1/runs", r.key, nil); a.status != http.StatusOK {
		t.Errorf("another request: %d", a.status)
	}
}

type failing struct{}

func (failing) NewAccount(domain.MachineID) (string, error) {
	return "", errors.New("/secret/disk is on fire")
}
func (failing) Credential(domain.MachineID, string) (string, error) {
	return "", errors.New("/secret/disk is on fire")
}
