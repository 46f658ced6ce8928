package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"tensorturn/agent"
	"tensorturn/broker/gateway"
	"tensorturn/broker/identity"
	"tensorturn/domain"
)

const (
	renewTimeout    = 10 * time.Second // the link that is being dialled waits for a renewal
	membershipEvery = 10 * time.Second // how often an agent without a link asks whether it is still a member
)

// watchMembership asks over HTTPS, while there is no link, whether this machine was revoked: the link itself only says
// that it was refused, and an agent that dials for ever in vain helps nobody.
func (p *agentProcess) watchMembership(ctx context.Context) {
	for pause(ctx, membershipEvery) == nil {
		if p.leaf.Connected() {
			continue
		}
		_, err := renewExpired(ctx, p.keys, p.clock)
		if own, ok := errors.AsType[*exitError](err); ok {
			p.expelled <- own
			return
		}
	}
}

// jwt is the credential for the next dial of the link. One that has expired, or that the disk has damaged, is renewed over HTTPS by proof of the key: a
// laptop that was off or asleep for a week comes back by itself. When that fails the hub refuses the old one, and the
// next dial tries again.
func (p *agentProcess) jwt() (string, error) {
	p.mu.Lock()
	credential := p.credential
	p.mu.Unlock()
	v, damaged := identity.ReadValidity(credential) // checks its signature: a changed byte would be refused for ever
	if damaged == nil && !v.Over(p.clock.Now()) {
		return credential, nil
	}
	fresh, err := renewExpired(context.Background(), p.keys, p.clock)
	if err == nil {
		_, err = p.save(fresh)
	}
	if err != nil {
		p.opts.logger.Warn().Err(err).Str("next", domain.NextOf(err)).Msg("the expired or damaged credential was not renewed, tried again")
		return credential, nil
	}
	if damaged != nil {
		p.opts.logger.Warn().Err(damaged).Str("file", agentKeysFile).Msg("the credential was damaged on this machine's disk and was renewed")
		return fresh, nil
	}
	p.opts.logger.Info().Msg("the credential had expired and was renewed")
	return fresh, nil
}

// renewExpired asks the hub, checked against the CA kept from enrolment, for a fresh credential. A machine that was
// revoked gets an error that ends the agent. A machine whose clock is wrong is refused once, learns the hub's time from that, and asks
// again.
func renewExpired(ctx context.Context, keys *identity.AgentKeys, clock *agent.HubClock) (string, error) {
	before := clock.Off()
	fresh, err := askRenewal(ctx, keys, clock)
	if err != nil && clock.Off() != before {
		return askRenewal(ctx, keys, clock)
	}
	return fresh, err
}

func askRenewal(ctx context.Context, keys *identity.AgentKeys, clock *agent.HubClock) (string, error) {
	proof, err := identity.SignProof(keys.Key(), identity.AudienceRenew, keys.Machine, clock.Now())
	if err != nil {
		return "", err
	}
	trust, err := identity.TrustTLS(keys.CA)
	if err != nil {
		return "", err
	}
	trust.Time = clock.Now
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, keys.Hub+"/api/v1/renew", nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+proof)
	hc := agent.NewHTTPClient(trust)
	defer hc.CloseIdleConnections()
	hc.Transport = clock.Listen(hc.Transport)
	resp, err := hc.Do(req)
	if err != nil {
		return "", unreachable(keys.Hub, err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusForbidden:
		return "", withExit(exitDenied, refusal("renew", resp))
	default:
		return "", refusal("renew", resp)
	}
	var reply gateway.RenewReply
	if err := json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&reply); err != nil {
		return "", domain.Unavailable("renew credential", "the hub's answer was cut", "", err)
	}
	return reply.Credential, nil
}
