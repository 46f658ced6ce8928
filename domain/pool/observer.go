package pool

import (
	"fmt"
	"strings"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// The names of the facts about observers: systems that only read events. They are for ever.
const (
	NameObserverCreated = "observer.created"
	NameObserverRevoked = "observer.revoked"
)

// Limits of observers.
const (
	MaxObservers    = 64                   // live ones: each is an account and a durable consumer
	MaxObserverLife = 366 * 24 * time.Hour // of a credential that nobody renews
)

// The facts about observers. Times are unix microseconds on the hub's clock.
type (
	// ObserverCreated lets another system read events: all of them, or those of one run.
	ObserverCreated struct {
		Observer domain.ObserverID `msgpack:"observer"`
		Name     string            `msgpack:"name"`    // for people
		Account  string            `msgpack:"account"` // public nkey of its NATS account; also its consumer's name
		NKey     string            `msgpack:"nkey"`    // public nkey of its user
		Run      domain.RunID      `msgpack:"run,omitempty"`
		From     uint64            `msgpack:"from,omitempty"`  // the first sequence of the log it is told, 0 for all
		Since    int64             `msgpack:"since,omitempty"` // or the first moment, 0 for none
		Expires  int64             `msgpack:"expires"`
	}
	// ObserverRevoked ends it for ever.
	ObserverRevoked struct {
		Observer domain.ObserverID `msgpack:"observer"`
	}
)

func (ObserverCreated) EventName() string { return NameObserverCreated }
func (ObserverRevoked) EventName() string { return NameObserverRevoked }

// Line renders the fact.
func (e ObserverCreated) Line() string {
	what := "all events"
	if e.Run != "" {
		what = "run " + string(e.Run)
	}
	return fmt.Sprintf("observer %s (%q) may read %s until %s", e.Observer, e.Name, what, day(e.Expires))
}

// Line renders the fact.
func (e ObserverRevoked) Line() string { return fmt.Sprintf("observer %s revoked", e.Observer) }

// The commands about observers. Account and NKey were made at the edge; Now is the hub's clock.
type (
	CreateObserver struct {
		ID      domain.ObserverID
		Name    string
		Account string
		NKey    string
		Run     domain.RunID
		From    uint64
		Since   time.Time // zero for none
		Expires time.Time
		Now     time.Time
	}
	RevokeObserver struct{ ID domain.ObserverID }
)

func (CreateObserver) isCommand() {}
func (RevokeObserver) isCommand() {}

// Observer is an observer as the hub knows it.
type Observer struct {
	ID      domain.ObserverID
	Account string
	Expires time.Time
	Revoked bool
	Seq     uint64 // of its creation: the oldest dead one is forgotten first
}

func decideCreateObserver(s *State, c CreateObserver) ([]event.Data, error) {
	op := "create observer " + domain.Clip(string(c.ID), domain.MaxIDLength)
	if o, ok := s.Observers[c.ID]; ok {
		if o.Account == c.Account {
			return nil, nil
		}
		return nil, domain.Conflict(op, "an observer of this id exists", "try again: the id is drawn anew")
	}
	if err := checkObserver(op, c); err != nil {
		return nil, err
	}
	live := 0
	for _, o := range s.Observers {
		if !o.Revoked && c.Now.Before(o.Expires) {
			live++
		}
	}
	if live >= MaxObservers {
		return nil, domain.Conflict(op, fmt.Sprintf("the pool has %d live observers, the limit", live), "revoke one: tensorturn credential list, tensorturn credential revoke")
	}
	e := &ObserverCreated{Observer: c.ID, Name: c.Name, Account: c.Account, NKey: c.NKey, Run: c.Run, From: c.From, Expires: c.Expires.UnixMicro()}
	if !c.Since.IsZero() {
		e.Since = c.Since.UnixMicro()
	}
	return []event.Data{e}, nil
}

func checkObserver(op string, c CreateObserver) error {
	life := c.Expires.Sub(c.Now)
	switch {
	case !domain.ValidID(string(c.ID)):
		return domain.Invalid(op, "this is not an id", "use lower-case letters, digits, '-' or '_'")
	case len(c.Name) > domain.MaxNameLength || !printable(c.Name):
		return domain.Invalid(op, "its name is too long or has control characters", fmt.Sprintf("use at most %d printable characters", domain.MaxNameLength))
	case c.Run != "" && !domain.ValidID(string(c.Run)):
		return domain.Invalid(op, fmt.Sprintf("%q is not the id of a run", domain.Clip(string(c.Run), 80)), "list them: tensorturn run list")
	case c.Account == "" || c.NKey == "":
		return domain.Invalid(op, "it has no account or no key", "")
	case c.From > 0 && !c.Since.IsZero():
		return domain.Invalid(op, "it begins at a sequence and at a moment", "give one of them")
	case life <= 0 || life > MaxObserverLife:
		return domain.Invalid(op, fmt.Sprintf("it would expire in %s; a credential lives up to %s", life.Round(time.Second), MaxObserverLife), "choose --expires in this range")
	}
	return nil
}

func decideRevokeObserver(s *State, c RevokeObserver) ([]event.Data, error) {
	o, ok := s.Observers[c.ID]
	if !ok {
		return nil, domain.NotFound("revoke observer "+domain.Clip(string(c.ID), domain.MaxIDLength), "the pool has no such observer", "see tensorturn credential list")
	}
	if o.Revoked {
		return nil, nil
	}
	return []event.Data{&ObserverRevoked{Observer: c.ID}}, nil
}

func (s *State) addObserver(e event.Envelope, d *ObserverCreated) {
	s.Observers[d.Observer] = Observer{ID: d.Observer, Account: d.Account, Expires: time.UnixMicro(d.Expires).UTC(), Seq: e.Seq}
	forgetDead(s.Observers, func(o Observer) (live bool, seq uint64) { return !o.Revoked && e.Time.Before(o.Expires), o.Seq })
}

func (s *State) revokeObserver(d *ObserverRevoked) {
	o := s.Observers[d.Observer]
	o.Revoked = true
	s.Observers[d.Observer] = o
}

// printable reports whether a name that people give has no control characters.
func printable(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f })
}
