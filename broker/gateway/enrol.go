package gateway

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"tensorturn/broker/hub"
	"tensorturn/broker/identity"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/pool"
)

// Enrolment limits, of requests without a good token: it has 178 random bits, so these protect the hub's time, not the token.
const (
	enrolPerSecond = 10
	enrolBurst     = 60
	maxEnrolBytes  = 16 << 10 // ours are below 2 KiB
)

// EnrolRequest is the body of POST /api/v1/enrol. The machine made its nkey itself; Proof, signed by it for
// identity.AudienceEnrol, shows that it holds the seed and names its public part.
type EnrolRequest struct {
	Token string `json:"token"`
	Name  string `json:"name"`
	Slots int    `json:"slots"`
	Proof string `json:"proof"`
}

// EnrolReply is what a machine keeps.
type EnrolReply struct {
	Machine    domain.MachineID `json:"machine"`
	Credential string           `json:"credential"` // user JWT, 24 h
	CA         string           `json:"ca"`         // PEM: the only root it trusts from now on
	HeadKey    []byte           `json:"head_key"`   // Ed25519 public key of signed heads
	// Namesake is the oldest other machine of the same name, empty when there is none.
	Namesake domain.MachineID `json:"namesake,omitempty"`
}

// enrol turns a token into a machine. One batch uses the token and enrols the machine: both or neither.
func (g *Gateway) enrol(w http.ResponseWriter, r *http.Request) {
	var q EnrolRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxEnrolBytes)).Decode(&q); err != nil {
		g.refuse(w, domain.Invalid("enrol", "the body is not what an agent sends", "use the agent of this hub's version: "+g.cfg.Version))
		return
	}
	if g.tokenErr(q.Token) != nil && !g.enrolments.Allow() {
		g.refuse(w, domain.Unavailable("enrol", "too many enrolments at once", "try again in a moment", nil))
		return
	}
	reply, err := g.admit(r, q)
	if err != nil {
		g.cfg.Logger.Warn().Str("remote", r.RemoteAddr).Err(err).Msg("enrolment refused")
		g.refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(reply)
}

// tokenErr says why a join token admits nobody now; nil when it does. Requests with a good token are few, and are not slowed: whoever
// has none could otherwise keep everybody out by asking all the time.
func (g *Gateway) tokenErr(plain string) error {
	token, err := identity.ParseToken(plain)
	if err != nil {
		return err
	}
	g.cfg.Views.Engine.Read(func(uint64) { err = g.admits(token) })
	return err
}

// admit checks the request, and enrols the machine unless its key is enrolled already: an agent whose answer was lost
// asks again with the same key, and must not need a second use of the token.
func (g *Gateway) admit(r *http.Request, q EnrolRequest) (EnrolReply, error) {
	token, err := identity.ParseToken(q.Token)
	if err != nil {
		return EnrolReply{}, err
	}
	nkey, err := identity.VerifyProof(q.Proof, identity.AudienceEnrol, g.cfg.Now())
	if err != nil {
		return EnrolReply{}, err
	}
	if err := checkEnrol(q); err != nil {
		return EnrolReply{}, err
	}
	var id domain.MachineID
	var standing machine.Standing
	var known error                        // why the token admits nobody
	g.cfg.Views.Engine.Read(func(uint64) { // at one moment: the machine that used a token up is there with it
		id, standing = g.cfg.Views.Fleet.ByNKey(nkey)
		known = g.admits(token)
	})
	switch {
	case id == "" && known != nil:
		err = known
	case id == "":
		id, err = g.newMachine(r, token, nkey, q)
	case standing == machine.Revoked:
		err = domain.Denied("enrol", "this machine's key was revoked", "remove the agent's directory and join with a new token")
	}
	if err != nil {
		return EnrolReply{}, err
	}
	jwt, err := g.cfg.Enrol.Credential(id, nkey)
	if err != nil {
		return EnrolReply{}, err
	}
	return EnrolReply{Machine: id, Credential: jwt, CA: string(g.cfg.CA), HeadKey: g.cfg.HeadKey, Namesake: g.namesake(id, q.Name)}, nil
}

