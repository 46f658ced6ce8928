package main

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/agent"
	"tensorturn/broker/gateway"
	"tensorturn/broker/identity"
)

// An expired credential is renewed when the link is dialled, kept on disk, and left alone while it is good.
func TestExpiredCredentialIsRenewed(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	keys, err := identity.Create(filepath.Join(dir, "keys"), identity.Options{PublicURL: "https://127.0.0.1", Now: time.Now()})
	must(err)
	m, err := keys.Machine("m-1")
	must(err)
	asked, refuse := 0, true
	hub := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		nkey, err := identity.VerifyProof(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), identity.AudienceRenew, time.Now())
		if err != nil || r.URL.Path != "/api/v1/renew" || refuse {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		jwt, err := m.Credential(nkey, time.Hour, time.Now())
		if err != nil {
			t.Error(err)
		}
		json.NewEncoder(w).Encode(gateway.RenewReply{Credential: jwt})
	}))
	hub.TLS = &tls.Config{Certificates: []tls.Certificate{keys.ServerCertificate()}}
	hub.StartTLS()
	defer hub.Close()
	own, err := identity.NewAgentKeys(hub.URL)
	must(err)
	old, err := m.Credential(own.NKey(), time.Hour, time.Now().Add(-2*time.Hour))
	must(err)
	own.Machine, own.CA, own.Credential = "m-1", keys.CA(), old
	p := &agentProcess{opts: agentOptions{dir: dir, logger: zerolog.Nop()}, keys: own, credential: old, clock: agent.NewHubClock(time.Now)}

	if got, err := p.jwt(); err != nil || got != old || asked != 1 {
		t.Errorf("while the hub refuses: asked %d times, changed %v, %v", asked, got != old, err)
	}
	refuse = false
	fresh, err := p.jwt()
	must(err)
	if v, err := identity.ReadValidity(fresh); err != nil || v.Over(time.Now()) {
		t.Errorf("%+v %v", v, err)
	}
	kept, err := identity.LoadAgentKeys(filepath.Join(dir, agentKeysFile))
	must(err)
	if again, err := p.jwt(); err != nil || again != fresh || kept.Credential != fresh || asked != 2 {
		t.Errorf("asked %d times, %v", asked, err)
	}
}
