package gateway

import (
	"encoding/json"
	"net/http"

	"tensorturn/broker/identity"
	"tensorturn/domain"
	"tensorturn/domain/machine"
)

// RenewReply is the answer to POST /api/v1/renew.
type RenewReply struct {
	Credential string `json:"credential"` // user JWT, 24 h
}

// renew gives a machine a fresh credential after its old one has expired, as that of a laptop which was off for a week:
// the link, over which credentials are renewed otherwise, no longer opens for it. The bearer token is a proof of its nkey.
func (g *Gateway) renew(w http.ResponseWriter, r *http.Request) {
	nkey, err := identity.VerifyProof(bearer(r), identity.AudienceRenew, g.cfg.Now())
	if err == nil && g.revoked(nkey) {
		g.refuse(w, domain.Denied("renew", "this machine was revoked", "remove the agent's folder and join again with a new token"))
		return
	}
	id, nkey, ok := g.machineOf(w, bearer(r), identity.AudienceRenew)
	if !ok {
		return
	}
	jwt, err := g.cfg.Enrol.Credential(id, nkey)
	if err != nil {
		g.refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(RenewReply{Credential: jwt})
}

// revoked reports whether the key belongs to a machine that was revoked. Only who holds the key is told.
func (g *Gateway) revoked(nkey string) (yes bool) {
	g.cfg.Views.Engine.Read(func(uint64) {
		_, standing := g.cfg.Views.Fleet.ByNKey(nkey)
		yes = standing == machine.Revoked
	})
	return yes
}

// machineOf finds the machine whose key signed the proof for the audience, unless it is revoked, or answers 401.
func (g *Gateway) machineOf(w http.ResponseWriter, proof string, a identity.Audience) (id domain.MachineID, nkey string, ok bool) {
	nkey, err := identity.VerifyProof(proof, a, g.cfg.Now())
	if err != nil {
		unauthorized(w, "the machine's token is missing, expired or wrong", "check the machine's clock: a token lives for five minutes")
		return "", "", false
	}
	var standing machine.Standing
	g.cfg.Views.Engine.Read(func(uint64) { id, standing = g.cfg.Views.Fleet.ByNKey(nkey) })
	if id == "" || standing == machine.Revoked {
		unauthorized(w, "the machine is unknown or revoked", "join again with a new token")
		return "", "", false
	}
	return id, nkey, true
}
