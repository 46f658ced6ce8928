// Package feed turns the log's events into what other systems read: CloudEvents 1.0 in structured JSON, with a JSON Schema
// for each type and an AsyncAPI document made from the same Go types. It is pure: the same log gives the same bytes, which
// is what lets a publisher go on behind whatever is published already. broker/feed publishes, broker/gateway serves,
// neither of them changes a byte.
//
// Facts about secrets never enter: see secret.go. Types only grow; what means something else is a new event name.
package feed

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// Names other systems rely on. They are for ever.
const (
	SubjectAll    = "tt.v1.events.>"
	SubjectPrefix = "tt.v1.events."
	ContentType   = "application/cloudevents+json"
	typePrefix    = "tensorturn."
	timeLayout    = "2006-01-02T15:04:05.000000Z07:00" // whole microseconds, as the log has them
)

// Message is one event as others see it.
type Message struct {
	Seq     uint64 // the event's sequence in the log; others are told of gaps only by what is withheld
	ID      string // event id, the same for ever
	Kind    event.Kind
	Agg     string
	Name    string // event name
	Type    string // CloudEvents type
	Subject string // NATS subject tt.v1.events.<kind>.<id>.<fact>
	Line    string // for people
	Time    time.Time
	Data    []byte // the CloudEvent
}

// Format renders events. It is made once and then only read, by any number of goroutines.
type Format struct {
	source string
	plans  map[string]*plan
}

// NewFormat prepares the rendering of every fact in r for the hub with the given id.
func NewFormat(r *event.Registry, hub string) *Format {
	f := &Format{source: "/hubs/" + hub, plans: map[string]*plan{}}
	for _, name := range r.Names() {
		f.plans[name] = planOf(dataType(r, name))
	}
	return f
}

// Message renders an event; ok is false for one that is withheld. An event the registry does not know is a broken promise.
func (f *Format) Message(e event.Envelope) (m Message, ok bool) {
	name := e.Data.EventName()
	if Withheld(name) {
		return Message{}, false
	}
	p := f.plans[name]
	domain.Assert(p != nil, "event "+name+" is registered before it is published")
	m = Message{Seq: e.Seq, ID: e.ID, Kind: e.Kind, Agg: e.Agg, Name: name, Type: Type(name, e.Version),
		Subject: Subject(e.Kind, e.Agg, name), Line: e.Data.Line(), Time: e.Time}
	var b bytes.Buffer
	b.Grow(1 << 10)
	b.WriteString(`{"specversion":"1.0"`)
	attribute(&b, "id", e.ID)
	attribute(&b, "source", f.source)
	attribute(&b, "subject", about(e.Kind, e.Agg))
	attribute(&b, "type", m.Type)
	attribute(&b, "time", e.Time.Format(timeLayout))
	attribute(&b, "datacontenttype", "application/json")
	attribute(&b, "dataschema", SchemaID(name, e.Version))
	attribute(&b, "sequence", Sequence(e.Seq))
	attribute(&b, "prevhash", string(e.Prev))
	attribute(&b, "actor", string(e.Actor))
	attribute(&b, "correlation", e.Corr)
	attribute(&b, "summary", m.Line)
	b.WriteString(`,"data":`)
	p.write(&b, e.Data)
	b.WriteByte('}')
	m.Data = b.Bytes()
	return m, true
}

// Sequence is the CloudEvents extension of that name: text whose order is the log's order.
func Sequence(seq uint64) string { return fmt.Sprintf("%020d", seq) }

// Type is the CloudEvents type of an event name and version.
func Type(name string, version int) string { return fmt.Sprintf("%s%s.v%d", typePrefix, name, version) }

// Subject is where an event stands in the feed.
func Subject(k event.Kind, id, name string) string {
	return SubjectPrefix + string(k) + "." + id + "." + strings.ReplaceAll(name, ".", "_")
}

// Filter is the subject of all events, or of one run's.
func Filter(run domain.RunID) string {
	if run == "" {
		return SubjectAll
	}
	return SubjectPrefix + string(event.KindRun) + "." + string(run) + ".>"
}

// about is the CloudEvents subject.
func about(k event.Kind, id string) string {
	if k == event.KindPool {
		return string(k)
	}
	return string(k) + "s/" + id
}

// attribute writes one attribute of text; an empty one is left out.
func attribute(b *bytes.Buffer, name, value string) {
	if value == "" {
		return
	}
	b.WriteString(`,"`)
	b.WriteString(name)
	b.WriteString(`":`)
	quote(b, value)
}

// plainText reports whether text stands in JSON as it is.
func plainText(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}

// quote writes text as JSON. Text that is no UTF-8 is mended: a reader must be able to parse every event.
func quote(b *bytes.Buffer, s string) {
	if plainText(s) { // nearly all text: ids, digests, names
		b.WriteByte('"')
		b.WriteString(s)
		b.WriteByte('"')
		return
	}
	q, err := json.Marshal(s)
	domain.Assert(err == nil, "text can be written as JSON")
	b.Write(q)
}
