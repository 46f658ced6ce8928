package identity_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tensorturn/broker/identity"
	"tensorturn/domain"
)

var day = 24 * time.Hour

func created(t *testing.T, o identity.Options) (*identity.Keys, string) {
	t.Helper()
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	dir := filepath.Join(t.TempDir(), "hub", "keys")
	k, err := identity.Create(dir, o)
	must(t, err)
	return k, dir
}

func TestCreateThenOpen(t *testing.T) {
	k, dir := created(t, identity.Options{PublicURL: "https://hub.example.org:7443", Hostname: "box"})
	again, err := identity.Open(dir, identity.Options{PublicURL: "https://hub.example.org:7443", Hostname: "box", Now: time.Now()})
	must(t, err)
	if again.Renewed() != "" {
		t.Errorf("the certificate was renewed at once: %s", again.Renewed())
	}
	if again.Pin() != k.Pin() || !again.Head().Equal(k.Head()) || again.PublicAccount(identity.RoleHub) != k.PublicAccount(identity.RoleHub) {
		t.Error("the second start has other keys than the first")
	}
	plain, err := os.ReadFile(k.OperatorKeyFile())
	must(t, err)
	key := strings.TrimSpace(string(plain))
	if !again.IsOperator(key) || again.IsOperator(key+"0") || again.IsOperator("") {
		t.Error("the operator key is not what opens the hub")
	}
	must(t, os.Remove(k.OperatorKeyFile())) // the owner took it away: the hub needs only its hash
	if _, err := identity.Open(dir, identity.Options{Now: time.Now()}); err != nil {
		t.Error(err)
	}
	for _, n := range []string{"hub.example.org", "box", "localhost", "127.0.0.1", "::1"} {
		if err := k.ServerCertificate().Leaf.VerifyHostname(n); err != nil {
			t.Error(err)
		}
	}
}

func TestModes(t *testing.T) {
	k, dir := created(t, identity.Options{})
	_, err := k.Machine("m1")
	must(t, err)
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		must(t, err)
		st, err := d.Info()
		must(t, err)
		if want := map[bool]fs.FileMode{true: 0o700, false: 0o600}[d.IsDir()]; st.Mode().Perm() != want {
			t.Errorf("%s has mode %04o, want %04o", path, st.Mode().Perm(), want)
		}
		return nil
	}))
	left, err := filepath.Glob(dir + ".new-*")
	must(t, err)
	if len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestDamageIsNamed breaks each file in each way; the error must name the file and be about integrity.
func TestDamageIsNamed(t *testing.T) {
	_, dir := created(t, identity.Options{})
	_, other := created(t, identity.Options{})
	must(t, os.Remove(filepath.Join(dir, "operator.key"))) // with it, the hub makes operator.sha256 again
	files := []string{"operator.seed", "sys.seed", "hub.seed", "svc.seed", "head.key", "ca.crt", "ca.key", "operator.sha256"}
	for _, name := range files {
		path := filepath.Join(dir, name)
		good, err := os.ReadFile(path)
		must(t, err)
		foreign, err := os.ReadFile(filepath.Join(other, "head.key"))
		must(t, err)
		if name == "head.key" {
			foreign = []byte("SUAAA")
		}
		for what, bad := range map[string][]byte{"missing": nil, "empty": {}, "cut": good[:len(good)/2], "foreign": foreign, "huge": make([]byte, 1<<20)} {
			must(t, os.Remove(path))
			if bad != nil {
				must(t, os.WriteFile(path, bad, 0o600))
			}
			_, err := identity.Open(dir, identity.Options{Now: time.Now()})
			if domain.KindOf(err) != domain.KindIntegrity || !strings.Contains(err.Error(), name) || domain.NextOf(err) == "" {
				t.Errorf("%s %s: %v", name, what, err)
			}
			must(t, os.WriteFile(path, good, 0o600))
			must(t, os.Chmod(path, 0o600))
		}
		must(t, os.Remove(path))
		must(t, os.Mkdir(path, 0o700))
		if _, err := identity.Open(dir, identity.Options{Now: time.Now()}); domain.KindOf(err) != domain.KindIntegrity || !strings.Contains(err.Error(), name) || domain.NextOf(err) == "" {
			t.Errorf("%s is a folder: %v", name, err)
		}
		must(t, os.Remove(path))
		must(t, os.WriteFile(path, good, 0o600))
	}
	if _, err := identity.Open(dir, identity.Options{Now: time.Now()}); err != nil {
		t.Fatal("restored, but: ", err)
	}
}

