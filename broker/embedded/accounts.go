package embedded

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"tensorturn/domain"
)

// AddMachine loads a machine's account: from now on its credentials are accepted. Adding it again is safe.
func (h *Hub) AddMachine(account string) error { return h.UpdateAccount(account) }

// UpdateAccount replaces an account by a newer JWT; open connections that it no longer allows are closed by the server.
func (h *Hub) UpdateAccount(account string) error {
	claims, err := h.store(account)
	if err != nil {
		return err
	}
	srv := h.server()
	acc, err := srv.LookupAccount(claims.Subject)
	if err != nil {
		return fmt.Errorf("load account %s: %w", claims.Subject, err)
	}
	srv.UpdateAccountClaims(acc, claims)
	return nil
}

// connsSubjects are where the server says how many connections an account has, whenever that changes.
const connsSubjects = "$SYS.ACCOUNT.*.SERVER.CONNS"

// WatchLinks calls gone with the account of each machine whose last link has closed, until Shutdown. gone must not block.
func (h *Hub) WatchLinks(gone func(account string)) error {
	nc, err := h.SystemConn("links")
	if err != nil {
		return err
	}
	_, err = nc.Subscribe(connsSubjects, func(m *nats.Msg) {
		var now struct {
			Account   string `json:"acc"`
			LeafNodes *int   `json:"leafnodes"`
		}
		if json.Unmarshal(m.Data, &now) == nil && now.LeafNodes != nil && *now.LeafNodes == 0 {
			gone(now.Account)
		}
	})
	if err != nil {
		return fmt.Errorf("watch links: %w", err)
	}
	return nil
}

// RevokeMachine takes the JWT of a revoked account (its revocations cover every user), closes what is connected and
// waits until nothing is: at most two seconds, else domain.KindUnavailable.
func (h *Hub) RevokeMachine(revoked string) error {
	if err := h.UpdateAccount(revoked); err != nil {
		return err
	}
	claims, err := jwt.DecodeAccountClaims(revoked)
	if err != nil {
		return fmt.Errorf("read revoked account: %w", err)
	}
	deadline := time.NewTimer(cutTimeout)
	defer deadline.Stop()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		left, err := h.cut(claims.Subject)
		if err != nil || left == 0 {
			return err
		}
		select {
		case <-again.C:
		case <-deadline.C:
			return domain.Unavailable("revoke account "+claims.Subject, fmt.Sprintf("%d connections are still open", left), "restart the hub", nil)
		}
	}
}

// cut closes every connection of an account and counts those it found.
func (h *Hub) cut(account string) (int, error) {
	var ids []uint64
	leafs, err := h.server().Leafz(&server.LeafzOptions{Account: account})
	if err != nil {
		return 0, fmt.Errorf("list leafnodes of %s: %w", account, err)
	}
	for _, l := range leafs.Leafs {
		ids = append(ids, l.ID)
	}
	conns, err := h.server().Connz(&server.ConnzOptions{Account: account, Username: true, Limit: maxConnections})
	if err != nil {
		return 0, fmt.Errorf("list connections of %s: %w", account, err)
	}
	for _, c := range conns.Conns {
		ids = append(ids, c.Cid)
	}
	for _, id := range ids {
		// An error says that the connection is gone already: what we want.
		_ = h.server().DisconnectClientByID(id)
	}
	return len(ids), nil
}

// LeafConn describes one connected leafnode.
type LeafConn struct {
	ID       uint64 // grows with each connection of this server's life
	Name     string // server name the peer claims; proves nothing
	Account  string // public account nkey: who it is
	Isolated bool   // the interest of other leafnodes is not sent to it
	Coded    string // compression of the link: "off", unless somebody changed a setting
	Received int64  // messages from the peer
	Sent     int64
}

// Leafs lists the connected leafnodes in the order they connected.
func (h *Hub) Leafs() ([]LeafConn, error) {
	z, err := h.server().Leafz(nil)
	if err != nil {
		return nil, fmt.Errorf("list leafnodes: %w", err)
	}
	out := make([]LeafConn, 0, len(z.Leafs))
	for _, l := range z.Leafs {
		out = append(out, LeafConn{ID: l.ID, Name: l.Name, Account: l.Account, Isolated: l.IsIsolated, Coded: l.Compression, Received: l.InMsgs, Sent: l.OutMsgs})
	}
	slices.SortFunc(out, func(a, b LeafConn) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

// store checks an account JWT and hands it to the resolver.
func (h *Hub) store(token string) (*jwt.AccountClaims, error) {
	claims, err := jwt.DecodeAccountClaims(token)
	if err != nil {
		return nil, domain.Invalid("load account", err.Error(), "restore the key directory")
	}
	if err := h.resolver.Store(claims.Subject, token); err != nil {
		return nil, fmt.Errorf("load account %s: %w", claims.Subject, err)
	}
	return claims, nil
}
