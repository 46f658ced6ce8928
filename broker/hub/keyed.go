package hub

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"tensorturn/domain"
)

// keyedPrefix begins the ids of commands that carry a caller's idempotency key.
const keyedPrefix = "key-"

// keyedHalf is the length of either half of such an id: 80 bits, far beyond the 65,536 that are remembered.
const keyedHalf = 16

// KeyedCommand gives the id of a command whose caller may repeat it under a key of its own: key-<key>-<request>, both
// hashed. The id is in every record that the command leaves, so that the log itself remembers which key stood for which
// request, over restarts and for as long as command ids are remembered at all.
func KeyedCommand(key, request []byte) domain.CommandID {
	return domain.CommandID(keyedPrefix + half(key) + "-" + half(request))
}

func half(b []byte) string {
	h := sha256.Sum256(b)
	return strings.ToLower(base32.StdEncoding.EncodeToString(h[:]))[:keyedHalf]
}

// keyOf is the part of a command's id that its key made, "" for a command without one.
func keyOf(id domain.CommandID) string {
	rest, ok := strings.CutPrefix(string(id), keyedPrefix)
	if !ok || len(rest) != 2*keyedHalf+1 || rest[keyedHalf] != '-' {
		return ""
	}
	return rest[:keyedHalf]
}

// taken reports whether the key of a command was used for another request.
func (c *causes) taken(id domain.CommandID) bool {
	key := keyOf(id)
	other, used := c.keys[key]
	return key != "" && used && other != id
}

// remember and forget keep the index of keys beside the ring of ids.
func (c *causes) remember(id domain.CommandID) {
	key := keyOf(id)
	if key == "" {
		return
	}
	if c.keys == nil {
		c.keys = map[string]domain.CommandID{}
	}
	c.keys[key] = id
}

func (c *causes) forget(id domain.CommandID) {
	if key := keyOf(id); key != "" && c.keys[key] == id {
		delete(c.keys, key)
	}
}
