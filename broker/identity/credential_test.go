package identity_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"tensorturn/broker/identity"
	"tensorturn/domain"
)

func user(t testing.TB) nkeys.KeyPair {
	t.Helper()
	kp, err := nkeys.CreateUser()
	must(t, err)
	return kp
}

func pub(t testing.TB, kp nkeys.KeyPair) string {
	t.Helper()
	p, err := kp.PublicKey()
	must(t, err)
	return p
}

func TestProof(t *testing.T) {
	now := time.Now()
	kp := user(t)
	tok, err := identity.SignBlobToken(kp, "m1", now)
	must(t, err)
	for _, at := range []time.Duration{0, identity.ProofLife, identity.ProofLife + identity.ProofSkew - 2*time.Second, -identity.ProofSkew + 2*time.Second} {
		got, err := identity.VerifyBlobToken(tok, now.Add(at))
		if err != nil || got != pub(t, kp) {
			t.Errorf("at %s: %q, %v", at, got, err)
		}
	}
	for _, at := range []time.Duration{identity.ProofLife + identity.ProofSkew + 2*time.Second, -identity.ProofSkew - 2*time.Second} {
		if _, err := identity.VerifyBlobToken(tok, now.Add(at)); domain.KindOf(err) != domain.KindDenied || !strings.Contains(domain.NextOf(err), "clock") {
			t.Errorf("at %s: %v (next %q)", at, err, domain.NextOf(err))
		}
	}
	if _, err := identity.VerifyProof(tok, identity.AudienceRenew, now); domain.KindOf(err) != domain.KindDenied {
		t.Errorf("a blob token renewed a credential: %v", err)
	}
}

func TestForgedProofs(t *testing.T) {
	now := time.Now()
	kp, other := user(t), user(t)
	good, err := identity.SignBlobToken(kp, "m1", now)
	must(t, err)
	acc, err := nkeys.CreateAccount()
	must(t, err)
	claims := func(sign nkeys.KeyPair, subject string, life time.Duration) string {
		c := jwt.NewGenericClaims(subject)
		c.Audience, c.Expires = string(identity.AudienceBlobs), now.Add(life).Unix()
		s, err := c.Encode(sign)
		must(t, err)
		return s
	}
	eternal := jwt.NewGenericClaims(pub(t, kp))
	eternal.Audience = string(identity.AudienceBlobs)
	never, err := eternal.Encode(kp)
	must(t, err)
	parts := strings.Split(good, ".")
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	must(t, err)
	swapped := strings.ReplaceAll(string(body), pub(t, kp), pub(t, other))
	for name, tok := range map[string]string{
		"empty":              "",
		"words":              "let me in",
		"dots":               "..",
		"no signature":       parts[0] + "." + parts[1] + ".",
		"half a signature":   good[:len(good)-20],
		"another's body":     parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(swapped)) + "." + parts[2],
		"subject of another": claims(kp, pub(t, other), time.Minute),
		"signed by account":  claims(acc, pub(t, acc), time.Minute),
		"lives a year":       claims(kp, pub(t, kp), 365*24*time.Hour),
		"lives for ever":     never,
		"huge":               good + strings.Repeat("A", 4096),
		"no algorithm":       base64.RawURLEncoding.EncodeToString([]byte(`{"typ":"JWT","alg":"none"}`)) + "." + parts[1] + ".",
		"old form, nil map":  oldForm(t, kp, now),
	} {
		if got, err := identity.VerifyBlobToken(tok, now); domain.KindOf(err) != domain.KindDenied || got != "" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// oldForm is a version 1 token without the "nats" part, which crashes jwt/v2's decoder.
func oldForm(t *testing.T, kp nkeys.KeyPair, now time.Time) string {
	head := base64.RawURLEncoding.EncodeToString([]byte(`{"typ":"jwt","alg":"ed25519"}`))
	b, err := json.Marshal(map[string]any{
		"iss": pub(t, kp), "sub": pub(t, kp), "aud": "blobs", "exp": now.Add(time.Minute).Unix(), "type": "x",
	})
	must(t, err)
	body := base64.RawURLEncoding.EncodeToString(b)
	sig, err := kp.Sign([]byte(body))
	must(t, err)
	return head + "." + body + "." + base64.RawURLEncoding.EncodeToString(sig)
}

// TestOldFormCrashesTheDecoder shows why VerifyProof looks at the header first.
func TestOldFormCrashesTheDecoder(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("jwt/v2 no longer crashes: the header check in VerifyProof may go")
		}
	}()
	_, _ = jwt.DecodeGeneric(oldForm(t, user(t), time.Now()))
}

// FuzzVerifyProof: nothing ends the process, and nothing passes but what the key signed. Key and time are fixed, since the
// processes that fuzz must agree on the token.
func FuzzVerifyProof(f *testing.F) {
	kp, err := nkeys.FromRawSeed(nkeys.PrefixByteUser, bytes.Repeat([]byte{7}, 32))
	must(f, err)
	now := time.Unix(1796065793, 0)
	tok, err := identity.SignBlobToken(kp, "m1", now)
	must(f, err)
	f.Add(tok)
	signed := tok[:strings.LastIndexByte(tok, '.')]
	f.Fuzz(func(t *testing.T, s string) {
		if got, err := identity.VerifyBlobToken(s, now); err == nil && !strings.HasPrefix(s, signed+".") {
			t.Errorf("%q was accepted as %s", s, got)
		}
	})
}