func TestReadableByOthersIsRefused(t *testing.T) {
	_, dir := created(t, identity.Options{})
	must(t, os.Chmod(filepath.Join(dir, "operator.seed"), 0o640))
	_, err := identity.Open(dir, identity.Options{Now: time.Now()})
	if domain.KindOf(err) != domain.KindDenied || !strings.Contains(err.Error(), "0640") {
		t.Errorf("got %v", err)
	}
}

func TestCreateRefusesUsedDirectory(t *testing.T) {
	_, dir := created(t, identity.Options{})
	if _, err := identity.Create(dir, identity.Options{Now: time.Now()}); domain.KindOf(err) != domain.KindConflict {
		t.Errorf("got %v", err)
	}
	if _, err := identity.Open(dir, identity.Options{Now: time.Now()}); err != nil {
		t.Errorf("the first keys were hurt: %v", err)
	}
	_, fresh, err := identity.OpenOrCreate(dir, identity.Options{Now: time.Now()})
	if err != nil || fresh {
		t.Errorf("open or create: fresh %v, %v", fresh, err)
	}
}

func TestBadPublicURL(t *testing.T) {
	for _, u := range []string{"hub.example.org", "http://hub.example.org", "https://", "https://[::1", "://"} {
		_, err := identity.Create(filepath.Join(t.TempDir(), "keys"), identity.Options{PublicURL: u, Now: time.Now()})
		if domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("%q: %v", u, err)
		}
	}
}

func TestServerCertificateRenewal(t *testing.T) {
	now := time.Now()
	_, dir := created(t, identity.Options{Now: now})
	for _, c := range []struct {
		name  string
		o     identity.Options
		fresh bool
	}{
		{"31 days left", identity.Options{Now: now.Add(334 * day)}, false},
		{"under 30 days left", identity.Options{Now: now.Add(335*day + time.Hour)}, true},
		{"and then not again", identity.Options{Now: now.Add(335*day + 2*time.Hour)}, false},
		{"new public name", identity.Options{PublicURL: "https://new.example.org", Now: now.Add(335*day + 2*time.Hour)}, true},
		{"name dropped", identity.Options{Now: now.Add(335*day + 2*time.Hour)}, false},
	} {
		k, err := identity.Open(dir, c.o)
		must(t, err)
		if got := k.Renewed() != ""; got != c.fresh {
			t.Errorf("%s: renewed %q", c.name, k.Renewed())
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(k.CA())
		if _, err := k.ServerCertificate().Leaf.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: c.o.Now, DNSName: "localhost"}); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestHalfRenewedPair: a crash between key and certificate heals by itself.
func TestHalfRenewedPair(t *testing.T) {
	_, dir := created(t, identity.Options{})
	_, other := created(t, identity.Options{})
	b, err := os.ReadFile(filepath.Join(other, "server.key"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "server.key"), b, 0o600))
	k, err := identity.Open(dir, identity.Options{Now: time.Now()})
	must(t, err)
	if k.Renewed() == "" {
		t.Error("a pair that does not fit was kept")
	}
}

func TestOwnersCertificate(t *testing.T) {
	o, ownDir := created(t, identity.Options{PublicURL: "https://own.example.org"}) // stands in for a public CA
	_, dir := created(t, identity.Options{})
	opts := identity.Options{CertFile: filepath.Join(ownDir, "server.crt"), KeyFile: filepath.Join(ownDir, "server.key"), Now: time.Now()}
	k, err := identity.Open(dir, opts)
	must(t, err)
	if k.Pin() != o.Pin() || k.ServerCertificate().Leaf.VerifyHostname("own.example.org") != nil {
		t.Error("the owner's chain is not what is served and pinned")
	}
	opts.Now = time.Now().Add(400 * day)
	if _, err := identity.Open(dir, opts); domain.KindOf(err) != domain.KindInvalid || !strings.Contains(err.Error(), "expired") {
		t.Errorf("expired: %v", err)
	}
	opts.KeyFile = filepath.Join(dir, "server.key")
	if _, err := identity.Open(dir, opts); domain.KindOf(err) != domain.KindInvalid {
		t.Errorf("key of another certificate: %v", err)
	}
}

