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
	id, nkey, ok := g.machineOf(w, bearer(r), identity.AudienceRenew, "renew")
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

// machineOf finds the machine whose key signed the proof for the audience, or answers 401. One that was revoked is told so by 403, as the
// one that holds the key, of the operation op; without op it is answered as one that is not known.
func (g *Gateway) machineOf(w http.ResponseWriter, proof string, a identity.Audience, op string) (id domain.MachineID, nkey string, ok bool) {
	nkey, err := identity.VerifyProof(proof, a, g.cfg.Now())
	if err != nil {
		unauthorized(w, "the machine's token is missing, expired or wrong", "check the machine's clock: a token lives for five minutes")
		return "", "", false
	}
	var standing machine.Standing
	g.cfg.Views.Engine.Read(func(uint64) { id, standing = g.cfg.Views.Fleet.ByNKey(nkey) })
	switch {
	case standing == machine.Revoked && op != "":
		g.refuse(w, domain.Denied(op, "this machine was revoked", "remove the agent's folder and join again with a new token"))
	case id == "" || standing == machine.Revoked:
		unauthorized(w, "the machine is unknown or revoked", "join again with a new token")
	default:
		return id, nkey, true
	}
	return "", "", false
}
