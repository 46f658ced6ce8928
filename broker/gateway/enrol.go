package gateway

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"tensorturn/broker/hub"
	"tensorturn/broker/identity"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/pool"
)

// Enrolment limits: a token has 178 random bits, so these protect the hub's time, not the token.
const (
	enrolPerSecond = 10
	enrolBurst     = 60
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
}

// enrol turns a token into a machine. One batch uses the token and enrols the machine: both or neither.
func (g *Gateway) enrol(w http.ResponseWriter, r *http.Request) {
	if !g.enrolments.Allow() {
		refuse(w, domain.Unavailable("enrol", "too many enrolments at once", "try again in a moment", nil))
		return
	}
	var q EnrolRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 16<<10)).Decode(&q); err != nil {
		refuse(w, domain.Invalid("enrol", "the body is not what an agent sends", "use the agent of this hub's version: "+g.cfg.Version))
		return
	}
	reply, err := g.admit(r, q)
	if err != nil {
		g.cfg.Logger.Warn().Str("remote", r.RemoteAddr).Err(err).Msg("enrolment refused")
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(reply)
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
	g.cfg.Views.Engine.Read(func(uint64) { id, standing = g.cfg.Views.Fleet.ByNKey(nkey) })
	switch {
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
	return EnrolReply{Machine: id, Credential: jwt, CA: string(g.cfg.CA), HeadKey: g.cfg.HeadKey}, nil
}

// newMachine makes the machine's account and then, in one batch, uses the token and enrols the machine. An account whose
// machine was refused is a file that nobody names.
func (g *Gateway) newMachine(r *http.Request, token identity.Token, nkey string, q EnrolRequest) (domain.MachineID, error) {
	id := domain.MachineID(readableID(q.Name, "machine", g.cfg.NewID("m")))
	account, err := g.cfg.Enrol.NewAccount(id)
	if err != nil {
		return "", err
	}
	now := g.cfg.Now()
	return id, g.cfg.Hub.Do(r.Context(), hub.Do{
		Command: domain.CommandID(g.cfg.NewID("c")), Actor: event.Actor("machine:" + string(id)),
		Targets: []hub.Target{
			{Kind: event.KindPool, ID: pool.ID, Command: pool.UseToken{ID: token.ID(), Hash: token.Hash(), Machine: id, Now: now}},
			{Kind: event.KindMachine, ID: string(id), Command: machine.Enrol{ID: id, Name: q.Name, NKey: nkey, Account: account, Slots: q.Slots, Token: token.ID(), At: now}},
		},
	})
}

// checkEnrol refuses what cannot be a machine.
func checkEnrol(q EnrolRequest) error {
	if q.Slots < 1 || q.Slots > domain.MaxSlotsPerMachine {
		return domain.Invalid("enrol", "the number of slots is out of range", "give --slots from 1 to "+strconv.Itoa(domain.MaxSlotsPerMachine))
	}
	if q.Name == "" || len(q.Name) > domain.MaxNameLength || strings.ContainsFunc(q.Name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return domain.Invalid("enrol", "the machine's name is empty, too long or has control characters", "give --name")
	}
	return nil
}