func TestCredential(t *testing.T) {
	k, _ := created(t, identity.Options{})
	m, err := k.Machine("m1")
	must(t, err)
	now := time.Now()
	kp := user(t)
	cred, err := m.Credential(pub(t, kp), identity.CredentialLife, now)
	must(t, err)
	c, err := jwt.DecodeUserClaims(cred)
	must(t, err)
	if c.Issuer != m.Account || c.Subject != pub(t, kp) || c.Name != "m1" || c.BearerToken {
		t.Errorf("claims: %+v", c)
	}
	if got := strings.Join(c.AllowedConnectionTypes, " "); got != "LEAFNODE_WS WEBSOCKET" {
		t.Errorf("connection types %q", got)
	}
	v, err := identity.ReadValidity(cred)
	must(t, err)
	for _, c := range []struct {
		at         time.Duration
		half, over bool
	}{{0, false, false}, {11 * time.Hour, false, false}, {12*time.Hour + 2*time.Second, true, false}, {24*time.Hour + time.Second, true, true}} {
		if v.HalfOver(now.Add(c.at)) != c.half || v.Over(now.Add(c.at)) != c.over {
			t.Errorf("after %s: half %v, over %v", c.at, v.HalfOver(now.Add(c.at)), v.Over(now.Add(c.at)))
		}
	}
	for name, f := range map[string]func() (string, error){
		"account key": func() (string, error) { return m.Credential(m.Account, time.Hour, now) },
		"no key":      func() (string, error) { return m.Credential("", time.Hour, now) },
		"no life":     func() (string, error) { return m.Credential(pub(t, kp), 0, now) },
		"two years":   func() (string, error) { return m.Credential(pub(t, kp), 2*365*24*time.Hour, now) },
	} {
		if _, err := f(); domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMachineAccountHoldsNothingElse(t *testing.T) {
	k, _ := created(t, identity.Options{})
	m, err := k.Machine("m1")
	must(t, err)
	tok, err := k.MachineAccount(m)
	must(t, err)
	c, err := jwt.DecodeAccountClaims(tok)
	must(t, err)
	l := c.Limits
	if l.DiskStorage != 0 || l.MemoryStorage != 0 || l.Streams != 0 || l.Exports != 0 || l.Imports != 4 || l.WildcardExports ||
		!l.DisallowBearer || l.LeafNodeConn != identity.MachineLeafs || l.Conn != identity.MachineConns || l.Payload != domain.MaxMessageBytes {
		t.Errorf("limits: %+v", l)
	}
	var vr jwt.ValidationResults
	c.Validate(&vr)
	if !vr.IsEmpty() {
		t.Errorf("validation: %v", vr.Issues[0])
	}
	if len(c.Imports) != 4 || len(c.Exports) != 0 {
		t.Errorf("%d imports, %d exports", len(c.Imports), len(c.Exports))
	}
	for _, i := range c.Imports { // of the hub's service alone, and of no other machine's subject
		if i.Account != k.PublicAccount(identity.RoleService) || !strings.Contains(string(i.Subject), "."+m.Account+".") {
			t.Errorf("import %s of %s", i.Subject, i.Account)
		}
	}
	revoked, err := k.RevokedAccount(m, time.Now())
	must(t, err)
	r, err := jwt.DecodeAccountClaims(revoked)
	must(t, err)
	if len(r.Imports) != 0 || r.Limits.Conn != 0 || r.Limits.LeafNodeConn != 0 || !r.IsClaimRevoked(&jwt.UserClaims{ClaimsData: jwt.ClaimsData{Subject: "U", IssuedAt: time.Now().Unix()}}) {
		t.Errorf("a revoked account: %+v", r)
	}
}

func TestAgentKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.json")
	if _, err := identity.LoadAgentKeys(path); domain.KindOf(err) != domain.KindNotFound || domain.NextOf(err) == "" {
		t.Errorf("never joined: %v", err)
	}
	a, err := identity.NewAgentKeys("https://hub.example.org:7443")
	must(t, err)
	must(t, a.Save(path))
	b, err := identity.LoadAgentKeys(path)
	must(t, err)
	if b.Enrolled() || b.NKey() != a.NKey() {
		t.Error("the key made before enrolment was not kept")
	}
	b.Machine, b.Credential, b.CA, b.HeadKey = "m1", "jwt", []byte("pem"), []byte{1, 2}
	must(t, b.Save(path))
	c, err := identity.LoadAgentKeys(path)
	must(t, err)
	if !c.Enrolled() || c.NKey() != a.NKey() || c.Machine != "m1" || c.Hub != a.Hub || string(c.HeadKey) != "\x01\x02" {
		t.Errorf("loaded %+v", c)
	}
	good, err := os.ReadFile(path)
	must(t, err)
	for name, bad := range map[string]string{
		"cut": string(good[:50]), "empty": "", "seed": strings.Replace(string(good), `"SU`, `"SX`, 1),
		"id": strings.Replace(string(good), `"m1"`, `"../m1"`, 1),
	} {
		must(t, os.WriteFile(path, []byte(bad), 0o600))
		if _, err := identity.LoadAgentKeys(path); domain.KindOf(err) != domain.KindIntegrity {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, os.Chmod(path, 0o644))
	if _, err := identity.LoadAgentKeys(path); domain.KindOf(err) != domain.KindDenied {
		t.Errorf("readable by all: %v", err)
	}
	for _, u := range []string{"", "hub", "http://hub", "https://", "https://hub?x=1"} {
		if _, err := identity.NewAgentKeys(u); domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("address %q: %v", u, err)
		}
	}
}

func TestLeafURL(t *testing.T) {
	for in, want := range map[string]string{
		"https://hub.example.org":      "wss://hub.example.org:443/nats",
		"https://hub.example.org:7443": "wss://hub.example.org:7443/nats",
		"https://[::1]:7443/":          "wss://[::1]:7443/nats",
	} {
		if got, err := identity.LeafURL(in); err != nil || got != want {
			t.Errorf("%s: %q, %v", in, got, err)
		}
	}
}