func TestMachinesKeepTheirAccounts(t *testing.T) {
	k, dir := created(t, identity.Options{})
	var wg sync.WaitGroup
	got := make([]identity.Machine, 8)
	for i := range got {
		wg.Go(func() {
			m, err := k.Machine("m1")
			if err != nil {
				t.Error(err)
			}
			got[i] = m
		})
	}
	wg.Wait()
	for _, m := range got {
		if m.Account != got[0].Account {
			t.Fatal("one machine was given two accounts")
		}
	}
	again, err := identity.Open(dir, identity.Options{Now: time.Now()})
	must(t, err)
	m, err := again.KnownMachine("m1")
	must(t, err)
	if m.Account != got[0].Account {
		t.Error("the account did not survive a restart")
	}
	if _, err := again.KnownMachine("m2"); domain.KindOf(err) != domain.KindIntegrity {
		t.Errorf("an unknown machine: %v", err)
	}
	for _, id := range []domain.MachineID{"", "../x", "a.b", "*", ">", "A", domain.MachineID(strings.Repeat("a", 49))} {
		if _, err := k.Machine(id); domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("id %q: %v", id, err)
		}
	}
}

// TestPinnedHandshake: the pin is checked before the client has sent anything of its own.
func TestPinnedHandshake(t *testing.T) {
	k, _ := created(t, identity.Options{PublicURL: "https://hub.example.org"})
	other, _ := created(t, identity.Options{PublicURL: "https://hub.example.org"})
	alone := k.ServerCertificate()
	alone.Certificate = alone.Certificate[:1] // without the CA nothing shows where the pin comes from
	mixed := other.ServerCertificate()
	ca, _ := pem.Decode(k.CA())
	mixed.Certificate = append(mixed.Certificate[:1:1], ca.Bytes) // a stranger shows our CA beside his own leaf
	for _, c := range []struct {
		name string
		cert tls.Certificate
		host string
		ok   bool
	}{
		{"right hub", k.ServerCertificate(), "hub.example.org", true},
		{"other pool", other.ServerCertificate(), "hub.example.org", false},
		{"other name", k.ServerCertificate(), "evil.example.org", false},
		{"leaf alone", alone, "hub.example.org", false},
		{"our CA, his leaf", mixed, "hub.example.org", false},
	} {
		sent, err := handshake(t, c.cert, identity.PinnedTLS(k.Pin(), c.host))
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		if !c.ok && sent != "" {
			t.Errorf("%s: the hub was told %q", c.name, sent)
		}
	}
	trust, err := identity.TrustTLS(k.CA())
	must(t, err)
	trust.ServerName = "hub.example.org"
	if _, err := handshake(t, k.ServerCertificate(), trust); err != nil {
		t.Error(err)
	}
	if _, err := handshake(t, other.ServerCertificate(), trust); err == nil {
		t.Error("another CA was trusted")
	}
	if _, err := identity.TrustTLS([]byte("nothing")); domain.KindOf(err) != domain.KindInvalid {
		t.Errorf("empty CA: %v", err)
	}
}

// handshake runs a TLS server with cert against a client that sends "secret" when it is content.
func handshake(t *testing.T, cert tls.Certificate, client *tls.Config) (sent string, err error) {
	t.Helper()
	l, lerr := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13})
	must(t, lerr)
	defer l.Close()
	got := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			got <- ""
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		var b bytes.Buffer
		_, _ = b.ReadFrom(c)
		got <- b.String()
	}()
	c, err := tls.Dial("tcp", l.Addr().String(), client)
	if err == nil {
		_, err = c.Write([]byte("secret"))
		_ = c.Close()
	}
	return <-got, err
}
