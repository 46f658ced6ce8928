package identity_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tensorturn/broker/identity"
	"tensorturn/domain"
)

func change(t *testing.T, path string, f func([]byte) []byte) (was []byte) {
	t.Helper()
	was, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, f(slices.Clone(was)), 0o600))
	return was
}

// other puts another hexadecimal digit in the place of the first one.
func otherDigit(b []byte) []byte {
	b[0] = "0123456789abcdef0"[strings.IndexByte("0123456789abcdef", b[0])+1]
	return b
}

// TestAnotherHeadKey: any 32 bytes are a key, so that a changed one would be another hub to those who verify.
func TestAnotherHeadKey(t *testing.T) {
	k, dir := created(t, identity.Options{})
	_, other, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(other)
	must(t, err)
	was := change(t, filepath.Join(dir, "head.key"), func([]byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	})
	if _, err := identity.Open(dir, identity.Options{Now: time.Now()}); domain.KindOf(err) != domain.KindIntegrity || !strings.Contains(err.Error(), "head.key") {
		t.Errorf("another key: %v", err)
	}
	if _, err := identity.HeadKey(dir); domain.KindOf(err) != domain.KindIntegrity {
		t.Errorf("another key, read alone: %v", err)
	}
	must(t, os.WriteFile(filepath.Join(dir, "head.key"), was, 0o600))
	for _, says := range []bool{true, false} { // damaged, and of a folder that an earlier program made
		must(t, os.Remove(filepath.Join(dir, "head.pub")))
		if says {
			must(t, os.Mkdir(filepath.Join(dir, "head.pub"), 0o700))
		}
		again, err := identity.Open(dir, identity.Options{Now: time.Now()})
		must(t, err)
		if !again.Head().Equal(k.Head()) || (len(again.Mended()) == 1) != says {
			t.Errorf("head.pub made anew: %q", again.Mended())
		}
	}
}

// TestOperatorKeyIsMadeAgain: a changed digit of the hash would lock the owner out without a word.
func TestOperatorKeyIsMadeAgain(t *testing.T) {
	cut := func(b []byte) []byte { return b[:len(b)/2] }
	for _, c := range []struct {
		name      string
		key, hash func([]byte) []byte
		spare     bool // operator.json has the key
		known     bool // the hub tells the key
		refused   bool
		says      int
	}{
		{name: "another hash", hash: otherDigit, known: true, says: 1},
		{name: "no hash", hash: cut, known: true, says: 1},
		{name: "key cut", key: cut},
		{name: "key cut, known elsewhere", key: cut, spare: true, known: true, says: 1},
		{name: "both, known elsewhere", key: cut, hash: cut, spare: true, known: true, says: 2},
		{name: "both", key: cut, hash: cut, refused: true},
	} {
		k, dir := created(t, identity.Options{})
		plain := k.OperatorKey()
		if c.key != nil {
			change(t, filepath.Join(dir, "operator.key"), c.key)
		}
		if c.hash != nil {
			change(t, filepath.Join(dir, "operator.sha256"), c.hash)
		}
		o := identity.Options{Now: time.Now()}
		if c.spare {
			o.Operator = plain
		}
		again, err := identity.Open(dir, o)
		if c.refused {
			if domain.KindOf(err) != domain.KindIntegrity || !strings.Contains(domain.NextOf(err), "operator.key") {
				t.Errorf("%s: %v, next %q", c.name, err, domain.NextOf(err))
			}
			continue
		}
		must(t, err)
		if !again.IsOperator(plain) || (again.OperatorKey() == plain) != c.known || len(again.Mended()) != c.says {
			t.Errorf("%s: the owner's key opens %v, is told %v, said %q", c.name, again.IsOperator(plain), again.OperatorKey() == plain, again.Mended())
		}
		must(t, os.RemoveAll(filepath.Join(dir, "operator.key")))
		if last, err := identity.Open(dir, identity.Options{Now: time.Now()}); err != nil || !last.IsOperator(plain) {
			t.Errorf("%s: it was not written: %v", c.name, err)
		}
	}
}

// TestServerCertificateIsMadeAgain: whatever is wrong with the two files, others can be issued.
func TestServerCertificateIsMadeAgain(t *testing.T) {
	for name, harm := range map[string]func(dir string) error{
		"no certificate":  func(dir string) error { return os.Remove(filepath.Join(dir, "server.crt")) },
		"no key":          func(dir string) error { return os.Remove(filepath.Join(dir, "server.key")) },
		"huge":            func(dir string) error { return os.Truncate(filepath.Join(dir, "server.crt"), 1<<30) },
		"folder":          func(dir string) error { return asFolder(filepath.Join(dir, "server.key")) },
		"no CA behind it": func(dir string) error { return firstBlock(filepath.Join(dir, "server.crt")) },
	} {
		_, dir := created(t, identity.Options{})
		must(t, harm(dir))
		for _, renewed := range []bool{true, false} {
			k, err := identity.Open(dir, identity.Options{Now: time.Now()})
			must(t, err)
			if (k.Renewed() != "") != renewed {
				t.Errorf("%s: renewed %q", name, k.Renewed())
			}
		}
	}
}

