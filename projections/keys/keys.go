// Package keys is the view of API keys: who may come in with what. It holds SHA-256 digests of secrets, for the gateway
// to find a bearer by, and never shows them.
package keys

import (
	"crypto/subtle"
	"slices"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/freeze"
	"tensorturn/domain/pool"
)

// maxDead bounds the ended keys that are still listed and named when somebody comes with one; the log has them all.
const maxDead = 1024

// Key is one key as people see it.
type Key struct {
	ID      domain.KeyID   `json:"id"`
	Tail    string         `json:"tail"` // the secret's last four characters
	Name    string         `json:"name,omitempty"`
	Role    pool.Role      `json:"role"`
	Model   domain.ModelID `json:"model,omitempty"`
	Run     domain.RunID   `json:"run,omitempty"`  // of an observer, empty: all
	Rate    int            `json:"rate,omitempty"` // requests in rate_seconds, of a key for a model
	Per     int            `json:"rate_seconds,omitempty"`
	Created time.Time      `json:"created"`
	Expires time.Time      `json:"expires"`
	Revoked bool           `json:"revoked"`

	Hash domain.Digest `json:"-"` // of the secret, never shown
}

// Live reports whether the key lets its bearer in at the time now.
func (k Key) Live(now time.Time) bool { return !k.Revoked && now.Before(k.Expires) }

// View holds all keys, oldest first.
type View struct {
	list   []*Key
	byHash map[domain.Digest]*Key
	byID   map[domain.KeyID]*Key
}

// New returns an empty view.
func New() *View {
	return &View{byHash: map[domain.Digest]*Key{}, byID: map[domain.KeyID]*Key{}}
}

// Name names the view.
func (v *View) Name() string { return "keys" }

// Part names what the view holds, for snapshots. Both maps follow from the list.
func (v *View) Part() freeze.Part {
	return freeze.Part{Name: v.Name(), Values: []any{&v.list}, Restored: v.index}
}

func (v *View) index() {
	v.byHash, v.byID = make(map[domain.Digest]*Key, len(v.list)), make(map[domain.KeyID]*Key, len(v.list))
	for _, k := range v.list {
		v.byHash[k.Hash], v.byID[k.ID] = k, k
	}
}

// List copies the keys, oldest first.
func (v *View) List() []Key {
	out := make([]Key, 0, len(v.list))
	for _, k := range v.list {
		out = append(out, *k)
	}
	return out
}

// Find gives the key whose secret has the hash, live or not. The map is looked up by the hash of what a caller brought,
// which he cannot steer; the comparison that decides takes the same time whatever it finds.
func (v *View) Find(hash domain.Digest) (Key, bool) {
	k, ok := v.byHash[hash]
	if !ok || subtle.ConstantTimeCompare([]byte(k.Hash), []byte(hash)) != 1 {
		return Key{}, false
	}
	return *k, true
}

// Get gives the key of the id.
func (v *View) Get(id domain.KeyID) (Key, bool) {
	k, ok := v.byID[id]
	if !ok {
		return Key{}, false
	}
	return *k, true
}

// Apply folds one event.
func (v *View) Apply(e event.Envelope) {
	switch d := e.Data.(type) {
	case *pool.KeyCreated:
		k := &Key{ID: d.Key, Tail: d.Tail, Name: d.Name, Role: d.Role, Model: d.Model, Run: d.Run, Rate: d.Rate, Per: d.Per,
			Created: e.Time, Expires: time.UnixMicro(d.Expires).UTC(), Hash: d.Hash}
		v.list = append(v.list, k)
		v.byHash[k.Hash], v.byID[k.ID] = k, k
		v.bound(e.Time)
	case *pool.KeyRevoked:
		if k, ok := v.byID[d.Key]; ok {
			k.Revoked = true
		}
	}
}

// bound drops the oldest of too many ended keys.
func (v *View) bound(now time.Time) {
	dead := 0
	for _, k := range v.list {
		if !k.Live(now) {
			dead++
		}
	}
	v.list = slices.DeleteFunc(v.list, func(k *Key) bool {
		drop := dead > maxDead && !k.Live(now)
		if drop {
			dead--
			delete(v.byHash, k.Hash)
			delete(v.byID, k.ID)
		}
		return drop
	})
}
