package event

import (
	"strconv"
	"strings"

	"tensorturn/domain"
)

// SubjectAll matches the subject of every record.
const SubjectAll = "tt.ev.>"

// Subject is where a record stands in the log: tt.ev.<kind>.<id>.<fact>, the fact being the event's name as one token
// with '_' for its dot. Names have no '_' of their own, so the token tells the name.
func Subject(k Kind, id, name string) string {
	return "tt.ev." + string(k) + "." + id + "." + strings.ReplaceAll(name, ".", "_")
}

// Subject is where the envelope's record stands in the log.
func (e Envelope) Subject() string { return Subject(e.Kind, e.Agg, e.Data.EventName()) }

// ID is the id of the event at index of a command: the same whenever the command is decided again, which is what lets a
// lost answer be found again.
func ID(c domain.CommandID, index int) string { return string(c) + "." + strconv.Itoa(index) }

// SplitID gives the command and index of an event id.
func SplitID(id string) (c domain.CommandID, index int, ok bool) {
	command, rest, found := strings.Cut(id, ".")
	n, err := strconv.Atoi(rest)
	if !found || err != nil || n < 0 || strconv.Itoa(n) != rest || !domain.ValidID(command) {
		return "", 0, false
	}
	return domain.CommandID(command), n, true
}

// Valid reports whether k is a kind of aggregate.
func (k Kind) Valid() bool { return k == KindRun || k == KindMachine || k == KindPool }
