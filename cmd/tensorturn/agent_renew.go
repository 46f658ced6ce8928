package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"tensorturn/agent"
	"tensorturn/broker/gateway"
	"tensorturn/broker/identity"
	"tensorturn/domain"
)

// renewTimeout bounds a renewal: the link that is being dialled waits for it.
const renewTimeout = 10 * time.Second

// jwt is the credential for the next dial of the link. One that has expired is renewed over HTTPS by proof of the key: a
// laptop that was off or asleep for a week comes back by itself. When that fails the hub refuses the old one, and the
// next dial tries again.
func (p *agentProcess) jwt() (string, error) {
	p.mu.Lock()
	credential := p.credential
	p.mu.Unlock()
	if v, err := identity.ReadValidity(credential); err != nil || !v.Over(time.Now()) {
		return credential, nil
	}
	fresh, err := renewExpired(p.keys)
	if err == nil {
		_, err = p.save(fresh)
	}
	if err != nil {
		p.opts.logger.Warn().Err(err).Str("next", domain.NextOf(err)).Msg("the expired credential was not renewed, tried again")
		return credential, nil
	}
	p.opts.logger.Info().Msg("the credential had expired and was renewed")
	return fresh, nil
}

// renewExpired asks the hub, checked against the CA kept from enrolment, for a fresh credential.
func renewExpired(keys *identity.AgentKeys) (string, error) {
	proof, err := identity.SignProof(keys.Key(), identity.AudienceRenew, keys.Machine, time.Now())
	if err != nil {
		return "", err
	}
	trust, err := identity.TrustTLS(keys.CA)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), renewTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, keys.Hub+"/api/v1/renew", nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+proof)
	hc := agent.NewHTTPClient(trust)
	defer hc.CloseIdleConnections()
	resp, err := hc.Do(req)
	if err != nil {
		return "", unreachable(keys.Hub, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", refusal("renew", resp)
	}
	var reply gateway.RenewReply
	if err := json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&reply); err != nil {
		return "", domain.Unavailable("renew credential", "the hub's answer was cut", "", err)
	}
	return reply.Credential, nil
}
