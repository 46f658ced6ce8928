// Package observers is the view of who may read events: other systems with a credential of their own, by the facts
// observer.created and observer.revoked. It never holds a secret.
package observers

import (
	"slices"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/freeze"
	"tensorturn/domain/pool"
)

// maxDead bounds the ended observers that are still listed; the log has them all.
const maxDead = 256

// Observer is one observer as people see it.
type Observer struct {
	ID      domain.ObserverID `json:"id"`
	Name    string            `json:"name,omitempty"`
	Run     domain.RunID      `json:"run,omitempty"`   // empty: all events
	From    uint64            `json:"from,omitempty"`  // the first sequence it is told
	Since   *time.Time        `json:"since,omitempty"` // or the first moment
	Account string            `json:"account"`         // public key of its account, the name of its consumer
	NKey    string            `json:"nkey"`            // public key of its user
	Created time.Time         `json:"created"`
	Expires time.Time         `json:"expires"`
	Revoked bool              `json:"revoked"`
}

// Live reports whether the observer may read at the time now.
func (o Observer) Live(now time.Time) bool { return !o.Revoked && now.Before(o.Expires) }

// View holds all observers, oldest first.
type View struct{ list []Observer }

// New returns an empty view.
func New() *View { return &View{} }

// Name names the view.
func (v *View) Name() string { return "observers" }

// Part names what the view holds, for snapshots.
func (v *View) Part() freeze.Part { return freeze.Part{Name: v.Name(), Values: []any{&v.list}} }

// List copies the observers, oldest first.
func (v *View) List() []Observer { return append([]Observer{}, v.list...) }

// Get gives one observer.
func (v *View) Get(id domain.ObserverID) (Observer, bool) {
	i := slices.IndexFunc(v.list, func(o Observer) bool { return o.ID == id })
	if i < 0 {
		return Observer{}, false
	}
	return v.list[i], true
}

// Apply folds one event.
func (v *View) Apply(e event.Envelope) {
	switch d := e.Data.(type) {
	case *pool.ObserverCreated:
		o := Observer{ID: d.Observer, Name: d.Name, Run: d.Run, From: d.From, Account: d.Account, NKey: d.NKey,
			Created: e.Time, Expires: time.UnixMicro(d.Expires).UTC()}
		if d.Since != 0 {
			at := time.UnixMicro(d.Since).UTC()
			o.Since = &at
		}
		v.list = append(v.list, o)
		v.bound(e.Time)
	case *pool.ObserverRevoked:
		for i := range v.list {
			if v.list[i].ID == d.Observer {
				v.list[i].Revoked = true
			}
		}
	}
}

// bound drops the oldest of too many ended observers.
func (v *View) bound(now time.Time) {
	dead := 0
	for _, o := range v.list {
		if !o.Live(now) {
			dead++
		}
	}
	v.list = slices.DeleteFunc(v.list, func(o Observer) bool {
		drop := dead > maxDead && !o.Live(now)
		if drop {
			dead--
		}
		return drop
	})
}
