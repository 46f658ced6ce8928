package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tensorturn/agent"
	"tensorturn/broker/gateway"
	"tensorturn/broker/identity"
	"tensorturn/domain"
)

type joinRequest struct {
	dir, hub, token, name string
	slots                 int
}

// joinTimeout bounds the whole exchange.
const joinTimeout = 60 * time.Second

// join enrols this machine. The key is saved before the hub is asked, so that an answer that got lost can be asked for
// again with the same key, and costs no second use of the token.
func (a *app) join(ctx context.Context, j joinRequest) (*identity.AgentKeys, error) {
	token, err := identity.ParseToken(j.token)
	if err != nil {
		return nil, err
	}
	j.hub = strings.TrimRight(j.hub, "/")
	if err := identity.CheckHubURL(j.hub); err != nil { // before it is saved: a wrong one could never be read again
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(j.dir, agentKeysFile)); err != nil && isHub(j.dir) {
		return nil, hubsFolder("join", j.dir)
	}
	_, err = os.Stat(j.dir)
	fresh := os.IsNotExist(err)
	if err := os.MkdirAll(j.dir, 0o700); err != nil {
		return nil, domain.Invalid("join", plainPathError(err), "choose another folder with --dir")
	}
	path := filepath.Join(j.dir, agentKeysFile)
	keys, err := identity.LoadAgentKeys(path)
	if domain.KindOf(err) == domain.KindIntegrity {
		if err = a.putAside(path, err); err == nil {
			keys, err = identity.LoadAgentKeys(path)
		}
	}
	made := false
	switch {
	case domain.KindOf(err) == domain.KindNotFound:
		keys, err = identity.NewAgentKeys(j.hub)
		made = true
	case err == nil && keys.Enrolled():
		err = domain.Conflict("join", "this machine is a member of "+keys.Hub+" already, as "+string(keys.Machine), "start it with: tensorturn agent start"+dirFlag(j.dir)+"; or choose another folder with --dir")
	case err == nil:
		keys.Hub = j.hub
	}
	if err == nil {
		err = keys.Save(path)
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	clock := agent.NewHubClock(wallClock)
	reply, err := enrol(ctx, keys, token, j, clock)
	if err != nil && clock.Off() != 0 { // refused for this machine's clock: now the hub's is known
		reply, err = enrol(ctx, keys, token, j, clock)
	}
	if err != nil {
		if made && !mayHaveJoined(err) { // the key is of no use: what this command made goes away again
			_ = os.Remove(path)
			if fresh {
				_ = os.Remove(j.dir)
			}
		}
		return nil, err
	}
	if reply.Namesake != "" {
		a.say("another machine of this pool is named %s, %s: commands tell the two apart by their ids; if it was this machine before, the pool's owner takes it out with: tensorturn machine revoke %s", j.name, reply.Namesake, reply.Namesake)
	}
	keys.Name = j.name
	keys.Machine, keys.Credential, keys.CA, keys.HeadKey = reply.Machine, reply.Credential, []byte(reply.CA), reply.HeadKey
	return keys, keys.Save(path)
}

// putAside gives a damaged file another name, and says so: a machine that joins again is another one to the hub.
func (a *app) putAside(path string, why error) error {
	aside := path + ".damaged-" + wallClock().UTC().Format("20060102T150405")
	if err := os.Rename(path, aside); err != nil {
		return domain.Unavailable("join", plainPathError(err), "move "+path+" away", why)
	}
	a.say("%v", why)
	a.say("it is kept as %s; this machine joins anew, and its pool's owner takes out what it was before with: tensorturn machine revoke", aside)
	return nil
}

// mayHaveJoined reports whether the hub may have taken the machine although its answer is an error: then the key must be kept. A
// hub that refused, or that was never reached, has not.
func mayHaveJoined(err error) bool {
	switch domain.KindOf(err) {
	case domain.KindInvalid, domain.KindDenied, domain.KindNotFound, domain.KindConflict, domain.KindIntegrity:
		return false
	}
	op, ok := errors.AsType[*net.OpError](err)
	return !ok || op.Op != "dial"
}

// enrol speaks to the hub over a connection that is checked against the token's CA pin before a byte is sent.
func enrol(ctx context.Context, keys *identity.AgentKeys, token identity.Token, j joinRequest, clock *agent.HubClock) (gateway.EnrolReply, error) {
	var reply gateway.EnrolReply
	u, err := url.Parse(keys.Hub)
	if err != nil {
		return reply, err
	}
	proof, err := identity.SignProof(keys.Key(), identity.AudienceEnrol, "", clock.Now())
	if err != nil {
		return reply, err
	}
	body, err := json.Marshal(gateway.EnrolRequest{Token: token.Plain(), Name: j.name, Slots: j.slots, Proof: proof})
	if err != nil {
		return reply, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, keys.Hub+"/api/v1/enrol", bytes.NewReader(body))
	if err != nil {
		return reply, err
	}
	pinned := &http.Transport{TLSClientConfig: identity.PinnedTLS(token.Pin(), u.Hostname()), Proxy: http.ProxyFromEnvironment}
	hc := &http.Client{Transport: clock.Listen(pinned)}
	defer hc.CloseIdleConnections()
	resp, err := hc.Do(req)
	if err != nil {
		var own *domain.Error
		if errors.As(err, &own) {
			return reply, own
		}
		return reply, unreachable(keys.Hub, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return reply, refusal("join", resp)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 256<<10)).Decode(&reply); err != nil {
		return reply, domain.Unavailable("join", "the hub's answer was cut", "run the same command again: it costs no second use of the token", err)
	}
	return reply, nil
}

// readLimited reads at most n bytes.
func readLimited(r io.Reader, n int64) ([]byte, error) { return io.ReadAll(io.LimitReader(r, n)) }
