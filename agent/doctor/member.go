package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"tensorturn/broker/identity"
	"tensorturn/domain"
	"tensorturn/domain/machine"
)

// refusal is what the hub says in a problem body.
func (a answer) refusal() (says, fix string) {
	var p struct {
		Detail string `json:"detail"`
		Next   string `json:"next"`
	}
	if json.Unmarshal(a.body, &p) != nil || p.Detail == "" {
		return fmt.Sprintf("the hub answers %d", a.status), "install the same release of tensorturn on hub and agent"
	}
	return domain.Clip(p.Detail, 300), domain.Clip(p.Next, 300)
}

// lookToken tries a join token without using it up.
func lookToken(ctx context.Context, e *exam) Finding {
	if e.Token == "" {
		return skipped("no token is given to be tried; --token-file FILE with --hub URL tries one")
	}
	if _, err := identity.ParseToken(e.Token); err != nil {
		return problem(TokenWrong, err.Error(), domain.NextOf(err))
	}
	if f, ok := e.knowsHub(); !ok {
		return f
	}
	body, err := json.Marshal(map[string]string{"token": e.Token})
	if err != nil {
		return problem(TokenWrong, err.Error(), "make a new one with: tensorturn token create")
	}
	a, err := e.ask(ctx, http.MethodPost, "/api/v1/enrol/check", "", bytes.NewReader(body))
	if f, failed := beyond(err); failed {
		return f
	}
	switch a.status {
	case http.StatusNoContent:
		return fine("the token is good: this machine may join")
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		says, fix := a.refusal()
		return Finding{State: Unknown, Code: Unfinished, Says: says, Fix: fix}
	}
	says, fix := a.refusal()
	return problem(TokenWrong, says, fix)
}

// lookCredential reads when the kept credential ends.
func lookCredential(_ context.Context, e *exam) Finding {
	if !e.Joined {
		return skipped("this machine has not joined yet")
	}
	v, err := identity.ReadValidity(e.Credential)
	if err != nil {
		return problem(KeysDamaged, "the kept credential cannot be read: "+domain.Clip(err.Error(), 120), "remove the folder "+e.Dir+" and join again with a new token")
	}
	if now := e.Now(); v.Over(now) {
		return problem(CredentialExpired, fmt.Sprintf("this machine's credential ended at %s, %s ago: its link does not open", v.Expires.UTC().Format(time.RFC3339), now.Sub(v.Expires).Round(time.Minute)),
			"start the agent, which renews it by proof of its key: tensorturn agent start --dir "+e.Dir+"; if it runs, it has not reached the hub for long: see the lines above")
	}
	return fine("the credential is good until " + v.Expires.UTC().Format(time.RFC3339))
}

// lookMembership asks the hub what it knows of this machine.
func lookMembership(ctx context.Context, e *exam) Finding {
	if !e.Joined {
		return skipped("this machine has not joined yet")
	}
	ahead, _, _ := e.hubTime(ctx) // a proof is judged by the hub's clock; why it does not tell it, membership finds out
	return e.membership(ctx, e.Now().Add(ahead))
}

// hubTime is how far the hub's clock is ahead of this one; dated is false, with 0, when its answer does not say.
func (e *exam) hubTime(ctx context.Context) (ahead time.Duration, dated bool, err error) {
	a, err := e.ask(ctx, http.MethodGet, "/healthz", "", nil)
	if err != nil {
		return 0, false, err
	}
	at, err := http.ParseTime(a.header.Get("Date"))
	if err != nil {
		return 0, false, nil
	}
	return at.Sub(e.Now()), true, nil
}

