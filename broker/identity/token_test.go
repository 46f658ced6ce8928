package identity_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tensorturn/broker/identity"
	"tensorturn/domain"
)

func token(t testing.TB) identity.Token {
	t.Helper()
	var pin identity.Pin
	_, err := rand.Read(pin[:])
	must(t, err)
	tok, err := identity.NewToken(rand.Reader, pin)
	must(t, err)
	return tok
}

func TestTokenRoundTrip(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var pin identity.Pin
		copy(pin[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(r, "pin"))
		seed := rapid.SliceOfN(rapid.ByteRange(0, 247), 64, 64).Draw(r, "random")
		tok, err := identity.NewToken(bytes.NewReader(seed), pin)
		if err != nil {
			r.Fatal(err)
		}
		got, err := identity.ParseToken(tok.Plain())
		if err != nil {
			r.Fatal(err)
		}
		if got != tok || got.Pin() != pin || got.Hash() != tok.Hash() || got.ID() != tok.ID() {
			r.Fatalf("parse gave another token")
		}
		if !domain.ValidID(string(got.ID())) {
			r.Fatalf("%q is not an id", got.ID())
		}
	})
}

func TestParseTokenTellsWhatIsWrong(t *testing.T) {
	s := token(t).Plain()
	key, err := identity.NewOperatorKey(rand.Reader)
	must(t, err)
	for _, c := range []struct{ name, in, want string }{
		{"empty", "", "not a join token"},
		{"words", "please let me in", "not a join token"},
		{"operator key", key.Plain(), "it is an operator key"},
		{"first half", s[:40], "truncated: 40 of 83"},
		{"last character lost", s[:82], "truncated: 82 of 83"},
		{"only the prefix", "ttj_", "truncated"},
		{"one too many", s + "0", "too long"},
		{"pasted twice", s + s, "too long"},
		{"foreign character", s[:10] + "-" + s[11:], "mistyped: character 11"},
		{"new line", s + "\n", "too long"},
		{"high byte", s[:20] + "\xff" + s[21:], "mistyped"},
	} {
		_, err := identity.ParseToken(c.in)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
		if domain.KindOf(err) != domain.KindInvalid || domain.NextOf(err) == "" {
			t.Errorf("%s: kind %s, next %q", c.name, domain.KindOf(err), domain.NextOf(err))
		}
		if err != nil && len(c.in) > 60 && strings.Contains(err.Error(), c.in[4:30]) {
			t.Errorf("%s: the error repeats the secret", c.name)
		}
	}
}

// TestEveryTypoIsCaught: CRC-32 finds every single wrong character and every swap of neighbours.
func TestEveryTypoIsCaught(t *testing.T) {
	s := token(t).Plain()
	for i := 4; i < len(s); i++ {
		for _, c := range "0aZ9k" {
			if byte(c) == s[i] {
				continue
			}
			if _, err := identity.ParseToken(s[:i] + string(c) + s[i+1:]); err == nil {
				t.Fatalf("wrong character %d went unnoticed", i+1)
			}
		}
		if i+1 < len(s) && s[i] != s[i+1] {
			if _, err := identity.ParseToken(s[:i] + s[i+1:i+2] + s[i:i+1] + s[i+2:]); err == nil {
				t.Fatalf("swapped characters %d and %d went unnoticed", i+1, i+2)
			}
		}
	}
}

func TestSecretsDoNotPrint(t *testing.T) {
	tok := token(t)
	key, err := identity.NewOperatorKey(rand.Reader)
	must(t, err)
	for _, s := range []string{fmt.Sprint(tok, key), fmt.Sprintf("%+v %#v %s %q", tok, tok, tok, tok), fmt.Sprintf("%+v %#v %s", key, key, key)} {
		if strings.Contains(s, tok.Plain()[4:20]) || strings.Contains(s, key.Plain()[4:20]) {
			t.Errorf("%q shows a secret", s)
		}
	}
}

func TestOperatorKey(t *testing.T) {
	k, err := identity.NewOperatorKey(rand.Reader)
	must(t, err)
	if len(k.Plain()) != 40 || !strings.HasPrefix(k.Plain(), "tto_") {
		t.Errorf("form of key: %d characters", len(k.Plain()))
	}
	got, err := identity.ParseOperatorKey(k.Plain())
	must(t, err)
	if got != k || !identity.SameDigest(got.Hash(), k.Hash()) {
		t.Error("parse gave another key")
	}
	other, err := identity.NewOperatorKey(rand.Reader)
	must(t, err)
	if identity.SameDigest(other.Hash(), k.Hash()) || identity.SameDigest("", "") {
		t.Error("different or empty digests compare as equal")
	}
	if _, err := identity.NewOperatorKey(bytes.NewReader(nil)); err == nil {
		t.Error("a key was made without randomness")
	}
}

// TestNoBias: every character comes up, none far more often than its share.
func TestNoBias(t *testing.T) {
	count := map[rune]int{}
	const keys = 2000
	for range keys {
		k, err := identity.NewOperatorKey(rand.Reader)
		must(t, err)
		for _, c := range k.Plain()[4:34] {
			count[c]++
		}
	}
	if len(count) != 62 {
		t.Errorf("%d characters in use, want 62", len(count))
	}
	mean := keys * 30 / 62
	for c, n := range count {
		if n < mean*3/4 || n > mean*5/4 {
			t.Errorf("character %q comes up %d times, mean %d", c, n, mean)
		}
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add("ttj_")
	f.Add("ttj_" + strings.Repeat("z", 79))
	f.Fuzz(func(t *testing.T, s string) {
		if tok, err := identity.ParseToken(s); err == nil && tok.Plain() != s {
			t.Errorf("%q parses, but is written %q", s, tok.Plain())
		}
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