func asFolder(path string) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return os.MkdirAll(filepath.Join(path, "within"), 0o700)
}

func firstBlock(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	block, _ := pem.Decode(b)
	return os.WriteFile(path, pem.EncodeToMemory(block), 0o600)
}

// TestChangedCA: a CA whose key is as it was and whose name is not would be given to all who join.
func TestChangedCA(t *testing.T) {
	_, dir := created(t, identity.Options{})
	change(t, filepath.Join(dir, "ca.crt"), func(b []byte) []byte {
		block, _ := pem.Decode(b)
		block.Bytes[len(block.Bytes)-1] ^= 1 // of the signature
		return pem.EncodeToMemory(block)
	})
	if _, err := identity.Open(dir, identity.Options{Now: time.Now()}); domain.KindOf(err) != domain.KindIntegrity || !strings.Contains(err.Error(), "ca.crt") {
		t.Errorf("got %v", err)
	}
}

// TestDamagedAccounts name the file and a way on.
func TestDamagedAccounts(t *testing.T) {
	k, dir := created(t, identity.Options{})
	_, err := k.Machine("m1")
	must(t, err)
	_, err = k.Observer("o1")
	must(t, err)
	must(t, asFolder(filepath.Join(dir, "machines", "m1.seed")))
	change(t, filepath.Join(dir, "observers", "o1.seed"), func(b []byte) []byte { return b[:9] })
	if _, err := k.KnownMachine("m1"); !strings.Contains(err.Error(), "m1.seed") || !strings.Contains(domain.NextOf(err), "machine revoke m1") {
		t.Errorf("%v, next %q", err, domain.NextOf(err))
	}
	if _, err := k.KnownObserver("o1"); !strings.Contains(err.Error(), "o1.seed") || !strings.Contains(domain.NextOf(err), "credential revoke o1") {
		t.Errorf("%v, next %q", err, domain.NextOf(err))
	}
}

// TestAgentKeysOneLetter: no letter of what a machine cannot get again may change without a word; the credential may, since
// another is issued for a proof of the key.
func TestAgentKeysOneLetter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.json")
	a, err := identity.NewAgentKeys("https://hub.example.org:7443")
	must(t, err)
	a.Machine, a.Name, a.Credential, a.CA, a.HeadKey = "m1", "box", "CREDENTIAL", []byte("-----BEGIN"), []byte{1, 2}
	must(t, a.Save(path))
	good, err := os.ReadFile(path)
	must(t, err)
	load := func(was, is string) error {
		text := strings.Replace(string(good), was, is, 1)
		if text == string(good) {
			t.Fatalf("%q is not in %s", was, good)
		}
		must(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := identity.LoadAgentKeys(path)
		return err
	}
	for was, is := range map[string]string{"example": "exbmple", "7443": "7943", `"m1"`: `"m7"`, `"box"`: `"bax"`, "BEGIN": "BEGUN", "AQI=": "AQM=", `"version": 1`: `"version": 9`} {
		if err := load(was, is); domain.KindOf(err) != domain.KindIntegrity || !strings.Contains(domain.NextOf(err), "agent join") {
			t.Errorf("%s for %s: %v", is, was, err)
		}
	}
	if err := load("CREDENTIAL", "CREDENTAIL"); err != nil {
		t.Errorf("the credential: %v", err)
	}
	must(t, asFolder(path))
	if _, err := identity.LoadAgentKeys(path); domain.KindOf(err) != domain.KindIntegrity {
		t.Errorf("a folder: %v", err)
	}
}

// TestAnotherUsersFiles are no damage: joining again, or another key, would make of a slip a lost identity.
func TestAnotherUsersFiles(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	_, dir := created(t, identity.Options{})
	path := filepath.Join(t.TempDir(), "agent.json")
	a, err := identity.NewAgentKeys("https://hub.example.org:7443")
	must(t, err)
	must(t, a.Save(path))
	must(t, os.Chmod(path, 0))
	must(t, os.Chmod(filepath.Join(dir, "server.key"), 0))
	_, err = identity.LoadAgentKeys(path)
	_, herr := identity.Open(dir, identity.Options{Now: time.Now()})
	for _, err := range []error{err, herr} {
		if domain.KindOf(err) != domain.KindDenied || !strings.Contains(domain.NextOf(err), "chmod") {
			t.Errorf("%v, next %q", err, domain.NextOf(err))
		}
	}
}