func (e *exam) membership(ctx context.Context, now time.Time) Finding {
	proof, err := e.Proof(now)
	if err != nil {
		return problem(KeysDamaged, err.Error(), "remove the folder "+e.Dir+" and join again with a new token")
	}
	a, err := e.ask(ctx, http.MethodGet, "/api/v1/self", proof, nil)
	if f, failed := beyond(err); failed {
		return f
	}
	says, fix := a.refusal()
	switch a.status {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		return problem(MachineRefused, says, fix)
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return Finding{State: Unknown, Code: Unfinished, Says: says, Fix: fix}
	default:
		return problem(HubNotReady, says, fix)
	}
	var self struct {
		Machine     domain.MachineID `json:"machine"`
		Standing    machine.Standing `json:"standing"`
		Quarantined string           `json:"quarantined"`
		Contested   bool             `json:"contested"`
	}
	if err := json.Unmarshal(a.body, &self); err != nil {
		return problem(HubNotReady, "the hub's answer cannot be read", "install the same release of tensorturn on hub and agent")
	}
	switch {
	case self.Contested:
		return sharedBy(string(self.Machine))
	case self.Quarantined != "":
		return problem(MachineRefused, fmt.Sprintf("%s is quarantined: %s", self.Machine, domain.Clip(self.Quarantined, 200)), "mend what the reason says; then at the hub: tensorturn machine resume "+string(self.Machine))
	}
	return fine(fmt.Sprintf("the hub knows this machine as %s, %s", self.Machine, self.Standing))
}

func sharedBy(machines string) Finding {
	return problem(KeyShared, "two agents speak with the key of "+machines+": a folder was copied, or a disk was cloned",
		"on one of the two machines stop the agent, remove its folder, and join it with a token of its own: tensorturn token create")
}

// lookOperator tries the key in the hub's own operator.json.
func lookOperator(ctx context.Context, e *exam) Finding {
	if e.OperatorKey == "" {
		return skipped("there is no operator key in this folder")
	}
	a, err := e.ask(ctx, http.MethodGet, "/api/v1/hub", e.OperatorKey, nil)
	if f, failed := beyond(err); failed {
		return f
	}
	says, fix := a.refusal()
	if a.status == http.StatusUnauthorized || a.status == http.StatusForbidden {
		return problem(OperatorKeyWrong, says, "restart the hub: it writes operator.json anew from its keys; a copy elsewhere must be copied again")
	}
	if a.status != http.StatusOK {
		return problem(HubNotReady, says, fix)
	}
	return fine("the hub takes the operator's key")
}

// lookMachines asks which machines' keys two agents use.
func lookMachines(ctx context.Context, e *exam) Finding {
	if e.OperatorKey == "" {
		return skipped("there is no operator key in this folder")
	}
	var shared []string
	seen, path := 0, "/api/v1/machines?limit="+strconv.Itoa(maxListed)
	for range maxPages {
		page, next, f := e.machines(ctx, path)
		if f != nil {
			return *f
		}
		seen += len(page)
		for _, m := range page {
			if m.Contested {
				shared = append(shared, m.ID)
			}
		}
		if path = next; path == "" {
			break
		}
	}
	switch {
	case len(shared) > 0:
		return sharedBy(domain.Clip(strings.Join(shared, ", "), 200))
	case path != "":
		return skipped(fmt.Sprintf("the hub lists more than %d machines; each of these has a key of its own", seen))
	}
	return fine(fmt.Sprintf("each of %d machines has a key of its own", seen))
}

// listed is what is read of a machine in a hub's list.
type listed struct {
	ID        string `json:"id"`
	Contested bool   `json:"contested"`
}

// machines reads one page of the hub's list, and where the next one is, empty on the last.
func (e *exam) machines(ctx context.Context, path string) (page []listed, next string, failed *Finding) {
	a, err := e.ask(ctx, http.MethodGet, path, e.OperatorKey, nil)
	if f, failed := beyond(err); failed {
		return nil, "", &f
	}
	if a.status != http.StatusOK {
		says, _ := a.refusal()
		return nil, "", &Finding{State: Skipped, Code: OperatorKeyWrong, Says: "the machines cannot be asked for: " + says}
	}
	if err := json.Unmarshal(a.body, &page); err != nil {
		f := problem(HubNotReady, "the hub's list of machines cannot be read", "use the tensorturn of the hub's version")
		return nil, "", &f
	}
	return page, a.next(), nil
}

// next is the path in the Link header (RFC 8288) that leads to the next page; only one of the hub's own is followed.
func (a answer) next() string {
	at, found := strings.CutPrefix(a.header.Get("Link"), "<")
	path, rel, closed := strings.Cut(at, ">")
	if !found || !closed || !strings.Contains(rel, `rel="next"`) || !strings.HasPrefix(path, "/api/") {
		return ""
	}
	return path
}
