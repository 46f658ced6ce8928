package pool_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/pool"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// owner is a pool and the hub's clock.
type owner struct {
	s   *pool.State
	seq uint64
	now time.Time
}

func (o *owner) do(c pool.Command) ([]event.Data, error) {
	ds, err := pool.Decide(o.s, c)
	for _, d := range ds {
		o.seq++
		o.s = pool.Evolve(o.s, event.Envelope{Seq: o.seq, Kind: event.KindPool, Agg: pool.ID, Time: o.now, Data: d})
	}
	return ds, err
}

// founded is a pool at noon.
func founded(t *testing.T) *owner {
	o := &owner{now: noon}
	if _, err := o.do(pool.Found{At: noon}); err != nil {
		t.Fatal(err)
	}
	return o
}

// hash is the digest of a secret.
func hash(secret string) domain.Digest { return event.Digest([]byte(secret)) }

// TestScenarios plays the stories in testdata/scenarios: found, create ID SECRET [uses=] [hours=], use ID SECRET MACHINE,
// revoke ID, and later HOURS, which moves the clock; of keys and models see script_test.go.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		o := &owner{now: noon}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			arg := func(i int) string { return d.CmdArgs[i].Key }
			uses, hours := 0, 24
			d.MaybeScanArgs(t, "uses", &uses)
			d.MaybeScanArgs(t, "hours", &hours)
			var c pool.Command
			switch d.Cmd {
			case "found":
				c = pool.Found{At: o.now}
			case "create":
				c = pool.CreateToken{ID: domain.TokenID(arg(0)), Hash: hash(arg(1)), Uses: uses, Expires: o.now.Add(time.Duration(hours) * time.Hour), Now: o.now}
			case "use":
				c = pool.UseToken{ID: domain.TokenID(arg(0)), Hash: hash(arg(1)), Machine: domain.MachineID(arg(2)), Now: o.now}
			case "revoke":
				c = pool.RevokeToken{ID: domain.TokenID(arg(0))}
			case "later":
				fmt.Sscan(arg(0), &hours)
				o.now = o.now.Add(time.Duration(hours) * time.Hour)
				return ""
			default:
				if c = serving(t, o, d); c == nil {
					t.Fatalf("%s: unknown word %q", d.Pos, d.Cmd)
				}
			}
			return told(o.do(c))
		})
	})
}

func told(ds []event.Data, err error) string {
	if err != nil {
		return fmt.Sprintf("refused (%s): %v\nnext: %s\n", domain.KindOf(err), err, domain.NextOf(err))
	}
	var b strings.Builder
	for _, f := range ds {
		fmt.Fprintf(&b, "%s: %s\n", f.EventName(), f.Line())
	}
	if len(ds) == 0 {
		return "nothing\n"
	}
	return b.String()
}

func TestCreateRefusals(t *testing.T) {
	good := pool.CreateToken{ID: "t-1", Hash: hash("s"), Expires: noon.Add(time.Hour), Uses: 1, Now: noon}
	for name, tc := range map[string]struct {
		change func(*pool.CreateToken)
		why    string
	}{
		"good":           {func(*pool.CreateToken) {}, ""},
		"ill id":         {func(c *pool.CreateToken) { c.ID = "T 1" }, "not an id"},
		"no hash":        {func(c *pool.CreateToken) { c.Hash = "" }, "not a SHA-256"},
		"longest":        {func(c *pool.CreateToken) { c.Expires = noon.Add(pool.MaxTokenLife) }, ""},
		"too long":       {func(c *pool.CreateToken) { c.Expires = noon.Add(pool.MaxTokenLife + time.Second) }, "it would expire in 720h0m1s"},
		"expired":        {func(c *pool.CreateToken) { c.Expires = noon }, "it would expire in 0s"},
		"negative uses":  {func(c *pool.CreateToken) { c.Uses = -1 }, "-1 uses"},
		"most uses":      {func(c *pool.CreateToken) { c.Uses = pool.MaxTokenUses }, ""},
		"too many uses":  {func(c *pool.CreateToken) { c.Uses = pool.MaxTokenUses + 1 }, "1025 uses; a token has 1 to 1024"},
		"unknown moment": {func(c *pool.CreateToken) { c.Now = time.Time{} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := good
			tc.change(&c)
			_, err := founded(t).do(c)
			if tc.why == "" && err != nil || tc.why != "" && (err == nil || !strings.Contains(err.Error(), tc.why) || domain.NextOf(err) == "") {
				t.Fatalf("got %v, want %q and a next step", err, tc.why)
			}
		})
	}
}

