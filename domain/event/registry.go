package event

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"tensorturn/domain"
)

// Registry knows every event name there ever was and how to build its data. Each aggregate fills it with its own
// Register function at start; after that it is only read, by any number of goroutines.
type Registry struct{ facts map[string]*fact }

// fact is one event name with all its versions, the oldest first.
type fact struct{ versions []version }

// version builds the data of one schema version and lifts the data of the version before it.
type version struct {
	typ reflect.Type
	up  func(old Data) Data // nil for version 1
}

// NewRegistry gives an empty registry.
func NewRegistry() *Registry { return &Registry{facts: map[string]*fact{}} }

// Add registers the first version of an event. fresh gives a zero value of its data; decoded data is always a pointer,
// as everywhere in the project, whatever fresh gives. A name that is ill-formed, taken or not what the data says is a
// programming error and panics: it shows at the first start, not in the log.
func (r *Registry) Add(name string, v int, fresh func() Data) {
	domain.Assert(ValidName(name), fmt.Sprintf("event name %q is not <thing>.<fact> in lower case", name))
	domain.Assert(r.facts[name] == nil, fmt.Sprintf("event %s is registered twice", name))
	domain.Assert(v == 1, fmt.Sprintf("event %s begins with version %d, not 1", name, v))
	r.facts[name] = &fact{versions: []version{{typ: dataType(name, fresh)}}}
}

// Upgrade registers the next version of an event whose representation changed, with the pure function that lifts the
// data of the version before. The old versions stay registered with frozen types, so that every record ever written can
// be read. A changed meaning is no new version but a new name.
func (r *Registry) Upgrade(name string, v int, fresh func() Data, up func(old Data) Data) {
	f := r.facts[name]
	domain.Assert(f != nil, fmt.Sprintf("event %s is upgraded before it is added", name))
	domain.Assert(v == len(f.versions)+1, fmt.Sprintf("event %s goes from version %d to %d", name, len(f.versions), v))
	domain.Assert(up != nil, fmt.Sprintf("event %s version %d has no way up from the version before", name, v))
	f.versions = append(f.versions, version{typ: dataType(name, fresh), up: up})
}

// dataType is the value type behind fresh, which must call itself name.
func dataType(name string, fresh func() Data) reflect.Type {
	d := fresh()
	domain.Assert(d != nil && d.EventName() == name, fmt.Sprintf("data registered as %s has another name", name))
	t := reflect.TypeOf(d)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// New gives a pointer to the zero data of a name and version, to be decoded into, or domain.KindInvalid when this
// program does not know it.
func (r *Registry) New(name string, v int) (Data, error) {
	f := r.facts[name]
	if f == nil || v < 1 || v > len(f.versions) {
		return nil, domain.Invalid("read event", fmt.Sprintf("event %s version %d is unknown", domain.Clip(name, domain.MaxNameLength), v),
			"the log was written by a newer tensorturn: use that one or a later one")
	}
	return reflect.New(f.versions[v-1].typ).Interface().(Data), nil
}

// Latest is the newest version of a name, 0 when the name is unknown. New events are written in it.
func (r *Registry) Latest(name string) int {
	if f := r.facts[name]; f != nil {
		return len(f.versions)
	}
	return 0
}

// Names lists all event names, sorted.
func (r *Registry) Names() []string {
	names := make([]string, 0, len(r.facts))
	for n := range r.facts {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Types lists the Go type of every version of every event, by name and version: what a schema fingerprint covers.
func (r *Registry) Types() []reflect.Type {
	var out []reflect.Type
	for _, n := range r.Names() {
		for _, v := range r.facts[n].versions {
			out = append(out, v.typ)
		}
	}
	return out
}

// lift brings decoded data of version v to the newest version, one step for each version between: a chain that is
// counted, so that no upcaster can make it endless.
func (r *Registry) lift(name string, v int, d Data) (Data, int) {
	f := r.facts[name]
	d = pointer(d)
	for ; v < len(f.versions); v++ {
		next := f.versions[v]
		d = pointer(next.up(d))
		domain.Assert(reflect.TypeOf(d).Elem() == next.typ, fmt.Sprintf("the way up to %s version %d gives %T", name, v+1, d))
	}
	return d, v
}

// pointer is the pointer to the data. Events are handed around as pointers: one form, so that a type switch has one case.
func pointer(d Data) Data {
	v := reflect.ValueOf(d)
	if v.Kind() == reflect.Pointer {
		return d
	}
	p := reflect.New(v.Type())
	p.Elem().Set(v)
	return p.Interface().(Data)
}

// ValidName reports whether s may be an event name: two words of lower-case letters, digits and '-', each beginning
// with a letter, with a dot between them.
func ValidName(s string) bool {
	thing, what, ok := strings.Cut(s, ".")
	return ok && len(s) <= domain.MaxNameLength && validWord(thing) && validWord(what)
}

func validWord(s string) bool {
	for i, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z'
		if !letter && (i == 0 || !(c >= '0' && c <= '9') && c != '-') {
			return false
		}
	}
	return s != ""
}
