package gateway

import (
	"encoding/json"
	"net/http"
	"slices"

	"tensorturn/broker/identity"
	"tensorturn/domain"
	"tensorturn/domain/machine"
)

// SelfReply is the answer to GET /api/v1/self: what the hub knows of the machine that asks. It is for tensorturn doctor, and
// tells a machine nothing of others.
type SelfReply struct {
	Machine     domain.MachineID `json:"machine"`
	Standing    machine.Standing `json:"standing"`
	Quarantined string           `json:"quarantined,omitempty"`
	Contested   bool             `json:"contested"` // two agent processes speak with its key
	Version     string           `json:"version"`   // of the hub
}

// self tells a machine about itself. The bearer token is a proof of its nkey for this purpose alone.
func (g *Gateway) self(w http.ResponseWriter, r *http.Request) {
	id, _, ok := g.machineOf(w, bearer(r), identity.AudienceSelf, "look at yourself")
	if !ok {
		return
	}
	reply := SelfReply{Machine: id, Version: g.cfg.Version}
	g.cfg.Views.Engine.Read(func(uint64) {
		m, _ := g.cfg.Views.Fleet.Find(string(id))
		reply.Standing, reply.Quarantined = m.Standing, m.Quarantined
	})
	contested, err := g.cfg.Agents.Contested(r.Context())
	if err != nil {
		g.refuse(w, err)
		return
	}
	reply.Contested = slices.Contains(contested, id)
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(reply)
}

// TokenCheck is the body of POST /api/v1/enrol/check.
type TokenCheck struct {
	Token string `json:"token"`
}

// checkToken says whether a join token admits a machine now, and uses nothing of it. Who holds a token may know that: enrolling
// would tell it too.
func (g *Gateway) checkToken(w http.ResponseWriter, r *http.Request) {
	var q TokenCheck
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxEnrolBytes)).Decode(&q); err != nil {
		g.refuse(w, domain.Invalid("check token", "the body is not what an agent sends", "use the agent of this hub's version: "+g.cfg.Version))
		return
	}
	err := g.tokenErr(q.Token)
	if err != nil && !g.enrolments.Allow() {
		err = domain.Unavailable("check token", "too many enrolments at once", "try again in a moment", nil)
	}
	if err != nil {
		g.refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