// TestTokensAreBounded creates tokens up to the limit of live ones; one more is refused until one is used, revoked or
// expired. The used and revoked ones are remembered, but not without bound.
func TestTokensAreBounded(t *testing.T) {
	o := founded(t)
	create := func(i int) error {
		_, err := o.do(pool.CreateToken{ID: domain.TokenID(fmt.Sprint("t-", i)), Hash: hash(fmt.Sprint(i)), Expires: o.now.Add(time.Hour), Now: o.now})
		return err
	}
	for i := range pool.MaxTokens {
		if err := create(i); err != nil {
			t.Fatal(err)
		}
	}
	if err := create(pool.MaxTokens); domain.KindOf(err) != domain.KindConflict {
		t.Fatalf("token %d gives %v, want a conflict", pool.MaxTokens, err)
	}
	next := pool.MaxTokens
	for i := range pool.MaxTokens + 100 {
		if _, err := o.do(pool.RevokeToken{ID: domain.TokenID(fmt.Sprint("t-", i))}); err != nil {
			t.Fatal(err)
		}
		if err := create(next); err != nil {
			t.Fatal(err)
		}
		next++
	}
	if n := len(o.s.Tokens); n > 2*pool.MaxTokens {
		t.Errorf("the state remembers %d tokens", n)
	}
	o.now = noon.Add(2 * time.Hour)
	if err := create(next); err != nil || len(o.s.Tokens) != 1 {
		t.Errorf("after all have expired: %v, %d tokens in the state, want 1", err, len(o.s.Tokens))
	}
}

// TestWrongSecretTellsNothing gives the same answer for a token that exists, whatever its state, and one that does not.
func TestWrongSecretTellsNothing(t *testing.T) {
	o := founded(t)
	for _, id := range []domain.TokenID{"t-live", "t-used", "t-revoked"} {
		if _, err := o.do(pool.CreateToken{ID: id, Hash: hash("right"), Expires: noon.Add(time.Hour), Now: noon}); err != nil {
			t.Fatal(err)
		}
	}
	o.do(pool.UseToken{ID: "t-used", Hash: hash("right"), Machine: "m-1", Now: noon})
	o.do(pool.RevokeToken{ID: "t-revoked"})
	var first string
	for _, id := range []domain.TokenID{"t-live", "t-used", "t-revoked", "t-none"} {
		for _, h := range []domain.Digest{hash("wrong"), ""} {
			_, err := o.do(pool.UseToken{ID: id, Hash: h, Machine: "m-1", Now: noon})
			if domain.KindOf(err) != domain.KindDenied {
				t.Fatalf("%s with a wrong secret gives %v", id, err)
			}
			answer := strings.ReplaceAll(err.Error(), string(id), "") + domain.NextOf(err)
			if first == "" {
				first = answer
			}
			if answer != first {
				t.Errorf("%s gives %q, others %q", id, answer, first)
			}
		}
	}
}

func TestUnfoundedPool(t *testing.T) {
	for _, c := range []pool.Command{pool.CreateToken{}, pool.UseToken{}, pool.RevokeToken{}} {
		if _, err := pool.Decide(nil, c); domain.KindOf(err) != domain.KindConflict {
			t.Errorf("%T before the founding gives %v", c, err)
		}
	}
}

func TestForeignFactPanics(t *testing.T) {
	defer func() {
		if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), "broken promise") {
			t.Fatalf("recovered %v", r)
		}
	}()
	pool.Evolve(nil, event.Envelope{Seq: 1})
}