// namesake is another machine that commands may mean by the name.
func (g *Gateway) namesake(id domain.MachineID, name string) (other domain.MachineID) {
	g.cfg.Views.Engine.Read(func(uint64) {
		for _, named := range g.cfg.Views.Fleet.Candidates(name) {
			if m, ok := g.cfg.Views.Fleet.Find(string(named)); ok && named != id && m.Name == name && other == "" {
				other = named
			}
		}
	})
	return other
}

// newMachine makes the machine's account and then, in one batch, uses the token and enrols the machine. Its id is made
// from its key: asked twice at once, the same machine enrols once.
func (g *Gateway) newMachine(r *http.Request, token identity.Token, nkey string, q EnrolRequest) (domain.MachineID, error) {
	now, id := g.cfg.Now(), g.idFor(q.Name, nkey)
	account, err := g.cfg.Enrol.NewAccount(id)
	if err != nil {
		return "", err
	}
	return id, g.cfg.Hub.Do(r.Context(), hub.Do{
		Command: domain.CommandID(g.cfg.NewID("c")), Actor: event.Actor("machine:" + string(id)),
		Targets: []hub.Target{
			{Kind: event.KindPool, ID: pool.ID, Command: pool.UseToken{ID: token.ID(), Hash: token.Hash(), Machine: id, Now: now}},
			{Kind: event.KindMachine, ID: string(id), Command: machine.Enrol{ID: id, Name: q.Name, NKey: nkey, Account: account, Slots: q.Slots, Token: token.ID(), At: now}},
		},
	})
}

// admits says why the token admits nobody, within a read of the views. The hub decides; but an account is a file, and
// whoever knows no token must not be able to fill the disk. A token's id is a part of its secret's hash, so that whoever
// names a known id holds the secret, and may be told what became of it.
func (g *Gateway) admits(token identity.Token) error {
	t, known := g.cfg.Views.Fleet.Token(token.ID())
	op, next := "join with token "+string(token.ID()), "ask the pool's owner for a new one: tensorturn token create"
	switch {
	case !known:
		return domain.Denied(op, "the token is not known to this pool", "check that it was copied whole and is for this hub, or "+next)
	case t.Revoked:
		return domain.Denied(op, "the token was revoked", next)
	case t.Uses < 1:
		return domain.Denied(op, "the token is used up", next)
	case !t.Live(g.cfg.Now()):
		return domain.Denied(op, "the token expired at "+t.Expires.Format(time.RFC3339), next)
	}
	return nil
}

// idFor gives the machine its id. A short tail that another key has is made longer.
func (g *Gateway) idFor(name, nkey string) domain.MachineID {
	id := domain.MachineID(readableID(name, "machine", keyTail(nkey, tailSize)))
	taken := false
	g.cfg.Views.Engine.Read(func(uint64) {
		m, ok := g.cfg.Views.Fleet.Find(string(id))
		taken = ok && m.ID == id && m.NKey != nkey
	})
	if taken {
		return domain.MachineID(readableID(name, "machine", keyTail(nkey, longTail)))
	}
	return id
}

// checkEnrol refuses what cannot be a machine.
func checkEnrol(q EnrolRequest) error {
	if q.Slots < 1 || q.Slots > domain.MaxSlotsPerMachine {
		return domain.Invalid("enrol", "the number of slots is out of range", "give --slots from 1 to "+strconv.Itoa(domain.MaxSlotsPerMachine))
	}
	if q.Name == "" || len(q.Name) > domain.MaxNameLength || strings.ContainsFunc(q.Name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return domain.Invalid("enrol", "the machine's name is empty, too long or has characters that cannot be printed", "give --name")
	}
	return nil
}
