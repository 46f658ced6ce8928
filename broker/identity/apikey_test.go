package identity_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"tensorturn/broker/identity"
	"tensorturn/domain"
	"tensorturn/domain/pool"
)

// A key has its role's prefix, is found by its hash, and shows itself nowhere but in Plain.
func TestAPIKeys(t *testing.T) {
	for role, prefix := range map[pool.Role]string{pool.RoleModel: "ttk_", pool.RoleObserver: "ttv_", pool.RoleOperator: "tto_"} {
		k, err := identity.NewAPIKey(rand.Reader, role)
		if err != nil {
			t.Fatal(err)
		}
		plain := k.Plain()
		if !strings.HasPrefix(plain, prefix) || !identity.LooksLikeKey(plain) || identity.HashKey(plain) != k.Hash() || !strings.HasSuffix(plain, k.Tail()) || len(k.Tail()) != 4 {
			t.Errorf("%s: %s", role, plain)
		}
		if !domain.ValidID(string(k.ID())) {
			t.Errorf("id %s", k.ID())
		}
		for _, shown := range []string{fmt.Sprint(k), fmt.Sprintf("%v %+v %#v %s", k, k, k, k)} {
			if strings.Contains(shown, plain[4:20]) {
				t.Errorf("%s shows itself: %s", role, shown)
			}
		}
		if identity.LooksLikeKey(plain[:len(plain)-1]) || identity.LooksLikeKey("ttj_"+plain[4:]) {
			t.Errorf("%s: other forms look like a key", role)
		}
	}
	if _, err := identity.NewAPIKey(rand.Reader, "king"); domain.KindOf(err) != domain.KindInvalid {
		t.Errorf("no role: %v", err)
	}
	if _, err := identity.NewAPIKey(bytes.NewReader(nil), pool.RoleModel); err == nil {
		t.Error("a key without randomness")
	}
}
