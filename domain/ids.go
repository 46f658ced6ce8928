package domain

import (
	"fmt"
	"strconv"
	"strings"
)

// Ids are typed strings over the alphabet of a NATS subject token without wildcards: lower-case letters, digits,
// '-' and '_', 1 to MaxIDLength characters, beginning with a letter or digit. They are made in cmd or at the edge
// of the hub, never in domain, and parsed once, where they enter.
type (
	// RunID names a run, for example "r-01hv5c...".
	RunID string
	// MachineID names a machine for ever; it is bound to the machine's nkey at enrolment.
	MachineID string
	// TokenID is the public accessor of a join token; it may appear in logs, the secret may not.
	TokenID string
	// ObserverID names a system that only reads events.
	ObserverID string
	// KeyID is the public accessor of an API key; it may appear in logs and events, the secret may not.
	KeyID string
	// ModelID is the name under which a model is deployed; it stands in URLs.
	ModelID string
	// CommandID identifies one attempt to change state. Event ids are "<command id>.<index>".
	CommandID string
	// Incarnation is drawn anew by each agent process, so that a restart is told from a reconnect.
	Incarnation string
	// SlotID is "<machine>/<index>": one unit of compute on a machine.
	SlotID string
	// Digest is a lower-case hex SHA-256 (64 characters), or empty for none.
	Digest string
	// ChunkID counts the chunks of a run over all its epochs, from 0.
	ChunkID int
	// Epoch is a lease's fencing number: the log sequence of its grant. Zero is no lease.
	Epoch uint64
)

// Slot gives the id of slot index on machine m.
func Slot(m MachineID, index int) SlotID {
	return SlotID(string(m) + "/" + strconv.Itoa(index))
}

// Machine is the part of the slot id before the slash.
func (s SlotID) Machine() MachineID {
	m, _, _ := strings.Cut(string(s), "/")
	return MachineID(m)
}

// Index is the slot's number on its machine, -1 when the id is malformed.
func (s SlotID) Index() int {
	_, i, ok := strings.Cut(string(s), "/")
	n, err := strconv.Atoi(i)
	if !ok || err != nil || n < 0 {
		return -1
	}
	return n
}

// ValidID reports whether s may stand as an id: it is a safe subject token and file name.
func ValidID(s string) bool {
	if s == "" || len(s) > MaxIDLength {
		return false
	}
	for i, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || c != '-' && c != '_') {
			return false
		}
	}
	return true
}

// ParseID checks s and returns it as the id type T, or an Invalid error that names what was expected.
func ParseID[T ~string](what, s string) (T, error) {
	if !ValidID(s) {
		return "", Invalid("parse "+what+" id", fmt.Sprintf("%q is not an id", Clip(s, 80)),
			fmt.Sprintf("use 1 to %d lower-case letters, digits, '-' or '_', beginning with a letter or digit", MaxIDLength))
	}
	return T(s), nil
}

// ParseDigest checks a lower-case hex SHA-256.
func ParseDigest(s string) (Digest, error) {
	ok := len(s) == 64
	for _, c := range []byte(s) {
		ok = ok && (c >= '0' && c <= '9' || c >= 'a' && c <= 'f')
	}
	if !ok {
		return "", Invalid("parse digest", fmt.Sprintf("%q is not a SHA-256", Clip(s, 80)), "give 64 lower-case hex digits")
	}
	return Digest(s), nil
}

// Short is the digest's first twelve digits, for people.
func (d Digest) Short() string { return Clip(string(d), 12) }

// Clip returns at most n bytes of s, so that foreign text cannot flood an error or a log line.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n]
}
