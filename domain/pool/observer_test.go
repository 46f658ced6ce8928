package pool_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/pool"
)

func observer(o *owner, id string) pool.CreateObserver {
	return pool.CreateObserver{ID: domain.ObserverID(id), Name: "billing", Account: "A" + id, NKey: "U" + id, Expires: o.now.Add(time.Hour), Now: o.now}
}

func TestObserverRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*pool.CreateObserver)
		why    string
	}{
		"good":        {func(*pool.CreateObserver) {}, ""},
		"of a run":    {func(c *pool.CreateObserver) { c.Run = "r-1" }, ""},
		"since":       {func(c *pool.CreateObserver) { c.Since = noon }, ""},
		"ill id":      {func(c *pool.CreateObserver) { c.ID = "O 1" }, "not an id"},
		"ill run":     {func(c *pool.CreateObserver) { c.Run = "*" }, "not the id of a run"},
		"two begins":  {func(c *pool.CreateObserver) { c.From, c.Since = 1, noon }, "a sequence and at a moment"},
		"no account":  {func(c *pool.CreateObserver) { c.Account = "" }, "no account"},
		"control":     {func(c *pool.CreateObserver) { c.Name = "a\nb" }, "control characters"},
		"long name":   {func(c *pool.CreateObserver) { c.Name = strings.Repeat("x", domain.MaxNameLength+1) }, "too long"},
		"expired":     {func(c *pool.CreateObserver) { c.Expires = noon }, "expire in 0s"},
		"longest":     {func(c *pool.CreateObserver) { c.Expires = noon.Add(pool.MaxObserverLife) }, ""},
		"longer":      {func(c *pool.CreateObserver) { c.Expires = noon.Add(pool.MaxObserverLife + time.Second) }, "lives up to"},
		"any run":     {func(c *pool.CreateObserver) { c.Run = "r.>" }, "not the id of a run"},
		"longest run": {func(c *pool.CreateObserver) { c.Run = domain.RunID(strings.Repeat("x", domain.MaxIDLength+1)) }, "not the id of a run"},
	} {
		t.Run(name, func(t *testing.T) {
			o := founded(t)
			c := observer(o, "o-1")
			tc.change(&c)
			_, err := o.do(c)
			if tc.why == "" && err != nil || tc.why != "" && (err == nil || !strings.Contains(err.Error(), tc.why)) {
				t.Fatalf("got %v, want %q", err, tc.why)
			}
		})
	}
}

func TestObserverCommandsRepeat(t *testing.T) {
	o := founded(t)
	c := observer(o, "o-1")
	for i, want := range []int{1, 0} {
		if ds, err := o.do(c); err != nil || len(ds) != want {
			t.Fatalf("create %d: %d facts, %v", i, len(ds), err)
		}
	}
	other := c
	other.Account = "Aother"
	if _, err := o.do(other); domain.KindOf(err) != domain.KindConflict {
		t.Errorf("another account under the same id: %v", err)
	}
	for i, want := range []int{1, 0} {
		if ds, err := o.do(pool.RevokeObserver{ID: "o-1"}); err != nil || len(ds) != want {
			t.Fatalf("revoke %d: %d facts, %v", i, len(ds), err)
		}
	}
	if _, err := o.do(pool.RevokeObserver{ID: "o-2"}); domain.KindOf(err) != domain.KindNotFound {
		t.Errorf("revoke nobody: %v", err)
	}
	if _, err := pool.Decide(nil, c); domain.KindOf(err) != domain.KindConflict {
		t.Errorf("an unfounded pool: %v", err)
	}
}

// TestObserversAreBounded creates observers up to the limit of live ones, and many more over time.
func TestObserversAreBounded(t *testing.T) {
	o := founded(t)
	for i := range pool.MaxObservers {
		if _, err := o.do(observer(o, fmt.Sprint("o-", i))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := o.do(observer(o, "o-more")); domain.KindOf(err) != domain.KindConflict {
		t.Fatalf("one more gives %v, want a conflict", err)
	}
	for i := range 2000 {
		if _, err := o.do(pool.RevokeObserver{ID: domain.ObserverID(fmt.Sprint("o-", i))}); err != nil {
			t.Fatal(err)
		}
		if _, err := o.do(observer(o, fmt.Sprint("o-", pool.MaxObservers+i))); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(o.s.Observers); n > 1200 {
		t.Errorf("the state remembers %d observers", n)
	}
	if live := o.s.Observers["o-2000"]; live.Account == "" || live.Revoked {
		t.Errorf("a live observer went: %+v", live)
	}
	o.now = o.now.Add(2 * time.Hour)
	if _, err := o.do(observer(o, "o-later")); err != nil {
		t.Errorf("after all have expired: %v", err)
	}
}
