package pool

import (
	"fmt"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// Role is what the bearer of a key may do.
type Role string

// The roles.
const (
	RoleModel    Role = "model"    // ask one deployed model for predictions
	RoleOperator Role = "operator" // everything the owner's own key may
	RoleObserver Role = "observer" // read: all runs, or one
)

// Limits of keys.
const (
	MaxKeys        = 1024                 // live ones: a user, a device or a program each
	MaxKeyLife     = 366 * 24 * time.Hour // a key that is forgotten must not stay a door
	MaxRate        = 100_000              // requests in one second or one minute; more is no limit
	DefaultRate    = 1000                 // requests a second of a key for which no rate was chosen: stops a loop in somebody's script
	tailLength     = 4                    // last characters of the secret, shown in lists: of 178 random bits they leave 154
	secondsAMinute = 60
)

// The names of the facts about keys. They are for ever.
const (
	NameKeyCreated = "key.created"
	NameKeyRevoked = "key.revoked"
)

// The facts about keys. Times are unix microseconds on the hub's clock.
type (
	// KeyCreated lets a bearer in.
	KeyCreated struct {
		Key     domain.KeyID   `msgpack:"key"`
		Hash    domain.Digest  `msgpack:"hash"` // SHA-256 of the whole secret
		Tail    string         `msgpack:"tail"` // its last four characters, so that a person knows which one it is
		Name    string         `msgpack:"name,omitempty"`
		Role    Role           `msgpack:"role"`
		Model   domain.ModelID `msgpack:"model,omitempty"` // of RoleModel
		Run     domain.RunID   `msgpack:"run,omitempty"`   // of RoleObserver, empty for all
		Rate    int            `msgpack:"rate,omitempty"`  // requests in Per seconds, of RoleModel
		Per     int            `msgpack:"per,omitempty"`   // 1 or 60
		Expires int64          `msgpack:"expires"`
	}
	// KeyRevoked ends it for ever.
	KeyRevoked struct {
		Key domain.KeyID `msgpack:"key"`
	}
)

func (KeyCreated) EventName() string { return NameKeyCreated }
func (KeyRevoked) EventName() string { return NameKeyRevoked }

// Line renders the fact.
func (e KeyCreated) Line() string {
	what := ""
	switch e.Role {
	case RoleModel:
		what = fmt.Sprintf("ask model %s, %s", e.Model, RateText(e.Rate, e.Per))
	case RoleObserver:
		what = "read every run"
		if e.Run != "" {
			what = "read run " + string(e.Run)
		}
	default:
		what = "do what the " + string(e.Role) + " may"
	}
	return fmt.Sprintf("key %s may %s until %s", e.Key, what, day(e.Expires))
}

// Line renders the fact.
func (e KeyRevoked) Line() string { return fmt.Sprintf("key %s revoked", e.Key) }

// RateText says a rate in words: "600 requests a minute".
func RateText(rate, per int) string {
	if per == secondsAMinute {
		return fmt.Sprintf("%d requests a minute", rate)
	}
	return fmt.Sprintf("%d requests a second", rate)
}

// The commands about keys. Id, secret and hash were made at the edge; Now is the hub's clock.
type (
	CreateKey struct {
		ID      domain.KeyID
		Hash    domain.Digest
		Tail    string
		Name    string
		Role    Role
		Model   domain.ModelID
		Run     domain.RunID
		Rate    int // 0 takes DefaultRate a second
		Per     int // seconds: 1 or 60
		Expires time.Time
		Now     time.Time
	}
	RevokeKey struct{ ID domain.KeyID }
)

func (CreateKey) isCommand() {}
func (RevokeKey) isCommand() {}

// Key is a key as the hub knows it.
type Key struct {
	ID      domain.KeyID
	Hash    domain.Digest
	Expires time.Time
	Revoked bool
	Seq     uint64 // of its creation: the oldest dead one is forgotten first
}

// Live reports whether the key lets its bearer in at the time now.
func (k Key) Live(now time.Time) bool { return !k.Revoked && now.Before(k.Expires) }

func decideCreateKey(s *State, c CreateKey) ([]event.Data, error) {
	const op = "create key" // its id is drawn by the hub and tells nobody anything
	if k, ok := s.Keys[c.ID]; ok {
		if k.Hash == c.Hash {
			return nil, nil
		}
		return nil, domain.Conflict(op, "a key of this id exists", "try again: the id is drawn anew")
	}
	if c.Role == RoleModel && c.Rate == 0 {
		c.Rate, c.Per = DefaultRate, 1
	}
	if err := checkKey(op, c); err != nil {
		return nil, err
	}
	if err := checkScope(op, s, c); err != nil {
		return nil, err
	}
	live := 0
	for _, k := range s.Keys {
		if k.Live(c.Now) {
			live++
		}
	}
	if live >= MaxKeys {
		return nil, domain.Conflict(op, fmt.Sprintf("the pool has %d live keys, the limit", live), "revoke some: tensorturn key list, tensorturn key revoke KEY")
	}
	return []event.Data{&KeyCreated{Key: c.ID, Hash: c.Hash, Tail: c.Tail, Name: c.Name, Role: c.Role, Model: c.Model, Run: c.Run,
		Rate: c.Rate, Per: c.Per, Expires: c.Expires.UnixMicro()}}, nil
}

// checkKey looks at what every key has.
func checkKey(op string, c CreateKey) error {
	life := c.Expires.Sub(c.Now)
	switch {
	case !domain.ValidID(string(c.ID)):
		return domain.Invalid(op, "this is not an id", "use lower-case letters, digits, '-' or '_'")
	case len(c.Tail) != tailLength:
		return domain.Invalid(op, fmt.Sprintf("its last %d characters are not given", tailLength), "")
	case len(c.Name) > domain.MaxNameLength || !printable(c.Name):
		return domain.Invalid(op, "its name is too long or has control characters", fmt.Sprintf("use at most %d printable characters", domain.MaxNameLength))
	case life <= 0 || life > MaxKeyLife:
		return domain.Invalid(op, fmt.Sprintf("it would expire in %s; a key lives up to %s", life.Round(time.Second), MaxKeyLife), "choose --expires in this range")
	}
	if _, err := domain.ParseDigest(string(c.Hash)); err != nil {
		return domain.Invalid(op, "the secret's hash is not a SHA-256", "give 64 lower-case hex digits")
	}
	return nil
}

// checkScope looks at what a role needs and what it cannot have.
func checkScope(op string, s *State, c CreateKey) error {
	switch c.Role {
	case RoleModel:
		if c.Run != "" {
			return domain.Invalid(op, "a key for a model has no run", "leave --run out")
		}
		if m, ok := s.Models[c.Model]; !ok || m.Retired {
			return domain.NotFound(op, fmt.Sprintf("no model %q is deployed", domain.Clip(string(c.Model), domain.MaxIDLength)), "deploy it first: tensorturn model deploy RUN --name NAME")
		}
		if c.Rate < 1 || c.Rate > MaxRate || c.Per != 1 && c.Per != secondsAMinute {
			return domain.Invalid(op, fmt.Sprintf("a rate of %d in %d seconds", c.Rate, c.Per), fmt.Sprintf("give 1 to %d a second or a minute: --rate 10/s, --rate 600/m", MaxRate))
		}
		return nil
	case RoleOperator, RoleObserver:
	default:
		return domain.Invalid(op, fmt.Sprintf("%q is no role", domain.Clip(string(c.Role), 40)), "use --model NAME, --role operator or --role observer")
	}
	if c.Model != "" || c.Rate != 0 || c.Per != 0 {
		return domain.Invalid(op, fmt.Sprintf("a key of role %s has no model and no rate", c.Role), "leave --model and --rate out")
	}
	if c.Run != "" && (c.Role != RoleObserver || !domain.ValidID(string(c.Run))) {
		return domain.Invalid(op, fmt.Sprintf("a key of role %s cannot be for run %q", c.Role, domain.Clip(string(c.Run), domain.MaxIDLength)), "use --role observer --run RUN")
	}
	return nil
}

func decideRevokeKey(s *State, c RevokeKey) ([]event.Data, error) {
	k, ok := s.Keys[c.ID]
	if !ok {
		return nil, domain.NotFound("revoke key "+domain.Clip(string(c.ID), domain.MaxIDLength), "the pool has no such key", "see tensorturn key list")
	}
	if k.Revoked {
		return nil, nil
	}
	return []event.Data{&KeyRevoked{Key: c.ID}}, nil
}

func (s *State) addKey(e event.Envelope, d *KeyCreated) {
	s.Keys[d.Key] = Key{ID: d.Key, Hash: d.Hash, Expires: time.UnixMicro(d.Expires).UTC(), Seq: e.Seq}
	forgetDead(s.Keys, func(k Key) (live bool, seq uint64) { return k.Live(e.Time), k.Seq })
}

func (s *State) revokeKey(d *KeyRevoked) {
	k := s.Keys[d.Key]
	k.Revoked = true
	s.Keys[d.Key] = k
}
