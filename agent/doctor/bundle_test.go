package doctor

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// unpack reads an archive.
func unpack(t *testing.T, b []byte) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out[h.Name] = string(text)
	}
}

// A secret that is known by its value leaves in no form and from nowhere; without the cleaner it would.
func TestKnownSecretsStay(t *testing.T) {
	const secret = `c0rrect "horse" battery/staple`
	make := func(known []string) string {
		dir := t.TempDir()
		log := filepath.Join(dir, "a.log")
		if err := os.WriteFile(log, []byte("begin\nuses "+secret+" and c0rrect%20%22horse%22%20battery%2Fstaple and c0rrect \\\"horse\\\" battery/staple\nend\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		b := Bundle{At: time.Unix(1, 0), Reports: []Report{{Dir: dir, Findings: []Finding{{Says: "it says " + secret, Fix: "try " + secret}}}},
			Facts: map[string]string{"note": secret}, Config: []map[string]string{{"hub": secret}}, Environ: []string{"PATH=" + secret, "OTHER=" + secret},
			Dirs: []string{dir}, Logs: []string{log}, Cleaner: NewCleaner(known)}
		var out bytes.Buffer
		if err := b.Write(&out); err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		for name, text := range unpack(t, out.Bytes()) {
			fmt.Fprintf(&all, "== %s\n%s", name, text)
		}
		return all.String()
	}
	if n := strings.Count(make(nil), "horse"); n != 8 {
		t.Fatalf("the secret was planted %d times: the test looks at less than it should", n)
	}
	if told := make([]string{secret}); strings.Contains(told, "horse") || !strings.Contains(told, "begin") || !strings.Contains(told, "end") {
		t.Errorf("it has left, or the rest has not:\n%s", told)
	}
}

// Of a proxy's address scheme and host are told, and no spelling of its password.
func TestProxyIsToldWithoutItsPassword(t *testing.T) {
	for value, want := range map[string]string{
		"":                                 "none",
		"http://proxy:3128":                "http://proxy:3128",
		"proxy:3128":                       "http://proxy:3128",
		"https://proxy/":                   "https://proxy",
		"http://user:hunter2hunter@proxy":  "http://proxy",
		"user:hunter2hunter@proxy:3128":    "http://proxy:3128",
		"http://hunter2hunter@proxy":       "http://proxy",
		"hunter2hunter@proxy:3128":         "http://proxy:3128",
		"http://u:hunter2/hunter@proxy":    "set, and no address of a proxy",
		"http://u:1234567/hunter2@proxy":   "set, and no address of a proxy",
		"http://u:hunter2?hunter@proxy":    "set, and no address of a proxy",
		"http://u:hunter2#hunter@proxy":    "set, and no address of a proxy",
		"http://u:hunter2%68unter@proxy":   "http://proxy",
		"socks5://u:hunter2@[::1]:1080":    "socks5://[::1]:1080",
		"http://hunter2 hunter2:u@proxy:1": "set, and no address of a proxy",
	} {
		for _, name := range []string{"HTTPS_PROXY", "https_proxy"} {
			env := []string{name + "=" + value}
			if got := ProxyOf(env); got != want {
				t.Errorf("%s=%s is told as %q", name, value, got)
			}
			b := Bundle{Facts: map[string]string{"proxy": ProxyOf(env)}, Environ: env, Cleaner: NewCleaner(Secrets(env)),
				Reports: []Report{{Findings: []Finding{{Says: "it says " + value}}}}}
			var out bytes.Buffer
			if err := b.Write(&out); err != nil {
				t.Fatal(err)
			}
			files := unpack(t, out.Bytes())
			for file, text := range files {
				if strings.Contains(text, "hunter") {
					t.Errorf("%s=%s: %s tells %s", name, value, file, text)
				}
			}
			if !strings.Contains(files["facts.json"], want) {
				t.Errorf("%s=%s: the facts hide the proxy: %s", name, value, files["facts.json"])
			}
		}
	}
}

// A path that is there is no secret; what only begins like one is.
func TestWhatBeginsLikeAPath(t *testing.T) {
	dir := t.TempDir()
	env := []string{"DATA=" + dir, "PYTHONPATH=" + dir + string(filepath.ListSeparator) + dir, "AWS_SECRET_ACCESS_KEY=/wJalrXUtnFEMI/K7MDENG+bPxRfiCY",
		"MIXED=" + dir + string(filepath.ListSeparator) + "/wJalrXUtnFEMI", "EMPTY="}
	got := Secrets(env)
	want := []string{"/wJalrXUtnFEMI/K7MDENG+bPxRfiCY", dir + string(filepath.ListSeparator) + "/wJalrXUtnFEMI", ""}
	if !slices.Equal(got, want) {
		t.Errorf("secrets are %q", got)
	}
}

// The archive is bounded whatever it is given, keeps the ends of logs, and begins them at a line.
func TestBundleIsBounded(t *testing.T) {
	dir := t.TempDir()
	var logs []string
	for i := range 3 * maxLogs {
		path := filepath.Join(dir, fmt.Sprint("log", i))
		if err := os.WriteFile(path, []byte(strings.Repeat("half of a line\n", logTail/10)+"the end\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		logs = append(logs, path)
	}
	for i := range maxFiles + 10 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("f", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	endless := filepath.Join(dir, "endless")
	if err := os.WriteFile(endless, bytes.Repeat([]byte("x"), 2*logTail), 0o600); err != nil {
		t.Fatal(err)
	}
	b := Bundle{Dirs: []string{dir}, Logs: append([]string{endless, filepath.Join(dir, "not there"), dir, logs[0], filepath.Join(dir, ".", "sub", "..", "log0")}, logs...), Cleaner: NewCleaner(nil),
		Facts: map[string]string{"much": strings.Repeat("y", MaxBundle)}}
	var out bytes.Buffer
	if err := b.Write(&out); err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, text := range unpack(t, out.Bytes()) {
		total += len(text)
	}
	if total > MaxBundle {
		t.Errorf("%d bytes", total)
	}
	b.Facts = nil
	out.Reset()
	if err := b.Write(&out); err != nil {
		t.Fatal(err)
	}
	got := unpack(t, out.Bytes())
	kept := 0
	for name, text := range got {
		if strings.HasPrefix(name, "logs/") {
			kept++
		}
		if strings.HasPrefix(name, "logs/log") && (!strings.HasPrefix(text, "half of") || !strings.HasSuffix(text, "the end\n") || len(text) > logTail) {
			t.Errorf("%s: %d bytes, begins %q", name, len(text), text[:20])
		}
	}
	if kept != maxLogs || got["logs/2-log0"] == "" || !strings.Contains(got["logs/endless"], "too long") || !strings.Contains(got["logs/not there"], "cannot be read") ||
		!strings.Contains(got["files.txt"], "and more than") {
		t.Errorf("%d logs", kept)
	}
}

// What cannot be written is an error.
func TestBundleToAFullDisk(t *testing.T) {
	b := Bundle{Cleaner: NewCleaner(nil)}
	if err := b.Write(full{}); err == nil {
		t.Error("no error")
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// The end of a log may begin within a private key: none of its lines is in the archive.
func TestTailWithinAKey(t *testing.T) {
	var key []string
	for i := range 24 {
		key = append(key, fmt.Sprintf("%02d%s", i, strings.Repeat("MIIEvQ", 10)))
	}
	text := "-----BEGIN RSA PRIVATE KEY-----\n" + strings.Join(key, "\n") + "\n-----END RSA PRIVATE KEY-----\n"
	first := strings.Index(text, key[0])
	path := filepath.Join(t.TempDir(), "hub.log")
	if err := os.WriteFile(path, []byte(text+"the end"+strings.Repeat(".", logTail-len(text)+first+10)), 0o600); err != nil {
		t.Fatal(err)
	}
	from := tail(path)
	if !strings.Contains(from, key[1]) || strings.Contains(from, "BEGIN") {
		t.Fatal("the tail does not begin within the key")
	}
	out := NewCleaner(nil).Text(from)
	if strings.Contains(out, "MIIEvQ") || !strings.Contains(out, "the end") {
		t.Errorf("the archive holds %q", out[:min(len(out), 2000)])
	}
}
